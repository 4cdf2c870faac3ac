# SPDX-License-Identifier: Apache-2.0
"""Recipes that several data sets share."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.training.recipe import Recipe, Training

PAPER_TRAINING = Training(
    hidden=(256, 256),
    ste="clip",
    batch_norm=False,
    output_bias=False,
    loss="squared_hinge",
    dropout=0.25,
    learning_rate=1e-3,
    schedule="constant",
    epochs=20,
    batch_size=256,
)
"""How the paper trains its traffic classifier, after Courbariaux et al. (NeurIPS 2016)."""

KILOBYTE = Recipe(
    name="default",
    summary="1.1 KB: 256 cuts chosen by boosted trees, each as often as it earns; polished",
    encoding="weighted",
    training=Training(hidden=(32,), epochs=20, batch_size=128, learning_rate=1e-2, polish=3),
)

LARGE = Recipe(
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
)

VOTING_TREES = Recipe(
    name="voting-trees",
    summary="for the unrolled NetFPGA core: decision trees that vote, some 160 LUT sites each",
    encoding="boosted",
    bits=512,
    training=Training(method="trees", distill=0.5),
)

ANY_TABLE: Mapping[str, Recipe] = {
    recipe.name: recipe for recipe in (KILOBYTE, LARGE, VOTING_TREES)
}
"""Recipes that suit any table of flows, by name."""
