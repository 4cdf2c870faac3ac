# SPDX-License-Identifier: Apache-2.0
"""Groups input bits that form only a few patterns, so that a table has one row per pattern.

A feature's thermometer bits depend only on the interval between cuts that the value lies in: ``c``
cuts have ``c + 1`` patterns. Raw bits form groups of four. A row holds what a pattern adds to the
popcount of every neuron. The first layer then adds one row per group, which gives exactly the same
sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections

NIBBLE = 4
MAX_CUTS = 252  # per group; a multiple of four for which row numbers and entries fit a byte


@dataclass(frozen=True)
class BitGroup:
    """Input bits that share a table of rows.

    Attributes:
        feature: the feature from which the bits are computed.
        bits: indices of the input bits.
        cuts: ascending cuts of a thermometer; empty for raw bits.
        steps: for each bit, the index of its cut; empty for raw bits.
        part: for raw bits, the number of their field among the feature's raw fields; for cuts, the
            number of the group among the feature's groups.
        shift: for raw bits, the position of the lowest bit in the clamped value.
        clamp: for raw bits, the largest value.
    """

    feature: str
    bits: tuple[int, ...]
    cuts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    part: int = 0
    shift: int = 0
    clamp: int = 0

    @property
    def key(self) -> tuple[str, bool, int, int]:
        """Key that is equal for two groups, of different models, that one selector can serve."""
        return self.feature, bool(self.cuts), self.part, self.shift

    @property
    def patterns(self) -> Bits:
        """Bits of each row, bool array of shape ``(rows, bits)``."""
        if self.cuts:
            rows = np.arange(len(self.cuts) + 1)
            return rows[:, None] > np.asarray(self.steps)
        rows = np.arange(1 << len(self.bits))
        return (rows[:, None] >> np.arange(len(self.bits)) & 1).astype(np.bool_)


def input_groups(spec: InputSpec) -> tuple[BitGroup, ...]:
    """Group all input bits; the thermometer fields of one feature are merged."""
    cuts: dict[str, list[tuple[int, int]]] = {}
    raw: dict[str, list[tuple[int, int, int]]] = {}
    for start, field in zip(spec.offsets, spec.fields, strict=True):
        if field.kind == "thermometer":
            cuts.setdefault(field.feature, []).extend(
                (cut, start + k) for k, cut in enumerate(field.cuts)
            )
        else:
            raw.setdefault(field.feature, []).append((start, field.width, field.clamp))
    groups: list[BitGroup] = []
    for feature in spec.features:
        pairs = sorted(cuts.get(feature, ()))
        for part, at in enumerate(range(0, len(pairs), MAX_CUTS)):
            groups.append(_thermometer(feature, part, pairs[at : at + MAX_CUTS]))
        for part, (start, width, clamp) in enumerate(raw.get(feature, ())):
            places = [*range(0, width, NIBBLE), width]
            groups.extend(
                BitGroup(
                    feature,
                    tuple(range(start + low, start + high)),
                    part=part,
                    shift=low,
                    clamp=clamp,
                )
                for low, high in pairwise(places)
            )
    return tuple(groups)


def _thermometer(feature: str, part: int, pairs: list[tuple[int, int]]) -> BitGroup:
    cuts = sorted({cut for cut, _ in pairs})
    steps = tuple(cuts.index(cut) for cut, _ in pairs)
    return BitGroup(feature, tuple(bit for _, bit in pairs), tuple(cuts), steps, part)


def fired_groups(words: int) -> tuple[tuple[int, ...], ...]:
    """Return the neurons of each nibble that ``network_fired`` extracts from a block of sums.

    Neuron ``8 * w + i`` of a block is byte ``i`` of its word ``w``. With four words, each byte
    column gives the eight nibbles. One or two words are folded, so that no nibble is half empty.

    Args:
        words: number of 64-bit words in the block, 1 to 4.
    """
    columns = {1: 2, 2: 4, 3: 8, 4: 8}[words]
    return tuple(
        tuple(8 * w + i for i in range(column, 8, columns) for w in range(words))
        for column in range(columns)
    )


def row_sums(layer: Connections, bits: tuple[int, ...], patterns: Bits) -> NDArray[np.int64]:
    """Compute the contribution of each row to the popcount of each neuron.

    Args:
        layer: the layer that reads the bits.
        bits: indices of the layer's inputs; indices from ``n_inputs`` on contribute nothing.
        patterns: bool array of shape ``(rows, bits)``.

    Returns:
        int64 array of shape ``(rows, outputs)``.
    """
    real = [i for i, bit in enumerate(bits) if bit < layer.n_inputs]
    index = [bits[i] for i in real]
    weights = layer.weights[:, index]
    counted = np.ones_like(weights) if layer.mask is None else layer.mask[:, index]
    on = patterns[:, real].astype(np.int64)
    agree, differ = (weights & counted).astype(np.int64), (~weights & counted).astype(np.int64)
    # A set bit counts for weight 1 and a clear bit for weight 0; masked connections never count.
    return on @ agree.T + (1 - on) @ differ.T
