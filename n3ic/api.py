# SPDX-License-Identifier: Apache-2.0
"""The verbs of n3ic: the work of each main command as one function."""

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
BENCHES = "n3ic.benches"  # benchmarks of parts that are not targets, such as the meter


def load(path: str | Path, task: str = "") -> Classifier:
    """Read a model file of any family, or a network of a run folder.

    Args:
        path: a model file or a run folder.
        task: name of the network, if the run holds several.

    Raises:
        ModelError: the file is missing, damaged, not a model, or of a newer version.
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
    """Train on a use case's data or a table in memory; write a complete run folder or none.

    A table in memory trains the same network, byte for byte, as the CSV file that its library
    writes (``to_csv(index=False)`` in pandas, ``write_csv()`` in Polars). An interrupted run of
    several networks, seeds or protocols resumes when the same run is requested again.

    Args:
        use_case: its name, such as ``anomaly``; None for that of ``config``. Or a table: pandas,
            Polars, PyArrow or any object that exports an Arrow stream, a structured numpy array, or
            an array of shape ``(rows, columns)`` with ``feature_names``.
        label: the column of the class in a table of your own; with ``feature_names`` it may be
            the classes themselves, shape ``(rows,)``.
        positive: the class to tell from all others in such a table.
        feature_names: names of the columns of an array.
        config: a TOML or JSON file of options, or the ``options.json`` of another run; other
            arguments override it.
        progress: callbacks that are told how far the training is.
        **request: the attributes of :class:`~n3ic.usecases.request.TrainRequest`: ``data``,
            ``recipe``, ``overrides``, ``options``, ``protocol``, ``seed``, ``seeds``, ``out``, ...

    Raises:
        UsageError: a name or an option is unknown, or the folder exists.
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
    """Predict the class, margin and scores of each flow.

    A compiled kernel runs if there is a C compiler, numpy otherwise, with equal results.

    Args:
        model: a model, its file, or a run of one network.
        flows: a :class:`FlowTable`, integer features by name (arrays of shape ``(rows,)``), a file,
            or a table in memory, as :func:`train` takes it. The file may be a capture if the model
            carries its meter: its flows are classified in the order of their decisions.
        dataset: data set whose layout a file has; None for the model's own.
        units: ``nic`` or ``source``, for a table that does not state its units.
        feature_names: names of the columns of a numpy array.

    Returns:
        An :class:`Inference`. For a table in memory, a table of the same kind with the columns
        ``class`` (a name, or ``shunt``), ``margin`` and ``score_CLASS``; pandas keeps its index.

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
    """Evaluate networks on labelled flows: accuracy, macro F1, false positive rate, ROC AUC.

    Args:
        model: a run, its folder, a model or its file.
        flows: files of labelled flows, or a table in memory, as :func:`train` takes it; None for
            the data set's embedded sample.
        dataset: the data set that reads them; None for the one that the network was trained on.
        label: the column of the class, in a table of your own or of metered flows; None for that of
            the training. With ``feature_names``, it may be the classes, shape ``(rows,)``.
        feature_names: names of the columns of a numpy array.

    Returns:
        Figures by network; the name of a single network is empty.

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
    """Meter captures into a table in memory: one row per flow, with its key and a NIC's features.

    The table carries its meter, so a network that :func:`train` makes of it classifies captures.

    Args:
        captures: pcap and pcapng files, plain or compressed, and folders of them.
        spec: what a flow is and which integers the meter keeps of it, or a file that says so; None
            for the standard meter.
        labels: labels of the flows, which become the column ``label``, or a CSV file of them.
        as_frame: return a pandas DataFrame instead of a PyArrow table.

    Raises:
        DataError: no capture can be read.
        MissingDependencyError: libpcap, a C compiler or pandas is missing.

    Warns:
        N3icWarning: packets were not read, such as those of a link type that the meter does not
            know; see :func:`n3ic.meter.extract.extract`.
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
    """Export a model for a target: write a complete and checked directory, or none.

    Args:
        model: a model, its file, or a run of one network, whose figures the report repeats.
        target: the target's name, such as ``netfpga``.
        out: the directory.
        force: write a model that does not fit; the manifest records it.
        replace: replace an existing export directory.
        verify: run some vectors before the directory appears.
        simplify: drop neurons and input bits that do not affect the scores; False keeps the shape,
            None leaves it to the target.
        **options: the target's options, with underscores for dashes.

    Raises:
        UsageError: the target or an option is unknown, or ``out`` exists.
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
    """Compare an export directory with a fresh export, then run it against its model.

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
    """Measure a target or the meter beside its alternatives, after checking that all agree.

    Args:
        target: what to measure, such as ``host``, or ``meter``.
        model: a model, its file, or a run, of which the first network is measured; None for random
            weights of shape 256-32-16-2. The meter takes no model.
        capture: packets for the meter to count; None for generated ones.
        **options: the benchmark's own options, with underscores for dashes.

    Raises:
        UsageError: the target has no benchmark, or does not take an argument.
    """
    import numpy as np

    from n3ic.model.random_models import random_model
    from n3ic.runs.folder import Run, models_of
    from n3ic.targets.base import exporter

    if target in plugins.names(BENCHES):
        if model is not None or options:
            raise UsageError("the meter's benchmark takes one option, the capture")
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
    """The model itself, or the path of its file or run."""
    from n3ic.runs.folder import Run

    return model.path if isinstance(model, Run) else model


def _model(model: ModelLike) -> Classifier:
    source = _source(model)
    return source if isinstance(source, Classifier) else load(source)


def _single(source: object, models: Mapping[str, Classifier]) -> Classifier:
    if len(models) != 1:
        raise UsageError(f"{source} holds {len(models)} networks: name one model file")
    return next(iter(models.values()))
