"""How networks that classify applications are trained."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.training.recipe import Recipe, Training

_PAPER = Training(
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
    "paper": Recipe(
        name="paper",
        summary="the paper's: 16 chi-squared columns of 16 raw bits, two hidden layers of 256",
        encoding="binary",
        columns=(
            "flow_duration",
            "flow_bytes_s",
            "flow_packets_s",
            *(
                f"{kind}_{figure}"
                for kind in ("flow_iat", "fwd_iat", "bwd_iat", "active", "idle")
                for figure in ("mean", "max", "min")
            ),
        ),
        features=16,
        field_bits=16,
        training=_PAPER,
    ),
    "paper-meter": Recipe(
        name="paper-meter",
        summary="the paper's for what a meter gives, such as UPC-AAU: the best 16 of all columns",
        encoding="binary",
        features=16,
        field_bits=16,
        training=_PAPER,
    ),
}
