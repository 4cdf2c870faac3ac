# SPDX-License-Identifier: Apache-2.0
"""Replays a trace through the networks of a run: which queues are congested, and when."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.datasets.ns3_tomography.table import TomographyTable, load
from n3ic.datasets.ns3_tomography.trace import QUARTERS
from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.util.files import write_atomic
from n3ic.util.pictures import INK, SOFT, look, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POSITIVE = "congested"


@dataclass(frozen=True, eq=False)
class Replay:
    """Verdicts of the networks in each interval.

    Attributes:
        queues: names of the queues, one per network.
        congested: bool array of shape ``(rows, queues)``.
        margins: best minus second best score, int32, shape ``(rows, queues)``.
    """

    queues: tuple[str, ...]
    congested: NDArray[np.bool_]
    margins: NDArray[np.int32]


def replay(
    run: str | Path | Mapping[str, Classifier], trace: str | Path | TomographyTable
) -> Replay:
    """Classify every interval of a trace with the networks of a run.

    Args:
        run: a run folder, or networks by queue.
        trace: a trace file, or a table read from one.

    Raises:
        UsageError: the folder is not a run, or a network was not trained for congestion.
        ModelError: a network needs a feature that the trace lacks.
        DataError: the file is not a trace.
    """
    if isinstance(run, str | Path):
        from n3ic.runs.folder import models_of

        models = {queue: load_model(path) for queue, path in models_of(run).items()}
    else:
        models = dict(run)
    table = trace if isinstance(trace, TomographyTable) else load(trace)
    for queue, model in models.items():
        if _POSITIVE not in model.classes:
            raise UsageError(
                f"the network {queue or model.name!r} tells {', '.join(model.classes)} apart; "
                "a replay needs networks that n3ic train tomography made"
            )
    # Queues in the trace's order, then names that it lacks, such as that of a single network.
    order = [q for q in table.queues if q in models] + [q for q in models if q not in table.queues]
    congested, margins = [], []
    for queue in order:
        model = models[queue]
        inference = model.infer(model.encode(table.features))
        congested.append(inference.classes == model.classes.index(_POSITIVE))
        margins.append(inference.margins)
    return Replay(tuple(order), np.stack(congested, axis=1), np.stack(margins, axis=1))


def write_replay(
    models: Mapping[str, Classifier],
    table: TomographyTable,
    out: Path,
    threshold: float,
    last: int | None = None,
) -> tuple[str, ...]:
    """Replay a trace and write a heat map (``.png``) or one row per interval (``.csv``).

    Args:
        models: networks by queue.
        table: a trace.
        out: file to write.
        threshold: full packets above which a queue is congested in truth.
        last: number of intervals to keep from the end; None for all.

    Returns:
        One line per queue: how often it was found congested, and how often correctly.

    Raises:
        UsageError: the suffix is unknown, or a network was not trained for congestion.
    """
    if out.suffix not in (".png", ".csv"):
        raise UsageError(f"{out}: a replay writes a picture, .png, or a table, .csv")
    if last is not None:
        table = table.rows(np.arange(max(0, len(table) - last), len(table)))
    result = replay(models, table)
    known = all(queue in table.occupancy for queue in result.queues)
    truth = congested_in_truth(table, result.queues, threshold) if known else None
    text = io.StringIO()
    if out.suffix == ".csv":
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["interval", *result.queues])
        writer.writerows([i, *row] for i, row in enumerate(result.congested.astype(int).tolist()))
        write_atomic(out, text.getvalue())
    else:
        interval = float(table.trace_header["interval_ns"]) / 1e6
        picture = io.BytesIO()
        heat_map(result, interval_ms=interval, truth=truth).savefig(
            picture, format="png", dpi=120, metadata={"Software": None}
        )
        write_atomic(out, picture.getvalue())
    lines = [f"{len(table):,} intervals, {len(result.queues)} queues"]
    for i, queue in enumerate(result.queues):
        predicted = result.congested[:, i]
        line = f"{queue}: congested in {predicted.mean():.1%} of the intervals"
        if truth is not None:
            right = (predicted == truth[:, i]).mean()
            line += f", {truth[:, i].mean():.1%} in truth, {right:.1%} said right"
        lines.append(line)
    return tuple(lines)


def congested_in_truth(
    table: TomographyTable, queues: Sequence[str], threshold: float
) -> NDArray[np.bool_]:
    """Which queues held more than ``threshold`` full packets: bool array ``(rows, queues)``."""
    return np.stack([table.occupancy[q] > threshold * QUARTERS for q in queues], axis=1)


@styled
def heat_map(
    result: Replay, *, interval_ms: float = 10.0, truth: NDArray[np.bool_] | None = None
) -> Figure:
    """Draw which queues are congested over time.

    Args:
        result: verdicts of the networks.
        interval_ms: length of an interval in milliseconds.
        truth: bool array of shape ``(rows, queues)``; if given, hits, misses and false alarms have
            colours of their own.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    states = result.congested.astype(np.int64)
    names = ["free", "congested"]
    free, hit, alarm, missed = "#f4f4f4", look(0).colour, look(3).colour, INK
    colours = [free, hit]  # distinguishable in grey, too
    if truth is not None:
        states = states + 2 * truth  # 1: false alarm, 2: missed, 3: found
        names = ["free", "false alarm", "missed", "congested, found"]
        colours = [free, alarm, missed, hit]
    rows, queues = states.shape
    figure, axes = new_figure(10.0, 2.0 + 0.3 * queues)
    axes.imshow(
        states.T,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        extent=(0, rows * interval_ms / 1000, queues - 0.5, -0.5),
    )
    axes.set_yticks(np.arange(queues), [plain(q, 24) for q in result.queues])
    axes.set_xlabel("seconds")
    axes.set_title("congested queues, one network a queue")
    figure.legend(
        handles=[
            Patch(facecolor=c, edgecolor=SOFT, label=n) for c, n in zip(colours, names, strict=True)
        ],
        loc="outside lower center",
        ncols=len(names),
    )
    return figure
