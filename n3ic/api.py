# SPDX-License-Identifier: Apache-2.0
"""The verbs of n3ic: the work of each main command as one function."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, Union, Unpack

from n3ic.data.user_table import OWN
from n3ic.errors import (
    ArgumentError,
    N3icWarning,
    UsageError,
    VerifyError,
    did_you_mean,
    in_python,
    needed,
)
from n3ic.evaluation.study import bench_of
from n3ic.model.classifier import Classifier
from n3ic.model.layered import in_layers
from n3ic.model.load import load_model
from n3ic.options import OptionValue, parse_options
from n3ic.training.recipe_values import RecipeValues

if TYPE_CHECKING:
    from n3ic.data.delimited import Sheet, Units
    from n3ic.data.split import SplitProtocol
    from n3ic.data.table import FlowTable
    from n3ic.evaluation.metrics import Evaluation
    from n3ic.meter.labels import Labels
    from n3ic.model.meter_spec import MeterSpec
    from n3ic.runs.folder import Run
    from n3ic.runs.progress import TrainingProgress
    from n3ic.targets.directory import Exported
    from n3ic.targets.figures import Bench
    from n3ic.targets.verification import Verification
    from n3ic.training.recipe import Recipe


class Estimator(Protocol):
    """A fitted :class:`~n3ic.BinaryMLPClassifier`, or a pipeline or search that ends in one."""

    def fit(self, X: Any, y: Any) -> Any: ...  # noqa: D102


ModelLike = Union[Classifier, "Run", "Estimator", str, Path]


@in_python()
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

    models = models_of(path)
    if len(models) == 1 and not task:
        return load_model(next(iter(models.values())))
    if task not in models:
        names = ", ".join(name for name in models if name) or "a single one"
        raise UsageError(f"{path}: no network {task!r}; it holds {names}")
    return load_model(models[task])


@in_python()
@needed("n3ic.train")
def train(
    use_case: Any = None,
    label: Any = None,
    *,
    data: Any = None,
    positive: str = "",
    feature_names: Sequence[str] | None = None,
    dataset: str | None = None,
    recipe: str | Recipe | None = None,
    rows: int | None = None,
    family: str | None = None,
    budget_bytes: int | None = None,
    sites: int | None = None,
    cuts_on_card: bool | None = None,
    input_of: str | Path | Run | None = None,
    protocol: SplitProtocol | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    replace: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    options: Mapping[str, OptionValue] | None = None,
    progress: TrainingProgress | None = None,
    **values: Unpack[RecipeValues],
) -> Run:
    """Train on a use case's data, files or a table in memory; write a complete run folder or none.

    A table in memory trains the same network, byte for byte, as the CSV file that its library
    writes (``to_csv(index=False)`` in pandas, ``write_csv()`` in Polars). An interrupted run of
    several networks, seeds or protocols resumes when the same run is requested again.

    Args:
        use_case: what to train on: a use case, such as ``anomaly``; the path of a table, or of a
            folder of tables; or a table in memory: pandas, Polars, PyArrow or any object that
            exports an Arrow stream, a dict of columns, a structured numpy array, or an array of
            shape ``(rows, columns)`` with ``feature_names``. None for that of ``config``.
        label: the column of the class in a table of your own, or the class of each row, shape
            ``(rows,)``: a Series, an array or a list.
        data: files for a use case to train on, or the ``table`` of :func:`n3ic.datasets.load`;
            without a use case, a table as above. None for the use case's sample.
        positive: the class to tell from all others in such a table.
        feature_names: names of the columns of an array.
        dataset: the data set that reads ``data`` or has the sample; None for the use case's own.
        recipe: name of a recipe of the use case, or a recipe of your own.
        rows: train on so many rows of the files, drawn at random by ``seed``, for tables that
            memory does not hold; None for all.
        family: what is trained: ``binary`` networks, look-up ``tables``, or ``spn``.
        budget_bytes: largest size of the model in bytes, which chooses family, bits and layers.
        sites: most look-up table sites (LUT6) of the unrolled NetFPGA core with class output, as
            its generator estimates them, which chooses family and shape.
        cuts_on_card: count the comparisons of features with cuts among these sites, too.
        input_of: a run or a model file whose input bits, hidden layers and meter are kept.
        protocol: how the rows are split; None for the use case's default.
        seed: seed of all random choices, 0 by default.
        seeds: number of seeds for mean and deviation, from ``seed`` on.
        out: the run folder; None for ``runs/USE_CASE``, numbered if that exists.
        replace: replace ``out`` if it is a run.
        jobs: number of networks trained at once; None for all cores.
        dask: address of a Dask scheduler whose workers train instead of this machine.
        config: a TOML or JSON file of options, or the ``options.json`` of another run; other
            arguments override it.
        overrides: values of the recipe by name, as ``values``.
        options: the use case's own options by name; they may also be given as keywords.
        progress: callbacks that get the progress of the training.
        **values: any value of the recipe, such as ``epochs=3, hidden=[16]``; see
            :class:`~n3ic.Recipe` and :class:`~n3ic.Training`, and ``n3ic recipes show NAME`` for
            those of the other families. A list may be any sequence.

    Raises:
        ArgumentError: a name or a value is unknown, or the folder exists; also a UsageError, a
            TypeError and a ValueError.
        DataError: the data cannot be read or split.

    Warns:
        N3icWarning: columns are in doubt, or are left out for their values; ``run.columns`` has
            all.
    """
    from n3ic.data.table import FlowTable
    from n3ic.runs.column_uses import column_warning
    from n3ic.runs.folder import Run
    from n3ic.runs.progress import TrainingProgress
    from n3ic.usecases.arguments import request_of, source_of
    from n3ic.usecases.config import train_request
    from n3ic.usecases.training import train_use_case

    progress = TrainingProgress() if progress is None else progress
    if not isinstance(progress, TrainingProgress):
        raise ArgumentError(f"progress: expected n3ic.TrainingProgress, got {progress!r:.60}")
    loaded = data if isinstance(data, FlowTable) else None
    data = None if loaded is not None else data
    if _is_table(use_case) and data is not None:
        raise ArgumentError("a table comes first, and data names files: give one of them")
    if _is_table(data):
        if use_case not in (None, OWN):
            raise ArgumentError(
                f"data: the use case {use_case!r} reads files; n3ic.train(table, label=...) trains "
                "on a table of your own"
            )
        use_case, data = data, None
    table = use_case if _is_table(use_case) else None
    source = {"use_case": OWN} if table is not None else source_of(use_case)
    if data is not None and "data" in source:
        raise ArgumentError("two sources of data: name files first or as data, not both")
    arguments = {
        **source,
        **({} if data is None else {"data": data}),
        "dataset": dataset,
        "recipe": recipe,
        "rows": rows,
        "budget_bytes": budget_bytes,
        "sites": sites,
        "cuts_on_card": cuts_on_card,
        "input_of": input_of.path if isinstance(input_of, Run) else input_of,
        "protocol": protocol,
        "seed": seed,
        "seeds": seeds,
        "out": out,
        "replace": replace,
        "jobs": jobs,
        "dask": dask,
        "overrides": overrides,
        "options": options,
    }
    family_value = {} if family is None else {"family": family}
    request = request_of(arguments, {**values, **family_value}, config)
    data_options = {"label": label if table is None else None, "positive": positive}
    if table is not None:
        table, label = _labelled(table, label)
        request["table"] = _read_table(table, label, positive, feature_names, request, progress)
        data_options["label"] = _column_of(label)
    elif feature_names is not None:
        raise ArgumentError("feature_names: expected beside a numpy array, which comes first")
    elif label is not None and not isinstance(label, str | int):
        raise ArgumentError(
            "label: expected the name of a column of the file; the class of each row goes with a "
            f"table in memory, got {type(label).__name__}"
        )
    if loaded is not None:
        request["table"] = loaded
    request["options"] |= {name: str(value) for name, value in data_options.items() if value}
    columns: list[Mapping[str, Any]] = []
    own = progress.columns

    def record_uses(uses: Sequence[Mapping[str, Any]]) -> None:
        columns.extend(uses)
        own(uses)

    progress = dataclasses.replace(progress, columns=record_uses)
    run = train_use_case(train_request(config, **request), progress)
    if doubted := column_warning(columns):
        warnings.warn(f"{doubted}; see run.columns", N3icWarning, stacklevel=4)
    return run


def _with_values(function: Any) -> None:
    """Show the values of a recipe among a function's keywords, where completion looks for them."""
    call_signature = signature(function)
    *own, keywords = call_signature.parameters.values()
    values = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in RecipeValues.__annotations__.items()
    ]
    function.__signature__ = call_signature.replace(parameters=[*own, *values, keywords])


