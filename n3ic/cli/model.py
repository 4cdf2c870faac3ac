# SPDX-License-Identifier: Apache-2.0
"""``n3ic inspect``, ``features``, ``predict``, ``evaluate``, ``replay`` and ``import``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from n3ic.cli.console import counting_bar, print_json, print_note, print_result, spinner, table
from n3ic.cli.plugin_options import Owned, with_options
from n3ic.cli.rows import takes_rows
from n3ic.errors import N3icError, UsageError
from n3ic.options import OptionValue
from n3ic.util.files import free_path
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from n3ic.data.flows import Columns
    from n3ic.data.streaming import StreamedClasses
    from n3ic.model.classifier import Classifier
    from n3ic.model.passes import Findings
    from n3ic.targets.capabilities import Importer

ModelOption = Annotated[
    Path | None, typer.Option(help="Model file or run; default: the newest run.")
]
TaskOption = Annotated[str, typer.Option(help="Name of the network in a run of several.")]
DatasetOption = Annotated[
    str | None, typer.Option(help="Data set whose layout the table has; default: the model's.")
]
UnitsOption = Annotated[
    Literal["nic", "source"] | None,
    typer.Option(help="Units of a table that does not name them: a NIC's integers, or the files'."),
]
ReplaceFlag = Annotated[bool, typer.Option("--replace", help="Replace an existing file.")]


def register(app: typer.Typer, words: Sequence[str]) -> None:
    """Add the commands."""
    app.command("inspect")(inspect)
    app.command("features")(features)
    app.command("predict")(predict)
    app.command("evaluate")(with_options(evaluate, _further() if "evaluate" in words[:1] else []))
    app.command("replay")(replay)
    app.command("import")(import_model)


def inspect(
    model: Annotated[Path, typer.Argument(help="A model file or a run folder.")],
    bits: Annotated[bool, typer.Option("--bits", help="Describe every input bit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print a model's layers, bits and bytes."""
    from n3ic.model.load import load_model
    from n3ic.runs.folder import models_of
    from n3ic.runs.report import memory_of

    models = {task: load_model(path) for task, path in models_of(model).items()}
    if json:
        print_json(
            {
                task: {
                    "name": m.name,
                    "family": m.family,
                    "shape": list(m.shape),
                    "classes": list(m.classes),
                    "sha256": m.digest,
                    "memory": memory_of(m),
                    "provenance": dict(m.provenance),
                    "shunt": m.shunt,
                    "meter": None if m.meter is None else m.meter.to_dict(),
                    "table": None if m.table is None else m.table.to_dict(),
                    "passes": _passes(m).to_dict(),
                    "bits": [m.input.explain(i) for i in range(m.input.n_bits)] if bits else None,
                }
                for task, m in models.items()
            }
        )
        return
    for task, loaded in models.items():
        _summary(loaded, f"{model}{f' ({task})' if task else ''}")
        if bits:
            for i in range(loaded.input.n_bits):
                print_result(loaded.input.explain(i))


def _passes(model: Classifier) -> Findings:
    from n3ic.model.passes import simplify

    return simplify(model).findings


def _summary(model: Classifier, where: str) -> None:
    from n3ic.model.family import family

    parts, lines = family(model.family).summary_of(model)
    table(f"{model.name}: {where}", parts.head, parts.rows, left=parts.left)
    print_result(f"classes: {', '.join(model.classes)}")
    print_result(f"shunting: {_shunting(model)}")
    for line in lines:
        print_result(line)
    for line in _passes(model).lines():
        print_result(f"passes: {line}")
    if model.meter is not None:
        print_result(f"meter: {model.meter}")
    if model.table is not None:
        print_result(f"columns of your own table: {', '.join(model.table.columns)}")
    for key, value in sorted(model.provenance.items()):
        print_result(f"{key}: {value}")
    print_result(f"sha256: {model.digest}")


def _shunting(model: Classifier) -> str:
    if not model.shunt:
        return "none, every flow is decided on the card"
    return f"margins below {model.shunt} (of {model.largest_margin} at most) go to the host"


@takes_rows("source")
def features(
    source: Annotated[
        str, typer.Argument(metavar="FLOWS", help="CSV or Parquet; - for standard input.")
    ],
    model: ModelOption = None,
    out: Annotated[
        str, typer.Option(help="CSV or .parquet to write; - for standard output.")
    ] = "-",
    bits: Annotated[bool, typer.Option("--bits", help="Also write the input bits.")] = False,
    task: TaskOption = "",
    dataset: DatasetOption = None,
    units: UnitsOption = None,
    replace: ReplaceFlag = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the number of rows and the range of each column as JSON instead of rows.",
        ),
    ] = False,
) -> None:
    """Compute the integer features that a card computes from flows, and the input bits."""
    from n3ic.data.flows import stream_features, write_features

    if out != "-":
        free_path(out, replace)
    network = _network(model, task)
    chunks = stream_features(source, network, dataset, units)
    chunks = (_with_bits(network, c) if bits else c for c in chunks)
    if json:
        ranges: dict[str, tuple[int, int]] = {}
        counted = _ranged(chunks, ranges)
        if out == "-":
            rows = sum(len(next(iter(chunk.values()))) for chunk in counted)
        else:
            rows = write_features(out, counted)
        columns = {name: {"least": low, "most": high} for name, (low, high) in ranges.items()}
        print_json({"rows": rows, "columns": columns, "path": None if out == "-" else out})
        return
    rows = write_features(out, chunks)
    print_note(f"{rows:,} rows" + ("" if out == "-" else f" written to {out}"))


