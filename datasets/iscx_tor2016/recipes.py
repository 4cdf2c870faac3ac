# SPDX-License-Identifier: Apache-2.0
"""Recipes for networks that classify applications."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.training.recipe import Recipe
from n3ic.training.recipes import ANY_TABLE, PAPER_TRAINING

RECIPES: Mapping[str, Recipe] = {
    **ANY_TABLE,
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
        training=PAPER_TRAINING,
    ),
    "paper-meter": Recipe(
        name="paper-meter",
        summary="the paper's for what a meter gives, such as UPC-AAU: the best 16 of all columns",
        encoding="binary",
        features=16,
        field_bits=16,
        training=PAPER_TRAINING,
    ),
}
