# SPDX-License-Identifier: Apache-2.0
"""Compares the classes of an integer model with those of the library that fitted its trees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.readers.columns import TreeColumns
from n3ic.families.trees.readers.cuts import Comparisons
from n3ic.families.trees.readers.ensemble import FittedTrees, Floats, Ints
from n3ic.families.trees.vectors import deciding_bits
from n3ic.model.bits import Bits
from n3ic.model.inputs import UINT32_MAX

_AT_A_CUT = 4  # rows at each cut, one below and one above
_ROWS_AT_CUTS = 1 << 15
_DECIDING = 1024
_BASES = 1024


@dataclass(frozen=True, eq=False)
class Trial:
    """Rows on which a model and its library are compared.

    Attributes:
        given: number of rows that were given; they come first.
        integers: the rows in integer units, int64 of shape ``(rows, columns)``.
        classes: the library's class index of each row, int64 of shape ``(rows,)``.
        coarse: which given rows lie between two integers of a column, bool ``(rows,)``.
    """

    given: int
    integers: Ints
    classes: Ints
    coarse: NDArray[np.bool_]

    @cached_property
    def text(self) -> str:
        """The rows in words."""
        made = len(self.integers) - self.given
        return f"{self.given:,} rows given, {made:,} made at the cuts"


def trial(
    source: FittedTrees, columns: TreeColumns, comparisons: Comparisons, model: TreesModel
) -> Trial | None:
    """Make rows at every cut, one below and one above, and ask the library for their classes.

    Around each cut, the other columns are those of given rows. Further rows pass both edges of
    every node, as :func:`~n3ic.families.trees.vectors.deciding_bits` finds them.

    Returns:
        The given rows and the made ones; None if the library cannot be asked.
    """
    if source.predict is None:
        return None
    rng = np.random.default_rng(0)
    made = np.concatenate(
        [
            _at_cuts(columns, comparisons, rng),
            *_deciding(columns, model, deciding_bits(model, rng, _DECIDING)),
        ]
    )
    values = np.concatenate([columns.rows, made / columns.scales])
    integers = np.concatenate([columns.integers, made])
    # The library reads floats; what a NIC reads of a row between two integers may be another side.
    read = columns.integers / columns.scales
    coarse = np.zeros(len(values), dtype=np.bool_)
    coarse[: len(read)] = (read != columns.rows).any(axis=1)
    return Trial(len(read), integers, source.predict(values), coarse)


def _at_cuts(columns: TreeColumns, comparisons: Comparisons, rng: np.random.Generator) -> Ints:
    cuts = comparisons.cuts
    count = max(1, min(_AT_A_CUT, _ROWS_AT_CUTS // (3 * len(cuts))))
    which = np.tile(np.repeat(np.arange(len(cuts)), 3), count)
    steps = np.resize([-1, 0, 1], len(which))
    bases = columns.integers
    if not len(bases):
        bases = _any_rows(columns, cuts, rng)
    out = bases[rng.integers(0, len(bases), len(which))]
    lowest = np.array([-UINT32_MAX if c.signed else 0 for c in columns.columns])
    at = cuts[which, 0]
    out[np.arange(len(out)), at] = np.clip(cuts[which, 1] + steps, lowest[at], UINT32_MAX)
    return out


def _any_rows(columns: TreeColumns, cuts: Ints, rng: np.random.Generator) -> Ints:
    """Rows of random cuts and the integers below them, where none are given."""
    out = np.zeros((_BASES, len(columns.columns)), dtype=np.int64)
    for i in range(out.shape[1]):
        own = cuts[cuts[:, 0] == i, 1]
        if len(own):
            out[:, i] = rng.choice(np.concatenate([own, own - 1]), _BASES)
    return out


def _deciding(columns: TreeColumns, model: TreesModel, bits: Bits) -> tuple[Ints, Ints]:
    """Rows in integer units that give some input bits: the least such integers, and the largest."""
    ends = []
    place = {c.name: (i, 1) for i, c in enumerate(columns.columns)}
    place |= {c.negative: (i, -1) for i, c in enumerate(columns.columns) if c.signed}
    both = np.zeros(len(bits), dtype=np.bool_)  # no number is above 0 and below
    for largest in (False, True):
        out = np.zeros((len(bits), len(columns.columns)), dtype=np.int64)
        for start, field in zip(model.input.offsets, model.input.fields, strict=True):
            count = bits[:, start : start + field.width].sum(axis=1)
            edges = np.array([0, *field.cuts, field.cuts[-1] + 2])
            i, sign = place[field.feature]
            value = np.minimum(edges[count + 1] - 1, UINT32_MAX) if largest else edges[count]
            signed = columns.columns[i].signed
            if signed:  # the other part of the number must be 0
                value = np.where(count > 0, value, 0)
                both |= (out[:, i] != 0) & (value != 0)
            out[:, i] += sign * value
        ends.append(out)
    return ends[0][~both], ends[1][~both]


def differing(trial: Trial, classes: Ints) -> Ints:
    """The rows on which a model has another class than the library, int64."""
    return np.asarray(np.flatnonzero(classes != trial.classes))


def sums_of(leaves: Ints, bias: Ints, reached: NDArray[np.int32]) -> NDArray[np.int32]:
    """Scores of some leaf values at the leaves that rows reach, int32 ``(rows, classes)``."""
    sums = np.stack([leaves[reached, s].sum(axis=1) + b for s, b in enumerate(bias)], axis=1)
    if sums.shape[1] == 1:
        sums = np.concatenate([np.zeros_like(sums), sums], axis=1)
    return np.asarray(sums, dtype=np.int32)  # which holds the sums of any scale that is tried


def float_error(source: FittedTrees, leaves: Floats) -> float:
    """The most by which the library's own sums may be rounded."""
    ensemble = source.ensemble
    digits = np.finfo(ensemble.precision).eps
    largest = float(np.abs(leaves).max(initial=0)) + float(np.abs(ensemble.base).max(initial=0))
    return float(digits * (len(ensemble.roots) + 1) ** 2 * largest)
