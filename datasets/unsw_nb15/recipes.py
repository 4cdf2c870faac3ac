"""How the anomaly network is trained."""

from __future__ import annotations

from n3ic.datasets.unsw_nb15.catalogue import BY_NAME, NIC_COLUMNS
from n3ic.training.recipe import Recipe, Training

PAPER = Recipe(
    name="paper",
    summary="the paper's: 16 chi-squared features of 16 raw bits, thresholds of half the inputs",
    encoding="binary",
    columns=tuple(name for name in NIC_COLUMNS if BY_NAME[name].usable),
    features=16,
    field_bits=16,
    training=Training(
        ste="clip",
        batch_norm=False,
        output_bias=False,
        loss="squared_hinge",
        dropout=0.25,
        learning_rate=1e-3,
        schedule="constant",
        epochs=20,
        batch_size=256,
    ),
)

DEFAULT = Recipe(
    name="default",
    summary="256 cuts chosen by boosted trees, each as often as it earns; folded and polished",
    encoding="weighted",
    training=Training(epochs=20, batch_size=256, learning_rate=1e-2, polish=3),
)

RECIPES = {recipe.name: recipe for recipe in (DEFAULT, PAPER)}
