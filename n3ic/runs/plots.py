"""Pictures of a run: confusion matrix, ROC, training curve, feature scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.model.classifier import family_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from n3ic.data.table import FlowTable
    from n3ic.runs.experiment import Result

DPI = 120
_ROC_POINTS = 400


def write_plots(directory: Path, result: Result, table: FlowTable) -> None:
    """Draw a result's pictures as PNG files into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    title = table.name
    save(confusion_figure(result.test.confusion, table.classes, title), directory, "confusion")
    if result.positive is not None and len(np.unique(result.test_label)) > 1:
        save(roc_figure(result, result.positive, title), directory, "roc")
    if result.history:  # prototypes have none
        save(training_figure(result, title), directory, "training")
    save(feature_figure(result, title), directory, "features")


def save(figure: Figure, directory: Path, name: str) -> None:
    """Write a figure as a PNG whose bytes depend on the picture alone."""
    figure.savefig(directory / f"{name}.png", dpi=DPI, metadata={"Software": None})


def new_figure(width: float = 6.0, height: float = 4.5) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, without any global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def confusion_figure(
    confusion: Sequence[Sequence[int]], classes: Sequence[str], title: str
) -> Figure:
    """Rows per true and predicted class, shaded by the share of the true class."""
    figure, axes = new_figure(5.5, 4.8)
    counts = np.asarray(confusion)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(counts.shape):
        colour = "white" if share[i, j] > 0.5 else "black"
        text = f"{counts[i, j]:,}\n{share[i, j]:.1%}"
        axes.text(j, i, text, ha="center", va="center", color=colour)
    ticks = np.arange(len(classes))
    axes.set_xticks(ticks, classes, rotation=0 if len(classes) < 4 else 45)
    axes.set_yticks(ticks, classes)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"Confusion on the test rows\n{title}")
    figure.colorbar(image, label="share of the true class")
    return figure


def roc_figure(result: Result, positive: int, title: str) -> Figure:
    """ROC of the model beside its baselines, false positives on a log scale.

    Args:
        result: scores and labels of the test rows.
        positive: index of the class that is to be found.
        title: of the data.
    """
    from sklearn.metrics import roc_curve

    from n3ic.evaluation.metrics import against_rest

    figure, axes = new_figure()
    for name, scores in result.test_scores.items():
        fpr, tpr, _ = roc_curve(result.test_label == positive, against_rest(scores, positive))
        step = max(1, len(fpr) // _ROC_POINTS)
        ours = name == "model"
        axes.plot(
            np.append(fpr[::step], 1.0),
            np.append(tpr[::step], 1.0),
            label=family_text(result.model.family) if ours else name.replace("_", " "),
            linewidth=2.4 if ours else 1.1,
            color="black" if ours else None,
        )
    axes.set_xscale("log")
    axes.set_xlim(1e-4, 1)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")
    axes.set_title(f"ROC on the test rows\n{title}")
    return figure


def training_figure(result: Result, title: str) -> Figure:
    """Training loss, validation loss and validation accuracy over the epochs."""
    figure, axes = new_figure()
    epochs = [e.number for e in result.history]
    axes.plot(epochs, [e.loss for e in result.history], label="training loss")
    axes.plot(epochs, [e.validation_loss for e in result.history], label="validation loss")
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    right: Any = axes.twinx()
    accuracy = [100 * e.validation_accuracy for e in result.history]
    right.plot(epochs, accuracy, color="tab:green", label="validation accuracy")
    right.set_ylabel("accuracy, %")
    lines = [*axes.get_lines(), *right.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], fontsize="small")
    axes.set_title(f"Training\n{title}")
    return figure


def feature_figure(result: Result, title: str) -> Figure:
    """Chi-squared statistic of each candidate feature, and the input bits that it got."""
    bits: dict[str, int] = {}
    for f in result.model.input.fields:
        bits[f.feature] = bits.get(f.feature, 0) + f.width
    names = sorted(result.feature_scores, key=lambda n: result.feature_scores[n])
    figure, axes = new_figure(7.0, max(3.5, 0.22 * len(names) + 1))
    values = [max(result.feature_scores[n], 1e-3) for n in names]
    colours = ["tab:blue" if n in bits else "lightgray" for n in names]
    axes.barh(names, values, color=colours)
    for i, name in enumerate(names):
        if name in bits:
            axes.text(values[i], i, f" {bits[name]} bits", va="center", fontsize="small")
    axes.set_xscale("log")
    axes.set_xlabel("chi-squared on the training rows (grey: no input bits)")
    axes.tick_params(axis="y", labelsize="small")
    axes.margins(x=0.15, y=0.01)
    axes.set_title(f"Features\n{title}")
    return figure
