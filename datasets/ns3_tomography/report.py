# SPDX-License-Identifier: Apache-2.0
"""Results of a tomography run by queue: medians, the paper's table 5 and its figure 16."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.datasets.ns3_tomography.baselines import DelayBaselines, delay_baselines
from n3ic.datasets.ns3_tomography.table import TomographyTable, queue_tables
from n3ic.model.network import BinaryModel, binary_network, shape_text
from n3ic.util.files import write_atomic
from n3ic.util.markdown import percent, table
from n3ic.util.pictures import INK, SOFT, legend, look, new_figure, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.data.table import FlowTable
    from n3ic.evaluation.metrics import Evaluation
    from n3ic.runs.experiment import TrainingResult

PAPER_ACCURACY: Mapping[tuple[int, ...], tuple[float, float]] = {
    # float and binary median accuracy, table 5 of the N3IC paper (its own, unpublished, trace)
    (32, 16): (0.92, 0.90),
    (64, 32): (0.94, 0.90),
    (128, 64): (0.94, 0.92),
}
CORE = "core"  # part of the names of queues to and from the core
PROBE_BUDGETS_US: Mapping[int, float] = {40: 250.0, 100: 100.0, 400: 25.0}  # Gb/s: us, section 6.2


@dataclass(frozen=True)
class QueueFigures:
    """Results of one network on the test rows of its queue.

    Attributes:
        shape: neurons of the hidden layers.
        accuracy: accuracy of the binary network.
        macro_f1: macro F1 of the binary network.
        majority: accuracy of always predicting the majority class of the training rows, or of the
            test rows if no baselines were trained.
        float_mlp: accuracy of the float MLP of the same shape; None if it was not trained.
        weight_bytes: bytes of the binary weights.
        float_weight_bytes: bytes of the same weights as float32.
        one_cut: accuracy of the best cut of one delay; None if baselines were not trained.
        logistic: accuracy of logistic regression on the delays; None if baselines were not trained.
    """

    queue: str
    shape: tuple[int, ...]
    accuracy: float
    macro_f1: float
    majority: float
    float_mlp: float | None
    weight_bytes: int
    float_weight_bytes: int
    one_cut: float | None = None
    logistic: float | None = None


def figures_of(
    queue: str, result: TrainingResult, delays: DelayBaselines | None = None
) -> QueueFigures:
    """Collect the figures of one queue's result and of the baselines on its delays."""
    label = result.test_label
    majority: Evaluation | None = result.baselines.get("majority")
    mlp = result.baselines.get("float_mlp")
    model = result.model
    return QueueFigures(
        queue=queue,
        shape=model.shape[1:-1],
        accuracy=result.test.accuracy,
        macro_f1=result.test.macro_f1,
        majority=majority.accuracy
        if majority is not None
        else max(float(label.mean()), 1 - float(label.mean())),
        float_mlp=None if mlp is None else mlp.accuracy,
        weight_bytes=model.weight_bytes,
        float_weight_bytes=binary_network(model).float_weight_bytes,
        one_cut=None if delays is None else delays.cut.accuracy,
        logistic=None if delays is None else delays.logistic,
    )


