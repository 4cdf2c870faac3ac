# SPDX-License-Identifier: Apache-2.0
"""Drift: how far live traffic has moved from the training rows of a network.

Drift is the population stability index (PSI) of each feature over the intervals between its cuts,
which are all that the network sees of the feature. It is ``sum((q - p) * ln(q / p))``, with the
shares ``p`` of the training rows and ``q`` of the live rows. By convention, 0.1 is worth a look and
0.25 is a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.inputs import RATE_UNIT, InputSpec

Level = Literal["none", "moderate", "large"]
MODERATE, LARGE = 0.1, 0.25
_Z99 = 2.3263  # 0.99 quantile of the standard normal distribution
_HALF = 0.5  # added to each cell, so that an empty cell has a logarithm


@dataclass(frozen=True)
class Drift:
    """Drift of one feature.

    Attributes:
        feature: name of the feature.
        psi: population stability index over the intervals between the feature's cuts; for a binary
            field, the sum over its bits.
        bound: 0.99 quantile of the PSI of samples of this size from the training rows.
        level: ``none`` below 0.1 or below the bound, ``large`` from 0.25 on.
        bit: index of the input bit whose frequency moved most.
        trained: that bit's frequency in the training rows, 0 to 1.
        live: that bit's frequency in the live rows, 0 to 1.
    """

    feature: str
    psi: float
    bound: float
    level: Level
    bit: int
    trained: float
    live: float


def drift(spec: InputSpec, counts: ArrayLike, rows: int, z: float = _Z99) -> list[Drift]:
    """Measure the drift of each feature whose training frequencies the model carries.

    Args:
        spec: the input stage of a trained model.
        counts: the number of live rows that set each input bit, integers of shape ``(n_bits,)``.
        rows: number of live rows.
        z: quantile of the standard normal distribution at which the bounds lie.

    Returns:
        The drift of each feature, the largest first; empty if there are no rows, or the model
        carries no training frequencies.

    Raises:
        ValueError: ``counts`` has another shape.
    """
    live = np.asarray(counts, dtype=np.float64)
    if live.shape != (spec.n_bits,):
        raise ValueError(f"expected counts of shape ({spec.n_bits},), got {live.shape}")
    if rows < 1:
        return []
    out = []
    for feature, bits, groups in compared(spec):
        cells = [
            (_intervals([r / RATE_UNIT for r, _ in g]), _intervals([live[b] / rows for _, b in g]))
            for g in groups
        ]
        psi = sum(_psi(np.array(p), np.array(q), rows) for p, q in cells)
        # Shares of few rows vary by chance: without drift, rows * PSI is nearly chi-squared.
        bound = _quantile(sum(len(p) - 1 for p, _ in cells), z) / rows
        shares = [(rate / RATE_UNIT, float(live[b]) / rows, b) for rate, b in bits]
        p, q, bit = max(shares, key=lambda b: (abs(b[0] - b[1]), -b[2]))
        out.append(Drift(feature, psi, bound, _level(psi, bound), bit, p, q))
    return sorted(out, key=lambda d: (-d.psi, d.feature))


def compared(
    spec: InputSpec,
) -> Iterator[tuple[str, list[tuple[int, int]], list[list[tuple[int, int]]]]]:
    """Yield what drift compares: a feature, its bits, and the groups of bits that share an axis.

    A bit is given by its rate in the training rows, in units of ``1 / RATE_UNIT``, and its index.
    The bits of a group are in the order of their cuts. Features without rates are left out.
    """
    for feature in spec.features:
        bits: list[tuple[int, int]] = []
        groups: list[list[tuple[int, int]]] = []
        cuts: dict[int, tuple[int, int]] = {}
        for start, field in zip(spec.offsets, spec.fields, strict=True):
            if field.feature != feature or not field.rates:
                continue
            rated_bits = list(zip(field.rates, range(start, start + field.width), strict=True))
            bits += rated_bits
            if field.kind == "thermometer":
                cuts |= dict(zip(field.cuts, rated_bits, strict=True))
            else:
                groups += [[bit] for bit in rated_bits]
        if cuts:
            # All thermometers of a feature share one axis, so merge their cuts.
            groups.append([cuts[c] for c in sorted(cuts)])
        if groups:
            yield feature, bits, groups


def _intervals(above: Sequence[float]) -> list[float]:
    """Turn the shares at or above each of some rising cuts into shares between the cuts."""
    edges = [1.0, *above, 0.0]
    return [max(0.0, a - b) for a, b in pairwise(edges)]  # rounding may reverse two equal rates


def _psi(p: NDArray[np.float64], q: NDArray[np.float64], rows: int) -> float:
    cells = len(p)
    # Training shares are stored as counts out of RATE_UNIT, so they are smoothed as counts.
    p = (p * RATE_UNIT + _HALF) / (RATE_UNIT + _HALF * cells)
    q = (q * rows + _HALF) / (rows + _HALF * cells)
    return float(((q - p) * np.log(q / p)).sum())


def _quantile(degrees: int, z: float = _Z99) -> float:
    """The chi-squared quantile that matches a normal one, approximated (Wilson, Hilferty 1931)."""
    third = 2 / (9 * degrees)
    return float(degrees * (1 - third + z * np.sqrt(third)) ** 3)


def _level(psi: float, bound: float) -> Level:
    if psi < MODERATE or psi < bound:
        return "none"
    return "large" if psi >= LARGE else "moderate"
