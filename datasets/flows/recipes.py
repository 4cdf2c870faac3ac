"""How networks for any table of flows are trained."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.training.recipe import Recipe, Training

RECIPES: Mapping[str, Recipe] = {
    "default": Recipe(
        name="default",
        summary="1.1 KB: 256 cuts chosen by boosted trees, each as often as it earns; polished",
        encoding="weighted",
        training=Training(epochs=20, batch_size=128, learning_rate=1e-2, polish=3),
    ),
    "large": Recipe(
        name="large",
        summary="15 KB: the same for one hidden layer of 448, taught by the boosted trees, too",
        encoding="weighted",
        training=Training(
            hidden=(448,),
            epochs=30,
            batch_size=256,
            learning_rate=1e-2,
            dropout=0.2,
            distill=0.5,
        ),
    ),
}