_with_values(train)


def _is_table(value: Any) -> bool:
    """Whether a value is a table in memory, or a dict of columns."""
    from n3ic.dataframes import is_table

    return isinstance(value, Mapping) or is_table(value)


def _labelled(table: Any, label: Any) -> tuple[Any, Any]:
    """A table, which may be a dict of columns, and its column of the class."""
    from n3ic.dataframes import labelled, of_columns

    return labelled(of_columns(table) if isinstance(table, Mapping) else table, label)


def _column_of(label: Any) -> str:
    from n3ic.dataframes import column_of

    return column_of(label)


def _read_table(
    table: Any,
    label: Any,
    positive: str,
    feature_names: Sequence[str] | None,
    request: Mapping[str, Any],
    progress: TrainingProgress,
) -> FlowTable:
    """The labelled flows of a table in memory."""
    from n3ic.dataframes import read_dataframe

    return read_dataframe(
        table,
        label,
        positive=positive,
        feature_names=feature_names,
        notify=progress.note,
        read=partial(_as_file, request),
    )


def _as_file(
    request: Mapping[str, Any],
    sheet: Sheet,
    label: str,
    *,
    positive: str,
    notify: Callable[[str], object],
) -> FlowTable:
    """A table in memory, read as ``n3ic train --data`` reads its file."""
    from n3ic.options import parse_options
    from n3ic.usecases.base import use_case

    case = use_case(OWN)
    all_options = {**request.get("options", {}), "label": label, "positive": positive}
    options_text = {name: value for name, value in all_options.items() if value}
    options = parse_options(case.options, options_text, case.name)
    return case.load(sheet, request.get("dataset"), options, notify)


