# SPDX-License-Identifier: Apache-2.0
"""Compresses heaps of weighted bits to a number or to one comparison.

The compressors are cells of three and five inputs, never ``+``. A full adder reduces three bits to
two. Its two tables have the same inputs and share one LUT6_2 site. A double full adder reduces five
bits to three. Two of its tables share a site. The third is a majority of three, and shares a site
with the majority of another adder that reads one of the same bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from n3ic.exporters.netfpga.unrolled.cells import ADD3, ADD5, ADD7, ADD32, PARITY
from n3ic.exporters.netfpga.unrolled.netlist import FALSE, TRUE, Netlist

_SEVENS = 6  # bits of a column for which an adder of seven is smaller than the others


@dataclass(frozen=True)
class Number:
    """``offset + sum(bits[i] << i)``, where the sum of the bits is at most ``most``."""

    bits: tuple[int, ...]
    offset: int
    most: int

    def negated(self) -> Number:
        """Negate the number by inverting its bits and changing the offset; needs no logic."""
        full = (1 << len(self.bits)) - 1
        return Number(tuple(bit ^ 1 for bit in self.bits), -self.offset - full, full)


@dataclass
class BitHeap:
    """A sum of weighted bits and an integer.

    Attributes:
        columns: literals by the exponent of their weight, a power of two.
        offset: the integer.
        most: maximum of the sum of the bits alone.
    """

    columns: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    offset: int = 0
    most: int = 0

    def add_bit(self, literal: int, coefficient: int = 1) -> None:
        """Add ``coefficient`` times a bit."""
        if coefficient < 0:
            self.offset += coefficient
            literal, coefficient = literal ^ 1, -coefficient
        if literal == FALSE:
            return
        if literal == TRUE:
            self.offset += coefficient
            return
        self.most += coefficient
        for power in range(coefficient.bit_length()):
            if coefficient >> power & 1:
                self._insert(literal, power)

    def _insert(self, literal: int, power: int) -> None:
        column = self.columns[power]
        if literal in column:  # x + x = 2 x: one bit of the next column
            column.remove(literal)
            self._insert(literal, power + 1)
        elif literal ^ 1 in column:  # x + !x = 1: a constant
            column.remove(literal ^ 1)
            self.offset += 1 << power
            self.most -= 1 << power
        else:
            column.append(literal)

    def add(self, term: Number | BitHeap, sign: int = 1) -> None:
        """Add or subtract a number or another heap."""
        if isinstance(term, Number):
            term = term if sign > 0 else term.negated()
            self.offset += term.offset
            most = self.most + term.most
            for power, literal in enumerate(term.bits):
                self.add_bit(literal, 1 << power)
            # A number's own bound is tighter than the sum of its bits' weights.
            self.most = min(self.most, most)
            return
        self.offset += sign * term.offset
        for power, column in term.columns.items():
            for literal in column:
                self.add_bit(literal, sign << power)

    @property
    def size(self) -> int:
        """Number of bits."""
        return sum(len(column) for column in self.columns.values())


class BitHeapCompressor:
    """Compresses heaps into a netlist.

    Attributes:
        net: the netlist.
    """

    def __init__(self, net: Netlist) -> None:
        self.net = net
        # Free majorities of three, whose sites can take a second table, by input node.
        self._alone: dict[int, dict[frozenset[int], None]] = defaultdict(dict)

    def fork(self) -> BitHeapCompressor:
        """Copy the adder with its netlist, to try alternatives."""
        copy = BitHeapCompressor(self.net.fork())
        copy._alone = defaultdict(dict, {n: dict(sets) for n, sets in self._alone.items()})
        return copy

    # --- compressors -------------------------------------------------------------------------

    def _full(self, bits: Sequence[int], power: int, name: str) -> tuple[int, int]:
        """Sum and carry of two or three bits."""
        total, carry = self.net.cell(ADD3, bits, (f"{name}_b{power}", f"{name}_b{power + 1}"))
        return total, carry

    def _double(self, bits: list[int], power: int, name: str) -> tuple[int, list[int]]:
        """Sum and two carries of five bits."""
        bits = self._with_partner(bits)
        _, first = self._full(bits[:3], power, name)
        # The second carry is that of the first three bits' sum plus the remaining two bits.
        total, second = self.net.cell(ADD5, bits, (f"{name}_b{power}", f"{name}_b{power + 1}"))
        return total, [first, second]

    def _upper(
        self, column: Sequence[int], following: Sequence[int], power: int, name: str
    ) -> tuple[int, int]:
        """Sum of up to three bits and two bits of double weight, without its lowest bit."""
        bits = (*column, *[FALSE] * (3 - len(column)), *following)
        middle, top = self.net.cell(ADD32, bits, (f"{name}_b{power + 1}", f"{name}_b{power + 2}"))
        return middle, top

    def _with_partner(self, bits: list[int]) -> list[int]:
        """Order the bits so that the majority of the first three shares a site with another."""
        nodes = {bit >> 1: bit for bit in bits if bit > TRUE}
        if len(nodes) < len(bits):  # constants and repeated bits are not matched by node
            return bits
        for node in nodes:
            for other in self._alone[node]:
                chosen = [bit for n, bit in nodes.items() if n in other][:3]
                for n in other:
                    self._alone[n].pop(other, None)
                rest = [bit for bit in bits if bit not in chosen]
                return chosen + rest
        three = frozenset(bit >> 1 for bit in bits[:3])
        for node in three:
            self._alone[node][three] = None
        return bits

    # --- sums --------------------------------------------------------------------------------

    def number(
        self, heap: BitHeap, name: str, constant: int = 0, width: int | None = None
    ) -> Number:
        """Compress a heap to one bit per column.

        Args:
            heap: the heap to add up.
            name: name of the number in the Verilog.
            constant: non-negative constant to add in logic; the offset falls by the same amount.
            width: number of bits; the sum is taken modulo ``2**width``. None for all bits.
        """
        most = heap.most + constant
        bits = most.bit_length() if width is None else width
        columns = self._columns(heap, constant)
        out: list[int] = []
        for power in range(bits):
            last = power == bits - 1
            out.append(self._column(columns, power, name, last=last))
        return Number(tuple(out), heap.offset - constant, most)

    def _columns(self, heap: BitHeap, constant: int) -> defaultdict[int, list[int]]:
        columns = defaultdict(list, {power: list(c) for power, c in heap.columns.items()})
        for power in range(constant.bit_length()):
            if constant >> power & 1:
                columns[power].append(TRUE)
        return columns

    def _column(
        self, columns: defaultdict[int, list[int]], power: int, name: str, *, last: bool
    ) -> int:
        """Reduce a column to one bit, and pass the carries to the next column."""
        column = columns.pop(power, [])
        level = self.net.level
        while len(column) > 1:
            column.sort(key=lambda literal: (level(literal), literal))
            following = columns[power + 1]
            if last:  # carries would be 0 or beyond the width, so the parity suffices
                now, column = column[:6], column[6:]
                column.extend(self.net.cell(PARITY, now, (f"{name}_b{power}",)))
            elif len(column) == 3 and len(following) == 2:
                middle, top = self._upper(column, following, power, name)
                columns[power + 1] = [middle]
                _push(columns[power + 2], top)
                return self._full(column, power, name)[0]
            else:
                column = self._added(column, following, power, name)
        return column[0] if column else FALSE

    def _added(self, column: list[int], following: list[int], power: int, name: str) -> list[int]:
        """Return a column after one adder, which takes its first five or three bits."""
        if len(column) >= 5:
            now, rest = column[:5], column[5:]
            total, carries = self._double(now, power, name)
        else:
            now, rest = column[:3], column[3:]
            total, *carries = self._full(now, power, name)
        for carry in carries:
            _push(following, carry)
        return [*rest, total]

    def sevens(self, heap: BitHeap, name: str) -> BitHeap:
        """Add seven bits at a time, on carry logic, until a column has at most five bits.

        It removes four bits with two sites; the other adders need three sites for that.
        """
        columns = self._columns(heap, 0)
        out = BitHeap(offset=heap.offset, most=heap.most)
        power = 0
        while power <= max(columns, default=-1):
            column = columns[power]
            while len(column) >= _SEVENS:
                column.sort(key=lambda literal: (self.net.level(literal), literal))
                now, column = column[:7], column[7:]
                # The last two feed the carry logic, which cannot invert them.
                now.sort(key=self.net.is_plain)
                now = [FALSE] * (7 - len(now)) + now
                names = tuple(f"{name}_b{power + k}" for k in range(3))
                total, *carries = self.net.cell(ADD7, now, names)
                _push(column, total)
                for k, carry in enumerate(carries, 1):
                    _push(columns[power + k], carry)
            out.columns[power] = column
            power += 1
        return out

    # --- comparisons -------------------------------------------------------------------------

    def reaches(self, heap: BitHeap, bound: int, name: str) -> int:
        """Build a literal that says whether the sum is at least ``bound``."""
        bound -= heap.offset
        if bound <= 0:
            return TRUE
        if bound > heap.most:
            return FALSE
        # sum >= bound iff sum + (2**width - bound) >= 2**width, which only needs carries: no sum
        # bit below column `width` has to be computed.
        width = (bound - 1).bit_length()
        columns = self._columns(heap, (1 << width) - bound)
        power = 0
        while power < width:
            rest = [
                (bit, 1 << column - power)
                for column, bits in sorted(columns.items())
                for bit in bits
                if bit != FALSE
            ]
            fixed = sum(weight for bit, weight in rest if bit == TRUE)
            loose = [(bit, weight) for bit, weight in rest if bit != TRUE]
            if len({bit >> 1 for bit, _ in loose}) <= 6 and len(loose) <= 6:
                return self.net.at_least(
                    (1 << width - power) - fixed, [b for b, _ in loose], [w for _, w in loose], name
                )
            power = self._carries(columns, power, width, name)
        overflow = [(bit, 1 << column - width) for column, bits in columns.items() for bit in bits]
        return self.net.any_of(
            [bit for bit, _ in overflow], name, [weight for _, weight in overflow]
        )

    def _carries(
        self, columns: defaultdict[int, list[int]], power: int, width: int, name: str
    ) -> int:
        """Reduce the lowest column to its carries; return the next column to reduce."""
        column = columns.pop(power, [])
        level = self.net.level
        while len(column) > 1:
            column.sort(key=lambda literal: (level(literal), literal))
            following = columns[power + 1]
            if power + 1 < width and len(column) <= 3 and 1 <= len(following) <= 2:
                _, carry = self._upper(column, following, power, name)
                columns.pop(power + 1)
                _push(columns[power + 2], carry)
                return power + 2
            column = self._added(column, following, power, name)
        return power + 1


def _push(column: list[int], literal: int) -> None:
    if literal != FALSE:
        column.append(literal)
