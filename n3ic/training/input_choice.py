# SPDX-License-Identifier: Apache-2.0
"""Choose the network's input bits by a recipe, on training rows.

::

    spec, _ = choose_input(train, recipe)
    bits = spec.encode(train.features)  # bool, shape (rows, spec.n_bits)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError, did_you_mean
from n3ic.model.columns import NEGATIVE_PART
from n3ic.model.inputs import Field, InputSpec
from n3ic.training import input_bits
from n3ic.training.recipe import Recipe

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier


WITHOUT = "!"  # before a pattern of columns that are left out


def candidates(table: FlowTable, recipe: Recipe) -> tuple[str, ...]:
    """The features that a recipe chooses from.

    A pattern after ``!`` leaves columns out. If all are such patterns, they leave them out of those
    that are used by default.

    Raises:
        UsageError: a column does not exist, or the table leaves out every column by default.
    """
    patterns = [pattern for pattern in recipe.columns if not pattern.startswith(WITHOUT)]
    less = [p.removeprefix(WITHOUT) for p in recipe.columns if p.startswith(WITHOUT)]
    names = _matches(table, patterns) if patterns else table.usable
    without = {part for name in _matches(table, less) for part in _parts(table, name)}
    names_left = tuple(name for name in names if name not in without)
    if not names_left:
        raise UsageError(
            f"{table.name}: every column is left out; name those to use with --columns"
        )
    return names_left


def _parts(table: FlowTable, name: str) -> tuple[str, ...]:
    """The features that a column of that name gives."""
    rule = table.rules.columns.get(name) if table.rules else None
    return rule.features(name) if rule else (name, name + NEGATIVE_PART)


def _matches(table: FlowTable, patterns: Sequence[str]) -> tuple[str, ...]:
    """Features that are named, or match a pattern, in that order.

    Raises:
        UsageError: a pattern matches no column.
    """
    names: list[str] = []
    for pattern in patterns:
        exact = pattern in table.features
        matches = [pattern] if exact else [n for n in table.features if fnmatchcase(n, pattern)]
        if not matches:
            hint = did_you_mean(pattern, table.features) or f"it has {', '.join(table.features)}"
            raise UsageError(f"{table.name} has no column {pattern}; {hint}".rstrip())
        names += matches
    return tuple(dict.fromkeys(names))


def choose_input(
    table: FlowTable,
    recipe: Recipe,
    *,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
) -> tuple[InputSpec, dict[str, float]]:
    """Choose the input bits on a table of training rows.

    Args:
        table: training rows only.
        recipe: which columns, how many features and bits, and how they are cut.
        seed: seed of the boosted trees.
        trees: boosted trees fitted to all of the recipe's columns, if any.

    Returns:
        The spec, and the chi-squared statistic of every candidate feature.

    Raises:
        UsageError: a column does not exist, or the budget cannot be met.
    """
    columns = {n: table.features[n] for n in candidates(table, recipe)}
    catalogue = {f.name: f for f in table.catalogue}
    scores = input_bits.chi2_scores(columns, table.label)
    if recipe.features:
        selected = input_bits.chi2_features(columns, table.label, recipe.features)
        columns = {n: columns[n] for n in selected}
        trees = None  # fitted to columns that are dropped
    spec = InputSpec(_fields(columns, table.label, recipe, seed, trees, catalogue))
    if spec.n_bits > recipe.bits:
        raise UsageError(
            f"{len(spec.fields)} fields of {recipe.field_bits} bits are {spec.n_bits} bits, "
            f"more than the budget of {recipe.bits}; take fewer features or more bits"
        )
    return spec, scores


def _fields(
    columns: Mapping[str, NDArray[np.int64]],
    label: NDArray[np.int64],
    recipe: Recipe,
    seed: int,
    trees: HistGradientBoostingClassifier | None,
    catalogue: Mapping[str, Feature],
) -> tuple[Field, ...]:
    bits = recipe.bits
    match recipe.encoding:
        case "binary":
            return input_bits.binary_fields(tuple(columns), recipe.field_bits, catalogue=catalogue)
        case "quantile":
            return input_bits.quantile_fields(columns, bits, catalogue=catalogue)
        case "tree":
            return input_bits.tree_fields(columns, label, bits, seed=seed, catalogue=catalogue)
        case "greedy":
            return input_bits.greedy_fields(
                columns, label, bits, seed=seed, trees=trees, catalogue=catalogue
            )
        case "boosted":
            return input_bits.boosted_fields(
                columns, label, bits, seed=seed, trees=trees, catalogue=catalogue
            )
        case "weighted":
            return input_bits.weighted_fields(
                columns,
                label,
                bits,
                hidden=recipe.training.hidden,
                seed=seed,
                trees=trees,
                catalogue=catalogue,
            )
