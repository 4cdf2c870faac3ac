# SPDX-License-Identifier: Apache-2.0
"""Losses and accuracy over the epochs of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from n3ic.util.pictures import PALE, legend, look, new_page, plain, styled, whole_numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.training.loop import Epoch


@styled
def training_figure(history: Sequence[Epoch], title: str = "") -> Figure:
    """Losses above, and accuracy on the validation rows below, over the epochs.

    Args:
        history: figures of each epoch.
        title: name of the data.
    """
    figure = new_page(6.4, 5.6)
    upper, lower = figure.subplots(2, 1, sharex=True)
    epochs = [e.number for e in history]
    sparse_marks: dict[str, Any] = {"markersize": 4.0, "markevery": max(1, len(epochs) // 20)}
    upper.plot(
        epochs, [e.loss for e in history], **look(0).curve, **sparse_marks, label="training rows"
    )
    validation_losses = [e.validation_loss for e in history]
    upper.plot(epochs, validation_losses, **look(1).curve, **sparse_marks, label="validation rows")
    upper.set_ylabel("loss")
    accuracy = [100 * e.validation_accuracy for e in history]
    lower.plot(epochs, accuracy, **look(1).curve, **sparse_marks, label="validation rows")
    lower.set_ylabel("accuracy, %")
    lower.set_xlabel("epoch")
    whole_numbers(lower.xaxis)
    for axes in (upper, lower):
        axes.grid(color=PALE)
    upper.set_title("Training" + (f"\n{plain(title, 60)}" if title else ""))
    legend(figure)
    return figure
