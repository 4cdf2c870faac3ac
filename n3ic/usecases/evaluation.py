# SPDX-License-Identifier: Apache-2.0
"""Evaluate the networks of a run, or one model, on labelled flows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.data.catalogue_dataset import canonical
from n3ic.data.dataset import data_set
from n3ic.data.delimited import Sheet, parse_sheet
from n3ic.data.file_tables import find_sources, open_sheets
from n3ic.data.table import FlowTable
from n3ic.data.table_meter import other_meter
from n3ic.data.user_table import OWN, UserTable
from n3ic.errors import N3icWarning, UsageError
from n3ic.evaluation.held_out import held_out, labels_of
from n3ic.evaluation.metrics import Evaluation, evaluate
from n3ic.evaluation.plugin import evaluations
from n3ic.kernel.prediction import predict
from n3ic.meter.table import LABEL, flow_table, read_table
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.options import OptionValue, parse_options
from n3ic.runs.folder import OPTIONS, load_metrics, models_of
from n3ic.usecases.base import UseCase, use_case
from n3ic.util.structured import read_json


def evaluate_flows(
    model: str | Path | Classifier,
    data: str | Path | Sheet | None,
    *,
    dataset: str | None = None,
    label: str = "",
) -> dict[str, Evaluation]:
    """Evaluate every network of a run, or one model, on labelled flows.

    Args:
        model: a run folder, a model file or a model.
        data: files of labelled flows, or a table in memory; None for the data set's
            embedded sample.
        dataset: name of the data set that reads them; None for the network's own.
        label: the column of the class; empty for that of the training.

    Returns:
        Figures by task; the name of a single network is empty.

    Raises:
        UsageError: the data set is unknown, or the flows have no table for a network.
        DataError: the flows cannot be read, or their classes are not the network's.
        ModelError: a model is damaged, or a feature is missing.

    Warns:
        N3icWarning: a network was trained on some of these flows, or on flows of another meter.
    """
    results = evaluate_beside_majority(model, data, dataset=dataset, label=label)
    return {task: network for task, (network, _) in results.items()}


def evaluate_beside_majority(
    model: str | Path | Classifier,
    data: str | Path | Sheet | None,
    *,
    dataset: str | None = None,
    label: str = "",
) -> dict[str, tuple[Evaluation, Evaluation]]:
    """Figures of every network, and of always predicting the most frequent class of the same rows.

    Arguments, errors and warnings are those of :func:`evaluate_flows`. A run does not keep its
    other baselines, so their figures exist for its test rows only.
    """
    flows_of = labelled_flows(model, data, dataset, label=label)
    return {task: _evaluate(flows) for task, flows in flows_of.items()}


def further_figures(
    model: Path,
    data: Path | None,
    typed_options: Mapping[str, OptionValue],
    dataset: str | None = None,
) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Figures by task and plug-in that the typed options ask for; see :func:`evaluate_flows`."""
    figures: dict[str, dict[str, Mapping[str, Any]]] = {}
    for task, flows in labelled_flows(model, data, dataset).items():
        sample = held_out(flows.model, flows.table, label=flows.label, positive=flows.positive)
        for name, evaluation in evaluations().items():
            if own := {
                o.name: typed_options[o.name] for o in evaluation.options if o.name in typed_options
            }:
                options = parse_options(evaluation.options, own, name)
                figures.setdefault(task, {})[name] = evaluation.requested_figures(
                    sample, options, model, data
                )
    return figures


def study_figures(
    model: Path | None, typed_options: Mapping[str, OptionValue], beside: Mapping[str, object]
) -> dict[str, Mapping[str, Any]]:
    """Figures by plug-in of the studies that the typed options ask for; empty without any.

    Args:
        model: a run or a model file, or None.
        typed_options: the typed options of plug-ins.
        beside: further arguments by name, which a study has no use for; None where not given.

    Raises:
        UsageError: a study is asked for beside what it has no use for.
    """
    figures: dict[str, Mapping[str, Any]] = {}
    for name, evaluation in evaluations().items():
        if not typed_options.get(evaluation.study_option):
            continue
        own = {o.name: typed_options[o.name] for o in evaluation.options if o.name in typed_options}
        other_options = [*(n for n, value in beside.items() if value is not None),
                  *(f"--{n}" for n in typed_options if n not in own)]  # fmt: skip
        if other_options:
            raise UsageError(
                f"--{evaluation.study_option}: expected without {', '.join(other_options)}"
            )
        figures[name] = evaluation.study(parse_options(evaluation.options, own, name), model)
    return figures


@dataclass(frozen=True, eq=False)
class LabelledFlows:
    """A network and labelled flows for it.

    Attributes:
        model: the network.
        table: the flows.
        label: the network's class index of each flow, int64, shape ``(rows,)``.
        positive: index of the class whose detection is counted; None if the use case has none.
        columns: the recipe's candidate features, or patterns; empty for all that a NIC can compute.
    """

    model: Classifier
    table: FlowTable
    label: NDArray[np.int64]
    positive: int | None
    columns: tuple[str, ...]


