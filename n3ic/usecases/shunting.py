"""The threshold of a network that shunts: chosen on validation rows, reported on test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import Split, SplitProtocol, split, twins
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import known_split
from n3ic.evaluation.metrics import Evaluation
from n3ic.evaluation.shunting import (
    ShuntPoint,
    Stages,
    for_accuracy,
    for_host_load,
    shunt_points,
    stage_figures,
    thresholds_of,
)
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.training.recipe import Recipe
from n3ic.usecases.evaluation import LabelledFlows, labelled_flows
from n3ic.usecases.shunting_report import study_tables
from n3ic.util.display import Displayed, Table, View
from n3ic.util.markdown import percent


@dataclass(frozen=True)
class Aim:
    """What a threshold is chosen for; one of the three, or none.

    Attributes:
        accuracy: of the flows that the card decides, on validation rows.
        host_load: share of the validation rows that the host may get.
        margin: the threshold itself.

    Raises:
        UsageError: several are given, or a share is none.
    """

    accuracy: float | None = None
    host_load: float | None = None
    margin: int | None = None

    def __post_init__(self) -> None:
        given = [v for v in (self.accuracy, self.host_load, self.margin) if v is not None]
        if len(given) > 1:
            raise UsageError("an accuracy, a host load or a margin: only one of them")
        for name, value in (("accuracy", self.accuracy), ("host load", self.host_load)):
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"the {name} is a share from 0 to 1, not {value}")

    def __str__(self) -> str:
        if self.accuracy is not None:
            return f"an accuracy of {percent(self.accuracy)} at least on the card"
        if self.host_load is not None:
            return f"a host load of {percent(self.host_load)} at most"
        return "" if self.margin is None else f"a margin of {self.margin}"


@dataclass(frozen=True, eq=False, repr=False)
class ShuntStudy(Displayed):
    """What shunting makes of one network.

    Attributes:
        model: the network; with the chosen threshold where one was asked for.
        aim: what the threshold was chosen for; the margin itself where the model had it.
        protocol: how the rows were split.
        seed: of the split and of the second stage.
        trained_rows: whether the split is the one that the network was trained with. Where not,
            the network has seen none of the rows, and the second stage its training rows.
        host_features: what the second stage reads.
        rows: number of training, validation and test rows.
        validation: points on the validation rows, by threshold.
        test: points on the test rows, of the same thresholds.
        chosen: the chosen threshold; None where none was asked for and the model has none.
        figures: figures of the stages on the test rows at that threshold; see
            :func:`~n3ic.evaluation.shunting.stage_figures`.
    """

    model: Classifier
    aim: Aim
    protocol: SplitProtocol
    seed: int
    trained_rows: bool
    host_features: tuple[str, ...]
    rows: Mapping[str, int]
    validation: tuple[ShuntPoint, ...]
    test: tuple[ShuntPoint, ...]
    chosen: int | None
    figures: Mapping[str, Evaluation]

    def view(self) -> View:
        """What it shows of itself."""
        point = next((p for p in self.test if p.threshold == self.chosen), None)
        said = "no threshold chosen"
        if point is not None:
            said = (
                f"threshold {point.threshold}: {percent(point.share)} of {self.rows['test']:,} "
                f"test rows decided on the card, end to end {percent(point.end_to_end)} right"
            )
        return View(f"{self.model.name}: {said}", self.tables)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The thresholds, and what the chosen one gives where there is one."""
        return study_tables(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": {"name": self.model.name, "sha256": self.model.digest},
            "aim": str(self.aim),
            "protocol": self.protocol,
            "seed": self.seed,
            "trained_rows": self.trained_rows,
            "host_features": list(self.host_features),
            "rows": dict(self.rows),
            "validation": [p.to_dict() for p in self.validation],
            "test": [p.to_dict() for p in self.test],
            "threshold": self.chosen,
            "figures": {name: e.to_dict() for name, e in self.figures.items()},
        }


