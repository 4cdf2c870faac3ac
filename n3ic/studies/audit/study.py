# SPDX-License-Identifier: Apache-2.0
"""The audit of files: their table, what it reveals, and what leaving columns out would cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from n3ic import plugins
from n3ic.data.dataset import DataSet, data_set, data_set_of
from n3ic.data.table import FlowTable
from n3ic.data.user_table import OWN, describe, description_beside, need_label
from n3ic.errors import UsageError
from n3ic.studies.audit.ablation import boosted, losses, network
from n3ic.studies.audit.audit import Audit, AuditRequest, audit
from n3ic.training.recipe import Recipe
from n3ic.usecases.base import use_case


def audited_table(
    path: str, name: str | None, label: str, note: Callable[[str], object]
) -> tuple[FlowTable, DataSet]:
    """Read the flows of files, a folder or an embedded data set, and find the data set of them.

    Args:
        path: the files, or the name of a data set.
        name: name of the data set that reads them; None to find it.
        label: the column of the class in a table of your own; empty for none.
        note: called with what the user should know.

    Raises:
        UsageError: no data set knows the files, or the label of a table is unknown.
        DataError: a file is malformed.
    """
    if path in plugins.names("n3ic.datasets") and not Path(path).exists():
        source = data_set(path)
        return source.load(), source
    if name == OWN or label or (name is None and description_beside(path)):
        if label:  # as training on this table reads it, with a layout's derived columns
            options = {"label": label, "positive": "", "description": ""}
            table = use_case(OWN).load(path, name, options, lambda line: None)
            if table.rules is None:
                note(f"read by the data set {table.name}; --dataset {OWN} infers the columns")
                return table, data_set(table.name)
        own, facts = describe(path, label)
        need_label(own, facts, path)
        return own.load(path), own
    source = data_set(name) if name else data_set_of(path)
    return source.load(path), source


def audit_with_losses(
    table: FlowTable,
    source: DataSet,
    request: AuditRequest,
    most: int,
    recipe: str,
    notify: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Audit a table, and measure the loss of accuracy without the columns that reveal most.

    Args:
        table: the flows.
        source: the data set that read them.
        request: the settings.
        most: number of columns whose loss is measured, one by one; 0 for none.
        recipe: recipe of the networks that measure it; empty for boosted trees.
        notify: called with progress messages.

    Raises:
        UsageError: a column or the recipe is unknown.
        DataError: the table cannot be audited.
        MissingDependencyError: scikit-learn or PyTorch is missing.
    """
    result = audit(table, source, request, notify)
    if not most:
        return result
    return _with_losses(result, table, source, most, recipe, request.seed, notify)


def _with_losses(
    result: Audit,
    table: FlowTable,
    source: DataSet,
    most: int,
    recipe: str,
    seed: int,
    notify: Callable[[str], object],
) -> Audit:
    """Return the audit with the loss for each revealing column, and for all that leak together."""
    used = [c for c in result.columns if c in {*table.usable, *result.suspects}]
    base = tuple(dict.fromkeys([*(c for c in table.usable if c not in result.columns), *used]))
    first = dict.fromkeys([*result.suspects, *(f.columns[0] for f in result.best())])
    alone = [name for name in first if name in used][:most]
    column_sets: list[tuple[str, ...]] = [(name,) for name in alone]
    if len(result.suspects) > 1:
        column_sets.append(result.suspects)
    if recipe:
        kind, right = "networks", network(table, recipe_for(recipe, source), seed, notify)
    else:
        notify("boosted trees with and without columns")
        kind, right = "boosted trees", boosted(table, seed)
    return replace(result, losses=losses(right, kind, base, column_sets))


def recipe_for(name: str, source: DataSet) -> Recipe:
    """Return a recipe of the use case that trains on a data set, or on any table.

    Raises:
        UsageError: the use case has no such recipe.
    """
    cases = map(use_case, plugins.names("n3ic.usecases"))
    case = next((c for c in cases if source.name in (c.dataset, c.default)), use_case(OWN))
    if name not in case.recipes:
        raise UsageError(f"{case.name} has no recipe {name!r}; it has {', '.join(case.recipes)}")
    return case.recipes[name]
