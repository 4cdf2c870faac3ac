# SPDX-License-Identifier: Apache-2.0
"""The leak audit: which columns, and pairs of columns, tell the marks of a table.

A column leaks that tells a value of a mark among rows of one class, protocol, state and service,
where that value tells the class. It is asked of all rows and of parts of them, such as one protocol
or the rows in which the column has a value, because a leak may show in some flows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.column_roles import PROTOCOLS, Row, first_row
from n3ic.data.dataset import DataSet
from n3ic.data.table import FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.systems.audit.ablation import Loss
from n3ic.systems.audit.marks import Mark, marks_of
from n3ic.systems.audit.separability import (
    FOLDS,
    LEAST,
    CodedRows,
    Codes,
    Separability,
    best_cut,
    bins,
    separability_by,
)

ALL_ROWS = "all rows"
_MOST_STRATA = 12
_LEAST_STRATUM = 200  # rows
_PAIR_BINS = 16
_MORE = 0.05  # of balanced accuracy that a pair must tell more than each of its columns
_TABLE_MORE = 0.02  # of J that bins must tell more than one cut to be said instead
_STATES = Row("state", "how a conversation went, by its flags", "=state conn_state =flow_state")


@dataclass(frozen=True)
class AuditRequest:
    """What is asked of a table.

    Attributes:
        marks: marked columns; empty for those that are known.
        columns: the audited columns; empty for those that are used by default and those that are
            known to leak and are no marks.
        within: columns whose values divide the rows; empty for the protocol, the state and the
            frequent values of ports. They are not asked themselves.
        pairs: number of columns of which all pairs are tried; the most telling ones.
        bar: balanced accuracy from which on a column tells a mark.
        gap: difference of a value's share in a class and in the others from which on it tells the
            class.
        permutations: of the marks, for the null.
        rows: at most that many are read.
        seed: of the sample, the folds and the permutations.
    """

    marks: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    pairs: int = 16
    bar: float = 0.95
    gap: float = 0.2
    permutations: int = 19
    rows: int = 30_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.5 < self.bar <= 1 or not 0 <= self.gap <= 1:
            raise UsageError(f"a bar above 0.5 and a gap up to 1, got {self.bar} and {self.gap}")
        if self.permutations < 19:  # fewer cannot fall below 5 %
            raise UsageError(f"19 permutations or more, got {self.permutations}")
        if self.rows < _LEAST_STRATUM or self.pairs < 0:
            raise UsageError(f"{_LEAST_STRATUM} rows or more, got {self.rows}")


@dataclass(frozen=True)
class Finding:
    """How well one or two columns tell a value of a mark.

    Attributes:
        columns: one or two names.
        how: ``cut``, ``bins``, ``pair``, ``difference`` or ``quotient``.
        mark: the marked column.
        value: its value.
        where: the part of the rows.
        rows: number of rows of that part.
        share: share of these with the value.
        told: balanced accuracy on rows of the left-out folds.
        within: the same within the groups of one class, protocol, state and service (the ports);
            None if no group has rows with and without the value.
        label_class: class that the value tells best.
        label_gap: share of that class's rows with the value less that of the others' rows.
        chance: share of the permutations of the mark that some column tells as well; None if it
            was not asked.
        cut: the best cut in words, with the share of the rows where it equals the value; empty for
            other rules.
        agree: that share; None for other rules.
        leaks: whether it raises the alarm.
    """

    columns: tuple[str, ...]
    how: str
    mark: str
    value: str
    where: str
    rows: int
    share: float
    told: float
    within: float | None
    label_class: str
    label_gap: float
    chance: float | None = None
    cut: str = ""
    agree: float | None = None
    leaks: bool = False

    @property
    def sure(self) -> float:
        """The lesser of the two balanced accuracies; 0.5 if there is no second."""
        return 0.5 if self.within is None else min(self.told, self.within)

    @property
    def rule(self) -> str:
        """What tells the value, in words."""
        if self.how == "cut":
            return self.cut
        both = {"pair": "{} with {}", "difference": "{} less {}", "quotient": "{} over {}"}
        return both.get(self.how, "{}").format(*self.columns) + (
            " in bins" if self.how == "bins" else ""
        )


@dataclass(frozen=True)
class MarkFacts:
    """A mark of the table.

    Attributes:
        name: the column.
        kind: what it names.
        values: its values that are told apart.
        label: largest J with which its values tell a class; 1 for a mark that says a class.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    label: float