def study_shunting(
    model: str | Path,
    data: str | Path | None = None,
    *,
    dataset: str | None = None,
    task: str = "",
    aim: Aim | None = None,
) -> dict[str, ShuntStudy]:
    """Margins, the second stage and the threshold of each network of a run, or of a model file.

    The second stage is gradient-boosted trees on the features that a host gets of a flow, fitted to
    the training rows. On the data that a network was trained on, rows are split as they were then.

    Args:
        model: a run folder or a model file.
        data: files of labelled flows; the data set's embedded sample where None.
        dataset: the data set that reads them; the one that the network was trained on where None.
        task: which network of a run of several; all where empty.
        aim: what to choose the threshold for; where None, the model's own threshold is reported on,
            and none is chosen.

    Returns:
        Studies by task; under an empty name for a single network.

    Raises:
        UsageError: no data set reads the flows, or no threshold gives what is wanted.
        DataError: the flows cannot be read, or their classes are not the network's.
        ModelError: the network has no such margin.
        MissingDependencyError: scikit-learn is missing.
    """
    flows = labelled_flows(model, data, dataset)
    if task:
        if task not in flows:
            known = ", ".join(name for name in flows if name) or "a single one"
            raise UsageError(f"{model}: no network {task!r}; it holds {known}")
        flows = {task: flows[task]}
    return {name: _study(found, aim or Aim(), name) for name, found in flows.items()}


def _study(flows: LabelledFlows, aim: Aim, task: str) -> ShuntStudy:
    from n3ic.training.input_bits import boosted_trees
    from n3ic.training.input_choice import candidates

    table, model = flows.table, flows.model
    own = aim == Aim() and model.shunt > 0
    if own:
        aim = Aim(margin=model.shunt)
    if aim.margin is not None:
        model.with_shunt(aim.margin)  # refused before the work
    protocol, seed, trained = known_split(model, table)
    parts = split(table, protocol, seed)
    columns = Recipe("host", "what a host gets of a flow", columns=flows.columns)
    names = candidates(table, columns)
    trees = boosted_trees(
        {n: table.features[n][parts.train] for n in names}, flows.label[parts.train], seed=seed
    )
    columns_of = np.clip(table.matrix(names), 0, UINT32_MAX)

    def stages(index: NDArray[np.int64]) -> Stages:
        rows = table.rows(index)
        found = predict(model, model.encode(rows.features))
        host = trees.predict(columns_of[index]).astype(np.int64)
        unseen = ~twins(table, parts.train, index)
        return Stages(flows.label[index], found.classes, found.margins, host, unseen)

    validation, test = stages(parts.validation), stages(parts.test)
    thresholds = thresholds_of(validation.margins)
    if aim.margin is not None:
        thresholds = sorted({*thresholds, aim.margin})
    found = shunt_points(validation, thresholds)
    chosen = _chosen(found, aim, task)
    figures: Mapping[str, Evaluation] = {}
    if chosen is not None:
        if not own:
            model = _with_threshold(model, chosen, aim, len(validation.label))
        figures = stage_figures(test, chosen, len(model.classes), flows.positive)
    return ShuntStudy(
        model,
        aim,
        protocol,
        seed,
        trained,
        names,
        _counts(parts),
        found,
        shunt_points(test, thresholds),
        chosen,
        figures,
    )


def _with_threshold(model: Classifier, threshold: int, aim: Aim, rows: int) -> Classifier:
    """The network with a threshold, and what that was chosen for in its provenance."""
    known = {k: v for k, v in model.provenance.items() if k != "shunting"}
    if threshold:
        where = "" if aim.margin is not None else f", of {rows:,} validation rows"
        known["shunting"] = f"{aim}{where}"
    return model.changed(shunt=threshold, provenance=known)


def _chosen(points: tuple[ShuntPoint, ...], aim: Aim, task: str) -> int | None:
    if aim.margin is not None:
        return aim.margin
    if aim.host_load is not None:
        return for_host_load(points, aim.host_load).threshold
    if aim.accuracy is None:
        return None
    found = for_accuracy(points, aim.accuracy)
    if found is None:
        accuracies = [(p.accuracy, p.threshold) for p in points if p.accuracy is not None]
        best, threshold = max(accuracies)
        raise UsageError(
            f"{f'{task}: ' if task else ''}no threshold gives an accuracy of "
            f"{percent(aim.accuracy)} on the card: the best on the validation rows is "
            f"{percent(best)}, at a margin of {threshold}"
        )
    return found.threshold


def _counts(parts: Split) -> dict[str, int]:
    return {name: len(index) for name, index in vars(parts).items()}
