# SPDX-License-Identifier: Apache-2.0
"""Whether a column of the flows that a model classifies is in another unit than in training.

A model knows some quantiles of each feature in its training rows: the share of rows at or above
each cut of a thermometer, and the ends of the range of values. In another unit, the flows have the
same shares at the same cuts times one factor: 1,000, or a power of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.flows import Columns
from n3ic.model.inputs import RATE_UNIT, SPAN_LEFT, UINT32_MAX, Field, InputSpec

UNITS = (1e3, 1e6, 1e9)
"""Factors between units of time, length or rate, in either direction."""
FEWEST = 20
"""Fewest flows for a report."""
_STEPS = 128  # of the histogram, per octave
_CELLS = 33 * _STEPS + 2
_ALIKE, _CHANCE = 0.15, 0.6  # distance between shares in the right unit, and chance at one flow
_UNLIKE = 0.4  # distance in the wrong unit
_APART = 0.4  # decades between cuts, so that flows that are all alike fit no factor
_SHIFTS = tuple(10 ** (i / 10) for i in range(-5, 6))  # of other traffic, beside the unit

Quantiles = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ScaleChange:
    """A feature whose values are of another scale than in training.

    Attributes:
        feature: its name.
        factor: how many times larger its values are than in training; below 1 if smaller.
        least: whether the factor is a lower bound, because the values saturate.
    """

    feature: str
    factor: float
    least: bool = False

    def __str__(self) -> str:
        times = max(self.factor, 1 / self.factor)
        direction = "larger" if self.factor > 1 else "smaller"
        least = "at least " if self.least else ""
        return (
            f"{self.feature}: {least}{times:,.0f} times {direction} than in training: another unit?"
        )


class ScaleHistogram:
    """Counts of each feature's values by their logarithm.

    Args:
        spec: the input stage of a trained model.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._spec = spec
        self._counts = {n: np.zeros(_CELLS, dtype=np.int64) for n in spec.features}

    def add(self, columns: Columns) -> None:
        """Count flows: integers by feature, arrays of shape ``(rows,)``."""
        for name, counts in self._counts.items():
            values = np.maximum(np.asarray(columns[name], dtype=np.float64), 0.5)
            counts += np.bincount(_cell(values) * (values >= 1), minlength=_CELLS)

    def changes(self) -> list[ScaleChange]:
        """Features of another scale than in training, in the order of the input."""
        changes = (self._change(name, counts) for name, counts in self._counts.items())
        return [change for change in changes if change is not None]

    def _change(self, feature: str, counts: NDArray[np.int64]) -> ScaleChange | None:
        rows = int(counts.sum())
        known = list(_quantiles(self._spec.fields, feature))
        if rows < FEWEST or not known:
            return None
        above = np.cumsum(counts[::-1])[::-1] / rows  # share of flows in a cell or above it
        if _distance(above, known, 1.0) < _UNLIKE:
            return None
        factors = [f for unit in UNITS for f in (unit, 1 / unit)]
        fits = {factor: _fit(above, known, factor) for factor in factors}
        best = min(fits, key=lambda factor: fits[factor])
        if fits[best] < _ALIKE + _CHANCE * rows**-0.5:
            return ScaleChange(feature, best)
        inner = [value for share, value in known if share > _ALIKE]
        if inner and above[-2 * _STEPS] > 1 - _UNLIKE:  # most are near the largest integer
            return ScaleChange(feature, UINT32_MAX / max(inner), least=True)
        return None


def _cell(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cells of the histogram of positive values; cell 0 is for zero."""
    cells = np.rint((np.log2(values) + 1) * _STEPS).astype(np.int64)
    return np.asarray(np.minimum(cells, _CELLS - 1), dtype=np.int64)


def _fit(above: NDArray[np.float64], known: Quantiles, factor: float) -> float:
    """The distance at a factor, of those cuts that rounding and saturation leave; 1 without any."""
    usable = [(r, v) for r, v in known if 1 <= v * factor <= 0.9 * UINT32_MAX]
    inner = [float(np.log10(v)) for r, v in usable if _ALIKE / 4 < r < 1 - _ALIKE / 4]
    if not inner:
        return 1.0
    if max(inner) - min(inner) < _APART:  # close cuts have to fit exactly
        distance = 2 * _distance(above, usable, factor)
    else:
        distance = min(_distance(above, usable, factor * shift) for shift in _SHIFTS)
    # flows that are all below the cuts, or all above them, show no factor
    shares = [share for share, _ in usable]
    return distance if distance < min(max(shares), 1 - min(shares)) / 2 else 1.0


def _distance(above: NDArray[np.float64], known: Quantiles, factor: float) -> float:
    """The largest difference of a share of flows from that of the training rows."""
    shares, values = np.array(known).T * [[1.0], [factor]]
    low = above[np.minimum(_cell(values + 0.5) + 1, _CELLS - 1)]  # values are rounded
    high = above[_cell(np.maximum(values - 0.5, 1.0)) - 1]
    return float(np.maximum(low - shares, shares - high).max())


def _quantiles(fields: Sequence[Field], feature: str) -> Iterator[tuple[float, float]]:
    """Shares of the training rows, and the positive value that they reach or exceed."""
    for field in fields:
        if field.feature != feature:
            continue
        if field.span:
            ends = zip((1 - SPAN_LEFT, SPAN_LEFT), field.span, strict=True)
            yield from ((share, float(end)) for share, end in ends if end)
        if field.rates and field.kind == "thermometer":
            for cut, rate in zip(field.cuts, field.rates, strict=True):
                yield rate / RATE_UNIT, float(cut)
        elif field.rates:
            yield from _of_bits(field)


def _of_bits(field: Field) -> Iterator[tuple[float, float]]:
    """Shares of rows at or above powers of 2, where the rates of the bits tell them closely."""
    for bit in range(field.width):
        higher = field.rates[bit:]
        least, most = max(higher), sum(higher)
        if 0 < most <= min(2 * least, RATE_UNIT // 2) and (1 << field.width) - 1 == field.clamp:
            yield (least * most) ** 0.5 / RATE_UNIT, float(1 << bit)