def _ranged(chunks: Iterable[Columns], ranges: dict[str, tuple[int, int]]) -> Iterator[Columns]:
    """The chunks as they are; ``ranges`` gets each column's least and largest value so far."""
    for chunk in chunks:
        for name, column in chunk.items():
            low, high = int(column.min()), int(column.max())
            before = ranges.get(name, (low, high))
            ranges[name] = min(low, before[0]), max(high, before[1])
        yield chunk


def _with_bits(network: Classifier, columns: Columns) -> Columns:
    bits = network.input.encode(columns)
    return {**columns, **{f"bit_{i}": bits[:, i].astype("uint8") for i in range(bits.shape[1])}}


def _network(model: Path | None, task: str) -> Classifier:
    """The network that a command names; by default that of the newest run."""
    import n3ic
    from n3ic.runs.folder import newest_run

    if model is None:
        model = newest_run()
        print_note(f"model: {model}")
    return n3ic.load(model, task)


@takes_rows("source")
def predict(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FLOWS",
            help="Flows to classify: CSV, Parquet, or a capture; - for standard input.",
        ),
    ],
    model: ModelOption = None,
    out: Annotated[str, typer.Option(help="CSV to write; - for standard output.")] = "-",
    dataset: DatasetOption = None,
    units: UnitsOption = None,
    task: TaskOption = "",
    replace: ReplaceFlag = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print counts per class as JSON instead of rows.")
    ] = False,
) -> None:
    """Classify flows: class (or shunt), margin and scores of each row.

    A capture (pcap, pcapng) is metered as the model specifies, and each flow is a row.
    """
    from n3ic.data.streaming import predict_stream
    from n3ic.evaluation.plugin import evaluations
    from n3ic.meter.capture import is_capture
    from n3ic.meter.records import left_out
    from n3ic.meter.verdicts import predict_capture

    if out != "-":
        free_path(out, replace)
        if source != "-" and Path(out).exists() and Path(out).samefile(source):
            raise UsageError(f"{out} is the input table: name another file")
    network = _network(model, task)
    sink = None if json and out == "-" else out
    summary: StreamedClasses
    notes: list[str] = []
    watches = {n: w for n, evaluation in evaluations().items() if (w := evaluation.watch(network))}
    with counting_bar("classifying", "rows") as bar:

        def progress(rows: int, columns: Columns) -> None:
            bar(rows)
            for watch in watches.values():
                watch.add(columns)

        if is_capture(source):
            if dataset or units:
                raise UsageError(f"{source} is a capture: leave out --dataset and --units")
            summary = predict_capture(network, source, sink, progress=progress)
            notes += left_out(summary.counters)
        else:
            _warn_of_another_meter(network, source)
            summary = predict_stream(
                network, source, sink, dataset=dataset, units=units, progress=progress
            )
    for line in (*notes, *(line for watch in watches.values() for line in watch.lines())):
        print_note(line)
    if json:
        remarks = {name: watch.to_dict() for name, watch in watches.items()}
        print_json({"rows": summary.rows, "classes": dict(summary.classes), **remarks})
    if out != "-":
        print_note(f"wrote {summary.rows:,} rows to {out}")


def _warn_of_another_meter(network: Classifier, source: str) -> None:
    """Warn if a table was metered differently from the model's training data."""
    from n3ic.data.table_meter import meter_of, other_meter

    if network.meter is None or not Path(source).is_file():
        return
    own = meter_of(source)
    if line := other_meter(source, own, network.meter, network.input.features):
        print_note(line)


def _further() -> list[Owned]:
    from n3ic.evaluation.plugin import evaluations

    return [(name, evaluation.options) for name, evaluation in evaluations().items()]


