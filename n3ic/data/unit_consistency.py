# SPDX-License-Identifier: Apache-2.0
"""Whether the units of a table's columns agree with its cells.

Names say the units of columns, but programs differ: Python's cicflowmeter writes seconds under the
names of CICFlowMeter, which writes microseconds. Three relations hold in every table, whatever its
names: packets and bytes are a rate times the duration, the duration is the mean gap times the
number of gaps, and a flow has at least one packet. A relation that holds in nearly all rows but
for a factor of 1,000, or a power of it, shows a wrong unit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from n3ic.data.delimited import Sheet, parse_sheet

TIME_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds in one unit of time."""
_COUNTS = {"packet/s": ("packet", 1.0), "byte/s": ("byte", 1.0), "bit/s": ("byte", 8.0)}
_DURATION = re.compile(r"((flow|conn|bidirectional)_)?(dur|duration|td)(_[a-z]+)?")
_MEAN_GAP = re.compile(r"(flow_|bidirectional_)?(iat_mean|mean_iat|iat_avg|mean_piat)(_[a-z]+)?")
_FEWEST = 20  # rows that a relation needs
_ROWS = 2000
_TOTALS = 16  # columns of one unit whose pairs are tried
_CLOSE, _NEAR = 0.02, 0.05  # in decades: the median, and the rows that support it
_SUPPORT = 0.7
_IMPOSSIBLE = 0.01  # packets of a flow

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Contradiction:
    """A column whose unit and cells do not agree.

    Attributes:
        column: a column of times.
        unit: the unit that its name says.
        other: the unit by the other columns.
        evidence: the relation that shows it.
    """

    column: str
    unit: str
    other: str
    evidence: str


def contradiction(
    sheets: Sequence[Sheet],
    names: Sequence[str],
    units: Mapping[str, str],
    settled: Collection[str] = (),
) -> Contradiction | None:
    """Find a column of times whose unit other columns contradict.

    Args:
        sheets: the tables, of one layout.
        names: names of their columns.
        units: units of the columns of numbers.
        settled: columns whose unit the user named; these are not checked.
    """
    times = [n for n in names if units.get(n) in TIME_UNITS and n not in settled]
    durations = [n for n in times if _DURATION.fullmatch(n)]
    rates = [n for n in names if units.get(n) in _COUNTS]
    gaps = [n for n in names if units.get(n) in TIME_UNITS and _MEAN_GAP.fullmatch(n)]
    counts = {
        unit: [n for n in names if units.get(n) == unit][:_TOTALS] for unit in ("packet", "byte")
    }
    if not durations or not (rates or gaps):
        return None
    columns = {*durations, *rates, *gaps, *counts["packet"], *counts["byte"]}
    cells = _sample(sheets, names, columns)
    seconds = {n: cells[n] * TIME_UNITS[units[n]] for n in {*durations, *gaps}}
    for duration in durations:
        candidates = (
            *_by_rates(duration, units, rates, counts, cells, seconds[duration]),
            *_by_gaps(duration, gaps, counts["packet"], cells, seconds),
        )
        for factor, evidence in candidates:
            unit_seconds = TIME_UNITS[units[duration]] / factor
            other = next((u for u, s in TIME_UNITS.items() if abs(s / unit_seconds - 1) < 0.01), "")
            if other:
                return Contradiction(duration, units[duration], other, evidence)
    return None