@dataclass(frozen=True)
class Audit:
    """What the audit of a table found.

    Attributes:
        name: the table.
        rows: number of rows that were read.
        synthetic: whether a generator made them.
        classes: class names.
        marks: the marks.
        columns: the audited columns.
        strata: parts of the rows, with their numbers.
        singles: the best finding of each column and mark, the most telling first.
        pairs: findings of pairs that tell more than each column by itself, the most telling first.
        paired: columns of which all pairs were tried.
        losses: what is lost without columns; see :mod:`n3ic.systems.audit.ablation`.
    """

    name: str
    rows: int
    synthetic: bool
    classes: tuple[str, ...]
    marks: tuple[MarkFacts, ...]
    columns: tuple[str, ...]
    strata: Mapping[str, int]
    singles: tuple[Finding, ...]
    pairs: tuple[Finding, ...]
    paired: tuple[str, ...]
    losses: tuple[Loss, ...] = ()

    @property
    def leaking(self) -> tuple[str, ...]:
        """Columns that raise the alarm by themselves, the most telling first."""
        return tuple(dict.fromkeys(f.columns[0] for f in self.singles if f.leaks))

    @property
    def leaking_pairs(self) -> tuple[Finding, ...]:
        """Pairs that raise the alarm, and of which no column does."""
        return tuple(f for f in self.pairs if f.leaks)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The leaking columns, and those of leaking pairs."""
        return tuple(
            dict.fromkeys([*self.leaking, *(c for f in self.leaking_pairs for c in f.columns)])
        )

    def best(self) -> tuple[Finding, ...]:
        """The finding of each column that says most: leaks first, then the most telling."""
        found: dict[str, Finding] = {}
        for one in sorted(self.singles, key=lambda f: (not f.leaks, -f.sure)):
            found.setdefault(one.columns[0], one)
        return tuple(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **asdict(self),
            "strata": dict(self.strata),
            "leaking": list(self.leaking),
            "leaking_pairs": [list(f.columns) for f in self.leaking_pairs],
        }


def audit(
    table: FlowTable,
    source: DataSet,
    request: AuditRequest = AuditRequest(),
    tell: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Find which columns tell the marks of a table.

    Args:
        table: labelled flows.
        source: their data set.
        request: what is asked.
        tell: called with a line about each step.

    Raises:
        UsageError: the table has no such column.
        DataError: it has no mark, or too few rows.
    """
    marks = marks_of(table, source, request.marks)
    if not marks:
        raise DataError(
            f"{table.name}: no column is known as an address, a port, a TTL, a time or a capture, "
            "or it is the same in every row; name marked columns with --mark"
        )
    dividing = _dividing(table, request.within)
    if not any(mark.counts for mark in marks):
        raise DataError(f"{table.name}: ports alone are marked, which divide the rows; use --mark")
    columns = _audited(table, request, [*(mark.name for mark in marks), *dividing])
    kept = _sample(len(table), request)
    table = table.rows(kept)
    marks = tuple(replace(m, codes=m.codes[kept], whole=m.whole[kept]) for m in marks)
    fold = np.random.default_rng((request.seed, 1)).permutation(len(table)) % FOLDS
    ports = [] if request.within else [mark.codes for mark in marks if not mark.counts]
    parts = np.stack([table.label, *(table.features[c] for c in dividing), *ports])
    group = np.unique(parts, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    strata = [*_strata(table, columns, dividing)]
    singles: dict[tuple[str, str], Finding] = {}
    pairs: dict[tuple[str, ...], Finding] = {}
    for where, mask, own in strata:
        part = table.rows(mask)
        coded = {c: bins(v) for c, v in _varied(part, (own,) if own else columns).items()}
        for mark in (m for m in marks if m.counts):
            tell(f"columns that tell {mark.name}, {where}")
            rows = _rows(mark, part, group, fold, mask)
            found = _findings(_singles(coded, rows), part, mark, rows, where, request)
            for one in _tested(found, partial(_singles, coded), rows, request):
                key = (one.columns[0], one.mark)
                if key not in singles or _better(one, singles[key]):
                    singles[key] = _with_cut(one, part, rows, mark)
    # A pair with a column that leaks by itself says nothing new.
    alone = {f.columns[0] for f in singles.values() if f.leaks}
    paired = _most_telling(singles, [c for c in columns if c not in alone], request.pairs)
    for where, mask, own in strata if len(paired) > 1 else ():
        if own:
            continue
        part = table.rows(mask)
        made = _made_pairs(_varied(part, paired))
        for mark in (m for m in marks if m.counts):
            tell(f"pairs that tell {mark.name}, {where}")
            rows = _rows(mark, part, group, fold, mask)
            found = _findings(_pairs(made, rows), part, mark, rows, where, request)
            more = [f for f in found if _adds(f, singles)]
            for one in _tested(more, partial(_pairs, made), rows, request):
                if one.columns not in pairs or _better(one, pairs[one.columns]):
                    pairs[one.columns] = one
    return Audit(
        name=table.name,
        rows=len(table),
        synthetic=table.synthetic,
        classes=table.classes,
        marks=tuple(_facts(mark, table) for mark in marks),
        columns=columns,
        strata={where: int(mask.sum()) for where, mask, _ in strata},
        singles=tuple(sorted(singles.values(), key=lambda f: (not f.leaks, -f.sure))),
        pairs=tuple(sorted(pairs.values(), key=lambda f: (not f.leaks, -f.sure))),
        paired=tuple(paired),
    )


def _audited(table: FlowTable, request: AuditRequest, marks: Sequence[str]) -> tuple[str, ...]:
    """The columns to ask, without the marks.

    Raises:
        UsageError: the table has no such column, or none is left.
    """
    asked = request.columns
    if asked == ("all",):
        asked = tuple(f.name for f in table.catalogue)
    elif not asked:
        asked = tuple(f.name for f in table.catalogue if f.usable or (f.nic and f.leaks))
    if unknown := [c for c in asked if c not in table.features]:
        raise UsageError(f"{table.name} has no column {unknown[0]!r}: {', '.join(table.features)}")
    left = tuple(c for c in asked if c not in marks)
    if not left:
        raise UsageError(f"{table.name}: no column is left beside the marks {', '.join(marks)}")
    return left


def _sample(rows: int, request: AuditRequest) -> NDArray[np.intp]:
    if rows < _LEAST_STRATUM:
        raise DataError(f"{rows} rows are too few to audit; {_LEAST_STRATUM} needed")
    rng = np.random.default_rng((request.seed, 0))
    return np.sort(rng.permutation(rows)[: request.rows])


def _dividing(table: FlowTable, within: Sequence[str]) -> tuple[str, ...]:
    """The columns whose values divide the rows: those named, or the protocol and the state.

    Raises:
        UsageError: the table has no such column.
    """
    if unknown := [c for c in within if c not in table.features]:
        raise UsageError(f"{table.name} has no column {unknown[0]!r} to divide the rows by")
    found = within or [
        c for c in table.features if PROTOCOLS.has(c) or first_row((_STATES,), c) is not None
    ]
    return tuple(c for c in found if len(np.unique(table.features[c])) > 1)


def _strata(
    table: FlowTable, columns: Sequence[str], dividing: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.bool_], str]]:
    """Parts of the rows: a name, a mask, and the one column that is asked there, or empty.

    Those are all rows, each combination of the dividing columns' values, and the rows in which a
    column is not 0.
    """
    least = max(_LEAST_STRATUM, len(table) // 100)
    every = np.ones(len(table), dtype=np.bool_)
    yield ALL_ROWS, every, ""
    if dividing:
        values, places, counts = np.unique(
            table.matrix(tuple(dividing)), axis=0, return_inverse=True, return_counts=True
        )
        for i in np.argsort(-counts, kind="stable")[:_MOST_STRATA]:
            if least <= counts[i] < len(table):
                pairs = zip(dividing, values[i], strict=True)
                where = ", ".join(f"{name} = {value}" for name, value in pairs)
                yield where, places.reshape(-1) == i, ""
    for name in columns:
        mask = table.features[name] > 0
        if least <= mask.sum() <= len(table) - least:
            yield f"{name} > 0", mask, name


def _varied(part: FlowTable, columns: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """The columns that are not the same in all of these rows."""
    return {c: v for c in columns if len(np.unique(v := part.features[c])) > 1}


def _rows(
    mark: Mark, part: FlowTable, group: Codes, fold: Codes, mask: NDArray[np.bool_]
) -> CodedRows:
    return CodedRows(mark.codes[mask], len(mark.values), part.label, group[mask], fold[mask])


def _singles(
    coded: Mapping[str, Codes], rows: CodedRows
) -> Iterator[tuple[tuple[str, ...], str, Separability]]:
    for name, codes in coded.items():
        cut, table = separability_by(codes, rows)
        yield (name,), "cut", cut
        if (table.sure > cut.sure + _TABLE_MORE).any():
            yield (name,), "bins", table


def _made_pairs(
    columns: Mapping[str, NDArray[np.int64]],
) -> list[tuple[tuple[str, ...], str, Codes]]:
    """What is made of each two columns: their bins together, their difference, their quotient."""
    few = {name: bins(values, _PAIR_BINS) for name, values in columns.items()}
    out: list[tuple[tuple[str, ...], str, Codes]] = []
    for a, b in combinations(columns, 2):
        x, y = columns[a], columns[b]
        out.append(((a, b), "pair", few[a] * (int(few[b].max()) + 1) + few[b]))
        out.append(((a, b), "difference", bins(x - y)))
        out.append(((a, b), "quotient", bins(np.log1p(x) - np.log1p(y))))
    return out


def _pairs(
    made: Sequence[tuple[tuple[str, ...], str, Codes]], rows: CodedRows
) -> Iterator[tuple[tuple[str, ...], str, Separability]]:
    for names, how, codes in made:
        yield names, how, separability_by(codes, rows)[1]


def _findings(
    told: Iterator[tuple[tuple[str, ...], str, Separability]],
    part: FlowTable,
    mark: Mark,
    rows: CodedRows,
    where: str,
    request: AuditRequest,
) -> list[Finding]:
    """The best value and way of each column or pair."""
    gaps, of_class = _gaps(rows)
    shares = np.bincount(rows.mark, minlength=rows.values) / len(rows.mark)
    out: dict[tuple[str, ...], Finding] = {}
    for names, how, figures in told:
        # The last value stands for all rare ones. A value that says a class comes before others.
        alarms = (figures.sure >= 2 * request.bar - 1) & (gaps >= request.gap)
        order = np.where(alarms, 2.0, 0.0)[:-1] + figures.sure[:-1]
        i = int(order.argmax())
        within = figures.within[i]
        one = Finding(
            columns=names,
            how=how,
            mark=mark.name,
            value=mark.values[i],
            where=where,
            rows=len(part),
            share=float(shares[i]),
            told=float(1 + figures.overall[i]) / 2,
            within=None if np.isnan(within) else float(1 + within) / 2,
            label_class=part.classes[int(of_class[i])],
            label_gap=float(gaps[i]),
            leaks=bool(alarms[i]) and mark.counts,
        )
        if names not in out or _better(one, out[names]):
            out[names] = one
    return [*out.values()]


def _gaps(rows: CodedRows) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Of each value: the largest difference of its shares in a class and in the rest; the class.

    Where one class has nearly all rows, no value is of use to tell it.
    """
    counts = np.zeros((rows.values, int(rows.label.max()) + 1))
    np.add.at(counts, (rows.mark, rows.label), 1)
    sizes = counts.sum(axis=0)
    rest = counts.sum(axis=1, keepdims=True) - counts
    gaps = counts / np.maximum(sizes, 1) - rest / np.maximum(sizes.sum() - sizes, 1)
    least = max(LEAST, len(rows.label) // 20)
    gaps[:, (sizes < least) | (sizes.sum() - sizes < least)] = 0
    best = np.abs(gaps).argmax(axis=1)
    return np.abs(gaps)[np.arange(rows.values), best], best.astype(np.int64)


def _better(one: Finding, other: Finding) -> bool:
    """Whether a finding says more than another: to a per cent, and then of more rows."""
    return (one.leaks, round(one.sure, 2), one.rows) > (
        other.leaks,
        round(other.sure, 2),
        other.rows,
    )


def _tested(
    found: list[Finding],
    again: Callable[[CodedRows], Iterator[tuple[tuple[str, ...], str, Separability]]],
    rows: CodedRows,
    request: AuditRequest,
) -> list[Finding]:
    """The findings with their chance under the null; what permuted marks give is no leak.

    The marks are permuted within the groups. Each finding is compared with the best of all columns
    and values, so that many columns raise no more alarms than one.
    """
    if not any(f.leaks for f in found):
        return found
    rng = np.random.default_rng((request.seed, 2))
    permuted = (rows.permuted(rng) for _ in range(request.permutations))
    best = np.array([max(told.sure[:-1].max() for _, _, told in again(one)) for one in permuted])
    out = []
    for one in found:
        chance = float((1 + (best >= 2 * one.sure - 1).sum()) / (1 + len(best)))
        out.append(replace(one, chance=chance, leaks=one.leaks and chance <= 0.05))
    return out


def _with_cut(one: Finding, part: FlowTable, rows: CodedRows, mark: Mark) -> Finding:
    """The finding with its best cut in words."""
    positive = rows.mark == mark.values.index(one.value)
    if not positive.any() or positive.all():
        return one
    name = one.columns[0]
    cut = best_cut(part.features[name], positive)
    unit = part.feature(name).unit
    sign = "<" if cut.below else ">="
    return replace(one, cut=f"{name} {sign} {cut.at:,} {unit}".rstrip(), agree=cut.agree)


def _adds(pair: Finding, singles: Mapping[tuple[str, str], Finding]) -> bool:
    """Whether a pair tells clearly more than each of its columns does anywhere."""
    return all(
        pair.sure - one.sure >= _MORE
        for c in pair.columns
        if (one := singles.get((c, pair.mark))) is not None
    )


def _most_telling(
    found: Mapping[tuple[str, str], Finding], columns: Sequence[str], most: int
) -> list[str]:
    best = {c: max((f.sure for (n, _), f in found.items() if n == c), default=0.0) for c in columns}
    chosen = sorted(columns, key=lambda c: -best[c])[:most]
    return [c for c in columns if c in chosen]


def _facts(mark: Mark, table: FlowTable) -> MarkFacts:
    """What a mark is, and how well a table of its values tells the class best told."""
    fold = np.random.default_rng(0).permutation(len(table)) % FOLDS
    every = np.zeros_like(table.label)
    rows = CodedRows(table.label, len(table.classes), every, every, fold)
    told = separability_by(bins(mark.whole), rows)[1]
    return MarkFacts(mark.name, mark.kind, mark.values[:-1], float(told.overall.max()))
