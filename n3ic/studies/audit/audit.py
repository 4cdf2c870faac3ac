# SPDX-License-Identifier: Apache-2.0
"""The leak audit: which columns, and which pairs of columns, reveal the marks of a table.

A column leaks if it reveals a value of a mark among rows of one class, protocol, state and service,
and that value reveals the class. The audit looks at all rows and at parts of them, such as one
protocol or the rows in which the column has a value, because a leak may show in some flows only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from n3ic.data.column_roles import PROTOCOLS, Row, first_row
from n3ic.data.dataset import DataSet
from n3ic.data.table import FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.runs.column_uses import column_uses
from n3ic.studies.audit.finding import Finding, MarkFacts
from n3ic.studies.audit.marks import Mark, marks_of
from n3ic.studies.audit.result import Audit
from n3ic.studies.audit.separability import (
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
_MORE = 0.05  # balanced accuracy that a pair must gain over each of its columns
_TABLE_MORE = 0.02  # J that bins must gain over one cut to be reported instead of it
_STATES = Row("state", "how a conversation went, by its flags", "=state conn_state =flow_state")


@dataclass(frozen=True)
class AuditRequest:
    """The settings of an audit.

    Attributes:
        marks: marked columns; empty for all known ones.
        columns: columns to audit; empty for those that are used by default and those that are
            known to leak but are not marks.
        within: columns whose values divide the rows into groups; empty for the protocol, the state
            and the frequent values of ports. These columns are not audited.
        pairs: all pairs of this many columns are tried, the most revealing ones.
        bar: balanced accuracy at or above which a column reveals a mark.
        gap: smallest difference between a value's share in one class and in the others at which
            the value reveals the class.
        permutations: number of permutations of the marks for the null distribution.
        rows: largest number of rows to read.
        seed: seed of the sample, the folds and the permutations.
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
            raise UsageError(
                f"expected a bar above 0.5 and a gap up to 1, got {self.bar} and {self.gap}"
            )
        if self.permutations < 19:  # fewer cannot fall below 5 %
            raise UsageError(f"expected 19 permutations or more, got {self.permutations}")
        if self.rows < _LEAST_STRATUM:
            raise UsageError(f"expected {_LEAST_STRATUM} rows or more, got {self.rows}")
        if self.pairs < 0:
            raise UsageError(f"expected 0 pairs of columns or more, got {self.pairs}")


def audit(
    table: FlowTable,
    source: DataSet,
    request: AuditRequest = AuditRequest(),
    notify: Callable[[str], object] = lambda _: None,
) -> Audit:
    """Find the columns that reveal the marks of a table.

    Args:
        table: labelled flows.
        source: their data set.
        request: the settings.
        notify: called with a line about each step.

    Raises:
        UsageError: the table lacks a named column, or no column is left to audit.
        DataError: the table has too few rows, or neither a mark other than ports nor a column that
            training leaves out or doubts.
    """
    marks = marks_of(table, source, request.marks)
    uses = tuple(finding for finding in column_uses(table, table.usable) if finding.use != "used")
    if uses and not any(mark.counts for mark in marks):
        return Audit(
            name=table.name,
            rows=len(table),
            synthetic=table.synthetic,
            classes=table.classes,
            marks=(),
            columns=(),
            strata={},
            singles=(),
            pairs=(),
            paired=(),
            uses=uses,
        )
    if not marks:
        raise DataError(
            f"{table.name}: no column that varies is known to be an address, a port, a TTL, a time "
            "or a capture; name marked columns with --mark"
        )
    dividing = _dividing(table, request.within)
    if not any(mark.counts for mark in marks):
        raise DataError(
            f"{table.name}: ports alone are marked, and they only divide the rows; use --mark"
        )
    columns = _audited(table, request, [*(mark.name for mark in marks), *dividing])
    sample = _sample(len(table), request)
    table = table.rows(sample)
    marks = tuple(replace(m, codes=m.codes[sample], whole=m.whole[sample]) for m in marks)
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
            notify(f"columns that tell {mark.name}, {where}")
            rows = _rows(mark, part, group, fold, mask)
            findings = _findings(_singles(coded, rows), part, mark, rows, where, request)
            for finding in _tested(findings, partial(_singles, coded), rows, request):
                key = (finding.columns[0], finding.mark)
                if key not in singles or _better(finding, singles[key]):
                    singles[key] = _with_cut(finding, part, rows, mark)
    # A pair that contains a leaking column reveals nothing new.
    alone = {f.columns[0] for f in singles.values() if f.leaks}
    paired = _most_telling(singles, [c for c in columns if c not in alone], request.pairs)
    for where, mask, own in strata if len(paired) > 1 else ():
        if own:
            continue
        part = table.rows(mask)
        column_pairs = _made_pairs(_varied(part, paired))
        for mark in (m for m in marks if m.counts):
            notify(f"pairs that tell {mark.name}, {where}")
            rows = _rows(mark, part, group, fold, mask)
            findings = _findings(_pairs(column_pairs, rows), part, mark, rows, where, request)
            more = [f for f in findings if _adds(f, singles)]
            for finding in _tested(more, partial(_pairs, column_pairs), rows, request):
                if finding.columns not in pairs or _better(finding, pairs[finding.columns]):
                    pairs[finding.columns] = finding
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
        uses=uses,
    )


