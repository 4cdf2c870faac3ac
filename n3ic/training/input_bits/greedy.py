# SPDX-License-Identifier: Apache-2.0
"""Cuts chosen jointly: for the information that all give together, not each alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import UsageError, needed
from n3ic.model.bits import Bits
from n3ic.model.inputs import UINT32_MAX, Field
from n3ic.training.input_bits.boosted import boosted_cuts, boosted_trees, fault_of
from n3ic.training.input_bits.columns import Columns, thermometer_fields
from n3ic.training.input_bits.quantile import spare_cuts
from n3ic.training.input_bits.tree import tree_cuts

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.ensemble import HistGradientBoostingClassifier

_BOOSTED, _TREE = 256, 128  # candidates of either kind
_MOST_ROWS = 1 << 17  # sampled if there are more: the candidates' bits are kept in memory
_SWAPS = 3  # rounds over the chosen bits
_PART = 64  # candidates evaluated at once, which bounds the memory


def greedy_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of cuts that are chosen for their joint information.

    Candidates are the first cuts of a best-first tree and, unless boosting has a fault, the cuts
    that save gradient-boosted trees the most loss. :func:`joint_choice` picks from them.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        seed: seed of the boosting, the tree, and the sample of rows.
        trees: fitted trees of :func:`boosted_trees` on these columns, if any.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total, in the order of ``columns``. If there are fewer
        candidates, quantile cuts are added; if there are too few values, there are fewer bits.
    """
    if bits < 1:
        raise UsageError(f"expected at least 1 input bit, got {bits}")
    trees = trees or boosted_trees(columns, label, seed=seed)
    gains = {} if fault_of(trees) else boosted_cuts(tuple(columns), trees)
    best = sorted(gains, key=lambda cut: (-gains[cut], cut))[: max(_BOOSTED, 2 * bits)]
    cuts_of_tree = tree_cuts(columns, label, max(_TREE, bits), seed=seed)
    pool = list(dict.fromkeys([*cuts_of_tree, *best]))
    if len(pool) < bits:
        pool += spare_cuts(columns, pool, bits - len(pool))
    if len(label) > _MOST_ROWS:
        drawn = np.random.default_rng(seed).choice(len(label), _MOST_ROWS, replace=False)
        columns, label = {n: c[drawn] for n, c in columns.items()}, label[drawn]
    encoded = np.empty((len(label), len(pool)), dtype=np.bool_)
    for j, (name, cut) in enumerate(pool):
        encoded[:, j] = np.clip(columns[name], 0, UINT32_MAX) >= cut
    start = range(min(bits, len(cuts_of_tree)))
    chosen = [pool[j] for j in joint_choice(encoded, label, bits, start)]
    return thermometer_fields(chosen, tuple(columns), catalogue=catalogue)


def joint_choice(
    bits: Bits, label: NDArray[np.int64], count: int, start: Sequence[int] = ()
) -> list[int]:
    """Choose the bits whose cells (rows equal in all chosen bits) predict the label best.

    Each step adds the bit that lowers the leave-one-out log loss of the cells most. Then bits are
    exchanged one for one while that lowers it. A given start is exchanged in the same way, and the
    better result is returned. No row counts for itself, so splitting cells finely gains nothing.

    Args:
        bits: candidates, bool array of shape ``(rows, candidates)``.
        label: class index of each row, shape ``(rows,)``.
        count: number of bits to choose.
        start: candidates from which a second search begins.

    Returns:
        Indices of ``count`` candidates, or of all if there are fewer, in ascending order.
    """
    if count >= bits.shape[1]:
        return list(range(bits.shape[1]))
    table = _CellTable(bits, label)
    chosen_bits: list[int] = []
    while len(chosen_bits) < count:
        chosen_bits.append(table.best(chosen_bits)[1])
        # Exchanges cost most of the time: only at powers of two, and at the end.
        if len(chosen_bits).bit_count() == 1 or len(chosen_bits) == count:
            chosen_bits = table.exchanged(chosen_bits)
    choices = [chosen_bits]
    if len(start) == count:
        choices.append(table.exchanged(list(start)))
    losses = [table.loss(choice) for choice in choices]
    return sorted(choices[losses.index(min(losses))])


