# SPDX-License-Identifier: Apache-2.0
"""The contribution of each feature to a network's accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from n3ic.evaluation.importance import FeatureImportance
from n3ic.util.pictures import INK, PALE, look, new_page, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 24


@styled
def importance_figure(importance: Sequence[FeatureImportance], rows: str) -> Figure:
    """Permutation importance of the features beside the chi-squared of their bits.

    Args:
        importance: figures of :func:`~n3ic.evaluation.importance.permutation_importance`; the
            first 24 features are drawn.
        rows: description of the held-out rows.
    """
    features = importance[:_MOST]
    figure = new_page(8.0, max(3.2, 0.34 * len(features) + 2.0))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    at = range(len(features))
    left.barh(
        at, [100 * f.accuracy for f in features], xerr=[100 * f.accuracy_std for f in features],
        **look(0).area, error_kw={"ecolor": INK, "capsize": 2, "elinewidth": 1.2},
    )  # fmt: skip
    right.barh(at, [f.phi2 for f in features], **look(1).area)
    names = [f"{plain(f.feature, 24)} ({f.bits} bit{'s' * (f.bits != 1)})" for f in features]
    left.set_yticks(at, names)
    left.set_ylim(len(features) - 0.4, -0.6)
    left.axvline(0, color=INK, linewidth=1)
    left.set_title("permuted: accuracy lost")
    left.set_xlabel("points of accuracy\n(bar: one deviation)")
    right.set_title("its best bit by itself")
    right.set_xlabel("chi-squared / rows\n(1: tells the class)")
    right.set_xlim(0, max(0.05, 1.05 * max((f.phi2 for f in features), default=0)))
    for axes in (left, right):
        axes.grid(axis="x", color=PALE)
        axes.tick_params(axis="y", length=0)
    more = len(importance) - len(features)
    omission = f" (and {more} of less weight)" if more else ""
    figure.suptitle(f"Features that the network reads{omission}\n{plain(rows, 60)}")
    return figure
