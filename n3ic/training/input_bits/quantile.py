# SPDX-License-Identifier: Apache-2.0
"""Cuts at quantiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import UsageError
from n3ic.model.inputs import UINT32_MAX, Field
from n3ic.training.input_bits.columns import Columns, Cut, matrix_of, thermometer_fields


def quantile_fields(
    columns: Columns, bits: int, *, catalogue: Mapping[str, Feature] | None = None
) -> tuple[Field, ...]:
    """Thermometer fields whose cuts are quantiles, ``bits`` bits in total.

    Features get equal shares. What a feature with few values cannot use goes to the others; the
    last single cuts go to the features with the most values.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        bits: total bit budget.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits, or of fewer if the features have fewer values.
    """
    if not columns or bits < 1:
        raise UsageError("quantile cuts need at least one feature and one bit")
    rows = len(next(iter(columns.values())))
    names, matrix = matrix_of(columns, np.zeros(rows, dtype=np.int64))
    values = [np.clip(np.unique(matrix[:, j]), 0, UINT32_MAX) for j in range(len(names))]
    room = np.array([max(0, len(np.unique(v)) - 1) for v in values])
    share = np.zeros(len(names), dtype=np.int64)
    left = bits
    while left and (share < room).any():  # each round fills a feature or gives all bits away
        open_ = np.flatnonzero(share < room)
        if left >= len(open_):
            take = np.minimum(room[open_] - share[open_], left // len(open_))
            share[open_] += take
            left -= int(take.sum())
        else:
            first = sorted(open_, key=lambda j: (-room[j], j))[:left]
            share[first] += 1
            left = 0
    cuts = []
    for j, name in enumerate(names):
        cuts += [(name, cut) for cut in _quantile_cuts(matrix[:, j], int(share[j]))]
    return thermometer_fields(cuts, names, catalogue=catalogue)


def _quantile_cuts(column: NDArray[np.int64], count: int) -> list[int]:
    """``count`` distinct cuts that divide the rows as equally as the values allow."""
    values, counts = np.unique(np.clip(column, 0, UINT32_MAX), return_counts=True)
    candidates = values[1:]  # a cut at the least value would be true of every row
    below = np.cumsum(counts)[:-1] / len(column)  # share of rows below each candidate
    chosen: list[int] = []
    free = np.ones(len(candidates), dtype=np.bool_)
    for target in (np.arange(count) + 1) / (count + 1):
        distance = np.where(free, np.abs(below - target), np.inf)
        best = int(np.argmin(distance))
        free[best] = False
        chosen.append(int(candidates[best]))
    return sorted(chosen)


def spare_cuts(columns: Columns, used_cuts: Sequence[Cut], count: int) -> list[Cut]:
    """Up to ``count`` quantile cuts that are not taken yet."""
    used = set(used_cuts)
    # First with few bits; if they leave too few cuts, with all values, which give every cut.
    for bits in (count + len(used_cuts), sum(len(np.unique(c)) for c in columns.values())):
        fields = quantile_fields(columns, max(1, bits))
        spare = [(f.feature, c) for f in fields for c in f.cuts if (f.feature, c) not in used]
        if len(spare) >= count:
            break
    return spare[:count]