class _CellTable:
    """Log losses of the cells of chosen candidates."""

    def __init__(self, bits: Bits, label: NDArray[np.int64]) -> None:
        rows, of_row = _distinct(np.packbits(bits, axis=1))
        self.classes = int(label.max()) + 1
        counts = np.zeros((len(rows), self.classes), dtype=np.float32)
        np.add.at(counts, (of_row, label), 1)
        self.row, self.label = np.nonzero(counts)  # distinct rows and labels, each once
        self.weight = counts[self.row, self.label]
        self.bits = bits[rows]
        self.floats = self.bits[self.row].astype(np.float32)
        self.prior = counts.sum(axis=0) / counts.sum()

    def best(self, chosen: list[int]) -> tuple[float, int]:
        """The least loss of the chosen bits and one more, and the index of that bit."""
        cells, of_row = self._cells(chosen)
        inside = self._sums(cells, of_row)
        whole = np.zeros((cells, self.classes), dtype=np.float32)
        np.add.at(whole, (of_row[self.row], self.label), self.weight)
        losses = np.empty(self.bits.shape[1])
        for first in range(0, len(losses), _PART):
            part = slice(first, first + _PART)
            # A new bit splits each cell: count its ones, the rest are its zeros.
            ones = (inside @ self.floats[:, part]).reshape(cells, self.classes, -1)
            losses[part] = self._losses(ones) + self._losses(whole[:, :, None] - ones)
        losses[chosen] = np.inf  # a bit cannot be chosen twice
        at = int(losses.argmin())
        return float(losses[at]), at

    def loss(self, chosen: list[int]) -> float:
        """Leave-one-out log loss of the table, in nats summed over the rows."""
        cells, of_row = self._cells(chosen)
        counts = np.zeros((cells, self.classes), dtype=np.float32)
        np.add.at(counts, (of_row[self.row], self.label), self.weight)
        return float(self._losses(counts[:, :, None])[0])

    def exchanged(self, chosen: list[int]) -> list[int]:
        """The chosen bits, exchanged one for one while that lowers the loss."""
        chosen, loss = list(chosen), self.loss(chosen)
        for _ in range(_SWAPS):
            before = loss
            for place in range(len(chosen)):
                new_loss, other = self.best(chosen[:place] + chosen[place + 1 :])
                if new_loss < loss - 1e-6 * abs(loss):  # a smaller gain may be a rounding error
                    chosen[place], loss = other, new_loss
            if loss == before:
                break
        return chosen

    def _cells(self, chosen: list[int]) -> tuple[int, NDArray[np.intp]]:
        """Number of non-empty cells of the chosen bits, and the cell of each distinct row."""
        if not chosen:
            return 1, np.zeros(len(self.bits), dtype=np.intp)
        first, of_row = _distinct(np.packbits(self.bits[:, chosen], axis=1))
        return len(first), of_row

    def _sums(self, cells: int, of_row: NDArray[np.intp]) -> csr_matrix:
        """Matrix whose product with bits of the rows counts them by cell and class."""
        with needed("choosing input bits"):
            from scipy.sparse import csr_matrix
        group = of_row[self.row] * self.classes + self.label
        places = (group, np.arange(len(group)))
        return csr_matrix((self.weight, places), shape=(cells * self.classes, len(group)))

    def _losses(self, counts: NDArray[np.float32]) -> NDArray[np.float64]:
        """Sum over cells and classes: counts of shape ``(cells, classes, candidates)``."""
        # Leave one out: a row's odds are (own - 1 + prior) / (cell - 1 + 1), counts without it.
        remainder = np.maximum(counts.sum(axis=1, keepdims=True) - 1, 0)
        own = np.maximum(counts - 1, 0) + self.prior[:, None]
        terms = counts * (np.log(remainder + 1) - np.log(own))
        return np.asarray(terms.sum(axis=(0, 1), dtype=np.float64))


def _distinct(packed: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index of the first row of each set of equal rows, and the set of each row."""
    # Sorting rows as single words is much faster than sorting rows of bytes.
    wide = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    wide[:, : packed.shape[1]] = packed
    words = wide.view(np.uint64)
    keys = words[:, 0] if words.shape[1] == 1 else wide.view(f"V{wide.shape[1]}")[:, 0]
    _, first, of_row = np.unique(keys, return_index=True, return_inverse=True)
    return first, of_row.reshape(-1)
