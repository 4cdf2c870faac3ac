# SPDX-License-Identifier: Apache-2.0
"""Chooses the sizes of boosted trees that are tried, within a budget of bytes or without one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from n3ic.errors import UsageError
from n3ic.model.summed import n_sums

if TYPE_CHECKING:
    from n3ic.families.trees.settings import TreesTraining

LEAVES = (31, 63, 127)
"""Leaves of a tree that are tried within a budget."""
UNLIMITED_LEAVES = (31, 8)
"""Leaves of a tree that are tried without one."""
UNLIMITED_RATES = (0.3, 0.8)
"""Rates that are tried without one."""
RATE_FACTORS = (3.0, 1.5)
"""Rates that are tried within a budget, times the root of the trees of a class; at most 1."""
PRICE_SHARES = (0.009, 0.02)
"""Nats that a byte must gain, times the bytes of the budget and over the number of rows.
UNSW-NB15, deployable columns: a price of 0.009 instead of 0 saves a third of the cuts."""
LEAF_BITS = (5, 4, 3)
"""Bits of a leaf that are tried within a budget."""
SINGLE_PRICE_SHARES = (0.003, 0.009, 0.001)
"""The same for a single tree, which a higher price would end before its bytes are used."""
SINGLE_LEAF_BITS = (1, 2)
"""Bits of a leaf that are tried for a single tree."""
UNLIMITED_LEAF_BITS = 8
SITE_BYTES = 2.0
"""Bytes of boosted trees, everything counted, for each LUT site."""
LEAST_SITE_BYTES = 16
"""Bytes for each class of the smallest trees that are tried within LUT sites."""
_SINGLE_TREE = 3000  # bytes a sum, up to which a single tree is tried
_SINGLE_LEAVES = 4096  # more than fit
_LEAF_BYTES = 3.0  # of a leaf, with its node and its part of the cuts
_BITS = 1360  # candidate cuts within a budget
_MOST_ROUNDS = 1000


class GrowthSize(NamedTuple):
    """A size that is tried.

    Attributes:
        leaves: largest number of leaves of a tree.
        rate: share of each tree's leaf values that counts.
        price: nats that a byte must gain, times the bytes of the budget and over the rows.
        leaf_bits: number of bits of a leaf.
        rounds: largest number of boosting rounds; 1 for a single tree a sum.
    """

    leaves: int
    rate: float
    price: float
    leaf_bits: int
    rounds: int


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
    # A node and the tree's size, two leaves, a cut and its field, and biases of up to four bytes.
    least = 1 + -(-sums // 8) + 1 + 5 + 4 * sums
    if least > budget:
        raise UsageError(
            f"{budget} bytes hold no tree for {n_classes} classes; take {least} bytes or more"
        )
    chosen = {"bits": _BITS, "boosting_rounds": _MOST_ROUNDS}
    return {k: v for k, v in chosen.items() if k not in fixed} | {"boosted_bytes": budget}


def best_size(
    settings: TreesTraining, sums: int, worth: Callable[[GrowthSize], float]
) -> GrowthSize:
    """Search for the best size, one of its values after the other; the first of equals wins.

    Args:
        settings: the values that are given, and the limit.
        sums: number of sums; a round has a tree for each.
        worth: tells how good a size is.
    """
    known = {size: worth(size) for size in first_sizes(settings, sums)}
    for name in ("rate", "price", "leaf_bits"):
        best = max(known, key=lambda size: known[size])
        for value in _values(settings, sums, best.leaves)[name]:
            if (size := best._replace(**{name: value})) not in known:
                known[size] = worth(size)
    return max(known, key=lambda size: known[size])


def first_sizes(settings: TreesTraining, sums: int) -> list[GrowthSize]:
    """List the sizes that a search begins with: one for each number of leaves."""
    limit = settings.boosted_bytes
    leaves = [*UNLIMITED_LEAVES]
    if limit:
        most = int(limit / sums / _LEAF_BYTES)
        leaves = [n for n in LEAVES if n < most]
        leaves += [_SINGLE_LEAVES] if limit < _SINGLE_TREE * sums else []
    if settings.boosted_leaves:
        leaves = [settings.boosted_leaves]
    return [
        GrowthSize(
            leaves=n,
            rounds=settings.boosting_rounds if n < _SINGLE_LEAVES else 1,
            **{name: values[0] for name, values in _values(settings, sums, n).items()},
        )
        for n in leaves
    ]


def _values(settings: TreesTraining, sums: int, leaves: int) -> dict[str, tuple[Any, ...]]:
    """The values of a size that are tried for a number of leaves, the first ones first."""
    limit = settings.boosted_bytes
    if not limit:
        values = {"rate": UNLIMITED_RATES, "price": (0.0,), "leaf_bits": (UNLIMITED_LEAF_BITS,)}
    elif leaves == _SINGLE_LEAVES:
        values = {"rate": (1.0,), "price": SINGLE_PRICE_SHARES, "leaf_bits": SINGLE_LEAF_BITS}
    else:
        trees = max(1.0, limit / sums / (_LEAF_BYTES * leaves))
        rates = tuple(min(1.0, factor / sqrt(trees)) for factor in RATE_FACTORS)
        values = {"rate": rates, "price": PRICE_SHARES, "leaf_bits": LEAF_BITS}
    return values | ({"rate": (settings.boosting_rate,)} if settings.boosting_rate else {})
