# SPDX-License-Identifier: Apache-2.0
"""The second stage: a larger model on the host decides the flows that the card is not sure of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import seen_in_training, split
from n3ic.errors import ModelError, UsageError
from n3ic.evaluation.held_out import known_split
from n3ic.families.trees.readers.estimators import from_sklearn
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import SHUNT, Classifier
from n3ic.model.meter_spec import MeterSpec
from n3ic.studies.shunt.points import ShuntPoint, TwoStageRows, shunt_points, thresholds_of
from n3ic.studies.shunt.study import second_stage_trees
from n3ic.systems.stream.batch import FlowBatch
from n3ic.usecases.evaluation import labelled_flows
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

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


@dataclass(frozen=True, eq=False)
class SecondStage:
    """A second stage for a model, and both together at several thresholds.

    Attributes:
        model: the model of the card.
        stage: the second stage.
        rows: number of training, validation and test rows.
        points: both stages on the test rows at several thresholds, including the model's own.
        costs: the costs of both stages on this host.
    """

    model: Classifier
    stage: Classifier
    rows: Mapping[str, int]
    points: tuple[ShuntPoint, ...]
    costs: Mapping[str, StageCost]

    @property
    def tables(self) -> tuple[TextTable, TextTable]:
        """A table of the thresholds, and one of the costs."""
        host_us = self.costs["second stage"].cpu_us
        points = tuple(
            (
                f"{'* ' if p.threshold == self.model.shunt else ''}{p.threshold}",
                *map(percent, (p.host_load, p.accuracy, p.shunted_accuracy)),
                *map(percent, (p.end_to_end, p.end_to_end_unseen)),
                f"{p.host_load * host_us:.2f}",
            )
            for p in self.points
        )
        head = ("threshold", "shunted", "card", "second stage on the rest", "end to end",
                "deduplicated", "host us a flow")  # fmt: skip
        costs = tuple(
            (name, f"{cost.bytes:,}", f"{cost.cpu_us:.2f}", f"{cost.alone_us:.1f}")
            for name, cost in self.costs.items()
        )
        titles = ("stage", "bytes", "us of CPU a flow", "us alone, median")
        return (
            TextTable(f"{self.model.name}: {self.rows['test']:,} test rows", head, points),
            TextTable("costs on this machine", titles, costs),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": {"name": self.model.name, "sha256": self.model.digest},
            "threshold": self.model.shunt,
            "rows": dict(self.rows),
            "features": list(self.stage.input.features),
            "points": [{**asdict(p), "host_load": p.host_load} for p in self.points],
            "costs": {name: asdict(cost) for name, cost in self.costs.items()},
        }


def second_stage(
    model: str | Path, data: str | Path | None = None, *, dataset: str | None = None
) -> SecondStage:
    """Train boosted trees on the training rows of a model, and study both stages on its test rows.

    Args:
        model: a run folder of one network, or a model file.
        data: labelled flows; None for the data set's embedded sample.
        dataset: name of the data set that reads them; None for the model's own.

    Raises:
        UsageError: No data set reads the flows, or there are several networks.
        DataError: The flows cannot be read.
        MissingDependencyError: The training libraries are missing.

    Warns:
        N3icWarning: The installed version of boosting has a fault.
    """
    labelled = labelled_flows(model, data, dataset)
    if len(labelled) > 1:
        raise UsageError(f"{model} holds {len(labelled)} networks: name the file of one")
    flows = next(iter(labelled.values()))
    card, table = flows.model, flows.table
    protocol, seed, _ = known_split(card, table)
    parts = split(table, protocol, seed)
    trees, names = second_stage_trees(flows, parts, seed)
    stage: Classifier = from_sklearn(
        trees,
        table.rows(parts.train),
        inputs=names,
        classes=[card.classes[i] for i in trees.classes_],
        name=f"{card.name}-second-stage",
    )
    rows = table.rows(parts.test)
    words, host_words = (each.encode(rows.features) for each in (card, stage))
    inference = predict(card, words)
    classes = _classes(stage, card.classes)[predict(stage, host_words).classes]
    unseen = ~seen_in_training(table, parts.train, parts.test)
    label = flows.label[parts.test]
    stages = TwoStageRows(label, inference.classes, inference.margins, classes, unseen)
    points = shunt_points(stages, _thresholds(inference.margins, card.shunt))
    costs = {"card's network": _cost(card, words), "second stage": _cost(stage, host_words)}
    counts = {name: len(index) for name, index in vars(parts).items()}
    return SecondStage(card, stage, counts, points, costs)


def second_verdicts(
    stage: Classifier, batch: FlowBatch, meter: MeterSpec, classes: tuple[str, ...]
) -> NDArray[np.int64]:
    """Replace each shunt among the verdicts of a batch by the second stage's class.

    Args:
        stage: the second stage, which reads features of the meter.
        batch: flows with all features of the meter in their records.
        meter: the meter.
        classes: the classes of the first stage.

    Returns:
        Indices of these classes, int64 array of shape ``(flows,)``.

    Raises:
        ModelError: The second stage reads a feature that the meter lacks, or has another class.
    """
    own = _classes(stage, classes)
    lacking = [n for n in stage.input.features if n not in meter.feature_names]
    if lacking:
        raise ModelError(f"the second stage reads {lacking[0]!r}, which the model's meter lacks")
    out = batch.verdicts.copy()
    shunted = np.flatnonzero(out == SHUNT)
    if len(shunted):
        values = batch.records["features"][shunted].astype(np.int64)
        columns = dict(zip(meter.feature_names, values.T, strict=True))
        words = stage.encode({name: columns[name] for name in stage.input.features})
        out[shunted] = own[predict(stage, words).classes]
    return out


def _classes(stage: Classifier, classes: tuple[str, ...]) -> NDArray[np.int64]:
    """The index of each class of the second stage among those of the first."""
    if not {*stage.classes} <= {*classes}:
        raise ModelError(
            f"the second stage: expected the model's classes {', '.join(classes)}, "
            f"got {', '.join(stage.classes)}"
        )
    return np.array([classes.index(name) for name in stage.classes])


def _thresholds(margins: NDArray[np.int32], own: int) -> list[int]:
    """A few thresholds, spread evenly over those that distinguish rows, and the model's own."""
    every = thresholds_of(margins)
    picked = np.unique(np.linspace(0, len(every) - 1, _SHOWN).round().astype(int))
    return sorted({*(every[i] for i in picked), own})


def _cost(model: Classifier, words: NDArray[np.uint32]) -> StageCost:
    """CPU time of a row in batches, and the median time of a single row, in microseconds."""
    predict(model, words[:_BATCH])
    start, count = time.process_time_ns(), 0
    for first in range(0, min(len(words), 40 * _BATCH), _BATCH):
        count += len(words[first : first + _BATCH])
        predict(model, words[first : first + _BATCH])
    batched = (time.process_time_ns() - start) / 1000 / count
    alone = []
    for i in range(min(_ALONE, len(words))):
        start = time.perf_counter_ns()
        predict(model, words[i : i + 1])
        alone.append(time.perf_counter_ns() - start)
    return StageCost(model.total_bytes, batched, float(np.median(alone)) / 1000)
