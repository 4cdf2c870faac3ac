# SPDX-License-Identifier: Apache-2.0
"""The shape and the encoding of a network of which only the number of bits or bytes is given."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from n3ic.errors import UsageError
from n3ic.model.bits import bytes_for
from n3ic.training.recipe import Recipe, Training

FEW_BITS, GREEDY_BITS_OF_TWO = 48, 64
"""The most bits that are chosen jointly, for many and for two classes (64 bits, 10 classes of
CIC-IDS2017: 93.2 %, against 95.9 % on the bits of a tree). Up to FEW_BITS the weights are
prototypes; above, gradients find better ones (UNSW-NB15, 64 bits: 96.9 % against 96.5 %)."""
FEWER_BITS = 128
"""The most bits that are all different cuts: of boosted trees, or of one tree for many classes.
Copies by weight cost few bits too much: -1.5 points at 96 bits and -4 at 64 on UNSW-NB15."""
FEW_BITS_POLISH = 20
TREE_BYTES = 3072
"""Room for a tree of FEWER_BITS cuts, written as a network (UNSW-NB15: 2.3 KB in total)."""
PROTOTYPES: Mapping[str, Any] = {
    "method": "prototypes",
    "loss": "cross_entropy",  # from prototypes, polishing by a bounded loss ends 0.7 points lower
    "distill": 0.0,
    "density": 1.0,
}
LEAST_BITS, NEURONS_A_BIT = 4, 3
"""Of networks of few bits in few bytes (UNSW-NB15, validation: 200 bytes, 16 bits 90.6 % and 8 bits
87.9 %; 400 bytes, 20 bits 91.6 %, 12 bits 90.0 % and 32 bits 91.4 %)."""
MANY_BITS = ((2200, 256), (1700, 128), (1000, 64))
"""Bytes in total from which on so many bits pay; above, a tenth of the bytes."""
SECOND_LAYER = 16
_UNLEARNED = ("binary", "quantile")
_GRADIENT = {f.name for f in fields(Training)} - {
    "hidden",
    "polish",
    "class_weight",
    "false_alarms",
}


def sized(recipe: Recipe, given: Collection[str], n_classes: int) -> Recipe:
    """Adapt a recipe to a number of bits other than its own.

    This chooses the encoding, the hidden layers and the rounds of polishing; for few bits
    prototypes instead of gradients, unless an option of gradients is given; and a tree of as many
    cuts as an alternative, unless an option is given that no tree has. Given values stay, and so
    do encodings that are not learned from labels.

    Args:
        recipe: the recipe, with the given values.
        given: names of the given values; without ``bits`` nothing is changed.
        n_classes: number of classes.
    """
    if "bits" not in given or recipe.encoding in _UNLEARNED:
        return recipe
    few = recipe.bits <= FEW_BITS
    follows: dict[str, Any] = {}
    if recipe.bits <= FEWER_BITS:
        if _tree_may(recipe, given):
            follows["tree_bytes"] = TREE_BYTES
        jointly = recipe.bits <= (GREEDY_BITS_OF_TWO if n_classes == 2 else FEW_BITS)
        follows["encoding"] = "greedy" if jointly else "tree" if n_classes > 2 else "boosted"
        follows["hidden"] = hidden_for(recipe.bits, few or n_classes > 2)
    if few:
        follows["polish"] = max(recipe.training.polish, FEW_BITS_POLISH)
        one_layer = "hidden" not in given or len(recipe.training.hidden) == 1
        if one_layer and recipe.training.method != "trees" and _GRADIENT.isdisjoint(given):
            follows |= PROTOTYPES
    return recipe.with_options({k: v for k, v in follows.items() if k not in given})


def _tree_may(recipe: Recipe, given: Collection[str]) -> bool:
    """Whether a tree may be kept instead: no option is given that no tree has."""
    asked = _GRADIENT | {"encoding", "features", "hidden", "polish"}
    return recipe.encoding not in _UNLEARNED and asked.isdisjoint(given)


def within(recipe: Recipe, given: Collection[str], budget: int, n_classes: int) -> Recipe:
    """A recipe whose network takes at most a number of bytes, everything counted.

    Args:
        recipe: the recipe, with the given values.
        given: names of the given values; if ``bits`` is one, only the hidden layers are chosen.
        budget: most bytes of weights, masks, thresholds, biases and cuts, and of the tree that may
            be kept instead.
        n_classes: number of classes.

    Raises:
        UsageError: the budget is too small for any network, is of no use for the method, or the
            hidden layers are given, too.
    """
    if "hidden" in given:
        raise UsageError("a budget of bytes chooses the hidden layers; give only one of them")
    if recipe.training.method == "trees" or not {"trees", "leaves"}.isdisjoint(given):
        raise UsageError("a budget of bytes is for networks; trees take a number and leaves")
    if "bits" not in given and recipe.encoding != "binary":
        recipe = recipe.with_options({"bits": bits_for(budget, n_classes, recipe.bits)})
    recipe = sized(recipe, {*given, "bits"}, n_classes)
    layers = len(recipe.training.hidden)
    hidden = _filled(recipe, budget, n_classes, layers) or _filled(recipe, budget, n_classes, 1)
    if not hidden:
        least = network_bytes(recipe, (2,), n_classes)
        raise UsageError(
            f"{budget} bytes hold no network of {recipe.bits} input bits and {n_classes} classes; "
            f"take {least} bytes or more" + (", or fewer bits" if "bits" in given else "")
        )
    tree = {} if "tree_bytes" in given or not _tree_may(recipe, given) else {"tree_bytes": budget}
    return recipe.with_options({"hidden": hidden, **tree})


def bits_for(budget: int, n_classes: int, most: int) -> int:
    """The number of input bits that use a number of bytes in total best; at most ``most``."""
    for least, bits in MANY_BITS:
        if budget >= least:
            return min(max(bits, budget // 10 if bits > FEWER_BITS else 0), most)
    # Some neurons a bit, of a byte of threshold each, and 4 bytes a cut, solved for bits.
    neurons = NEURONS_A_BIT
    half = (4 + neurons * (1 + n_classes / 8)) / 2
    few = (math.sqrt(half**2 + neurons * (budget - 2 * n_classes) / 8) - half) / (neurons / 8)
    return min(max(LEAST_BITS, round(few)), FEW_BITS, most)


def network_bytes(recipe: Recipe, hidden: Sequence[int], n_classes: int) -> int:
    """Most bytes in total of a network of these hidden layers, before it is trained.

    Args:
        recipe: its number of bits, encoding and training.
        hidden: neurons of the hidden layers.
        n_classes: number of classes.
    """
    training = recipe.training
    shape = (recipe.bits, *hidden, n_classes)
    weights = sum(a * b for a, b in pairwise(shape))
    masks = weights - hidden[-1] * n_classes if training.density < 1 else 0
    found = -(-weights // 8) + -(-masks // 8)
    if recipe.encoding != "binary":
        found += 4 * recipe.bits
    if training.batch_norm or training.method == "prototypes":
        found += sum(b * bytes_for(a + 1) for a, b in pairwise(shape[:-1]))
    # A bias beyond the fan-in decides alone; below it, its sign takes one more bit.
    return found + (n_classes * bytes_for(4 * hidden[-1]) if training.output_bias else 0)


def _filled(recipe: Recipe, budget: int, n_classes: int, layers: int) -> tuple[int, ...]:
    """The widest hidden layers, one or two, of a network that fits; none if it does not."""

    def widest(*second: int) -> int:
        low, high = 0, 65536
        while low < high:
            middle = (low + high + 1) // 2
            fits = network_bytes(recipe, (middle, *second), n_classes) <= budget
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


def hidden_for(bits: int, one_layer: bool) -> tuple[int, ...]:
    """Hidden layers for few bits, of up to about a kilobyte.

    One layer is for prototypes, and for more than two classes, for which a layer of 16 neurons is
    too narrow (CIC-IDS2017, 10 classes, 256 bits: 94.9 % with 32-16, 96.2 % with 32).
    """
    if one_layer:
        return (min(10 * bits, 160, 8192 // bits),)
    return (108, 16) if bits <= 64 else (76, 16) if bits <= 96 else (60, 16)
