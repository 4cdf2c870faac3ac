# SPDX-License-Identifier: Apache-2.0
"""Rounds cuts, so that logic compares them at less cost: trailing zeros need no wire."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from n3ic.model.inputs import UINT32_MAX, Field, InputSpec


def with_coarse_cuts(
    spec: InputSpec, columns: Mapping[str, NDArray[np.int64]], share: float
) -> InputSpec:
    """Round the cuts of thermometer fields; cuts that become equal are merged.

    Args:
        spec: the input bits.
        columns: values of each feature in the training rows, int64 arrays of shape ``(rows,)``.
        share: largest share of the training rows that may lie between a cut and its rounded one.
    """
    fields = []
    for field in spec.fields:
        if field.kind == "thermometer":
            values = np.sort(columns[field.feature])
            cuts = sorted({coarse_cut(cut, values, share) for cut in field.cuts})
            fields.append(
                Field.thermometer(field.feature, cuts, unit=field.unit, scale=field.scale)
            )
        else:
            fields.append(field)
    return InputSpec(tuple(fields))


def coarse_cut(cut: int, values: NDArray[np.int64], share: float) -> int:
    """Find the multiple of the largest power of two that is near enough to a cut.

    Args:
        cut: the cut.
        values: values of the training rows, sorted.
        share: largest share of them that may lie between the two cuts.
    """
    at = np.searchsorted(values, cut)
    for power in reversed(range(1, 32)):
        below = cut >> power << power
        near = [c for c in (below, below + (1 << power)) if 1 <= c <= UINT32_MAX]
        moved = [abs(int(np.searchsorted(values, c) - at)) for c in near]
        if near and min(moved) <= share * len(values):
            return near[moved.index(min(moved))]
    return cut