def labelled_flows(
    model: str | Path | Classifier,
    data: str | Path | Sheet | None,
    dataset: str | None = None,
    *,
    label: str = "",
) -> dict[str, LabelledFlows]:
    """The networks of a run or of a model file, each with its labelled flows, by task.

    Args:
        model: a run folder, a model file or a model.
        data: files of labelled flows, or a table in memory; None for the data set's
            embedded sample.
        dataset: name of the data set that reads them; None for the network's own.
        label: the column of the class; empty for that of the training.

    Raises:
        UsageError: the data set is unknown, or the flows have no table for a network.
        DataError: the flows cannot be read, or their classes are not the network's.
        ModelError: a model is damaged.

    Warns:
        N3icWarning: a network was trained on flows of another meter.
    """
    if isinstance(model, Classifier):
        networks, source = {"": model}, None
    else:
        networks, source = {t: load_model(path) for t, path in models_of(model).items()}, model
    first = next(iter(networks.values()))
    rules = first.table
    if rules is not None and dataset in (None, OWN):
        if data is None:
            raise UsageError(f"{model}: was trained on a table of yours; name labelled flows")
        rules = replace(rules, label=canonical(label) or rules.label or LABEL)
        table = UserTable(rules, first.classes).load(data)
        return _of_tables(source, data, networks, table)
    name = dataset or first.provenance.get("data", "")
    known = data_set(name) if name in plugins.names("n3ic.datasets") else None
    layout = isinstance(data, Sheet) and known is not None and known.has_layout(data)
    if isinstance(data, Sheet) and first.meter is not None and not layout:
        table = flow_table(data.name, read_table(data), first.meter, label=label or LABEL,
                           sha256=next(open_sheets(data)).sha256)  # fmt: skip
        return _of_tables(source, data, networks, table)
    if known is None:
        raise UsageError(
            f"{model}: trained on {name or 'unknown data'}, which no data set here reads; "
            "name one with --dataset"
        )
    table = known.load_sheet(data) if isinstance(data, Sheet) else known.load(data)
    if label and data is not None:
        _check_label(table, data, label)
    return _of_tables(source, data, networks, table)


def same_classes(label: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether two labels, shape ``(rows,)`` each, group as many rows in the same way."""
    if len(label) != len(other):
        return False
    pairs = np.unique(np.stack([label, other]), axis=1)  # one-to-one: a class is in one pair only
    return all(len({*side}) == pairs.shape[1] for side in pairs.tolist())


def _check_label(table: FlowTable, data: str | Path | Sheet, label: str) -> None:
    """Check that the named column holds the classes that a data set reads.

    Raises:
        UsageError: the table has no such column, or it holds other classes.
    """
    codes: list[int] = []
    numbers: dict[str, int] = {}
    for source in find_sources(data, UserTable.suffixes):
        for sheet in (content.sheet for content in open_sheets(source)):
            names = [canonical(name) for name in sheet.first]
            if (column := canonical(label)) not in names:
                listed = ", ".join(sheet.first)
                raise UsageError(f"{data}: no column {label!r}; its columns are {listed}")
            only = [name if name == column else "" for name in names]
            text = parse_sheet(sheet, only, header=True, numeric=(), text=(column,)).texts[column]
            own = [numbers.setdefault(cell, len(numbers)) for cell in text.texts]
            codes += np.array(own)[text.codes].tolist()
    if not same_classes(np.array(codes), table.label):
        raise UsageError(
            f"{data}: the data set {table.name} reads the classes {', '.join(table.classes)}, and "
            f"{label!r} holds others; leave the label out, or train with it and dataset='{OWN}'"
        )


def _of_tables(
    model: str | Path | None,
    data: str | Path | Sheet | None,
    networks: Mapping[str, Classifier],
    table: FlowTable,
) -> dict[str, LabelledFlows]:
    case = None if model is None else _use_case(Path(model))
    recorded = _recorded(Path(model)) if case and model is not None else {}
    tables: Mapping[str, FlowTable] = {"": table}
    if case:
        tables = case.tasks(table, parse_options(case.options, recorded["options"], case.name))
    absent = [task for task in networks if task not in tables]
    if absent:
        raise UsageError(f"{data}: no rows for the network {absent[0]!r} in these flows")
    typed = recorded.get("options", {}).get("positive", "")  # of a table of one's own
    positive = case.positive or str(typed) if case else ""
    columns = tuple(map(str, recorded.get("recipe", {}).get("columns", ())))
    return {
        task: LabelledFlows(
            network,
            tables[task],
            _labels(network, tables[task]),
            network.classes.index(positive) if positive in network.classes else None,
            columns,
        )
        for task, network in networks.items()
    }


def _use_case(source: Path) -> UseCase | None:
    """The use case of a run folder; None for a model file, or if it is not installed."""
    if not source.is_dir():
        return None
    name = str(load_metrics(source).get("use_case", ""))
    return use_case(name) if name in plugins.names("n3ic.usecases") else None


def _recorded(source: Path) -> dict[str, Any]:
    """The content of a run's ``options.json``."""
    path = source / OPTIONS
    recorded = read_json(path, 1 << 24, UsageError, "the options of a run")
    if not isinstance(recorded, dict) or not isinstance(recorded.get("options"), dict):
        raise UsageError(f"{path} does not say the run's options")
    return recorded


def _labels(network: Classifier, table: FlowTable) -> NDArray[np.int64]:
    if line := other_meter(table.name, table.meter, network.meter, network.input.features):
        warnings.warn(line, N3icWarning, stacklevel=3)
    return labels_of(network, table)


def _evaluate(flows: LabelledFlows) -> tuple[Evaluation, Evaluation]:
    network = flows.model
    if network.provenance.get("data_sha256") == flows.table.sha256:
        warnings.warn(
            f"{network.name} was trained on some of these flows, so these figures are too good; "
            "those of its test rows are in its run, and n3ic report RUN --html shows them",
            N3icWarning,
            stacklevel=8,
        )
    inference = predict(network, network.encode(flows.table.features))
    classes, most_frequent = len(network.classes), np.bincount(flows.label).argmax()
    most = np.full_like(flows.label, most_frequent), np.zeros((len(flows.label), classes))
    own = inference.classes, inference.scores.astype(np.float64)
    network_figures, majority = (
        evaluate(flows.label, predicted.astype(np.int64), scores, classes, positive=flows.positive)
        for predicted, scores in (own, most)
    )
    return network_figures, majority
