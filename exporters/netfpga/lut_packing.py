# SPDX-License-Identifier: Apache-2.0
"""Packs tables into LUT6_2 sites: two tables with at most five different inputs share one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

SHARED_INPUTS = 5
MOST_CANDIDATES = 1 << 24  # of all tables together; beyond, only neighbours are candidates
BESIDE = 64


def lut_pairs(supports: Sequence[Sequence[int]], full: Collection[int] = ()) -> int:
    """Count pairs of tables that share a site, each table in at most one pair.

    Greedy matching, improved by augmenting swaps; place and route may find a few more pairs.

    Args:
        supports: numbers of the input signals of each table.
        full: indices of tables that need the site's main output, as carry chains do; two of them
            never share a site.

    Returns:
        Number of pairs; the number of sites is the number of tables minus the pairs.
    """
    sets = [frozenset(support) for support in supports]
    mains = frozenset(full)
    by_input: dict[int, list[int]] = defaultdict(list)
    for index, support in enumerate(sets):
        if len(support) <= SHARED_INPUTS:
            for x in sorted(support):
                by_input[x].append(index)
    crowded = sum(len(tables) ** 2 for tables in by_input.values()) > MOST_CANDIDATES
    # Candidates with a common input; tables without one are matched by size at the end.
    partners: list[list[int]] = []
    for index, support in enumerate(sets):
        near: set[int] = set()
        if len(support) <= SHARED_INPUTS:
            near = {j for x in support for j in _near(by_input[x], index, crowded)} - {index}
        fitting = [
            j
            for j in near
            if len(support | sets[j]) <= SHARED_INPUTS and not (index in mains and j in mains)
        ]
        partners.append(sorted(fitting, key=lambda j: (-len(support & sets[j]), j)))
    mate: dict[int, int] = {}
    # Tables with few candidates first, as they are the hardest to match.
    order = sorted(range(len(sets)), key=lambda i: (len(partners[i]), i))
    for i in order:
        j = next((j for j in partners[i] if j not in mate), None)
        if i not in mate and j is not None:
            mate[i], mate[j] = j, i
    for i in order:
        if i not in mate:
            _augment(i, partners, mate)
    return len(mate) // 2 + _pairs_by_size(
        [(len(sets[i]), i in mains) for i in range(len(sets)) if i not in mate]
    )


def _near(tables: list[int], index: int, crowded: bool) -> list[int]:
    """The tables of an input that a table may be paired with; where it is crowded, those beside."""
    if not crowded:
        return tables
    place = bisect_left(tables, index)
    return tables[max(0, place - BESIDE) : place + BESIDE + 1]


def _augment(start: int, partners: list[list[int]], mate: dict[int, int]) -> None:
    """Match ``start`` along an augmenting path of length 3, which rematches a candidate's mate."""
    for j in partners[start]:
        other = mate[j]
        for k in partners[other]:
            if k not in mate and k != start:
                mate[start], mate[j] = j, start
                mate[other], mate[k] = k, other
                return


def _pairs_by_size(tables: list[tuple[int, bool]]) -> int:
    """Pair tables without common inputs: each takes the largest one that still fits its site."""
    left = Counter(t for t in tables if t[0] < SHARED_INPUTS)
    kinds = sorted(left, reverse=True)
    pairs = 0
    for size, main in kinds:
        for other, other_main in kinds:
            if size + other > SHARED_INPUTS or (main and other_main):
                continue
            both = (size, main), (other, other_main)
            number = left[both[0]] // 2 if both[0] == both[1] else min(left[b] for b in both)
            left.subtract(
                {both[0]: number, both[1]: number} if both[0] != both[1] else {both[0]: 2 * number}
            )
            pairs += number
    return pairs