@in_python()
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
        model: a model, its file, a run of one network, or a fitted estimator or a pipeline that
            ends in one, whose steps then take the rows.
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
    from n3ic.dataframes import is_table, predict_flows
    from n3ic.fitted import fitted

    estimator = fitted(model)
    if estimator is not None and is_table(flows):
        return estimator.predict(flows)
    return predict_flows(model_of(model), flows, dataset, units, feature_names)


@in_python()
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
        model: a run, its folder, a model or its file, or a fitted estimator or a pipeline that ends
            in one, which takes a table in memory with a ``label``.
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
    from n3ic.dataframes import column_of, is_table, of_columns, table_sheet
    from n3ic.fitted import fitted
    from n3ic.usecases.evaluation import evaluate_flows

    if isinstance(flows, Mapping) or is_table(flows):
        estimator = fitted(model)
        if estimator is not None:
            rows = of_columns(flows) if isinstance(flows, Mapping) else flows
            return {"": estimator.evaluate(rows, label)}
        flows, label = _labelled(flows, label)
        flows = table_sheet(flows, label, feature_names=feature_names)
    return evaluate_flows(_source(model), flows, dataset=dataset, label=column_of(label))


@in_python()
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
        spec: the definition of a flow and its integers, or a file with that specification; None
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

    sources = [captures] if isinstance(captures, str | Path) else captures
    meter = read_spec(spec) if isinstance(spec, str | Path) else spec or standard_spec()
    flow_labels = read_labels(labels, "table") if isinstance(labels, str | Path) else labels
    with TemporaryDirectory(prefix="n3ic-") as folder:
        out = Path(folder) / "flows.parquet"
        write_table(sources, out, meter, labels=flow_labels)
        table = read_table(out)
    if not as_frame:
        return table
    frame = table.to_pandas()
    frame.attrs[METER_KEY.decode()] = table.schema.metadata[METER_KEY].decode()
    return frame


