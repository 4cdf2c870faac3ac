# SPDX-License-Identifier: Apache-2.0
"""The verbs of n3ic: what a command of the command line does is one call here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Union

from n3ic import plugins
from n3ic.data.user_table import OWN
from n3ic.errors import UsageError, needed
from n3ic.model.classifier import Classifier
from n3ic.model.load import load_model
from n3ic.options import OptionValue

if TYPE_CHECKING:
    from n3ic.data.delimited import Sheet, Units
    from n3ic.data.table import FlowTable
    from n3ic.evaluation.metrics import Evaluation
    from n3ic.meter.labels import Labels
    from n3ic.model.meter_spec import MeterSpec
    from n3ic.runs.folder import Run
    from n3ic.runs.progress import TrainingProgress
    from n3ic.targets.directory import Exported
    from n3ic.targets.figures import Bench
    from n3ic.targets.verification import Verification

ModelLike = Union[Classifier, "Run", str, Path]
BENCHES = "n3ic.benches"  # of what is no target, such as the meter


def load(path: str | Path, task: str = "") -> Classifier:
    """Read a model file of any family, or a network of a run folder.

    Args:
        path: a model file or a run folder.
        task: which network of a run of several.

    Raises:
        ModelError: the file is missing, damaged, foreign, or of a newer version.
        UsageError: the run holds several networks and ``task`` names none of them.
    """
    from n3ic.runs.folder import models_of

    found = models_of(path)
    if len(found) == 1 and not task:
        return load_model(next(iter(found.values())))
    if task not in found:
        names = ", ".join(name for name in found if name) or "a single one"
        raise UsageError(f"{path}: no network {task!r}; it holds {names}")
    return load_model(found[task])


@needed("n3ic.train")
def train(
    use_case: Any = None,
    *,
    label: Any = None,
    positive: str = "",
    feature_names: Sequence[str] | None = None,
    config: str | Path | None = None,
    progress: TrainingProgress | None = None,
    **request: Any,
) -> Run:
    """Train a use case, or on a table in memory, and write the run folder, whole or not at all.

    A table in memory trains the network that its CSV file does (``to_csv(index=False)`` of pandas,
    ``write_csv()`` of Polars), byte for byte. A run of several networks, seeds or protocols that
    was interrupted goes on where it was when it is asked for again.

    Args:
        use_case: its name, such as ``anomaly``; what the file says where None. Or a table: pandas,
            Polars, PyArrow or whatever exports an Arrow stream, a structured numpy array, or an
            array of shape ``(rows, columns)`` with ``feature_names``.
        label: the column of the class in a table of one's own; beside ``feature_names`` it may be
            the classes themselves, shape ``(rows,)``.
        positive: the class to tell from all others in such a table.
        feature_names: names of the columns of an array.
        config: a TOML or JSON file of options, or ``options.json`` of another run; what is given
            beside it goes before it.
        progress: what is told while it goes on.
        **request: the attributes of :class:`~n3ic.usecases.request.TrainRequest`: ``data``,
            ``recipe``, ``overrides``, ``options``, ``protocol``, ``seed``, ``seeds``, ``out``, ...

    Raises:
        UsageError: an unknown name or option, or the folder exists.
        DataError: the data cannot be read or split.
    """
    from n3ic.dataframes import column_of, is_table, read_dataframe
    from n3ic.runs.progress import TrainingProgress
    from n3ic.usecases.config import train_request
    from n3ic.usecases.training import train_use_case

    progress = progress or TrainingProgress()
    if is_table(request.get("data")):
        raise UsageError("data: expected a path; a table comes first: n3ic.train(table, label=...)")
    if is_table(use_case):
        request["table"] = read_dataframe(
            use_case,
            label,
            positive=positive,
            feature_names=feature_names,
            tell=progress.note,
            read=partial(_as_file, request),
        )
        use_case = OWN
    elif feature_names is not None:
        raise UsageError("feature_names: expected beside a numpy array, which comes first")
    said = {"label": column_of(label), "positive": positive}
    request["options"] = {**request.get("options", {}), **{k: v for k, v in said.items() if v}}
    return train_use_case(train_request(config, use_case=use_case, **request), progress)


def _as_file(
    request: Mapping[str, Any],
    sheet: Sheet,
    label: str,
    *,
    positive: str,
    tell: Callable[[str], object],
) -> FlowTable:
    """A table in memory, read as ``n3ic train --data`` reads its file."""
    from n3ic.options import parse_options
    from n3ic.usecases.base import use_case

    case = use_case(OWN)
    said = {**request.get("options", {}), "label": label, "positive": positive}
    given = {name: value for name, value in said.items() if value}
    options = parse_options(case.options, given, case.name)
    return case.load(sheet, request.get("dataset"), options, tell)


def predict(
    model: ModelLike,
    flows: Any,
    *,
    dataset: str | None = None,
    units: Units | None = None,
    feature_names: Sequence[str] | None = None,
) -> Any:
    """Classes, margins and scores of flows, by the fastest means at hand.

    A compiled kernel runs where there is a C compiler, numpy otherwise, with equal results.

    Args:
        model: a model, its file, or a run of one network.
        flows: a :class:`FlowTable`, integer features by name (arrays of shape ``(rows,)``), or a
            file; of a capture, a model that carries its meter classifies the flows in order of
            decision. Or a table in memory, as :func:`train` takes it.
        dataset: data set whose layout a file has; the model's own where None.
        units: what a table's numbers are in, where it does not say.
        feature_names: names of the columns of a numpy array.

    Returns:
        An :class:`Inference`; of a table in memory, a table of its kind with the columns ``class``
        (its name, or ``shunt``), ``margin`` and ``score_CLASS``, and the index of a pandas table.

    Raises:
        ModelError: a feature is missing.
        DataError: the flows cannot be read.

    Warns:
        N3icWarning: the flows are not like the rows of the training.
    """
    from n3ic.dataframes import predict_flows

    return predict_flows(_model(model), flows, dataset, units, feature_names)


@needed("n3ic.evaluate")
def evaluate(
    model: ModelLike,
    flows: Any = None,
    *,
    dataset: str | None = None,
    label: Any = None,
    feature_names: Sequence[str] | None = None,
) -> dict[str, Evaluation]:
    """Figures of merit on labelled flows: accuracy, macro F1, false positive rate, ROC AUC.

    Args:
        model: a run, its folder, a model or its file.
        flows: files of labelled flows, or a table in memory, as :func:`train` takes it; the data
            set's embedded sample where None.
        dataset: the data set that reads them; the one that the network was trained on where None.
        label: the column of the class, of a table of one's own or of metered flows; that of the
            training where None.
        feature_names: names of the columns of a numpy array, of which ``label`` may be the classes.

    Returns:
        Figures by network; under an empty name for a single one.

    Raises:
        UsageError: no data set reads the flows.
        DataError: the flows cannot be read, or their classes are not the network's.
    """
    from n3ic.dataframes import column_of, is_table, table_sheet
    from n3ic.usecases.evaluation import evaluate_flows

    if is_table(flows):
        flows = table_sheet(flows, label, feature_names=feature_names)
    return evaluate_flows(_source(model), flows, dataset=dataset, label=column_of(label))


@needed("n3ic.extract")
def extract(
    captures: str | Path | Sequence[str | Path],
    spec: MeterSpec | str | Path | None = None,
    *,
    labels: Labels | str | Path | None = None,
    as_frame: bool = True,
) -> Any:
    """Meter captures into a table in memory: a row a flow, its key, its features as a NIC has them.

    The table carries the meter: a network that :func:`train` makes of it classifies captures.

    Args:
        captures: pcap and pcapng files, plain or packed, and folders of them.
        spec: what a flow is and which integers are kept of it, or its file; the standard meter's
            where None.
        labels: labels of the flows, which become the column ``label``, or a CSV file of them.
        as_frame: a pandas DataFrame, else a PyArrow table.

    Raises:
        DataError: no capture can be read.
        MissingDependencyError: libpcap, a C compiler or pandas is missing.
    """
    from n3ic.data.table_meter import METER_KEY
    from n3ic.meter.extract import extract as write_table
    from n3ic.meter.labels import read_labels
    from n3ic.meter.spec_file import read_spec
    from n3ic.meter.standard import standard_spec
    from n3ic.meter.table import read_table

    given = [captures] if isinstance(captures, str | Path) else captures
    meter = read_spec(spec) if isinstance(spec, str | Path) else spec or standard_spec()
    named = read_labels(labels, "table") if isinstance(labels, str | Path) else labels
    with TemporaryDirectory(prefix="n3ic-") as folder:
        out = Path(folder) / "flows.parquet"
        write_table(given, out, meter, labels=named)
        table = read_table(out)
    if not as_frame:
        return table
    frame = table.to_pandas()
    frame.attrs[METER_KEY.decode()] = table.schema.metadata[METER_KEY].decode()
    return frame


def export(
    model: ModelLike,
    target: str,
    out: str | Path,
    *,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    simplify: bool | None = None,
    **options: OptionValue,
) -> Exported:
    """Write a model for a target into a directory, whole or not at all, and check it.

    Args:
        model: a model, its file, or a run of one network, whose figures the report repeats.
        target: the target's name, such as ``netfpga``.
        out: the directory.
        force: write a model that does not fit; the manifest says so.
        replace: replace an existing export directory.
        verify: run some vectors before the directory appears.
        simplify: leave out what makes no difference to the scores; False keeps the shape. None
            for the target's default.
        **options: the target's options, with underscores for dashes.

    Raises:
        UsageError: unknown target or option, or ``out`` exists.
        ExportError: the model does not fit.
        VerifyError: the artefacts do not compute the model's scores.
    """
    from n3ic.runs.folder import open_models
    from n3ic.targets import directory

    network, metrics = _source(model), None
    if not isinstance(network, Classifier):
        _, models, metrics = open_models(network)
        network = _single(model, models)
    return directory.export(
        network,
        target,
        out,
        options={name.replace("_", "-"): value for name, value in options.items()},
        force=force,
        replace=replace,
        verify=verify,
        simplify=simplify,
        metrics=metrics,
    )


def verify(directory: str | Path, **arguments: Any) -> Verification:
    """Compare an export directory with what n3ic writes, then run it against its model.

    Args:
        directory: an export directory.
        **arguments: those of :func:`~n3ic.targets.verification.verify_directory`: ``vectors``,
            ``rows``, ``captures``, ``options``, ``seed``, ``record``, ``run_changed``. ``rows`` may
            also be a file of flows or a table in memory, as :func:`predict` takes them.

    Raises:
        ExportError: the directory is not an export directory.
        DataError: the flows cannot be read.
    """
    from n3ic.dataframes import table_features
    from n3ic.targets.manifest import MODEL
    from n3ic.targets.verification import verify_directory

    rows = arguments.get("rows")
    if rows is not None and not isinstance(rows, Mapping):
        arguments["rows"] = table_features(load_model(Path(directory) / MODEL), rows)
    return verify_directory(directory, **arguments)


@needed("n3ic.bench")
def bench(
    target: str,
    model: ModelLike | None = None,
    *,
    capture: str | Path | None = None,
    **options: OptionValue,
) -> Bench:
    """Measure a target, or the meter, beside its alternatives, after checking that all agree.

    Args:
        target: what to measure, such as ``host``, or ``meter``.
        model: a model, its file, or a run, whose first network it is; random weights of shape
            256-32-16-2 where None. The meter has none.
        capture: packets for the meter to count; generated ones where None.
        **options: the benchmark's own, with underscores for dashes.

    Raises:
        UsageError: the target has no benchmark, or an argument is not for it.
    """
    import numpy as np

    from n3ic.model.random_models import random_model
    from n3ic.runs.folder import Run, models_of
    from n3ic.targets.base import exporter

    if target in plugins.names(BENCHES):
        if model is not None or options:
            raise UsageError("the meter's benchmark has one option, the capture")
        found: Bench = plugins.load(BENCHES, target)(capture)
        return found
    if capture is not None:
        raise UsageError(f"a capture is for the benchmark of the meter, not of {target}")
    network: Classifier
    if model is None:
        network = random_model((256, 32, 16, 2), np.random.default_rng(0))
    elif isinstance(model, Classifier):
        network = model
    else:
        source = model.path if isinstance(model, Run) else model
        network = load_model(next(iter(models_of(source).values())))
    tool = exporter(target).for_family(network.family)
    return tool.bench(network, {name.replace("_", "-"): v for name, v in options.items()})


def _source(model: ModelLike) -> Classifier | str | Path:
    """A model, or the path of what holds it."""
    from n3ic.runs.folder import Run

    return model.path if isinstance(model, Run) else model


def _model(model: ModelLike) -> Classifier:
    source = _source(model)
    return source if isinstance(source, Classifier) else load(source)


def _single(source: object, models: Mapping[str, Classifier]) -> Classifier:
    if len(models) != 1:
        raise UsageError(f"{source} holds {len(models)} networks: name one model file")
    return next(iter(models.values()))
