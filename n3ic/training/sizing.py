# SPDX-License-Identifier: Apache-2.0
"""The shape and the encoding of a network of which only the number of bits or bytes is given."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from n3ic.errors import UsageError
from n3ic.training.recipe import Recipe, Training

FEW_BITS, GREEDY_BITS_OF_TWO = 48, 64
"""The most bits that are chosen jointly, for many and for two classes (64 bits, 10 classes of
CIC-IDS2017: 93.2 %, against 95.9 % on the bits of a tree). Up to FEW_BITS the weights are
prototypes; above, gradients find better ones (UNSW-NB15, 64 bits: 96.9 % against 96.5 %)."""
FEWER_BITS = 128
"""The most bits that are all different cuts: of boosted trees, or of one tree for many classes.
Copies by weight cost few bits too much: -1.5 points at 96 bits and -4 at 64 on UNSW-NB15."""
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
"""Bytes of weights from which on all bits of the recipe pay."""
SECOND_LAYER = 16
_NOT_OF_GRADIENTS = {"hidden", "polish", "class_weight", "false_alarms"}


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
        recipe: the recipe, with the given values.
        given: names of the given values; if ``bits`` is one, only the hidden layers are chosen.
        budget: most bytes of weights, inputs x neurons / 8 over all layers; the cuts of the input
            do not count.
        n_classes: number of classes.

    Raises:
        UsageError: the budget is too small for any network, is of no use for the method, or the
            hidden layers are given, too.
    """
    if "hidden" in given:
        raise UsageError("a budget of bytes chooses the hidden layers; give only one of them")
    if recipe.training.method == "trees" or not {"trees", "leaves"}.isdisjoint(given):
        raise UsageError("a budget of bytes is for weights; trees take a number and leaves")
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
    """The number of input bits that use a budget of bytes best; at most ``most``."""
    if budget >= MANY_BYTES:
        return most
    # Four neurons a bit: 8 budget = 4 bits (bits + n_classes), solved for bits.
    few = math.sqrt(2 * budget + (n_classes / 2) ** 2) - n_classes / 2
    return min(max(4, round(few)), FEW_BITS, most)


def _filled(weights: int, bits: int, n_classes: int, layers: int) -> tuple[int, ...]:
    """Neurons of one or two hidden layers with that number of weights in total."""
    if layers == 1:
        return (weights // (bits + n_classes),)
    second = SECOND_LAYER
    while True:  # a wide first layer is worth a wider second one
        first = (weights - second * n_classes) // (bits + second)
        if first < 4 * (second + 8):
            return first, second
        second += 8


def hidden_for(bits: int, one_layer: bool) -> tuple[int, ...]:
    """Hidden layers for few bits, of up to about a kilobyte.

    One layer is for prototypes, and for more than two classes, for which a layer of 16 neurons is
    too narrow (CIC-IDS2017, 10 classes, 256 bits: 94.9 % with 32-16, 96.2 % with 32).
    """
    if one_layer:
        return (min(10 * bits, 160, 8192 // bits),)
    return (108, 16) if bits <= 64 else (76, 16) if bits <= 96 else (60, 16)