def _audited(table: FlowTable, request: AuditRequest, marks: Sequence[str]) -> tuple[str, ...]:
    """Return the columns to audit, without the marks.

    Raises:
        UsageError: the table has no such column, or none is left.
    """
    columns = request.columns
    if columns == ("all",):
        columns = tuple(f.name for f in table.catalogue)
    elif not columns:
        columns = tuple(f.name for f in table.catalogue if f.usable or (f.nic and f.leaks))
    if unknown := [c for c in columns if c not in table.features]:
        raise UsageError(
            f"{table.name} has no column {unknown[0]!r}; it has {', '.join(table.features)}"
        )
    audited = tuple(c for c in columns if c not in marks)
    if not audited:
        raise UsageError(f"{table.name}: no column is left beside the marks {', '.join(marks)}")
    return audited


def _sample(rows: int, request: AuditRequest) -> NDArray[np.intp]:
    if rows < _LEAST_STRATUM:
        raise DataError(f"{rows} rows are too few to audit; at least {_LEAST_STRATUM} are needed")
    rng = np.random.default_rng((request.seed, 0))
    return np.sort(rng.permutation(rows)[: request.rows])


def _dividing(table: FlowTable, within: Sequence[str]) -> tuple[str, ...]:
    """Return the columns whose values divide the rows: the named ones, or protocol and state.

    Raises:
        UsageError: the table has no such column.
    """
    if unknown := [c for c in within if c not in table.features]:
        raise UsageError(f"{table.name} has no column {unknown[0]!r} to divide the rows by")
    columns = within or [
        c for c in table.features if PROTOCOLS.has(c) or first_row((_STATES,), c) is not None
    ]
    return tuple(c for c in columns if len(np.unique(table.features[c])) > 1)