@in_python()
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
        model: a model, its file, or a run of one network, whose figures the report repeats; or a
            fitted estimator or a pipeline that ends in one.
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

    Warns:
        N3icWarning: a pipeline has steps before its estimator, which no target computes.
    """
    from n3ic.fitted import fitted
    from n3ic.runs.folder import open_models
    from n3ic.targets import directory

    if (estimator := fitted(model)) and estimator.steps:
        warnings.warn(
            f"the export takes what the steps {', '.join(estimator.steps)} give, not the flows: no "
            "target computes these steps",
            N3icWarning,
            stacklevel=3,
        )
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


@in_python()
def verify(directory: str | Path, model: ModelLike | None = None, **arguments: Any) -> Verification:
    """Compare an export directory with a fresh export, then run it against its model.

    Args:
        directory: an export directory.
        model: what the directory must be an export of, as :func:`export` takes it; None for the
            model in it. The two arguments may also come as in :func:`export`, the model first.
        **arguments: those of :func:`~n3ic.targets.verification.verify_directory`: ``vectors``,
            ``rows``, ``captures``, ``options``, ``seed``, ``record``, ``run_changed``. ``rows`` may
            also be a file of flows or a table in memory, as :func:`predict` takes them.

    Raises:
        ExportError: the directory is not an export directory.
        VerifyError: it holds another model.
        DataError: the flows cannot be read.
    """
    from n3ic.dataframes import table_features
    from n3ic.targets.manifest import MODEL
    from n3ic.targets.verification import verify_directory

    if not isinstance(directory, str | Path):
        if not isinstance(model, str | Path):
            raise ArgumentError(
                f"directory: expected the path of an export, got {type(directory).__name__}"
            )
        directory, model = model, directory
    known = signature(verify_directory).parameters
    if unknown := [name for name in arguments if name not in known]:
        hint = did_you_mean(unknown[0], known) or f"it has {', '.join([*known][1:])}"
        raise ArgumentError(f"verify has no argument {unknown[0]!r}; {hint}".rstrip())
    if model is not None:
        exported = load_model(Path(directory) / MODEL)
        if (expected := model_of(model)).digest != exported.digest:
            raise VerifyError(
                f"{directory} holds another model, {exported.name} {exported.digest[:12]}, than "
                f"{expected.name} {expected.digest[:12]}"
            )
    rows = arguments.get("rows")
    if rows is not None and not isinstance(rows, Mapping):
        arguments["rows"] = table_features(load_model(Path(directory) / MODEL), rows)
    return verify_directory(directory, **arguments)


@in_python()
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
    from n3ic.runs.folder import models_of
    from n3ic.targets.base import exporter

    if (measure := bench_of(target)) is not None:
        if model is not None or options:
            raise UsageError("the meter's benchmark takes one option, the capture")
        result: Bench = measure(capture)
        return result
    if capture is not None:
        raise UsageError(f"a capture is for the benchmark of the meter, not of {target}")
    network: Classifier
    if model is None:
        network = random_model((256, 32, 16, 2), np.random.default_rng(0))
    elif isinstance(model, Classifier):
        network = model
    else:
        source = _source(model)
        if not isinstance(source, Classifier):
            source = load_model(next(iter(models_of(source).values())))
        network = source
    network = in_layers(network)
    benchmark = exporter(target).for_family(network.family).benchmark
    if benchmark is None:
        raise UsageError(f"target {target} has no benchmark for models of family {network.family}")
    option_values = {name.replace("_", "-"): value for name, value in options.items()}
    parsed = parse_options(benchmark.options, option_values, f"the benchmark of {target}")
    return benchmark.run(network, parsed)


def _source(model: ModelLike) -> Classifier | str | Path:
    """The model itself, or the path of its file or run.

    Raises:
        ArgumentError: it is nothing that holds a model.
    """
    from n3ic.fitted import EXPECTED, fitted
    from n3ic.runs.folder import Run

    if isinstance(model, Classifier | str | Path):
        return model
    if isinstance(model, Run):
        return model.path
    if (estimator := fitted(model)) is None:
        raise ArgumentError(f"{EXPECTED}, got {type(model).__name__}")
    return estimator.network


def model_of(model: ModelLike) -> Classifier:
    """The model that an argument of a verb names: a model, its file, a run or an estimator.

    Raises:
        ArgumentError: it is nothing that holds a model.
        ModelError: the file is missing, damaged or no model.
        UsageError: the run holds several networks.
    """
    source = _source(model)
    return source if isinstance(source, Classifier) else load(source)


def _single(source: object, models: Mapping[str, Classifier]) -> Classifier:
    if len(models) != 1:
        raise UsageError(f"{source} holds {len(models)} networks: name one model file")
    return next(iter(models.values()))
