# SPDX-License-Identifier: Apache-2.0
"""Choose the shape and the encoding of a network from its number of input bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from n3ic.training.recipe import Recipe, Training

FEW_BITS, GREEDY_BITS_OF_TWO = 48, 64
"""Up to these numbers, bits are chosen jointly: for many and two classes (64 bits, 10 classes of
CIC-IDS2017: 93.2 %, against 95.9 % on the bits of a tree). Up to FEW_BITS the weights are
prototypes; above, gradients find better ones (UNSW-NB15, 64 bits: 96.9 % against 96.5 %)."""
FEWER_BITS = 128
"""Up to this number, all bits are distinct cuts: of boosted trees, or of one tree for many classes.
Copies by weight would take too many of them: -1.5 points at 96 bits and -4 at 64 on UNSW-NB15."""
FEW_BITS_POLISH = 20
TREE_BYTES = 3072
"""Room for a tree of FEWER_BITS cuts, written as a network (UNSW-NB15: 2.3 KB in total)."""
PROTOTYPES: Mapping[str, Any] = {
    "method": "prototypes",
    "loss": "cross_entropy",  # from prototypes, polishing by a bounded loss ends 0.7 points lower
    "distill": 0.0,
    "density": 1.0,
}
_UNLEARNED = ("binary", "quantile")
_GRADIENT = {f.name for f in fields(Training)} - {
    "hidden",
    "polish",
    "class_weight",
    "false_alarms",
}


def sized(recipe: Recipe, fixed: Collection[str], n_classes: int) -> Recipe:
    """Adapt a recipe to a number of bits other than its own.

    This chooses the encoding, the hidden layers and the rounds of polishing. Few bits get
    prototypes instead of gradients, unless an option of gradients is given, and a tree of as many
    cuts as an alternative, unless an option is given that trees lack. Given values do not change,
    nor do encodings that are not learned from labels.

    Args:
        recipe: the recipe, with the given values.
        fixed: names of the given values; without ``bits`` nothing is changed.
        n_classes: number of classes.
    """
    if "bits" not in fixed or recipe.encoding in _UNLEARNED:
        return recipe
    has_few_bits = recipe.bits <= FEW_BITS
    follows: dict[str, Any] = {}
    if recipe.bits <= FEWER_BITS:
        if tree_may(recipe, fixed):
            follows["tree_bytes"] = TREE_BYTES
        jointly = recipe.bits <= (GREEDY_BITS_OF_TWO if n_classes == 2 else FEW_BITS)
        follows["encoding"] = "greedy" if jointly else "tree" if n_classes > 2 else "boosted"
        follows["hidden"] = hidden_for(recipe.bits, has_few_bits or n_classes > 2)
    if has_few_bits:
        follows["polish"] = max(recipe.training.polish, FEW_BITS_POLISH)
        one_layer = "hidden" not in fixed or len(recipe.training.hidden) == 1
        if one_layer and recipe.training.method != "trees" and _GRADIENT.isdisjoint(fixed):
            follows |= PROTOTYPES
    return recipe.with_options({k: v for k, v in follows.items() if k not in fixed})


def tree_may(recipe: Recipe, fixed: Collection[str]) -> bool:
    """Whether a tree may be kept instead: no option is given that trees lack."""
    excluded = _GRADIENT | {"encoding", "features", "hidden", "polish"}
    return recipe.encoding not in _UNLEARNED and excluded.isdisjoint(fixed)


def hidden_for(bits: int, one_layer: bool) -> tuple[int, ...]:
    """Hidden layers for few bits, of up to about a kilobyte.

    Prototypes need one layer. So do more than two classes, for which a layer of 16 neurons is too
    narrow (CIC-IDS2017, 10 classes, 256 bits: 94.9 % with 32-16, 96.2 % with 32).
    """
    if one_layer:
        return (min(10 * bits, 160, 8192 // bits),)  # 8192 weights of a bit are a kibibyte
    return (108, 16) if bits <= 64 else (76, 16) if bits <= 96 else (60, 16)
