# SPDX-License-Identifier: Apache-2.0
"""The confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.util.pictures import new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FULL = 6  # with more classes, cells have no room for counts


@styled
def confusion_figure(
    confusion: Sequence[Sequence[int]], classes: Sequence[str], rows: str
) -> Figure:
    """Number of rows by true and predicted class, shaded by the share of the true class.

    Args:
        confusion: counts, shape ``(classes, classes)``, by true class first, then predicted class.
        classes: their names.
        rows: description of the held-out rows.
    """
    many = len(classes)
    side = max(5.2, 0.62 * many + 2.2)
    figure, axes = new_figure(side + 0.9, side)
    counts = np.asarray(confusion)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)  # a class may have no row
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(counts.shape):
        text = (
            f"{100 * share[i, j]:.1f} %\n{counts[i, j]:,}"
            if many <= _FULL
            else (f"{100 * share[i, j]:.0f}" if counts[i, j] else "")
        )
        colour = "white" if share[i, j] > 0.6 else "black"  # readable on dark and pale cells
        axes.text(j, i, text, ha="center", va="center", color=colour)
    names = [plain(name, 18) for name in classes]
    turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(np.arange(many), names, **({} if many < 4 else turned))
    axes.set_yticks(np.arange(many), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"Confusion\n{plain(rows, 60)}")
    bar = figure.colorbar(image, label="share of the true class, %", shrink=0.8)
    bar.set_ticks([0, 0.5, 1], labels=["0", "50", "100"])
    return figure