@takes_rows("source")
def evaluate(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="FLOWS", help="Labelled flows; the embedded sample without it."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file or run; default: the newest run.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set that reads the flows; default: the network's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    given: Mapping[str, OptionValue] | None = None,
) -> None:
    """Evaluate a network on labelled flows: accuracy, recall, precision, ROC and PR AUC."""
    from n3ic.cli.train import show_classes
    from n3ic.evaluation.plugin import tables_of
    from n3ic.model.classifier import family_text
    from n3ic.model.load import load_model
    from n3ic.runs.folder import models_of, newest_run
    from n3ic.usecases.evaluation import (
        evaluate_beside_majority,
        further_figures,
        study_figures,
    )

    with spinner("training and evaluating"):
        studies = study_figures(model, given or {}, {"FLOWS": source, "--dataset": dataset})
    if studies:
        if json:
            print_json(studies)
        for text_table in () if json else tables_of(studies):
            table(text_table.title, text_table.head, text_table.rows, left=text_table.left)
        return
    if model is None:
        model = newest_run()
        print_note(f"model: {model}")
    with spinner("evaluating"):
        figure_pairs = evaluate_beside_majority(model, source, dataset=dataset)
        further = further_figures(model, source, given, dataset) if given else {}
    results = {task: network for task, (network, _) in figure_pairs.items()}
    networks = {task: load_model(path) for task, path in models_of(model).items()}
    if any(network.shunt for network in networks.values()):
        print_note(
            "the model shunts flows: these figures count its class for every flow; see n3ic shunt"
        )
    if json:
        print_json(
            {
                "networks": {
                    task: e.to_dict()
                    | {"classes": e.of_classes(networks[task].classes), **further.get(task, {})}
                    for task, e in results.items()
                },
                "majority": {task: most.to_dict() for task, (_, most) in figure_pairs.items()},
            }
        )
        return
    keys = ("accuracy", "macro_f1", "fpr", "roc_auc", "average_precision")
    rows = [
        [name, f"{e.rows:,}", *(percent(getattr(e, key)) for key in keys)]
        for task, evaluations_pair in figure_pairs.items()
        for name, e in zip(
            (task or family_text(networks[task].family), f"{task} majority".strip()),
            evaluations_pair,
            strict=True,
        )
    ]
    where = str(source or "embedded sample")
    head = ["", "rows", "accuracy", "macro F1", "FPR", "ROC AUC", "PR AUC"]
    table(f"{model} on {where}", head, rows)
    for text_table in (t for figures in further.values() for t in tables_of(figures)):
        table(text_table.title, text_table.head, text_table.rows, left=text_table.left)
    if len(results) == 1:
        (figures_of,) = results.values()
        (classes,) = (network.classes for network in networks.values())
        show_classes(figures_of.of_classes(classes))
        table(
            "confusion: rows per true and predicted class",
            ["true", *classes],
            [
                [c, *(f"{n:,}" for n in r)]
                for c, r in zip(classes, figures_of.confusion, strict=True)
            ],
        )


@takes_rows("data")
def replay(
    data: Annotated[
        Path | None, typer.Argument(help="Recorded data; the embedded default without it.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Run; default: the newest.")] = None,
    out: Annotated[Path, typer.Option(help="Picture (.png) or table (.csv) to write.")] = Path(
        "replay.png"
    ),
    last: Annotated[int | None, typer.Option(help="Only the last N rows.", min=1)] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
) -> None:
    """Run a run's networks over recorded data, and plot their answers over time."""
    from n3ic.model.load import load_model
    from n3ic.runs.folder import load_metrics, models_of, newest_run
    from n3ic.usecases.base import use_case

    free_path(out, replace)
    if model is None:
        model = newest_run()
        print_note(f"run: {model}")
    metrics = load_metrics(model)
    models = {task: load_model(path) for task, path in models_of(model).items()}
    for line in use_case(str(metrics["use_case"])).replay(models, metrics, data, out, last):
        print_result(line)
    print_result(f"wrote {out}")


def _importers() -> dict[str, Importer]:
    """What reads files of other formats: targets, and families of models."""
    from n3ic import plugins
    from n3ic.model.family import family
    from n3ic.targets.base import exporter
    from n3ic.targets.capabilities import Importer

    names = plugins.names("n3ic.exporters")
    out = {n: importer for n in names if (importer := exporter(n).importer)}
    families = [family(name) for name in plugins.names(plugins.FAMILIES)]
    return out | {
        f.name: Importer(f.imported, f.foreign_suffixes) for f in families if f.foreign_suffixes
    }


def import_model(
    source: Annotated[
        Path, typer.Argument(help="A network or trees of another format, such as .onnx.")
    ],
    out: Annotated[Path, typer.Option(help="Model file to write.")] = Path("model.n3ic"),
    target: Annotated[
        str | None, typer.Option("--from", help="Format; default: by the file's suffix.")
    ] = None,
) -> None:
    """Convert a network or trees of another format to a model, or report why it is not one."""
    if out.exists():
        raise UsageError(f"{out} exists: name another file with --out")
    suffix = source.suffix.lower()
    importers = _importers()
    if target is None:
        matching = [n for n, importer in importers.items() if suffix in importer.suffixes]
        if not matching:
            known = sorted({s for importer in importers.values() for s in importer.suffixes})
            raise UsageError(f"no format has the suffix {suffix!r}; known: {', '.join(known)}")
        candidates = matching
    elif target not in importers:
        raise UsageError(
            f"networks cannot be imported from {target}: give --from one of {', '.join(importers)}"
        )
    else:
        candidates = [target]
    reasons = []
    for name in candidates:
        try:
            model = importers[name].read(source)
        except N3icError as error:
            reasons.append(f"as {name}: {error}")
            continue
        model.save(out)
        print_result(
            f"{out}: {model.shape_text}, {model.weight_bytes:,} B of weights (read as {name})"
        )
        for key in ("scores", "rounding", "compared"):
            if key in model.provenance:
                print_result(f"{key}: {model.provenance[key]}")
        return
    raise N3icError(f"{source} is no model that n3ic imports: {'; '.join(reasons)}")