def _strata(
    table: FlowTable, columns: Sequence[str], dividing: Sequence[str]
) -> Iterator[tuple[str, NDArray[np.bool_], str]]:
    """Yield parts of the rows: a name, a mask, and the only column to audit there (empty for all).

    The parts are all rows, each frequent combination of the dividing columns' values, and the rows
    in which a column is above 0.
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
    """Return the columns that are not constant in these rows."""
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
    """Combine each two columns: their joint bins, their difference and their quotient."""
    coarse_bins = {name: bins(values, _PAIR_BINS) for name, values in columns.items()}
    out: list[tuple[tuple[str, ...], str, Codes]] = []
    for a, b in combinations(columns, 2):
        x, y = columns[a], columns[b]
        out.append(
            ((a, b), "pair", coarse_bins[a] * (int(coarse_bins[b].max()) + 1) + coarse_bins[b])
        )
        out.append(((a, b), "difference", bins(x - y)))
        out.append(((a, b), "quotient", bins(np.log1p(x) - np.log1p(y))))
    return out


def _pairs(
    column_pairs: Sequence[tuple[tuple[str, ...], str, Codes]], rows: CodedRows
) -> Iterator[tuple[tuple[str, ...], str, Separability]]:
    for names, how, codes in column_pairs:
        yield names, how, separability_by(codes, rows)[1]


def _findings(
    measured: Iterator[tuple[tuple[str, ...], str, Separability]],
    part: FlowTable,
    mark: Mark,
    rows: CodedRows,
    where: str,
    request: AuditRequest,
) -> list[Finding]:
    """Return the best value and rule for each column or pair."""
    gaps, of_class = _gaps(rows)
    shares = np.bincount(rows.mark, minlength=rows.values) / len(rows.mark)
    out: dict[tuple[str, ...], Finding] = {}
    for names, how, figures in measured:
        # The last value stands for all rare ones. Values that reveal a class come first.
        alarms = (figures.sure >= 2 * request.bar - 1) & (gaps >= request.gap)
        order = np.where(alarms, 2.0, 0.0)[:-1] + figures.sure[:-1]
        i = int(order.argmax())
        within = figures.within[i]
        finding = Finding(
            columns=names,
            how=how,
            mark=mark.name,
            value=mark.values[i],
            where=where,
            rows=len(part),
            share=float(shares[i]),
            accuracy=float(1 + figures.overall[i]) / 2,
            within=None if np.isnan(within) else float(1 + within) / 2,
            label_class=part.classes[int(of_class[i])],
            label_gap=float(gaps[i]),
            leaks=bool(alarms[i]) and mark.counts,
        )
        if names not in out or _better(finding, out[names]):
            out[names] = finding
    return [*out.values()]


def _gaps(rows: CodedRows) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return each value's largest gap between its share in a class and in the rest, and the class.

    A class counts only if it and the rest both have enough rows.

    Returns:
        The gaps, float64 of shape ``(values,)``, and the class indices, int64 of the same shape.
    """
    counts = np.zeros((rows.values, int(rows.label.max()) + 1))
    np.add.at(counts, (rows.mark, rows.label), 1)
    sizes = counts.sum(axis=0)
    others = counts.sum(axis=1, keepdims=True) - counts
    gaps = counts / np.maximum(sizes, 1) - others / np.maximum(sizes.sum() - sizes, 1)
    least = max(LEAST, len(rows.label) // 20)
    gaps[:, (sizes < least) | (sizes.sum() - sizes < least)] = 0
    best = np.abs(gaps).argmax(axis=1)
    return np.abs(gaps)[np.arange(rows.values), best], best.astype(np.int64)


def _better(finding: Finding, other: Finding) -> bool:
    """Whether a finding ranks above another: leaks first, then accuracy to 1 %, then rows."""
    return (finding.leaks, round(finding.sure, 2), finding.rows) > (
        other.leaks,
        round(other.sure, 2),
        other.rows,
    )


def _tested(
    findings: list[Finding],
    again: Callable[[CodedRows], Iterator[tuple[tuple[str, ...], str, Separability]]],
    rows: CodedRows,
    request: AuditRequest,
) -> list[Finding]:
    """Return the findings with their chance under the null; those within chance are no leaks.

    The marks are permuted within the groups. Each finding is compared with the best of all columns
    and values, so that many columns raise no more false alarms than one.
    """
    if not any(f.leaks for f in findings):
        return findings
    rng = np.random.default_rng((request.seed, 2))
    permuted = (rows.permuted(rng) for _ in range(request.permutations))
    best = np.array(
        [
            max(separability.sure[:-1].max() for _, _, separability in again(finding))
            for finding in permuted
        ]
    )
    out = []
    for finding in findings:
        chance = float((1 + (best >= 2 * finding.sure - 1).sum()) / (1 + len(best)))
        out.append(replace(finding, chance=chance, leaks=finding.leaks and chance <= 0.05))
    return out


def _with_cut(finding: Finding, part: FlowTable, rows: CodedRows, mark: Mark) -> Finding:
    """Return the finding with its best cut in words."""
    positive = rows.mark == mark.values.index(finding.value)
    if not positive.any() or positive.all():
        return finding
    name = finding.columns[0]
    cut = best_cut(part.features[name], positive)
    unit = part.feature(name).unit
    sign = "<" if cut.below else ">="
    return replace(finding, cut=f"{name} {sign} {cut.at:,} {unit}".rstrip(), agree=cut.agree)


def _adds(pair: Finding, singles: Mapping[tuple[str, str], Finding]) -> bool:
    """Whether a pair reveals clearly more than either of its columns does anywhere."""
    return all(
        pair.sure - single.sure >= _MORE
        for c in pair.columns
        if (single := singles.get((c, pair.mark))) is not None
    )


def _most_telling(
    findings: Mapping[tuple[str, str], Finding], columns: Sequence[str], most: int
) -> list[str]:
    best = {
        c: max((f.sure for (n, _), f in findings.items() if n == c), default=0.0) for c in columns
    }
    chosen = sorted(columns, key=lambda c: -best[c])[:most]
    return [c for c in columns if c in chosen]


def _facts(mark: Mark, table: FlowTable) -> MarkFacts:
    """Describe a mark, with the largest J at which its values reveal a class."""
    fold = np.random.default_rng(0).permutation(len(table)) % FOLDS
    every = np.zeros_like(table.label)
    rows = CodedRows(table.label, len(table.classes), every, every, fold)
    separability = separability_by(bins(mark.whole), rows)[1]
    return MarkFacts(mark.name, mark.kind, mark.values[:-1], float(separability.overall.max()))
