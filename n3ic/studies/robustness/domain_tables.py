# SPDX-License-Identifier: Apache-2.0
"""Tables of several sites, reduced to the columns and the classes that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from n3ic import plugins
from n3ic.data.dataset import data_set, data_set_of
from n3ic.data.table import FlowTable
from n3ic.data.user_table import OWN
from n3ic.errors import UsageError
from n3ic.model.columns import ColumnRule
from n3ic.options import parse_options
from n3ic.training.kept_input import read_alike
from n3ic.usecases.base import use_case
from n3ic.util.display import listed

BENIGN, ATTACK = "benign", "attack"
_SETS = "n3ic.datasets"


@dataclass(frozen=True, eq=False)
class Sites:
    """Tables with the same columns and classes.

    Attributes:
        tables: the table of each site, by name.
        columns: the columns that a model may read, in the order of the first table.
        classes: the classes of every table; of two, the second is the one to detect.
        notes: what the sites do not share, as sentences.
    """

    tables: Mapping[str, FlowTable] = field(repr=False)
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_sites(sources: Sequence[str], label: str = "") -> dict[str, FlowTable]:
    """Read the table of each site.

    Args:
        sources: files, folders, names of data sets with a sample, or ``DATASET:PATH``.
        label: the column of the class in files and folders; without it, the data set that
            recognises a file reads it.

    Raises:
        UsageError: a name is no file, no folder and no data set, or the class is not known.
        DataError: a table cannot be read.
    """
    if repeated := [name for name in sources if sources.count(name) > 1]:
        raise UsageError(f"--domains: {repeated[0]} is named twice; expected different sites")
    return {
        name: _read(source, label) for name, source in zip(_names(sources), sources, strict=True)
    }


def _names(sources: Sequence[str]) -> list[str]:
    """Different names, as short as may be: of a file, with its folder, or as they are."""
    paths = [Path(name.partition(":")[2] or name) for name in sources]
    stems = [path.name.partition(".")[0] for path in paths]
    placed = [str(Path(p.parent.name, s)) for p, s in zip(paths, stems, strict=True)]
    return next(names for names in (stems, placed, [*sources]) if len({*names}) == len(names))


def _read(source: str, label: str) -> FlowTable:
    known = plugins.names(_SETS)
    if source in known:
        return data_set(source).load()
    name, _, path = source.partition(":")
    if path and name in known:
        return data_set(name).load(path)
    if not Path(source).exists():
        raise UsageError(
            f"--domains {source}: expected a file, a folder, DATASET:PATH or the name of a data "
            f"set: {', '.join(known)}"
        )
    recognised = None
    if not label:
        with suppress(UsageError):  # a table of the user's own, whose columns.toml has the label
            recognised = data_set_of(source)
    if recognised is not None:
        return recognised.load(source)
    case = use_case(OWN)
    options = parse_options(case.options, {"label": label}, case.name)
    return case.load(source, None, options, lambda _: None)


def shared_sites(
    tables: Mapping[str, FlowTable], positive: Sequence[str] = (), benign: Sequence[str] = ()
) -> Sites:
    """Reduce tables to the columns and the classes that they share.

    Columns are shared if they have the same name and unit in every table, and no two meters compute
    them differently. They must be usable: a NIC can compute them, and they tell no capture set-up.
    Texts get the numbers of the first table.

    Args:
        tables: two tables or more, by name.
        positive: classes to detect, or patterns of their names; all others are benign.
        benign: classes that are benign, or patterns of their names; all others are attacks. Without
            either, the classes are those that every table has, and rows of others are left out.

    Raises:
        UsageError: there are fewer than two tables, they share no usable column, or fewer than two
            classes.
    """
    if len(tables) < 2:
        raise UsageError(
            f"--domains: expected two sites or more, got {', '.join(tables) or 'none'}"
        )
    columns, dropped = _shared_columns(tables)
    if not columns:
        columns_text = "; ".join(
            f"{name} has {listed(table.usable)}" for name, table in tables.items()
        )
        raise UsageError(
            "--domains: the sites share no usable column of the same unit and meter: "
            f"{columns_text}; meter their captures alike (n3ic data extract)"
        )
    alike = _same_texts({name: table.only(columns) for name, table in tables.items()})
    classes, notes = _same_classes(alike, positive, benign)
    lost = [f"columns that not every site has alike: {listed(dropped)}"] if dropped else []
    names = next(iter(classes.values())).classes
    return Sites(classes, columns, names, (*lost, *notes))


def _shared_columns(tables: Mapping[str, FlowTable]) -> tuple[tuple[str, ...], list[str]]:
    """The usable columns that all tables have alike, and the other usable ones."""
    first, *further = tables.values()
    shared = tuple(n for n in first.usable if all(_alike(first, other, n) for other in further))
    usable = dict.fromkeys(n for table in tables.values() for n in table.usable)
    return shared, [name for name in usable if name not in shared]


def _alike(table: FlowTable, other: FlowTable, name: str) -> bool:
    """Whether two tables have a column in the same unit, from no two different meters."""
    if name not in other.usable:
        return False
    feature, other_feature = table.feature(name), other.feature(name)
    if (feature.unit, feature.scale) != (other_feature.unit, other_feature.scale):
        return False
    meters = [meter for meter in (table.meter, other.meter) if meter is not None]
    metered = len(meters) == 2 and any(name in meter.feature_names for meter in meters)
    if metered and not meters[0].agrees(meters[1], (name,)):
        return False
    own, other_rule = _rule(table, name), _rule(other, name)
    return own is None or other_rule is None or read_alike(own, other_rule, values=False)


def _rule(table: FlowTable, name: str) -> ColumnRule | None:
    """The rule of the column that gives a feature; None for a named data set."""
    rules = table.rules.only((name,)).columns.values() if table.rules is not None else ()
    return next(iter(rules), None)


def _same_texts(tables: Mapping[str, FlowTable]) -> dict[str, FlowTable]:
    """The tables with the texts of categories numbered as in the first table."""
    first, *_ = tables.values()
    out = {}
    for site, table in tables.items():
        features = dict(table.features)
        for name in features:
            first_rule, own = _rule(first, name), _rule(table, name)
            if first_rule is not None and own is not None and first_rule.values != own.values:
                number = {text: i for i, text in enumerate(first_rule.values)}
                other = len(first_rule.values)
                of = np.array([*(number.get(text, other) for text in own.values), other])
                features[name] = of[features[name]]
        out[site] = replace(table, features=features, rules=None)
    return out


def _same_classes(
    tables: Mapping[str, FlowTable], positive: Sequence[str], benign: Sequence[str]
) -> tuple[dict[str, FlowTable], list[str]]:
    """The tables with the same classes in the same order, and what was left out."""
    if positive and benign:
        raise UsageError("--positive and --benign: expected one of them, got both")
    if positive or benign:
        option, patterns = ("positive", positive) if positive else ("benign", benign)
        _check_patterns(tables, option, patterns)
        return {n: _two_classes(t, patterns, bool(positive)) for n, t in tables.items()}, []
    first, *further = tables.values()
    shared = tuple(c for c in first.classes if all(c in other.classes for other in further))
    if len(shared) < 2:
        classes_text = "; ".join(f"{name} has {listed(t.classes)}" for name, t in tables.items())
        raise UsageError(
            f"--domains: expected two classes or more that every site has, got {len(shared)}: "
            f"{classes_text}; say with --benign or --positive which classes are which"
        )
    out, notes = {}, []
    for name, table in tables.items():
        number = np.array([shared.index(c) if c in shared else -1 for c in table.classes])
        label = number[table.label].astype(np.int64)
        left = replace(table, label=np.maximum(label, 0), classes=shared).rows(label >= 0)
        if lost := len(table) - len(left):
            others_of = listed([c for c in table.classes if c not in shared])
            notes.append(f"{lost:,} rows of {name} are of classes not shared: {others_of}")
        out[name] = left
    return out, notes


def _two_classes(table: FlowTable, patterns: Sequence[str], positive: bool) -> FlowTable:
    """The table with the classes benign and attack."""
    matches = np.array([_named(c, patterns) for c in table.classes])
    attack = matches if positive else ~matches
    return replace(table, label=attack[table.label].astype(np.int64), classes=(BENIGN, ATTACK))


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def _check_patterns(tables: Mapping[str, FlowTable], option: str, patterns: Sequence[str]) -> None:
    """Check that each pattern names a class of a site."""
    known = dict.fromkeys(c for table in tables.values() for c in table.classes)
    for pattern in patterns:
        if not any(_named(name, (pattern,)) for name in known):
            raise UsageError(
                f"--{option} {pattern}: no site has such a class; they have {listed([*known], 20)}"
            )
