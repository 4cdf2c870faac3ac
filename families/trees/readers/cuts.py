# SPDX-License-Identifier: Apache-2.0
"""Comparisons of floats as comparisons of integers, by asking for the integers themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.families.trees.readers.columns import TreeColumn, TreeColumns
from n3ic.families.trees.readers.ensemble import FittedTrees, Floats, Ints
from n3ic.model.inputs import MAX_INPUT_BITS, UINT32_MAX, Field, InputSpec

_CELLS = 1 << 22  # values that scalers transform at once


@dataclass(frozen=True, eq=False)
class Comparisons:
    """The nodes of an ensemble as questions for input bits.

    Attributes:
        input: the thermometers of the columns that some node asks.
        bits: the input bit of each node, -1 if no integer of the column changes its answer.
        zero_left: whether the left side is that of 0, bool array of shape ``(nodes,)``.
        always_left: whether a node without a bit leads to the left.
        cuts: column, and least integer on the right, of each different cut, int64 ``(cuts, 2)``.
        thresholds: number of different thresholds.
    """

    input: InputSpec
    bits: Ints
    zero_left: NDArray[np.bool_]
    always_left: NDArray[np.bool_]
    cuts: Ints
    thresholds: int


def compared(source: FittedTrees, columns: TreeColumns) -> Comparisons:
    """Find the input bit that each node of an ensemble asks.

    Raises:
        ModelError: no integer changes any answer, or there are too many cuts.
    """
    ensemble = source.ensemble
    keys = np.stack([ensemble.columns, ensemble.strict, ensemble.thresholds], axis=1)
    different, index = np.unique(keys, axis=0, return_inverse=True)
    index = index.reshape(-1)  # numpy 2.0.0 gives it a second axis
    column = different[:, 0].astype(np.int64)
    signed = np.array([c.signed for c in columns.columns])[column]
    lowest = np.where(signed, -UINT32_MAX, 0)
    first = least_right(source, columns.scales, column, different[:, 2], different[:, 1] > 0,
                        lowest)  # fmt: skip
    asked = (first > lowest) & (first <= UINT32_MAX)
    pairs = np.unique(np.stack([column[asked], first[asked]], axis=1), axis=0)
    if not len(pairs):
        raise ModelError(
            "no node of the trees tells two integers of its column apart: expected columns in "
            "units of which 0 to 2^32 - 1 occur; inputs={name: units in one of the rows'} scales"
        )
    if len(pairs) > MAX_INPUT_BITS:
        raise ModelError(
            f"the trees have {len(pairs):,} different cuts, at most {MAX_INPUT_BITS:,} are "
            "supported: fit fewer or smaller trees, or columns of coarser units"
        )
    spec, bit_of = _thermometers(columns.columns, pairs)
    node_first, node_asked = first[index], asked[index]
    bits = np.full(len(index), -1, dtype=np.int64)
    bits[node_asked] = [
        bit_of[pair] for pair in zip(column[index][node_asked].tolist(),
                                     node_first[node_asked].tolist(), strict=True)
    ]  # fmt: skip
    return Comparisons(spec, bits, node_first > 0, node_first > UINT32_MAX, pairs, len(different))


def least_right(
    source: FittedTrees,
    scales: Floats,
    column: Ints,
    threshold: Floats,
    strict: NDArray[np.bool_],
    lowest: Ints,
) -> Ints:
    """Find the least integer of a column that a comparison leads to the right, by bisection.

    Args:
        source: says what a comparison computes.
        scales: integer units in one unit of the rows, of every column.
        column: column of each comparison, int64 of shape ``(comparisons,)``.
        threshold: its threshold.
        strict: whether it leads to the left below the threshold, rather than up to it.
        lowest: the least integer of each column.

    Returns:
        int64 array of shape ``(comparisons,)``; 2^32 where no integer leads to the right.
    """
    goes_left = _goes_left(source, scales, column, threshold, strict)
    low, high = lowest.astype(np.int64), np.full(len(column), UINT32_MAX + 1)
    while (low < high).any():  # all below low lead to the left, all from high on to the right
        middle = np.minimum((low + high) >> 1, UINT32_MAX)
        left = goes_left(middle)
        low, high = (np.where((low < high) & left, middle + 1, low),
                     np.where((low < high) & ~left, middle, high))  # fmt: skip
    return high


def _goes_left(
    source: FittedTrees, scales: Floats, column: Ints, threshold: Floats, strict: NDArray[np.bool_]
) -> Callable[[Ints], NDArray[np.bool_]]:
    """What a comparison answers for an integer of its column, as the library computes it."""
    ensemble = source.ensemble
    step = max(1, _CELLS // ensemble.n_columns)

    def seen(values: Floats) -> Floats:
        if source.seen is np.asarray:
            return values
        out = np.empty(len(values))
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            rows = np.zeros((len(values[part]), ensemble.n_columns))
            at = (np.arange(len(rows)), column[part])
            rows[at] = values[part]
            out[part] = source.seen(rows)[at]
        return out

    def answer(integers: Ints) -> NDArray[np.bool_]:
        values = seen(integers / scales[column]).astype(ensemble.precision).astype(np.float64)
        return np.where(strict, values < threshold, values <= threshold)

    return answer


def _thermometers(
    columns: tuple[TreeColumn, ...], pairs: Ints
) -> tuple[InputSpec, dict[tuple[int, int], int]]:
    """Fields of the cuts, and the bit of each: of ``value >= cut``, or of ``-value >= 1 - cut``."""
    fields: list[Field] = []
    bit_of: dict[tuple[int, int], int] = {}
    start = 0
    for i, column in enumerate(columns):
        own = pairs[pairs[:, 0] == i, 1].tolist()
        for name, cuts in (
            (column.name, [c for c in own if c > 0]),
            (column.negative, [1 - c for c in reversed(own) if c <= 0]),
        ):
            if cuts:
                fields.append(
                    Field.thermometer(name, cuts, unit=column.unit, scale=column.field_scale)
                )
            for cut in cuts:
                bit_of[i, cut if name == column.name else 1 - cut] = start
                start += 1
    return InputSpec(tuple(fields)), bit_of
