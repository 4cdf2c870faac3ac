# SPDX-License-Identifier: Apache-2.0
"""Cuts with copies, as many as the weight of each in a network with real weights earns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import needed
from n3ic.model.inputs import Field, InputSpec
from n3ic.training.input_bits.boosted import boosted_fields
from n3ic.training.input_bits.columns import Columns, thermometer_fields
from n3ic.util.signals import held

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier


def weighted_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    hidden: tuple[int, ...] = (32, 16),
    candidates: int = 384,
    most_copies: int = 16,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of boosted cuts, each with as many copies as it earns.

    Gradient-boosted trees choose the candidates. A network with real first weights values each
    (:func:`n3ic.training.importance.bit_importance`). The bits go one by one to the candidate with
    the largest weight per copy. Two copies of a bit give a neuron the weights -2, 0 and 2.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        hidden: hidden layers of the network that the bits are for.
        candidates: number of cuts to choose from.
        most_copies: largest number of bits of one cut.
        seed: seed of the boosting and of the network.
        trees: fitted trees of :func:`boosted_trees` on these columns, if any.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total. The first field of a feature has each of its cuts once;
        further fields have the copies.
    """
    fields = boosted_fields(columns, label, candidates, seed=seed, trees=trees, catalogue=catalogue)
    if not fields:
        return ()
    # A signal within PyTorch's import would end the process in C++, without a word and a clean-up.
    with needed("choosing input bits by weight"), held():
        from n3ic.training.importance import bit_importance
    encoded = InputSpec(fields).encode(columns)
    weight = bit_importance(encoded, label, hidden=hidden, seed=seed)
    copies = share_bits(weight, bits, most_copies)
    cuts = [(f.feature, cut) for f in fields for cut in f.cuts]
    out: tuple[Field, ...] = ()
    # The cuts of a field increase strictly, so each further copy of a cut needs another field.
    for level in range(int(copies.max(initial=0))):
        again = [cut for cut, count in zip(cuts, copies, strict=True) if count > level]
        out += thermometer_fields(again, tuple(columns), catalogue=catalogue)
    return out


def share_bits(weight: NDArray[np.float64], bits: int, most: int) -> NDArray[np.int64]:
    """Copies of each candidate: every bit in turn goes to the largest weight per copy.

    Args:
        weight: weight of each candidate, float64 of shape ``(candidates,)``, not negative.
        bits: number of bits to distribute.
        most: largest number of copies of one candidate.

    Returns:
        int64 array of shape ``(candidates,)`` that sums to ``bits``, or to ``most`` times the
        candidates if that is less.
    """
    copies = np.zeros(len(weight), dtype=np.int64)
    for _ in range(min(bits, most * len(weight))):
        # As D'Hondt's method gives seats: weight over the copies, the next one included.
        worth = np.where(copies < most, weight / (copies + 1), -1.0)
        # Two weights that differ in their last bit may be worth the same: the larger goes first.
        candidates = np.flatnonzero(worth == worth.max())
        copies[candidates[np.argmax(weight[candidates])]] += 1
    return copies
