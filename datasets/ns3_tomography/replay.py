"""Replay of a trace through the networks of a run: which queues are congested, when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.datasets.ns3_tomography.table import TomographyTable, load
from n3ic.errors import UsageError
from n3ic.model import BinaryModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POSITIVE = "congested"


@dataclass(frozen=True, eq=False)
class Replay:
    """What the networks say in each interval.

    Attributes:
        queues: names of the queues, one a network.
        congested: bool array of shape ``(rows, queues)``.
        margins: best minus second best score, int32, shape ``(rows, queues)``: how sure.
    """

    queues: tuple[str, ...]
    congested: NDArray[np.bool_]
    margins: NDArray[np.int32]


def replay(
    run: str | Path | Mapping[str, BinaryModel], trace: str | Path | TomographyTable
) -> Replay:
    """Classify every interval of a trace with the networks of a run.

    Args:
        run: a run folder, or the networks by queue.
        trace: a trace file, or a table of one.

    Raises:
        UsageError: the folder is no run, or a network was not trained for congestion.
        ModelError: a network needs a feature that the trace does not have.
        DataError: the file is no trace.
    """
    if isinstance(run, str | Path):
        from n3ic.runs import models_of

        models = {queue: BinaryModel.load(path) for queue, path in models_of(run).items()}
    else:
        models = dict(run)
    table = trace if isinstance(trace, TomographyTable) else load(trace)
    for queue, model in models.items():
        if _POSITIVE not in model.classes:
            raise UsageError(
                f"the network {queue or model.name!r} tells {', '.join(model.classes)} apart; "
                "a replay needs networks that n3ic train tomography made"
            )
    # In the trace's order of queues, those it does not have (a single network's) after them.
    order = [q for q in table.queues if q in models] + [q for q in models if q not in table.queues]
    congested, margins = [], []
    for queue in order:
        model = models[queue]
        seen = model.trace(model.encode(table.features))
        congested.append(seen.classes == model.classes.index(_POSITIVE))
        margins.append(seen.margins)
    return Replay(tuple(order), np.stack(congested, axis=1), np.stack(margins, axis=1))


def heat_map(
    shown: Replay, *, interval_ms: float = 10.0, truth: NDArray[np.bool_] | None = None
) -> Figure:
    """Which queues are congested over time, as a picture.

    Args:
        shown: what the networks say.
        interval_ms: length of an interval.
        truth: bool array of the shape of ``shown.congested``; where given, hits, misses and
            false alarms have colours of their own.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    from n3ic.plots import new_figure

    states = shown.congested.astype(np.int64)
    names = ["free", "congested"]
    colours = ["#f4f4f4", "#b2182b"]
    if truth is not None:
        states = states + 2 * truth  # 1: false alarm, 2: missed, 3: found
        names = ["free", "false alarm", "missed", "congested, found"]
        colours = ["#f4f4f4", "#fdae61", "#2166ac", "#b2182b"]
    rows, queues = states.shape
    figure, axes = new_figure(10.0, 1.6 + 0.24 * queues)
    axes.imshow(
        states.T,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        extent=(0, rows * interval_ms / 1000, queues - 0.5, -0.5),
    )
    axes.set_yticks(np.arange(queues), shown.queues, fontsize="small")
    axes.set_xlabel("seconds")
    axes.set_title("congested queues, one network a queue")
    figure.legend(
        handles=[Patch(facecolor=c, label=n) for c, n in zip(colours, names, strict=True)],
        loc="outside lower center",
        ncols=len(names),
        fontsize="small",
    )
    return figure
