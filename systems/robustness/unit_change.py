# SPDX-License-Identifier: Apache-2.0
"""Whether a column of the flows that a model classifies is in another unit than in training.

A model knows some quantiles of each feature in its training rows: the share of rows at or above
each cut of a thermometer, and the ends of the range of values. In another unit, all quantiles of
the flows differ from those by one factor, of 1,000 or more. Other traffic moves them by different
factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.flows import Columns
from n3ic.model.inputs import RATE_UNIT, SPAN_LEFT, UINT32_MAX, Field, InputSpec

LEAST = 300.0
"""The factor from which on a change of scale is told."""
_STEPS = 16  # of the histogram, per octave
_CELLS = 33 * _STEPS + 2
_BEHIND = 4  # rows at the least on each side of a quantile that is compared
_ROUNDED = 3  # smaller integers have lost too much to rounding
_SPREAD = 1.0  # decades between the factors of a feature's quantiles
_APART = 0.4  # decades between the quantiles, so that flows that are all alike show no factor
_EXACT = 0.15  # decades from a unit's factor where the quantiles are closer
_UNITS = (1e3, 1e6, 1e9)


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
        times = next((u for u in _UNITS if 0.3 < times / u < 3.3), times)
        digits = 10 ** max(0, int(np.log10(times)) - 1)
        size = f"{round(times / digits) * digits:,.0f}"
        what = "larger" if self.factor > 1 else "smaller"
        least = "at least " if self.least else ""
        return f"{self.feature}: {least}{size} times {what} than in training: another unit?"


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
            cell = np.rint((np.log2(values) + 1) * _STEPS).astype(np.int64)
            counts += np.bincount(np.clip(cell, 0, _CELLS - 1) * (values >= 1), minlength=_CELLS)

    def changes(self) -> list[ScaleChange]:
        """Features of another scale than in training, in the order of the input."""
        found = (self._change(name, counts) for name, counts in self._counts.items())
        return [change for change in found if change is not None]

    def _change(self, feature: str, counts: NDArray[np.int64]) -> ScaleChange | None:
        rows = int(counts.sum())
        above = np.cumsum(counts[::-1])[::-1]  # flows in a cell or above it
        decades, saturated, values = [], [], []
        for share, trained in _quantiles(self._spec.fields, feature):
            if not _BEHIND <= share * rows <= rows - _BEHIND:
                continue
            cell = int(np.flatnonzero(above >= share * rows)[-1])
            value = 2.0 ** (cell / _STEPS - 1)
            if cell and value >= _ROUNDED:
                into = saturated if value > 0.9 * UINT32_MAX else decades
                into.append(float(np.log10(value / trained)))
                values.append(float(np.log10(trained)))
        if saturated and (not decades or len(saturated) >= len(decades)):
            least = min(saturated)
            return ScaleChange(feature, 10**least, least=True) if _large(least) else None
        if not decades or not _alike(decades, values):
            return None
        middle = float(np.median(decades))
        return ScaleChange(feature, 10**middle) if _large(middle) else None


def _alike(factors: Sequence[float], trained: Sequence[float]) -> bool:
    """Whether the factors of quantiles are equal, all in decades, though the quantiles differ."""
    spread, apart = (max(of) - min(of) for of in (factors, trained))
    if apart >= _APART:
        return spread <= min(_SPREAD, apart / 2)
    middle = float(np.median(factors))
    exact = abs(middle - 3 * round(middle / 3)) < _EXACT
    return len(factors) > 1 and exact and spread < _EXACT


def _large(decades: float) -> bool:
    return abs(decades) >= np.log10(LEAST)


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