def _sample(
    sheets: Sequence[Sheet], names: Sequence[str], columns: Collection[str]
) -> Mapping[str, Values]:
    """Evenly spread rows of some columns; NaN for a cell without a number."""
    read = [
        parse_sheet(sheet, [n if n in columns else "" for n in names], header=True,
                    numeric=columns, gaps=columns).numbers
        for sheet in sheets
    ]  # fmt: skip
    whole = {n: np.concatenate([part[n] for part in read]).astype(np.float64) for n in columns}
    rows = len(next(iter(whole.values())))
    return {n: column[:: max(1, rows // _ROWS)] for n, column in whole.items()}


def _by_rates(
    duration: str,
    units: Mapping[str, str],
    rates: Sequence[str],
    counts: Mapping[str, Sequence[str]],
    cells: Mapping[str, Values],
    seconds: Values,
) -> Iterator[tuple[float, str]]:
    """Factors by which a duration is off, with the evidence: a count is a rate times it."""
    for rate in rates:
        if _whole(cells[rate]) and _whole(cells[duration]):
            continue  # the integers of a NIC, whose rates are scaled
        counted, each = _COUNTS[units[rate]]
        with np.errstate(invalid="ignore"):  # an infinite rate in no time
            product = cells[rate] * seconds / each
        for total, values in _totals(counts[counted], cells):
            factor, share, rows = _off(product, values)
            if factor not in (0.0, 1.0):
                yield factor, _ratio_text(f"{rate} times {duration}", factor, total, share, rows)
            if factor:
                break
        else:
            if counted == "packet":
                yield from _too_few(rate, duration, product)


def _too_few(rate: str, duration: str, product: Values) -> Iterator[tuple[float, str]]:
    """The factor by which a duration is too short for a single packet in nearly every flow."""
    positive = product[np.isfinite(product) & (product > 0)]
    if len(positive) < _FEWEST or np.quantile(positive, 0.9) > _IMPOSSIBLE:
        return
    step = next((s for s in (1e-3, 1e-6, 1e-9) if np.median(positive) / s >= 0.99), 0.0)
    if step:
        statement = (
            f"{rate} times {duration} is less than {_IMPOSSIBLE:g} packets in nearly all rows"
        )
        yield step, statement


def _by_gaps(
    duration: str,
    gaps: Sequence[str],
    packets: Sequence[str],
    cells: Mapping[str, Values],
    seconds: Mapping[str, Values],
) -> Iterator[tuple[float, str]]:
    """Factors by which a duration is off: it is the mean gap times the number of gaps."""
    for gap in gaps:
        if _whole(cells[gap]) and _whole(cells[duration]):
            continue
        for total, values in _totals(packets, cells):
            factor, share, rows = _off(seconds[duration], seconds[gap] * (values - 1))
            if factor not in (0.0, 1.0):
                product = f"{gap} times ({total} - 1)"
                yield factor, _ratio_text(duration, factor, product, share, rows)


def _whole(values: Values) -> bool:
    finite = values[np.isfinite(values)]
    return bool((np.rint(finite) == finite).all())


def _totals(names: Sequence[str], cells: Mapping[str, Values]) -> Iterator[tuple[str, Values]]:
    """Columns of counts, and the sums of two of them, as of both directions."""
    for a, b in combinations(names, 2):
        yield f"({a} + {b})", cells[a] + cells[b]
    for name in names:
        yield name, cells[name]


def _off(values: Values, expected: Values) -> tuple[float, float, int]:
    """The power of 1,000 by which values differ from what is expected in most rows.

    Returns:
        The factor (1 if they agree, 0 if they are unrelated), the share of the rows that support
        it, and the number of rows.
    """
    usable = np.isfinite(values) & np.isfinite(expected) & (values > 0) & (expected > 0)
    if usable.sum() < _FEWEST or len(np.unique(expected[usable])) < _FEWEST / 4:
        return 0.0, 0.0, int(usable.sum())
    decades = np.log10(values[usable]) - np.log10(expected[usable])
    steps = round(float(np.median(decades)) / 3)
    share = float((np.abs(decades - 3 * steps) < _NEAR).mean())
    near = abs(float(np.median(decades)) - 3 * steps) < _CLOSE and share >= _SUPPORT
    return (1000.0**steps if near else 0.0), share, int(usable.sum())


def _ratio_text(left: str, factor: float, right: str, share: float, rows: int) -> str:
    size = f"{factor:,.0f} times" if factor > 1 else f"1/{1 / factor:,.0f} of"
    return f"{left} is {size} {right} in {share:.0%} of {rows:,} rows"
