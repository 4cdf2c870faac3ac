# SPDX-License-Identifier: Apache-2.0
"""Chooses the shape of a network within a number of bytes, everything counted."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from n3ic.errors import UsageError
from n3ic.model.bits import bytes_for
from n3ic.training.recipe import Recipe
from n3ic.training.recipes import VOTING_TREES
from n3ic.training.sizing import FEW_BITS, FEWER_BITS, sized, tree_may

LEAST_BITS, NEURONS_A_BIT = 4, 3
"""Bounds for small networks, which few input bits suit best (UNSW-NB15, validation rows: in 200
bytes, 90.6 % with 16 bits and 87.9 % with 8; in 400 bytes, 91.6 % with 20, 90.0 % with 12 and
91.4 % with 32)."""
CUT_BYTES = 2.25
"""Bytes of cuts for each input bit, before they are known (UNSW-NB15, 15 to 37: 2.2 to 2.3)."""
MANY_BITS = ((1750, 256), (1500, 128), (900, 64))
"""Total bytes from which a number of bits pays off; beyond, a tenth of the bytes does."""
SECOND_LAYER = 16
SITE_BYTES = 0.6
"""Bytes of a network, everything counted, for each LUT site of its unrolled core."""
SITE_LEAVES = 2.4
"""Leaves of voting trees for each LUT site."""
SITE_TREES = (1, 3)
"""Numbers of voting trees that are tried within LUT sites."""
_MOST_LEAVES = 65536
_LEAST_BYTES = 64  # a network of a few bits and neurons


def within(recipe: Recipe, fixed: Collection[str], budget: int, n_classes: int) -> Recipe:
    """Return a recipe whose network takes about a number of bytes, everything counted.

    The bytes of the cuts are estimated; :func:`fitted` knows them.

    Args:
        recipe: the recipe, with the given values.
        fixed: names of the given values; if ``bits`` is one, only the hidden layers are chosen.
        budget: largest number of bytes of weights, masks, thresholds, biases and cuts, or of the
            tree that may be kept instead.
        n_classes: number of classes.

    Raises:
        UsageError: the budget is too small for any network, the method cannot use it, or the
            hidden layers are also given.
    """
    if "hidden" in fixed:
        raise UsageError("a budget of bytes chooses the hidden layers; give only one of them")
    if recipe.training.method == "trees" or not {"trees", "leaves"}.isdisjoint(fixed):
        raise UsageError("a budget of bytes applies to networks; trees take a number and leaves")
    if "bits" not in fixed and recipe.encoding != "binary":
        recipe = recipe.with_options({"bits": bits_for(budget, n_classes, recipe.bits)})
    recipe = sized(recipe, {*fixed, "bits"}, n_classes)
    input_bytes = 0 if recipe.encoding == "binary" else math.ceil(CUT_BYTES * recipe.bits)
    hidden = _widest(recipe, budget, n_classes, input_bytes)
    if not hidden:
        least = network_bytes(recipe, (2,), n_classes, input_bytes)
        raise UsageError(
            f"{budget} bytes hold no network of {recipe.bits} input bits and {n_classes} classes; "
            f"take {least} bytes or more" + (", or fewer bits" if "bits" in fixed else "")
        )
    tree = {} if "tree_bytes" in fixed or not tree_may(recipe, fixed) else {"tree_bytes": budget}
    return recipe.with_options({"hidden": hidden, **tree})


def in_sites(
    recipe: Recipe, fixed: Collection[str], sites: int, n_classes: int
) -> tuple[Recipe, ...]:
    """Return recipes of voting trees and of a network of about a number of LUT sites.

    Args:
        recipe: the recipe, with the given values.
        fixed: names of the given values; trees are left out if one is given that they lack, and
            networks if one of trees is given.
        sites: LUT sites of the unrolled core.
        n_classes: number of classes.
    """
    recipes: list[Recipe] = []
    of_trees = recipe.training.method == "trees" or not {"trees", "leaves"}.isdisjoint(fixed)
    if of_trees or tree_may(recipe, fixed):
        base = VOTING_TREES.with_options(
            {"columns": recipe.columns, "augment": recipe.augment}
            | {name: recipe.value(name) for name in fixed}
        )
        for trees in (base.training.trees,) if "trees" in fixed else SITE_TREES:
            leaves = min(max(2, int(sites * SITE_LEAVES / trees)), _MOST_LEAVES)
            size = {"trees": trees} | ({} if "leaves" in fixed else {"leaves": leaves})
            own = replace(base.with_options(size), name=recipe.name, summary=recipe.summary)
            recipes.append(own)
    if not of_trees and "hidden" not in fixed:
        size_bytes = max(_LEAST_BYTES, int(sites * SITE_BYTES))
        with suppress(UsageError):  # given bits may leave no room
            network = within(recipe, fixed, size_bytes, n_classes)
            recipes.append(network if "tree_bytes" in fixed else replace(network, tree_bytes=0))
    return tuple(recipes)


def fitted(recipe: Recipe, budget: int, n_classes: int, input_bytes: int) -> Recipe:
    """Return a recipe whose network takes at most a number of bytes beside its cuts.

    Args:
        recipe: the recipe of :func:`within`; returned as it is if no network fits.
        budget: largest number of bytes in total.
        n_classes: number of classes.
        input_bytes: bytes of the cuts.
    """
    if recipe.training.method == "trees":
        return recipe
    hidden = _widest(recipe, budget, n_classes, input_bytes)
    return recipe.with_options({"hidden": hidden}) if hidden else recipe


def bits_for(budget: int, n_classes: int, most: int) -> int:
    """Choose the input bits, at most ``most``, that make the best use of a number of bytes."""
    for least, bits in MANY_BITS:
        if budget >= least:
            return min(max(bits, budget // 10 if bits > FEWER_BITS else 0), most)
    # Solved for bits: some neurons per bit, each with a byte of threshold, and the cuts.
    neurons = NEURONS_A_BIT
    half = (CUT_BYTES + neurons * (1 + n_classes / 8)) / 2
    best = (math.sqrt(half**2 + neurons * (budget - 2 * n_classes) / 8) - half) / (neurons / 8)
    return min(max(LEAST_BITS, round(best)), FEW_BITS, most)


def network_bytes(recipe: Recipe, hidden: Sequence[int], n_classes: int, input_bytes: int) -> int:
    """Bound the bytes in total of a network with given hidden layers, before it is trained.

    Args:
        recipe: the network's number of bits, encoding and training.
        hidden: neurons of the hidden layers.
        n_classes: number of classes.
        input_bytes: bytes of the cuts.
    """
    training = recipe.training
    shape = (recipe.bits, *hidden, n_classes)
    weights = sum(a * b for a, b in pairwise(shape))
    masks = weights - hidden[-1] * n_classes if training.density < 1 else 0
    size = -(-weights // 8) + -(-masks // 8) + input_bytes
    if training.batch_norm or training.method == "prototypes":
        size += sum(b * bytes_for(a + 1) for a, b in pairwise(shape[:-1]))
    # A bias beyond the fan-in decides alone; below it, its sign takes one more bit.
    return size + (n_classes * bytes_for(4 * hidden[-1]) if training.output_bias else 0)


def _widest(recipe: Recipe, budget: int, n_classes: int, input_bytes: int) -> tuple[int, ...]:
    """Find the widest hidden layers, as many as the recipe's or one; empty if none fits."""
    layers = len(recipe.training.hidden)
    return _filled(recipe, budget, n_classes, input_bytes, layers) or _filled(
        recipe, budget, n_classes, input_bytes, 1
    )


def _filled(
    recipe: Recipe, budget: int, n_classes: int, input_bytes: int, layers: int
) -> tuple[int, ...]:
    """Find the widest hidden layers, one or two, of a network that fits; empty if none fits."""

    def widest(*second: int) -> int:
        low, high = 0, 65536
        while low < high:
            middle = (low + high + 1) // 2
            fits = network_bytes(recipe, (middle, *second), n_classes, input_bytes) <= budget
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    if layers == 1:
        first = widest()
        return (first,) if first > 1 else ()
    second = SECOND_LAYER
    while True:  # a wide first layer is worth a wider second one
        first = widest(second)
        if first < 4 * (second + 8):
            return (first, second) if 2 * first > second else ()
        second += 8
