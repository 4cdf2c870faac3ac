# SPDX-License-Identifier: Apache-2.0
"""Finds the best class and its lead over the second by a tournament of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.exporters.netfpga.unrolled.bit_heap import BitHeap, BitHeapCompressor
from n3ic.exporters.netfpga.unrolled.netlist import FALSE, TRUE


@dataclass(frozen=True)
class Ranking:
    """Literals of the winner's index, of each class's score and of the margin."""

    index: tuple[int, ...]
    scores: tuple[tuple[int, ...], ...]
    margin: tuple[int, ...]


@dataclass(frozen=True)
class _Entry:
    """An entry of the tournament: best score, second best score, and index of the winner."""

    best: tuple[int, ...]
    second: tuple[int, ...] | None
    index: tuple[int, ...]


def ranked(adder: BitHeapCompressor, scores: Sequence[tuple[int, ...]], width: int) -> Ranking:
    """Rank scores in two's complement of ``width`` bits; the lowest class wins a tie."""
    bits = (len(scores) - 1).bit_length()
    entries = [
        _Entry(score, None, tuple(c >> k & 1 for k in range(bits)))
        for c, score in enumerate(scores)
    ]
    turn = 0
    while len(entries) > 1:
        merged = [
            _duel(adder, a, b, f"duel{turn}_{n}")
            for n, (a, b) in enumerate(zip(entries[::2], entries[1::2], strict=False))
        ]
        turn += 1
        entries = merged + entries[2 * len(merged) :]
    second = entries[0].second or entries[0].best  # a model has at least two classes
    lead = difference(entries[0].best, second)
    margin = adder.number(lead, "margin", lead.offset % (1 << width), width).bits
    return Ranking(entries[0].index, tuple(scores), margin)


def below_threshold(adder: BitHeapCompressor, margin: Sequence[int], threshold: int) -> int:
    """Build a literal that says whether a margin is below a threshold."""
    heap = BitHeap()
    for power, literal in enumerate(margin):
        heap.add_bit(literal, 1 << power)
    return adder.reaches(heap, threshold, "decided") ^ 1


def _duel(adder: BitHeapCompressor, a: _Entry, b: _Entry, name: str) -> _Entry:
    """Merge two entries: the better best (the first on a tie), and the second best of both."""
    b_wins = _greater(adder, b.best, a.best, name)
    # The second best of both is the loser, or the winner's own second best.
    loser = _mux(adder, b_wins, a.best, b.best, f"{name}_loser")
    second = loser
    rivals = (b.second, a.second)
    if rivals[0] is not None or rivals[1] is not None:
        lowest = (FALSE,) * (len(loser) - 1) + (TRUE,)
        rival = _mux(adder, b_wins, rivals[0] or lowest, rivals[1] or lowest, f"{name}_rival")
        rises = _greater(adder, rival, loser, f"{name}_rises")
        second = _mux(adder, rises, rival, loser, f"{name}_second")
    return _Entry(
        _mux(adder, b_wins, b.best, a.best, f"{name}_best"),
        second,
        _mux(adder, b_wins, b.index, a.index, f"{name}_class"),
    )


def _greater(adder: BitHeapCompressor, a: Sequence[int], b: Sequence[int], name: str) -> int:
    return adder.reaches(difference(a, b), 1, name)


def difference(a: Sequence[int], b: Sequence[int]) -> BitHeap:
    """``a - b`` of two's complement numbers, whose highest bit has a negative weight."""
    heap = BitHeap()
    for sign, bits in ((1, a), (-1, b)):
        for power, literal in enumerate(bits):
            weight = -(1 << power) if power == len(bits) - 1 else 1 << power
            heap.add_bit(literal, sign * weight)
    return heap


def _mux(
    adder: BitHeapCompressor, select: int, one: Sequence[int], zero: Sequence[int], name: str
) -> tuple[int, ...]:
    pairs_of = enumerate(zip(one, zero, strict=True))
    return tuple(adder.net.mux(select, x, y, f"{name}_b{k}") for k, (x, y) in pairs_of)
