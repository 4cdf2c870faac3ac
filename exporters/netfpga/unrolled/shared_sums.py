# SPDX-License-Identifier: Apache-2.0
"""Computes many sums of the same bits, with common partial sums computed once.

Two neurons with weights of +1 and -1 are ``S + D`` and ``S - D``. S sums the inputs on whose sign
the neurons agree, and D the others, which halves the work. Two such pairs divide the inputs into
eight cells by the four signs. Each cell is counted once and used by both pairs. Masks add cells of
inputs that only one of the two neurons has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, product

from n3ic.exporters.netfpga.unrolled.bit_heap import BitHeap, BitHeapCompressor, Number

Row = tuple[tuple[int, int], ...]  # (literal, coefficient), ascending; the first one is > 0
Feed = tuple[int, int, int]  # (child, the child's row, sign)


@dataclass(frozen=True)
class BoundedSum:
    """One sum and the bounds that it is compared with.

    Attributes:
        row: the sum.
        bounds: the bounds.
        names: one name per bound, for the Verilog.
    """

    row: Row
    bounds: tuple[int, ...]
    names: tuple[str, ...]


@dataclass
class _Part:
    """Neurons that share cells: a leaf holds one goal, other parts join two parts.

    Attributes:
        place: for each input literal, the row of this part that counts it, and its sign.
        n_rows: number of rows.
        children: the two joined parts; empty for a leaf.
        feeds: for each row, the rows of the children that it is added to.
        goal: the goal of a leaf.
    """

    place: dict[int, tuple[int, int]]
    n_rows: int
    children: tuple[_Part, ...] = ()
    feeds: list[list[Feed]] = field(default_factory=list)
    goal: BoundedSum | None = None
    extra: Row = ()  # of a leaf: terms with coefficients other than +1 and -1


def compare_sums(
    adder: BitHeapCompressor,
    goals: Sequence[BoundedSum],
    groups: Sequence[Sequence[int]],
    name: str,
) -> list[list[int]]:
    """Compare sums with their bounds.

    Args:
        adder: adder that gets the logic.
        goals: the sums and their bounds.
        groups: indices of goals that share cells, to be joined in pairs; each goal occurs once.
        name: Verilog name of the cells, before their number.

    Returns:
        For each goal, one literal per bound.
    """
    answers: dict[int, list[int]] = {}
    numbers = (f"{name}{n}" for n in count())
    for group in groups:
        parts = [_leaf(goals[index]) for index in group]
        while len(parts) > 1:
            merged = [_merge(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = merged + parts[len(merged) * 2 :]
        root = parts[0]
        rows = [BitHeap() for _ in range(root.n_rows)]
        for literal, (row, sign) in root.place.items():
            rows[row].add_bit(literal, sign)
        leaves = _descend(adder, root, rows, numbers)
        answers.update(zip(group, leaves, strict=True))
    return [answers[index] for index in range(len(goals))]


def _leaf(goal: BoundedSum) -> _Part:
    place = {literal: (0, c) for literal, c in goal.row if abs(c) == 1}
    extra = tuple((literal, c) for literal, c in goal.row if abs(c) != 1)
    return _Part(place, 1, goal=goal, extra=extra)


def _merge(first: _Part, second: _Part) -> _Part:
    """Join two parts: one cell for each pair of rows and relative sign."""
    keys: dict[tuple[int | None, int | None, int], int] = {}
    feeds: list[list[Feed]] = []
    place: dict[int, tuple[int, int]] = {}
    for literal in sorted(first.place.keys() | second.place.keys()):
        a, b = first.place.get(literal), second.place.get(literal)
        sign = a[1] if a else b[1] if b else 1
        # Cells are counted with the first part's sign; the second part adds or subtracts them.
        relative = a[1] * b[1] if a and b else 1
        key = (a[0] if a else None, b[0] if b else None, relative)
        if key not in keys:
            keys[key] = len(feeds)
            feeds.append(([(0, a[0], 1)] if a else []) + ([(1, b[0], relative)] if b else []))
        place[literal] = (keys[key], sign)
    return _Part(place, len(feeds), (first, second), feeds)


def _descend(
    adder: BitHeapCompressor, part: _Part, rows: list[BitHeap], names: Iterator[str]
) -> list[list[int]]:
    """Answers of all leaves of a part, given the sums of its rows."""
    if part.goal is not None:
        heap = BitHeap()
        for row in rows:
            heap.add(row)
        for literal, coefficient in part.extra:
            heap.add_bit(literal, coefficient)
        goals = zip(part.goal.bounds, part.goal.names, strict=True)
        return [[adder.reaches(heap, bound, name) for bound, name in goals]]
    rows, feeds, constants = _tuned(part, rows)
    below = [[BitHeap() for _ in range(child.n_rows)] for child in part.children]
    for row, users, constant in zip(rows, feeds, constants, strict=True):
        # Computing a sum explicitly pays only if two users share it and it has more than two bits.
        shared = len(users) > 1 and row.size > 2
        term: Number | BitHeap = adder.number(row, next(names), constant) if shared else row
        for child, target, sign in users:
            below[child][target].add(term, sign)
    answers = []
    for one, heaps in zip(part.children, below, strict=True):
        answers.extend(_descend(adder, one, heaps, names))
    return answers


def _tuned(part: _Part, rows: list[BitHeap]) -> tuple[list[BitHeap], list[list[Feed]], list[int]]:
    """Choose rows, feeds, and constants added to the rows such that the bounds become cheap.

    For two neurons ``S + D >= j`` and ``S - D >= k``, constants added to S and D turn both bounds
    into powers of two, so that each comparison is a carry out. The constants replace half adders by
    full adders of the same cost.
    """
    feeds, constants = part.feeds, [0] * len(rows)
    goals = [child.goal for child in part.children if child.goal and not child.extra]
    signs = [[sign for _, _, sign in users] for users in feeds]
    if (
        len(goals) != 2
        or any(len(goal.bounds) != 1 for goal in goals)
        or sorted(signs) != [[1, -1], [1, 1]]
        or min(row.size for row in rows) <= 2
    ):
        return rows, feeds, constants
    d = signs.index([1, -1])
    inverted = BitHeap()
    inverted.add(rows[d], -1)
    j, k = goals[0].bounds[0], goals[1].bounds[0]
    s_row = rows[1 - d]
    plain = _cheapest(s_row, rows[d], j, k)
    turned = _cheapest(s_row, inverted, k, j)
    if turned is not None and (plain is None or turned < plain):
        rows = [inverted if i == d else row for i, row in enumerate(rows)]
        feeds = [
            [(child, row, -sign if i == d else sign) for child, row, sign in users]
            for i, users in enumerate(feeds)
        ]
        plain = turned
    if plain is not None:
        constants[1 - d], constants[d] = plain[1:]
    return rows, feeds, constants


def _cheapest(s: BitHeap, d: BitHeap, plus: int, minus: int) -> tuple[int, int, int] | None:
    """Cost and constants for S and D, given bounds on ``S + D`` and ``S - D``."""
    best: tuple[int, int, int] | None = None
    width = d.most.bit_length()
    for d_width in (width, width + 1):
        # Bounds on the bits alone: S + D adds D's bits, and S - D adds them inverted, where
        # -D = ~D - (2**d_width - 1).
        on_plus = plus - s.offset - d.offset
        on_minus = minus - s.offset + d.offset + (1 << d_width) - 1
        powers = [1 << power for power in range(2, max(s.most, d.most).bit_length() + 2)]
        for p, m in product(powers, powers):
            for slack_p, slack_m in product((0, 1), (0, 1)):  # a missing 1 is a free carry in
                total, difference = p - slack_p - on_plus, m - slack_m - on_minus
                # alpha + beta = total and alpha - beta = difference, which needs equal parity.
                alpha, beta = (total + difference) // 2, (total - difference) // 2
                if (total + difference) & 1 or min(alpha, beta) < 0:
                    continue
                if (d.most + beta).bit_length() != d_width:
                    continue
                growth = (s.most + alpha).bit_length() - s.most.bit_length() + d_width - width
                cost = 2 * growth + alpha.bit_count() + beta.bit_count()
                if best is None or (cost, alpha, beta) < best:
                    best = (cost, alpha, beta)
    return best
