# SPDX-License-Identifier: Apache-2.0
"""The second stage: a larger model on the host decides the flows that the card is not sure of."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, seen_in_training, split
from n3ic.errors import N3icWarning, UsageError
from n3ic.evaluation.held_out import known_split
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import SHUNT, Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.model.meter_spec import MeterSpec
from n3ic.studies.shunt.points import TwoStageRows, shunt_points, thresholds_of
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.learning.host_models import HostModel, HostTrees, fit_host_mlp
from n3ic.usecases.evaluation import LabelledFlows, labelled_flows
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

Kind = Literal["trees", "mlp"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_SHOWN = 8
_ALONE = 200  # flows that are decided one by one to measure the latency
_BATCH = 256  # flows of a batch that is timed


@dataclass(frozen=True)
class StageCost:
    """What a stage costs on this machine.

    Attributes:
        bytes: size of its numbers in bytes.
        cpu_us: CPU time per flow in batches of 256, in microseconds.
        alone_us: median time of a flow that is decided by itself, in microseconds.
    """

    bytes: int
    cpu_us: float
    alone_us: float


@dataclass(frozen=True)
class EndToEnd:
    """Both stages at one threshold, on test rows.

    Attributes:
        threshold: smallest margin that the card decides.
        shunted: share of the flows that go to the host.
        card: share of the flows decided on the card that are right; None if it decides none.
        host: for each second stage, share of the shunted flows that are right.
        right: for each second stage, share of all flows that are right.
        unseen: the same share, of the flows that duplicate no training row.
        cpu_us: for each second stage, CPU time of the host per flow of the stream, in
            microseconds.
    """

    threshold: int
    shunted: float
    card: float | None
    host: Mapping[str, float | None]
    right: Mapping[str, float]
    unseen: Mapping[str, float | None]
    cpu_us: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class SecondStage:
    """Second stages for a model, and both together at several thresholds.

    Attributes:
        model: the model of the card.
        stages: the second stages, by kind.
        rows: number of training, validation and test rows.
        features: columns of the second stages.
        points: both stages at several thresholds, including the model's own.
        costs: the costs of the model on this host, and of each second stage.
    """

    model: Classifier
    stages: Mapping[str, HostModel]
    rows: Mapping[str, int]
    features: tuple[str, ...]
    points: tuple[EndToEnd, ...]
    costs: Mapping[str, StageCost]

    @property
    def tables(self) -> tuple[TextTable, TextTable]:
        """A table of the thresholds, and one of the costs."""
        points = tuple(
            (
                f"{'* ' if p.threshold == self.model.shunt else ''}{p.threshold}",
                percent(p.shunted),
                percent(p.card),
                kind,
                percent(p.host[kind]),
                percent(p.right[kind]),
                percent(p.unseen[kind]),
                f"{p.cpu_us[kind]:.2f}",
            )
            for p in self.points
            for kind in self.stages
        )
        head = (
            *("threshold", "shunted", "card", "second stage", "on the rest", "end to end"),
            *("deduplicated", "host us a flow"),
        )
        costs = tuple(
            (name, f"{cost.bytes:,}", f"{cost.cpu_us:.2f}", f"{cost.alone_us:.1f}")
            for name, cost in self.costs.items()
        )
        titles = ("stage", "bytes", "us of CPU a flow", "us alone, median")
        test = f"{self.rows['test']:,} test rows"
        return (
            TextTable(f"{self.model.name}: {test}", head, points),
            TextTable("costs on this machine", titles, costs),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": {"name": self.model.name, "sha256": self.model.digest},
            "threshold": self.model.shunt,
            "rows": dict(self.rows),
            "features": list(self.features),
            "points": [asdict(point) for point in self.points],
            "costs": {name: asdict(cost) for name, cost in self.costs.items()},
        }


def second_stage(
    model: str | Path,
    data: str | Path | None = None,
    *,
    dataset: str | None = None,
    task: str = "",
    kinds: tuple[Kind, ...] = KINDS,
) -> SecondStage:
    """Train second stages on the training rows of a model, and study both stages on its test rows.

    Args:
        model: a run folder or a model file.
        data: labelled flows; None for the data set's embedded sample.
        dataset: name of the data set that reads them; None for the model's own.
        task: name of the network, if a run has several.
        kinds: ``trees`` for boosted trees, ``mlp`` for a float network.

    Raises:
        UsageError: No data set reads the flows, or there are several networks.
        DataError: The flows cannot be read.
        MissingDependencyError: The training libraries are missing.

    Warns:
        N3icWarning: The installed version of boosting has a fault.
    """
    from n3ic.training.input_bits import boosted_trees, fault_of
    from n3ic.training.input_choice import candidates
    from n3ic.training.recipe import Recipe

    labelled = labelled_flows(model, data, dataset)
    if (not task and len(labelled) > 1) or (task and task not in labelled):
        raise UsageError(f"{model} holds the networks {', '.join(labelled)}: name one with --task")
    flows = labelled[task or next(iter(labelled))]
    table = flows.table
    protocol, seed, _ = known_split(flows.model, table)
    parts = split(table, protocol, seed)
    columns = Recipe("host", "what a host gets of a flow", columns=flows.columns)
    names = candidates(table, columns)
    matrix = np.clip(table.matrix(names), 0, UINT32_MAX)
    stages: dict[str, HostModel] = {}
    if "trees" in kinds:
        training, validation = (
            {n: table.features[n][rows] for n in names} for rows in (parts.train, parts.validation)
        )
        own = validation, flows.label[parts.validation]
        trees = boosted_trees(training, flows.label[parts.train], held=own, seed=seed)
        if fault_of(trees):
            warnings.warn(fault_of(trees), N3icWarning, stacklevel=2)
        stages["trees"] = HostTrees.of_boosted(trees, names, flows.model.classes)
    if "mlp" in kinds:
        stages["mlp"] = fit_host_mlp(
            matrix[parts.train],
            flows.label[parts.train],
            (matrix[parts.validation], flows.label[parts.validation]),
            names,
            flows.model.classes,
            seed,
        )
    return _study(flows, parts, stages, matrix)


def second_verdicts(stage: HostModel, batch: FlowBatch, meter: MeterSpec) -> NDArray[np.int64]:
    """Replace each shunt among the verdicts of a batch by the second stage's class.

    Args:
        stage: the second stage, which reads features of the meter.
        batch: flows with all features of the meter in their records.
        meter: the meter.

    Returns:
        Class indices, int64 array of shape ``(flows,)``.

    Raises:
        ModelError: The second stage reads a feature that the meter lacks.
    """
    out = batch.verdicts.copy()
    shunted = np.flatnonzero(out == SHUNT)
    if len(shunted):
        values = batch.records["features"][shunted]
        columns = dict(zip(meter.feature_names, values.T, strict=True))
        out[shunted] = stage.odds(stage.matrix(columns)).argmax(axis=1)
    return out


def _study(
    flows: LabelledFlows, parts: Split, stages: Mapping[str, HostModel], matrix: NDArray[np.int64]
) -> SecondStage:
    model, table = flows.model, flows.table
    rows = table.rows(parts.test)
    inference = predict(model, model.encode(rows.features))
    label, test = flows.label[parts.test], matrix[parts.test]
    unseen = ~seen_in_training(table, parts.train, parts.test)
    costs = {"card's network": _model_cost(model, rows.features)}
    costs |= {name: _cost(stage, test) for name, stage in stages.items()}
    thresholds = _thresholds(inference.margins, model.shunt)
    points = {
        name: shunt_points(
            TwoStageRows(
                label, inference.classes, inference.margins, stage.odds(test).argmax(1), unseen
            ),
            thresholds,
        )
        for name, stage in stages.items()
    }
    out = []
    for at in zip(*points.values(), strict=True):
        of = dict(zip(points, at, strict=True))
        first = at[0]
        out.append(
            EndToEnd(
                first.threshold,
                first.host_load,
                first.accuracy,
                {name: p.shunted_accuracy for name, p in of.items()},
                {name: p.end_to_end for name, p in of.items()},
                {name: p.end_to_end_unseen for name, p in of.items()},
                {name: p.host_load * costs[name].cpu_us for name, p in of.items()},
            )
        )
    counts = {name: len(index) for name, index in vars(parts).items()}
    features = next(iter(stages.values())).features
    return SecondStage(model, stages, counts, features, tuple(out), costs)


def _thresholds(margins: NDArray[np.int32], own: int) -> list[int]:
    """A few thresholds, spread evenly over those that distinguish rows, and the model's own."""
    every = thresholds_of(margins)
    picked = np.unique(np.linspace(0, len(every) - 1, _SHOWN).round().astype(int))
    return sorted({*(every[i] for i in picked), own})


def _cost(stage: HostModel, columns: NDArray[np.int64]) -> StageCost:
    return StageCost(stage.size, *_times(stage.odds, columns))


def _model_cost(model: Classifier, features: Mapping[str, NDArray[np.int64]]) -> StageCost:
    words = model.encode(features)
    return StageCost(model.total_bytes, *_times(lambda rows: predict(model, rows), words))


def _times(decide: Any, rows: NDArray[Any]) -> tuple[float, float]:
    """CPU time of a row in batches, and the median time of a single row, in microseconds."""
    decide(rows[:_BATCH])
    start, count = time.process_time_ns(), 0
    for first in range(0, min(len(rows), 40 * _BATCH), _BATCH):
        count += len(rows[first : first + _BATCH])
        decide(rows[first : first + _BATCH])
    batched = (time.process_time_ns() - start) / 1000 / count
    alone = []
    for i in range(min(_ALONE, len(rows))):
        start = time.perf_counter_ns()
        decide(rows[i : i + 1])
        alone.append(time.perf_counter_ns() - start)
    return batched, float(np.median(alone)) / 1000
