"""The shape of a network and the way its bits are chosen, where only their number is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from n3ic.training.recipe import Encoding, Recipe, Training

GREEDY_BITS = 48
"""Up to so many bits are chosen jointly; the table of their cells still has enough rows a cell."""
TREE_BITS = 128
"""Up to so many bits are the cuts of one tree. Copies by weight pick bits that say the same, which
fewer cannot bear: -1.5 points at 96 bits and -4 at 64 on UNSW-NB15."""
FEW_BITS_POLISH = 20


def sized(recipe: Recipe, given: Collection[str]) -> Recipe:
    """A recipe whose number of bits was replaced, with all that should follow from it.

    A recipe is made for its own number of bits. Of another one this chooses the encoding, the
    hidden layers, the rounds of polishing, and for few bits prototypes instead of gradients where
    nothing that is about gradients is given; all but for what is given. Encodings that are not
    learned from labels are left as they are.

    Args:
        recipe: with the values that were given.
        given: names of the values that were given; without ``bits`` nothing is changed.
    """
    if "bits" not in given or recipe.encoding in ("binary", "quantile"):
        return recipe
    few = recipe.bits <= GREEDY_BITS
    follows: dict[str, Any] = {"encoding": encoding_for(recipe.bits, recipe.encoding)}
    if recipe.bits <= TREE_BITS:
        follows["hidden"] = hidden_for(recipe.bits)
    if few:
        follows["polish"] = max(recipe.training.polish, FEW_BITS_POLISH)
        gradient = {f.name for f in fields(Training)} - {"hidden", "polish"}
        one_layer = "hidden" not in given or len(recipe.training.hidden) == 1
        if one_layer and gradient.isdisjoint(given):
            follows |= {
                "method": "prototypes",
                "loss": "cross_entropy",  # what their polishing lowers
                "distill": 0.0,
                "density": 1.0,
            }
    return recipe.with_options({k: v for k, v in follows.items() if k not in given})


def encoding_for(bits: int, many: Encoding = "weighted") -> Encoding:
    """The encoding that is best by number of bits; ``many`` above :data:`TREE_BITS`."""
    return "greedy" if bits <= GREEDY_BITS else "tree" if bits <= TREE_BITS else many


def hidden_for(bits: int) -> tuple[int, ...]:
    """Hidden layers for few bits: of up to about a kilobyte with them."""
    if bits <= GREEDY_BITS:
        return (min(10 * bits, 160),)
    return (108, 16) if bits <= 64 else (76, 16) if bits <= 96 else (60, 16)
