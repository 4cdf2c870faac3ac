# SPDX-License-Identifier: Apache-2.0
"""Grows look-up tables by boosting: real entries, and the bits that address them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.loss import Floats, Rows

PRIOR = 3.0
"""Curvature that is added to each cell, so that few rows move an entry little."""
_STEP = 0.6  # of a new table's Newton step
_REFIT_STEP = 0.5
_REFIT_EVERY = 4
_TAKEN_REFITS = 8  # tables that are not renewed
_LARGEST = 4.0  # entry, in units of the logarithm of odds
_CUT_BYTES = 4
_CUT_PRICE = 0.3  # later tables read a cut that one table pays for


@dataclass(eq=False)
class Grown:
    """A table of real entries.

    Attributes:
        bits: the input bits that address it.
        cells: index of each row, int64 array of shape ``(rows,)``.
        entries: float64 array of shape ``(2 ** len(bits), sums)``.
    """

    bits: tuple[int, ...]
    cells: NDArray[np.int64]
    entries: Floats

    @property
    def sums(self) -> Floats:
        """What it adds to the sums of each row."""
        return np.asarray(self.entries[self.cells])


@dataclass(frozen=True)
class Size:
    """What tables may take.

    Attributes:
        tables: most tables.
        bits: input bits of a table.
        width: bits of an entry.
        sums: number of sums.
        bytes: most bytes in total, cuts included; 0 for no limit.
    """

    tables: int
    bits: int
    width: int
    sums: int
    bytes: int = 0

    def of(self, tables: int, cuts: int) -> int:
        """Compute the bytes of some tables and cuts: indices, entries, biases and cuts."""
        entries = -(-tables * self.sums * self.width * (1 << self.bits) // 8)
        indices = tables * self.bits * (1 if cuts <= 256 else 2)
        held = tables * -(-self.sums // 8) if self.sums > 1 else 0
        return entries + indices + held + 2 * self.sums + _CUT_BYTES * cuts

    @property
    def most(self) -> int:
        """Most tables that fit, if they need no cuts."""
        if not self.bytes:
            return self.tables
        return max(t for t in range(self.tables + 1) if not t or self.of(t, 0) <= self.bytes)

    def room(self, tables: int, cuts: int) -> int:
        """Compute how many cuts more fit beside some tables; large without a limit."""
        if not self.bytes:
            return 1 << 30
        return (self.bytes - self.of(tables, cuts)) // _CUT_BYTES


class Grower:
    """Tables of real entries that grow on some rows.

    Attributes:
        rows: the rows.
        size: what the tables may take.
        tables: the tables so far.
        bias: of each sum.
        total: sums of each row, shape ``(rows, sums)``.
    """

    def __init__(self, rows: Rows, size: Size, done: Callable[[], object] = lambda: None) -> None:
        """Start without tables.

        Args:
            rows: the rows.
            size: what the tables may take.
            done: called whenever a table is grown, renewed or fitted.
        """
        self.rows, self.size, self._done = rows, size, done
        self.tables: list[Grown] = []
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
            room = self.size.room(len(self.tables) + 1, int((self.uses > 0).sum()))
            bits = self._chosen(room) if room >= 0 else None
            if bits is None:
                break
            self._add(len(self.tables), bits, _STEP, 1)
            self._done()
            if len(self.tables) % _REFIT_EVERY == 0:
                self.refit(2)
        self.refit(2)

    def take(self, tables: Sequence[tuple[int, ...]]) -> None:
        """Add tables of given bits, and fit their entries."""
        for bits in tables:
            self._add(len(self.tables), bits, _STEP, 1)
            self._done()
            if len(self.tables) % _REFIT_EVERY == 0:
                self.refit(2)
        self.refit(_TAKEN_REFITS)

    def renew(self) -> None:
        """Take out each table in turn and grow it anew beside the others; then refit all."""
        for t in range(len(self.tables)):
            old = self.tables.pop(t)
            self.total -= old.sums
            room = self.size.room(len(self.tables) + 1, int((self.uses > 0).sum()))
            bits = self._chosen(max(0, room)) if room >= 0 else None
            self._add(t, bits or old.bits, 0.8, 4)
            self._done()
        self.refit(2)

    def refit(self, passes: int) -> None:
        """Move the entries of all tables, one table after the other, by damped Newton steps."""
        for _ in range(passes):
            for table in self.tables:
                before = table.entries
                table.entries = before + self._newton(table, self.total, _REFIT_STEP)
                np.clip(table.entries, -_LARGEST, _LARGEST, out=table.entries)
                self.total += (table.entries - before)[table.cells]
            self._refit_bias()

    def _add(self, at: int, bits: tuple[int, ...], step: float, steps: int) -> None:
        table = Grown(bits, cells_of(self.rows, bits), np.zeros((1 << len(bits), self.rows.sums)))
        for _ in range(steps):
            moved = table.entries + self._newton(table, self.total + table.sums, step)
            table.entries = np.clip(moved, -_LARGEST, _LARGEST)
        self.tables.insert(at, table)
        self.total += table.sums

    def _newton(self, table: Grown, total: Floats, step: float) -> Floats:
        """Compute damped Newton steps of a table's entries."""
        slopes, curves = (
            _by_cell(values, table.cells, len(table.entries))
            for values in self.rows.gradients(total)
        )
        return np.asarray(-step * slopes / (curves + PRIOR))

    def _refit_bias(self) -> None:
        for _ in range(3):
            slopes, curves = self.rows.gradients(self.total)
            step = np.clip(-slopes.sum(axis=0) / (curves.sum(axis=0) + 1e-9), -1, 1)
            self.bias += step
            self.total += step

    # --- which bits ------------------------------------------------------------------------

    def _chosen(self, room: int) -> tuple[int, ...] | None:
        """Choose the bits of a table greedily, as an oblivious tree chooses its cuts.

        A bit that no table reads yet costs a cut; it is taken for what the cut's bytes would gain
        in an average table, and not beyond the room.

        Returns:
            The bits; None if nothing can be gained.
        """
        used = self.uses > 0
        slopes, curves = self.rows.gradients(self.total)
        values = np.concatenate([slopes, curves], axis=1).astype(np.float32)
        price = _CUT_PRICE * _CUT_BYTES * self._gain_of_byte
        bits: list[int] = []

        def best(base: list[int]) -> tuple[int, float]:
            """Find the best bit beside others, and what they gain together."""
            new = sum(not used[b] for b in base)
            gains = self._gains(values, base) - price * (~used)
            gains[base] = -np.inf
            if new >= room:
                gains[~used] = -np.inf
            found = int(np.argmax(gains))
            return found, float(gains[found]) - price * new

        gain = -np.inf
        for _ in range(min(self.size.bits, len(used))):
            found, gain = best(bits)
            if not np.isfinite(gain):
                return None
            bits.append(found)
        if self.size.bytes:
            self._gain_of_byte = max(0.0, gain) / (self.size.of(1, 0) - self.size.of(0, 0))
        return tuple(bits)

    def _gains(self, values: NDArray[np.float32], base: list[int]) -> Floats:
        """Compute ``sum of G^2 / (H + prior)`` over the cells of some bits and each further bit.

        Args:
            values: slopes and curvatures of each row, shape ``(rows, 2 * sums)``.
            base: the bits so far.

        Returns:
            float64 array of shape ``(n_bits,)``.
        """
        size, (rows, columns) = 1 << len(base), values.shape
        spread = np.zeros((rows, size, columns), dtype=np.float32)
        spread[np.arange(rows), cells_of(self.rows, base)] = values
        flat = spread.reshape(rows, size * columns)
        half = columns // 2

        def gain(sums: Floats) -> Floats:
            parts = sums.reshape(size, columns, -1)
            slopes, curves = parts[:, :half], np.maximum(parts[:, half:], 0)
            return np.asarray((slopes**2 / (curves + PRIOR)).sum(axis=(0, 1)))

        ones = (flat.T @ self._columns).astype(np.float64)
        return gain(ones) + gain(flat.sum(axis=0, dtype=np.float64)[:, None] - ones)


def cells_of(rows: Rows, bits: Sequence[int]) -> NDArray[np.int64]:
    """Index of each row in a table that some bits address; bit 0 is the first of them."""
    out = np.zeros(len(rows.bits), dtype=np.int64)
    for j, bit in enumerate(bits):
        out |= rows.bits[:, bit].astype(np.int64) << j
    return out


def _by_cell(values: Floats, cells: NDArray[np.int64], size: int) -> Floats:
    """Sums of the rows' values in each cell: shape ``(rows, sums)`` to ``(size, sums)``."""
    return np.stack([np.bincount(cells, column, size) for column in values.T], axis=1)
