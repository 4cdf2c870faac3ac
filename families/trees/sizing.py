# SPDX-License-Identifier: Apache-2.0
"""Chooses the sizes of boosted trees that are tried, within a budget of bytes or without one."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from n3ic.errors import UsageError
from n3ic.model.summed import n_sums

if TYPE_CHECKING:
    from n3ic.families.trees.settings import TreesTraining

LEAVES = (2, 4, 8, 16, 31, 63)
"""Leaves of a tree that are tried within a budget."""
UNLIMITED_LEAVES = (8, 31)
"""Leaves of a tree that are tried without one."""
RATES = (0.3, 0.8)
"""Rates that are tried. UNSW-NB15 in 2,000 bytes, deployable columns, validation rows of seed 101:
31 trees of 16 leaves 92.0 % at 0.3, 92.4 at 0.5 and 92.7 at 0.8."""
_TREES = (1, 50)  # numbers of trees within a budget for which a number of leaves is tried
_CUT_SHARES = (16, 10)  # bytes of the budget for each cut that is kept
_BITS = (32, 1024)  # least and largest number of candidate cuts within a budget
_MOST_ROUNDS = 1000


class GrowthSize(NamedTuple):
    """A size that is tried.

    Attributes:
        leaves: largest number of leaves of a tree.
        cuts: largest number of different cuts.
        rounds: number of boosting rounds.
        rate: share of each tree's leaf values that counts.
    """

    leaves: int
    cuts: int
    rounds: int
    rate: float


def within(fixed: Collection[str], budget: int, n_classes: int) -> dict[str, Any]:
    """Choose the values of a recipe whose trees take at most a number of bytes.

    Args:
        fixed: names of the given values, which stay.
        budget: largest number of bytes in total: nodes, leaves, biases and cuts.
        n_classes: number of classes.

    Raises:
        UsageError: no tree fits.
    """
    if "boosted_bytes" in fixed:
        raise UsageError("a budget of bytes sets the boosted_bytes of trees; give only one of them")
    sums = n_sums(n_classes)
    # One node, two leaves, a cut, the tree's size and sums, and biases of up to four bytes.
    least = 9 + -(-sums // 8) + 4 * sums
    if least > budget:
        raise UsageError(
            f"{budget} bytes hold no tree for {n_classes} classes; take {least} bytes or more"
        )
    low, high = _BITS
    chosen = {"bits": min(max(low, budget // 4), high), "boosting_rounds": _MOST_ROUNDS}
    return {k: v for k, v in chosen.items() if k not in fixed} | {"boosted_bytes": budget}


def sizes(settings: TreesTraining, n_bits: int) -> list[GrowthSize]:
    """List the sizes to try, the smallest first.

    Args:
        settings: the sizes that are given, and the limit.
        n_bits: number of candidate cuts.
    """
    limit, rounds = settings.boosted_bytes, settings.boosting_rounds
    leaves, cuts = [*UNLIMITED_LEAVES], [n_bits]
    if limit:
        few, many = _TREES
        leaves = [n for n in LEAVES if few <= limit / _tree_bytes(n) <= many] or [LEAVES[-1]]
        cuts = sorted({min(max(1, limit // share), n_bits) for share in _CUT_SHARES})
    if settings.boosted_leaves:
        leaves = [settings.boosted_leaves]
    if settings.boosted_cuts:
        cuts = [min(settings.boosted_cuts, n_bits)]
    rates = [settings.boosting_rate] if settings.boosting_rate else [*RATES]
    return [
        GrowthSize(n, k, min(rounds, limit // _tree_bytes(n) + 1) if limit else rounds, rate)
        for n, k, rate in product(leaves, cuts, rates)
    ]


def _tree_bytes(leaves: int) -> int:
    """Bytes of a tree without cuts: two a node, one a leaf, one for its size."""
    return 3 * leaves - 1
