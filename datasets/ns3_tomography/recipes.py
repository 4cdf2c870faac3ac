# SPDX-License-Identifier: Apache-2.0
"""Recipes for tomography networks."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.errors import UsageError
from n3ic.training.recipe import Recipe, Training

BITS = 152  # 19 delays of 8 bits
SHAPES: tuple[tuple[int, ...], ...] = ((32, 16), (64, 32), (128, 64))


def shapes_from_text(text: str) -> tuple[tuple[int, ...], ...]:
    """Parse ``paper``, ``own`` (no shapes) or a list such as ``32-16,64-32``.

    Raises:
        UsageError: the text is not one of these.
    """
    word = text.strip()
    if word in ("paper", "own"):
        return SHAPES if word == "paper" else ()
    parts = [tuple(part.strip().split("-")) for part in word.split(",")]
    if not all(n.isdecimal() and 0 < int(n) <= 65536 for part in parts for n in part):
        raise UsageError(
            f"--shapes: expected paper, own or hidden layers as 32-16,64-32, got {text!r}"
        )
    return tuple(dict.fromkeys(tuple(int(n) for n in part) for part in parts))


RECIPES: Mapping[str, Recipe] = {
    "default": Recipe(
        name="default",
        summary="152 cuts of the delays chosen for each queue by boosted trees, which also teach",
        encoding="boosted",
        bits=BITS,
        training=Training(hidden=(128, 64), distill=0.5, learning_rate=1e-2, epochs=20),
    ),
    "paper": Recipe(
        name="paper",
        summary="the paper's: 8 raw bits a delay, thresholds of half the inputs, squared hinge",
        encoding="binary",
        bits=BITS,
        field_bits=8,
        columns=("owd_*",),
        training=Training(
            hidden=(128, 64),
            ste="clip",
            batch_norm=False,
            output_bias=False,
            loss="squared_hinge",
            dropout=0.25,
            schedule="constant",
            learning_rate=1e-3,
        ),
    ),
}