def summary(figures: Sequence[QueueFigures]) -> dict[str, dict[str, Any]]:
    """Median, mean, minimum and maximum figures over the queues, by shape such as ``32-16-2``.

    Queues of the core have figures of their own (``core``), as fewer probes share their whole path.
    """
    out: dict[str, dict[str, Any]] = {}
    for shape in dict.fromkeys(f.shape for f in figures):
        own = [f for f in figures if f.shape == shape]
        accuracy = [f.accuracy for f in own]
        worst = min(own, key=lambda f: f.accuracy)
        core = [f for f in own if CORE in f.queue]
        paper = PAPER_ACCURACY.get(shape)
        out[_shape_name(shape)] = {
            "queues": len(own),
            "median_accuracy": float(np.median(accuracy)),
            "mean_accuracy": float(np.mean(accuracy)),
            "min_accuracy": worst.accuracy,
            "worst_queue": worst.queue,
            "max_accuracy": max(accuracy),
            "median_macro_f1": float(np.median([f.macro_f1 for f in own])),
            "median_majority": float(np.median([f.majority for f in own])),
            "median_gain_over_majority": float(np.median([f.accuracy - f.majority for f in own])),
            "median_float_mlp": _median(f.float_mlp for f in own),
            **_without_network(own, "one_cut"),
            **_without_network(own, "logistic"),
            "core": {
                "queues": [f.queue for f in core],
                "median_accuracy": _median(f.accuracy for f in core),
                "median_majority": _median(f.majority for f in core),
                "median_one_cut": _median(f.one_cut for f in core),
                "median_logistic": _median(f.logistic for f in core),
            },
            "weight_bytes": own[0].weight_bytes,
            "float_weight_bytes": own[0].float_weight_bytes,
            "paper_float": paper[0] if paper else None,
            "paper_binary": paper[1] if paper else None,
        }
    return out


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _without_network(figures: Sequence[QueueFigures], name: str) -> dict[str, float | None]:
    """Median, mean and minimum accuracy of a baseline, and how many networks are better."""
    pairs = [(f.accuracy, getattr(f, name)) for f in figures if getattr(f, name) is not None]
    own = [value for _, value in pairs]
    return {
        f"median_{name}": _median(own),
        f"mean_{name}": float(np.mean(own)) if own else None,
        f"min_{name}": min(own, default=None),
        f"better_than_{name}": sum(network > value for network, value in pairs) if own else None,
    }


def _shape_name(hidden: tuple[int, ...]) -> str:
    """Write a shape as the paper does: hidden layers, then the two classes."""
    return shape_text((*hidden, 2))


def table5(figures: Sequence[QueueFigures]) -> str:
    """Write the paper's table 5 for these networks as Markdown, with the paper's figures beside."""
    head = [
        "neurons",
        "float weights",
        "binary weights",
        "float MLP",
        "**binary**",
        "mean",
        "worst queue",
        "core queues",
        "macro F1",
        "majority",
        "gain",
        "one delay, one cut",
        "logistic regression",
        "paper: float",
        "paper: binary",
    ]
    rows = (
        [
            shape,
            f"{m['float_weight_bytes']:,} B",
            f"{m['weight_bytes']:,} B",
            percent(m["median_float_mlp"]),
            f"**{percent(m['median_accuracy'])}**",
            percent(m["mean_accuracy"]),
            f"{percent(m['min_accuracy'])} ({m['worst_queue']})",
            percent(m["core"]["median_accuracy"]),
            percent(m["median_macro_f1"]),
            percent(m["median_majority"]),
            _points(m["median_gain_over_majority"]),
            percent(m["median_one_cut"]),
            percent(m["median_logistic"]),
            percent(m["paper_float"]),
            percent(m["paper_binary"]),
        ]
        for shape, m in summary(figures).items()
    )
    return "\n".join(table(head, rows)) + "\n"


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"


@styled
def box_figure(figures: Sequence[QueueFigures]) -> Figure:
    """Draw a box plot of the queues' accuracies per shape, like the paper's figures 16 and 34."""
    shapes = list(dict.fromkeys(f.shape for f in figures))
    figure, axes = new_figure(max(6.4, 2.4 + 1.6 * len(shapes)), 5.6)
    own = [[100 * f.accuracy for f in figures if f.shape == shape] for shape in shapes]
    places = range(1, len(shapes) + 1)
    lines = {"color": INK, "linewidth": 1.5}
    axes.boxplot(own, positions=list(places), widths=0.5, medianprops=lines)
    medians = summary(figures)
    for place, m in zip(places, medians.values(), strict=True):
        axes.plot(
            [place - 0.35, place + 0.35], [100 * m["median_majority"]] * 2, ":", color=SOFT,
            label="majority class (median)",
        )  # fmt: skip
        for key, number, label in (
            ("median_float_mlp", 2, "float MLP (median)"),
            ("median_one_cut", 3, "one delay, one cut (median)"),
            ("median_logistic", 4, "logistic regression (median)"),
            ("paper_binary", 1, "binary in the paper (median)"),
        ):
            if m[key] is not None:
                drawn: dict[str, Any] = {
                    "marker": look(number).marker,
                    "color": look(number).colour,
                }
                axes.plot([place], [100 * m[key]], linestyle="", **drawn, label=label)
    axes.set_xticks(list(places), [_shape_name(shape) for shape in shapes])
    axes.set_xlabel("neurons")
    axes.set_ylabel("test accuracy of a queue, %")
    axes.set_title(f"{len(own[0])} queues simulated in ns-3")
    legend(figure)
    return figure


