# SPDX-License-Identifier: Apache-2.0
"""Grows look-up tables by boosting: real entries, and the bits that address them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.cut_costs import CutCosts
from n3ic.families.tables.gains import CellGains, cells_of
from n3ic.families.tables.loss import Floats, WeightedRows
from n3ic.model.inputs import InputSpec

PRIOR = 3.0
"""Default curvature that is added to each cell, so that few rows move an entry only a little."""
_STEP = 0.6  # damping of a new table's Newton steps
_REFIT_STEP = 0.5
_REFIT_EVERY = 4
_TAKEN_REFITS = 8  # refits of given tables, which are not renewed
_LARGEST = 4.0  # largest entry, in log-odds
_CUT_PRICE = 0.3  # below 1, as later tables also read a cut that one table pays for
_EXCHANGES = 12  # most exchanges of a table's bits
_EXCHANGE_GAIN = 1e-4  # least gain, as a share of the table's: less is rounding


_Choice = tuple[tuple[int, ...], Floats]
"""The bits of a table, and what it gains for each sum."""


@dataclass(eq=False)
class RealTable:
    """A table of real entries.

    Attributes:
        bits: the input bits that address it.
        cells: index of each row, int64 array of shape ``(rows,)``.
        entries: float64 array of shape ``(2 ** len(bits), sums)``.
        held: the sums that it adds to, bool array of shape ``(sums,)``; other entries are 0.
    """

    bits: tuple[int, ...]
    cells: NDArray[np.int64]
    entries: Floats
    held: NDArray[np.bool_]

    @property
    def sums(self) -> Floats:
        """What it adds to the sums of each row: float64 array of shape ``(rows, sums)``."""
        return np.asarray(self.entries[self.cells])


@dataclass(frozen=True)
class Size:
    """The size that tables may have.

    Attributes:
        tables: largest number of tables.
        bits: number of input bits of a table.
        width: bits of an entry.
        sums: number of sums.
        bytes: largest number of bytes in total, cuts included; 0 for no limit.
    """

    tables: int
    bits: int
    width: int
    sums: int
    bytes: int = 0

    def of(self, tables: int, read: int, columns: int) -> int:
        """Compute the bytes of some tables: indices, entries and biases.

        Args:
            tables: number of tables.
            read: number of input bits that they read.
            columns: number of sums that they add to, all tables together.
        """
        entries = -(-columns * self.width * (1 << self.bits) // 8)
        indices = tables * self.bits * (1 if read <= 256 else 2)
        mask_bytes = tables * -(-self.sums // 8) if self.sums > 1 else 0
        return entries + indices + mask_bytes + 2 * self.sums

    @property
    def most(self) -> int:
        """Largest number of tables that fit, if they need no cuts."""
        if not self.bytes:
            return self.tables
        return max(t for t in range(self.tables + 1) if not t or self.of(t, 0, t) <= self.bytes)

    def room(self, tables: int, read: int, columns: int) -> int:
        """Compute the bytes for cuts beside some tables; a large number without a limit."""
        return self.bytes - self.of(tables, read, columns) if self.bytes else 1 << 30


class TableBooster:
    """Tables of real entries that grow on some rows.

    Attributes:
        rows: the rows.
        size: the size that the tables may have.
        tables: the tables so far.
        bias: bias of each sum, float64 array of shape ``(sums,)``.
        total: sums of each row, float64 array of shape ``(rows, sums)``.
    """

    def __init__(
        self,
        rows: WeightedRows,
        size: Size,
        spec: InputSpec,
        done: Callable[[], object] = lambda: None,
        prior: float = PRIOR,
    ) -> None:
        """Start without tables.

        Args:
            rows: the rows.
            size: the size that the tables may have.
            spec: the input bits.
            done: called whenever a table is grown, renewed or fitted.
            prior: curvature that is added to each cell.
        """
        self.rows, self.size, self._done, self._prior = rows, size, done, prior
        self._cuts = CutCosts(spec)
        self.tables: list[RealTable] = []
        self.bias = np.zeros(rows.sums)
        self.total = np.zeros((len(rows.bits), rows.sums))
        self._gain_of_byte = 0.0
        self._refit_bias()

    @cached_property
    def _columns(self) -> NDArray[np.float32]:
        return self.rows.bits.astype(np.float32)

    @property
    def uses(self) -> NDArray[np.int64]:
        """How many tables read each input bit."""
        read = [b for t in self.tables for b in t.bits]
        return np.bincount(np.array(read, dtype=np.int64), minlength=self.rows.bits.shape[1])

    def grow(self) -> None:
        """Add tables, one by one, as many as fit."""
        while len(self.tables) < self.size.tables:
            table_choice = self._chosen()
            if table_choice is None:
                break
            self._add(len(self.tables), *table_choice, _STEP, 1)
            self._done()
            if len(self.tables) % _REFIT_EVERY == 0:
                self.refit(2)
        self.refit(2)

    def add_tables(self, tables: Sequence[tuple[tuple[int, ...], NDArray[np.bool_]]]) -> None:
        """Add tables of given bits, which add to given sums, and fit their entries."""
        for bits, sum_mask in tables:
            self._add(len(self.tables), bits, sum_mask, _STEP, 1)
            self._done()
            if len(self.tables) % _REFIT_EVERY == 0:
                self.refit(2)
        self.refit(_TAKEN_REFITS)

    def renew(self) -> None:
        """Remove each table in turn and grow it again beside the others; then refit all."""
        for t in range(len(self.tables)):
            old = self.tables.pop(t)
            self.total -= old.sums
            bits, sum_mask = self._chosen() or (old.bits, old.held)
            self._add(t, bits, sum_mask, 0.8, 4)
            self._done()
        self.refit(2)

    def refit(self, rounds: int) -> None:
        """Move the entries of all tables, one table after the other, by damped Newton steps."""
        for _ in range(rounds):
            for table in self.tables:
                before = table.entries
                table.entries = before + self._newton(table, self.total, _REFIT_STEP)
                np.clip(table.entries, -_LARGEST, _LARGEST, out=table.entries)
                self.total += (table.entries - before)[table.cells]
            self._refit_bias()

    def _add(
        self, at: int, bits: tuple[int, ...], sum_mask: NDArray[np.bool_], step: float, steps: int
    ) -> None:
        entries = np.zeros((1 << len(bits), self.rows.sums))
        table = RealTable(bits, cells_of(self.rows, bits), entries, sum_mask)
        for _ in range(steps):
            moved = table.entries + self._newton(table, self.total + table.sums, step)
            table.entries = np.clip(moved, -_LARGEST, _LARGEST)
        self.tables.insert(at, table)
        self.total += table.sums

    def _newton(self, table: RealTable, total: Floats, step: float) -> Floats:
        """Compute damped Newton steps of a table's entries."""
        slopes, curves = (
            _by_cell(values, table.cells, len(table.entries))
            for values in self.rows.gradients(total)
        )
        return np.asarray(np.where(table.held, -step * slopes / (curves + self._prior), 0.0))

    def _refit_bias(self) -> None:
        for _ in range(3):
            slopes, curves = self.rows.gradients(self.total)
            step = np.clip(-slopes.sum(axis=0) / (curves.sum(axis=0) + 1e-9), -1, 1)
            self.bias += step
            self.total += step

    # --- which bits ------------------------------------------------------------------------

    def _chosen(self) -> tuple[tuple[int, ...], NDArray[np.bool_]] | None:
        """Choose the bits of a table, and the sums that it adds to.

        Within a limit of bytes, a table of several sums adds only to those for which it gains most
        per byte, and its bits are chosen again for these.

        Returns:
            Bits, and sums as a bool array ``(sums,)``; None if nothing fits or can be gained.
        """
        slopes, curves = self.rows.gradients(self.total)
        sum_mask = np.ones(self.rows.sums, dtype=np.bool_)
        if limited := self.size.bytes > 0:
            bit_choice = self._greedy(slopes, curves, self._room(1))
            if bit_choice and len(sum_mask) > 1:
                sum_mask = self._worthy(*bit_choice)
                room = self._room(int(sum_mask.sum()))
                bit_choice = self._greedy(slopes[:, sum_mask], curves[:, sum_mask], room)
        else:
            bit_choice = self._greedy(slopes, curves, self._room(len(sum_mask)))
        if bit_choice is None:
            return None
        bits, gains = bit_choice
        if limited:
            gain = max(0.0, float(gains.sum()) - self._price * self._cut_bytes(bits))
            self._gain_of_byte = gain / self._table_bytes(0, len(gains))
        return bits, sum_mask

    def _worthy(self, bits: tuple[int, ...], gains: Floats) -> NDArray[np.bool_]:
        """Choose the sums for which a table gains most per byte.

        Args:
            bits: its bits, for which there is room beside one sum.
            gains: what it gains for each sum, shape ``(sums,)``.
        """
        order = np.argsort(-gains, kind="stable")
        new = self._cut_bytes(bits)
        counts = range(1, len(gains) + 1)
        by_byte = np.cumsum(gains[order]) / [self._table_bytes(new, k) for k in counts]
        fits = [self._room(k) >= new for k in counts]
        sum_mask = np.zeros(len(gains), dtype=np.bool_)
        sum_mask[order[: int(np.where(fits, by_byte, -np.inf).argmax()) + 1]] = True
        return sum_mask

    def _table_bytes(self, cut_bytes: int, columns: int) -> int:
        """Bytes of a further table with new cuts of some bytes, which adds to some sums."""
        return self.size.of(1, 0, columns) - self.size.of(0, 0, 0) + cut_bytes

    def _room(self, columns: int) -> int:
        """How many bytes a further table that adds to some sums leaves for its new cuts."""
        columns += sum(int(t.held.sum()) for t in self.tables)
        uses = self.uses
        most = min(int((uses > 0).sum()) + self.size.bits, len(uses))
        return self.size.room(len(self.tables) + 1, most, columns) - self._cuts.of(uses > 0)

    def _read_with(self, bits: Sequence[int]) -> NDArray[np.bool_]:
        """The input bits that are read if some more are: bool array ``(n_bits,)``."""
        read = self.uses > 0
        read[list(bits)] = True
        return read

    def _cut_bytes(self, bits: Sequence[int]) -> int:
        """How many bytes the cuts of some bits take beside those that tables read."""
        return self._cuts.of(self._read_with(bits)) - self._cuts.of(self.uses > 0)

    @property
    def _price(self) -> float:
        """What a byte of cuts must gain."""
        return _CUT_PRICE * self._gain_of_byte

    def _greedy(self, slopes: Floats, curves: Floats, room: int) -> _Choice | None:
        """Choose the bits of a table greedily, as an oblivious tree does; then exchange them.

        A bit that no table reads yet costs a cut, so it must gain more than a read one: a share of
        what the bytes of its cut gained in the last table.

        Args:
            slopes: gradient of each row and sum that the table adds to, shape ``(rows, sums)``.
            curves: curvatures, likewise.
            room: bytes for cuts that no table reads yet; negative if the table has no room.

        Returns:
            Bits, and what they gain for each sum; None if nothing can be gained.
        """
        if room < 0:
            return None
        gain = CellGains(self.rows, self._columns, slopes, curves, self._prior)
        bits: list[int] = []
        for _ in range(min(self.size.bits, self.rows.bits.shape[1])):
            cost = self._cuts.of_each(self._read_with(bits))
            worth = gain.of(bits).sum(axis=0) - self._price * cost
            worth[bits] = -np.inf
            worth[self._cut_bytes(bits) + cost > room] = -np.inf
            best = int(np.argmax(worth))
            if not np.isfinite(worth[best]):
                return None
            bits.append(best)
        return self._exchanged(gain, bits, room)

    def _exchanged(self, gain: CellGains, bits: list[int], room: int) -> _Choice:
        """Exchange single bits of a table, always the exchange of largest gain, while one gains.

        Args:
            gain: computes what bits gain.
            bits: the bits.
            room: bytes for cuts that no table reads yet.

        Returns:
            Bits, and what they gain for each sum.
        """
        bits = list(bits)
        for left in reversed(range(_EXCHANGES + 1)):
            gains = gain.replacement_gains(bits)
            whole = gains[0][:, bits[0]]
            more = np.full((len(bits), gains[0].shape[-1]), -np.inf)
            for j, bit in enumerate(bits):
                others = bits[:j] + bits[j + 1 :]
                cost = self._cuts.of_each(self._read_with(others))
                worth = gains[j].sum(axis=0) - self._price * cost
                more[j] = worth - worth[bit]
                more[j, self._cut_bytes(others) + cost > room] = -np.inf
            more[:, bits] = -np.inf
            place, best = divmod(int(more.argmax()), more.shape[1])
            if not left or more[place, best] <= _EXCHANGE_GAIN * whole.sum():
                break
            bits[place] = best
        return tuple(bits), whole


def _by_cell(values: Floats, cells: NDArray[np.int64], size: int) -> Floats:
    """Sums of the rows' values in each cell: shape ``(rows, sums)`` to ``(size, sums)``."""
    return np.stack([np.bincount(cells, column, size) for column in values.T], axis=1)
