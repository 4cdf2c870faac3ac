# SPDX-License-Identifier: Apache-2.0
"""The shape of a network and the way its bits are chosen, where only their number is asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from n3ic.errors import UsageError
from n3ic.training.recipe import Recipe, Training

FEW_BITS, GREEDY_BITS_OF_TWO = 48, 64
"""Up to so many bits are chosen jointly; more where these tell two classes apart only (64 bits, 10
classes of CIC-IDS2017: 93.2, against 95.9 on the bits of a tree). Up to FEW_BITS the weights are
prototypes, above that gradients find better ones (UNSW-NB15, 64 bits: 96.9 against 96.5)."""
FEWER_BITS = 128
"""Up to so many bits are different cuts: of boosted trees, or of one tree where there are many
classes. Copies by weight pick bits that say the same, which fewer cannot bear: -1.5 points at 96
bits and -4 at 64 on UNSW-NB15."""
FEW_BITS_POLISH = 20
TREE_BYTES = 2560
"""Room for the weights and masks of a tree of FEWER_BITS cuts (UNSW-NB15: 1.7 KB)."""
PROTOTYPES: Mapping[str, Any] = {
    "method": "prototypes",
    "loss": "cross_entropy",  # from prototypes, polishing by a bounded loss ends 0.7 points lower
    "distill": 0.0,
    "density": 1.0,
}
MANY_BYTES = 1024
"""From so many bytes of weights on, all bits of the recipe are worth having."""
SECOND_LAYER = 16
_NOT_OF_GRADIENTS = {"hidden", "polish", "class_weight", "false_alarms"}


def sized(recipe: Recipe, given: Collection[str], n_classes: int) -> Recipe:
    """A recipe whose number of bits was replaced, with all that should follow from it.

    A recipe is made for its own number of bits. Of another one this chooses the encoding, the
    hidden layers, the rounds of polishing, for few bits prototypes instead of gradients where
    nothing that is about gradients is given, and a tree of as many cuts to fall back on where
    nothing is given that a tree has not; all but for what is given. Encodings that are not
    learned from labels are left as they are.

    Args:
        recipe: with the values that were given.
        given: names of the values that were given; without ``bits`` nothing is changed.
        n_classes: number of classes.
    """
    if "bits" not in given or recipe.encoding in ("binary", "quantile"):
        return recipe
    few = recipe.bits <= FEW_BITS
    follows: dict[str, Any] = {}
    gradient = {f.name for f in fields(Training)} - _NOT_OF_GRADIENTS
    if recipe.bits <= FEWER_BITS:
        if {"encoding", "features", "hidden", "polish", *gradient}.isdisjoint(given):
            follows["tree_bytes"] = TREE_BYTES
        jointly = recipe.bits <= (GREEDY_BITS_OF_TWO if n_classes == 2 else FEW_BITS)
        follows["encoding"] = "greedy" if jointly else "tree" if n_classes > 2 else "boosted"
        follows["hidden"] = hidden_for(recipe.bits, few or n_classes > 2)
    if few:
        follows["polish"] = max(recipe.training.polish, FEW_BITS_POLISH)
        one_layer = "hidden" not in given or len(recipe.training.hidden) == 1
        if one_layer and recipe.training.method != "trees" and gradient.isdisjoint(given):
            follows |= PROTOTYPES
    return recipe.with_options({k: v for k, v in follows.items() if k not in given})


def within(recipe: Recipe, given: Collection[str], budget: int, n_classes: int) -> Recipe:
    """A recipe whose network fills a number of bytes of weights.

    Args:
        recipe: with the values that were given.
        given: names of the values that were given; where ``bits`` is among them, only the hidden
            layers are chosen.
        budget: most bytes of weights, inputs x neurons / 8 over all layers. The cuts of the input
            are memory of another kind and not counted.
        n_classes: number of classes.

    Raises:
        UsageError: the budget is too small for any network, or the hidden layers are given, too.
    """
    if "hidden" in given:
        raise UsageError("a budget of bytes chooses the hidden layers; leave them, or it, out")
    if recipe.training.method == "trees" or not {"trees", "leaves"}.isdisjoint(given):
        raise UsageError("a budget of bytes is for weights, trees have a number and leaves")
    learned = recipe.encoding not in ("binary", "quantile")
    if "bits" not in given and learned:
        recipe = recipe.with_options({"bits": bits_for(budget, n_classes, recipe.bits)})
    recipe = sized(recipe, {*given, "bits"}, n_classes)
    hidden = _filled(8 * budget, recipe.bits, n_classes, len(recipe.training.hidden))
    if min(hidden) < 2:
        raise UsageError(
            f"{budget} bytes of weights hold no network of {recipe.bits} input bits and "
            f"{n_classes} classes; take more bytes" + (" or fewer bits" if "bits" in given else "")
        )
    tree = {} if "tree_bytes" in given else {"tree_bytes": min(budget, recipe.tree_bytes)}
    return recipe.with_options({"hidden": hidden, **tree})


def bits_for(budget: int, n_classes: int, most: int) -> int:
    """How many input bits make best use of a number of bytes of weights; at most ``most``."""
    if budget >= MANY_BYTES:
        return most
    # Four neurons a bit: 8 budget = 4 bits (bits + n_classes).
    few = math.sqrt(2 * budget + (n_classes / 2) ** 2) - n_classes / 2
    return min(max(4, round(few)), FEW_BITS, most)


def _filled(weights: int, bits: int, n_classes: int, layers: int) -> tuple[int, ...]:
    """Neurons of one or two hidden layers that have so many weights together."""
    if layers == 1:
        return (weights // (bits + n_classes),)
    second = SECOND_LAYER
    while True:  # a wide first layer is worth a wider second one
        first = (weights - second * n_classes) // (bits + second)
        if first < 4 * (second + 8):
            return first, second
        second += 8


def hidden_for(bits: int, one_layer: bool) -> tuple[int, ...]:
    """Hidden layers for few bits: of up to about a kilobyte with them.

    One layer is for prototypes, and for more than two classes: what 16 neurons let through is too
    little for these (CIC-IDS2017, 10 classes, 256 bits: 94.9 with 32-16, 96.2 with 32).
    """
    if one_layer:
        return (min(10 * bits, 160, 8192 // bits),)
    return (108, 16) if bits <= 64 else (76, 16) if bits <= 96 else (60, 16)