def probe_budget(summary: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Check whether a set of networks answers before the next probes, by target and link speed.

    The answer is unknown if a target refused a network or has no latency for it, and negative if
    the set does not fit the device.

    Args:
        summary: figures of the set by target, as
            :func:`~n3ic.targets.colocation_report.set_summary` gives them.

    Returns:
        One row per target: ``target``, ``networks``, ``set_us`` and its ``kind`` (measured,
        simulated, estimated), and for each link speed, ``40 Gb/s`` and so on, whether the set
        answers in time (None if unknown).
    """
    out = []
    for target, figures in summary.items():
        together = figures["together"] or {"latency_ns": None, "latency_kind": None, "problems": ()}
        latency = together["latency_ns"]
        known = latency is not None and not figures["refused"]
        row = {
            "target": target,
            "networks": figures["networks"],
            "set_us": None if latency is None else latency / 1000,
            "kind": together["latency_kind"],
        }
        for link, budget in PROBE_BUDGETS_US.items():
            fits = known and latency / 1000 <= budget and not together["problems"]
            row[f"{link} Gb/s"] = fits if known else None
        out.append(row)
    return out


def finish(
    directory: Path,
    table: FlowTable,
    results: Mapping[str, TrainingResult],
    options: Mapping[str, Any],
    compared: Mapping[tuple[int, ...], Mapping[str, TrainingResult]],
) -> dict[str, Any]:
    """Add the results that only tomography has; see :meth:`n3ic.usecases.base.UseCase.finish`."""
    from n3ic.datasets.ns3_tomography.replay import congested_in_truth, heat_map, replay

    delays = _delay_baselines(table, results, options)
    figures = sorted(
        (
            figures_of(queue, r, delays.get(queue))
            for of in (results, *compared.values())
            for queue, r in of.items()
        ),
        key=lambda f: f.shape,
    )
    plots = directory / "plots"
    plots.mkdir(exist_ok=True)
    save(box_figure(figures), plots, "queues")
    models: dict[str, BinaryModel] = {
        queue: binary_network(r.model) for queue, r in results.items()
    }
    if isinstance(table, TomographyTable):
        tail = table.rows(np.arange(max(0, len(table) - 500), len(table)))
        result = replay(models, tail)
        truth = congested_in_truth(tail, result.queues, float(options["threshold"]))
        interval = float(table.trace_header["interval_ns"]) / 1e6
        save(heat_map(result, interval_ms=interval, truth=truth), plots, "congestion")
    write_atomic(directory / "table5.md", table5(figures))
    return {
        "threshold_packets": float(options["threshold"]),
        "shapes": summary(figures),
        "delay_baselines": {queue: asdict(baselines) for queue, baselines in delays.items()},
        "probe_budget_us": {f"{link} Gb/s": us for link, us in PROBE_BUDGETS_US.items()},
    }


def _delay_baselines(
    table: FlowTable, results: Mapping[str, TrainingResult], options: Mapping[str, Any]
) -> dict[str, DelayBaselines]:
    """Fit the baselines on delays, by queue; empty for a run without baselines."""
    with_baselines = {queue: result for queue, result in results.items() if result.baselines}
    if not with_baselines:
        return {}
    tables = queue_tables(table, ",".join(with_baselines), float(options["threshold"]))
    return {
        queue: delay_baselines(tables[queue], result.protocol, int(result.model.provenance["seed"]))
        for queue, result in with_baselines.items()
    }
