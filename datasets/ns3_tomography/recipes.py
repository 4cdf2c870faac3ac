"""How tomography networks are trained."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.recipe import Recipe, Training

BITS = 152  # 19 delays of 8 bits
SHAPES: tuple[tuple[int, ...], ...] = ((32, 16), (64, 32), (128, 64))

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
