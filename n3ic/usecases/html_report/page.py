# SPDX-License-Identifier: Apache-2.0
"""The report of a run as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.errors import N3icError
from n3ic.evaluation.held_out import HeldOut, held_out, known_split
from n3ic.evaluation.plugin import tables_of
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import RATE_UNIT, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.runs.column_uses import columns_table
from n3ic.runs.folder import FIGURES, Run, figure_cells, models_of
from n3ic.runs.report import CLASS_HEAD, candidate_table, class_rows, memory_of, model_text
from n3ic.targets.overview import HEAD, LEGEND, TargetRow
from n3ic.usecases.evaluation import LabelledFlows, labelled_flows
from n3ic.usecases.html_report.charts import ROC, Chart
from n3ic.usecases.html_report.flows import ExplainedFlow, confidence, explained_flows
from n3ic.util.display import HTML, TextTable
from n3ic.util.markdown import percent
from n3ic.util.names import visible
from n3ic.util.templates import render_html

_FLOWS = 5  # explained for a single network
_MAX_PICTURE = 4 << 20
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Confusion:
    """Rows by true class and predicted class, as text."""

    classes: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class NetworkSection:
    """The page's section about one network.

    Attributes:
        task: its name in a set; empty for a single one.
        line: a one-line description.
        facts: family, shape, classes, provenance.
        layers: shape and memory of each layer; None for other families.
        bits: the input bits in words.
        confusion: confusion on the test rows; None if unknown.
        by_class: precision and recall of each class there; None if unknown.
        charts: ROC, calibration and importance on held-out rows.
        picture: the run's ROC beside its baselines as a data URL.
        sureness: the charts' figures as tables.
        flows: explained decisions.
        no_flows: the reason for missing flows.
    """

    task: str
    line: str
    facts: TextTable
    layers: TextTable | None
    bits: TextTable
    confusion: Confusion | None
    by_class: TextTable | None
    charts: tuple[Chart, ...]
    picture: str
    sureness: tuple[TextTable, ...]
    flows: tuple[ExplainedFlow, ...]
    no_flows: str


@dataclass(frozen=True)
class AccuracyBar:
    """A classifier's share of right rows, 0 to 1, and whether it is the run's own."""

    name: str
    share: float
    own: bool

    @property
    def text(self) -> str:
        """The share in per cent."""
        return percent(self.share)


@dataclass(frozen=True)
class Verdict:
    """What is known of a target: whether its artefacts were run and agree with the model.

    Attributes:
        target: name of the target.
        good: whether they agree and fit; None if nothing was run.
        word: the same in a word or two.
        why: figures of a verified target, else the reasons.
    """

    target: str
    good: bool | None
    word: str
    why: str


@dataclass(frozen=True)
class HtmlReport:
    """The values of the template ``page.html.j2``."""

    title: str
    answers: tuple[tuple[str, str, str], ...]  # a figure, its name, what it is compared with
    bars: tuple[AccuracyBar, ...]
    verdicts: tuple[Verdict, ...]
    line: str
    warnings: tuple[str, ...]
    data: tuple[TextTable, ...]
    notes: tuple[str, ...]
    figures: tuple[TextTable, ...]
    targets: TextTable
    legend: str
    networks: tuple[NetworkSection, ...]
    tool: str = f"n3ic {__version__}"


def html_report(
    source: Path,
    models: Mapping[str, Classifier],
    metrics: Mapping[str, Any] | None,
    rows: Sequence[TargetRow],
    *,
    data: str | Path | None = None,
    dataset: str | None = None,
) -> str:
    """The page as text.

    Args:
        source: the run folder or the model file.
        models: its networks, by task.
        metrics: the run's metrics, if any.
        rows: rows of the targets, see :func:`~n3ic.targets.overview.overview`.
        data: files of labelled flows; None for the data set's embedded sample.
        dataset: name of the data set that reads them; None for the network's own.
    """
    flows, why = _flows(source, data, dataset)
    run = Run(source, metrics or {}, models_of(source))
    parts = tuple(
        _network(source, task, model, run.metrics, flows.get(task), why)
        for task, model in models.items()
    )
    table_view = next(iter(flows.values())).table.view() if flows else None
    view = run.view()
    bars, verdicts = accuracy_bars(run.metrics), tuple(map(verdict, rows))
    page = HtmlReport(
        title=f"Report of {source.name}",
        answers=_answers(models, bars, verdicts),
        bars=bars,
        verdicts=verdicts,
        line=view.line.removeprefix(f"{source}: "),
        warnings=_warnings(run.metrics),
        data=(*view.tables[1:], *_columns(run.metrics), *(table_view.tables if table_view else ())),
        notes=_texts(_part(run.metrics, "data").get("notes")),
        figures=tuple(
            table
            for table in (run.figures, candidate_table(run.metrics), *_each(models, run.metrics))
            if table is not None
        )
        + tuple(tables_of(run.metrics)),
        targets=_targets(rows),
        legend=LEGEND,
        networks=parts,
    )
    folders = (Path(__file__).parent, HTML)
    return visible(render_html(folders, "page.html.j2", {"page": page}))


def _columns(metrics: Mapping[str, Any]) -> tuple[TextTable, ...]:
    """The table of the columns that were used, in doubt and left out, if the run has one."""
    uses_data = metrics.get("columns")
    uses = (
        [of for of in uses_data if isinstance(of, Mapping)] if isinstance(uses_data, list) else []
    )
    uses_table = columns_table(uses)
    return () if uses_table is None else (uses_table,)


def accuracy_bars(metrics: Mapping[str, Any]) -> tuple[AccuracyBar, ...]:
    """The run's accuracy on test rows and that of its baselines, the best first."""
    own = model_text(metrics) if metrics else "network"
    parts = {own: _part(metrics, "test")}
    baselines = _part(metrics, "baselines")
    parts |= {name.replace("_", " "): _part(baselines, name) for name in baselines}
    bars = [AccuracyBar(n, part["accuracy"], n == own) for n, part in parts.items() if _share(part)]
    return tuple(sorted(bars, key=lambda bar: (-bar.share, not bar.own)))


def _share(figures: Mapping[str, Any]) -> bool:
    """Whether a part of the metrics holds an accuracy; a file may hold anything."""
    accuracy = figures.get("accuracy")
    return isinstance(accuracy, int | float) and 0 <= accuracy <= 1


def verdict(row: TargetRow) -> Verdict:
    """Summarise the row of a target."""
    figures = [f"{row.bytes:,} B"] if row.bytes is not None else []
    figures += [str(row.latency)] if row.latency is not None else []
    whole = row.fitting == row.networks and row.together is not False
    if "FAILED" in row.shown:
        word = "differs from the model"
    elif not whole:
        word = "does not fit" if row.shown else "refused"
    elif "tested" in row.shown:
        return Verdict(row.target, True, "verified", ", ".join(figures))
    else:
        word = row.shown[0] if row.shown else "not verified"
        return Verdict(row.target, None, word, "; ".join(row.remarks) or ", ".join(figures))
    return Verdict(row.target, False, word, "; ".join(row.remarks) or ", ".join(figures))


def _answers(
    models: Mapping[str, Classifier], bars: Sequence[AccuracyBar], verdicts: Sequence[Verdict]
) -> tuple[tuple[str, str, str], ...]:
    """Accuracy, size and number of verified targets, each with its name and a comparison."""
    own = next((bar for bar in bars if bar.own), None)
    baselines = [bar for bar in bars if not bar.own]
    comparison = [f"best baseline {bar.text} ({bar.name})" for bar in baselines[:1]]
    comparison += [f"majority {bar.text}" for bar in baselines[1:] if bar.name == "majority"]
    memory = [memory_of(model) for model in models.values()]
    keys = "total_bytes", "float_weight_bytes", "input_bytes"
    size, real, cuts = (sum(part.get(key, 0) for part in memory) for key in keys)
    caption = "median accuracy on test rows" if len(models) > 1 else "accuracy on test rows"
    known = f"{sum(bool(verdict.good) for verdict in verdicts)} of {len(verdicts)}"
    of = f"{cuts:,} B of them input cuts" + (f"; weights as float32 {real:,} B" if real else "")
    return (
        (own.text if own else "unknown", caption, ", ".join(comparison)),
        (f"{size:,} B", "in total", of),
        (known, "targets verified", "run on vectors: scores equal the model's"),
    )


def _flows(
    source: Path, data: str | Path | None, dataset: str | None
) -> tuple[Mapping[str, LabelledFlows], str]:
    """Labelled flows by task, or none and the reason; named data that fail are an error."""
    try:
        return labelled_flows(source, data, dataset), ""
    except N3icError as error:
        if data is not None or dataset is not None:
            raise
        return {}, f"No flows to look at: {error}"


def _network(
    source: Path,
    task: str,
    model: Classifier,
    metrics: Mapping[str, Any],
    flows: LabelledFlows | None,
    why: str,
) -> NetworkSection:
    sample: HeldOut | None = None
    if flows is not None:
        try:
            sample = held_out(flows.model, flows.table, label=flows.label, positive=flows.positive)
        except N3icError as error:
            why = f"No flows to look at: {error}"
    view = model.view()
    charts, tables = confidence(sample) if sample and len(sample.rows) else ((), ())
    picture = "" if task else _picture(source / "plots" / "roc.png")
    if sample and picture and known_split(sample.model, sample.table)[2]:
        charts = tuple(
            chart for chart in charts if chart.title != ROC
        )  # the run's picture shows the same rows
    counts = _counts(_test(metrics, task).get("confusion"), len(model.classes))
    return NetworkSection(
        task=task,
        line=view.line,
        facts=view.tables[0],
        layers=model.memory_table if isinstance(model, BinaryModel) else None,
        bits=bits_table(model.input),
        confusion=_confusion(counts, model.classes) if counts else None,
        by_class=_by_class(counts, model.classes) if counts else None,
        charts=charts,
        picture=picture,
        sureness=tuple(tables),
        flows=explained_flows(sample, 1 if task else _FLOWS) if sample else (),  # sets are long
        no_flows=why or "No flows to look at.",
    )


def bits_table(spec: InputSpec) -> TextTable:
    """Every input bit in words, and the share of training rows that set it."""
    rates = [rate for f in spec.fields for rate in (f.rates or (None,) * f.width)]
    rows = tuple(
        (*spec.explain(i).split(": ", 1), "" if r is None else f"{100 * r / RATE_UNIT:.1f} %")
        for i, r in enumerate(rates)
    )
    return TextTable("Input bits", ("bit", "is set where", "set in training"), rows, left=2)


def _each(models: Mapping[str, Classifier], metrics: Mapping[str, Any]) -> tuple[TextTable, ...]:
    """Figures of the networks of a set, one row each."""
    if len(models) < 2:
        return ()
    rows = tuple((task, *figure_cells(_test(metrics, task))) for task in models)
    return (TextTable("Test rows of each network", ("network", *FIGURES.values()), rows),)


def _targets(rows: Sequence[TargetRow]) -> TextTable:
    """One row per target, text left of numbers."""
    order = [HEAD.index(name) for name in ("target", "fits", "equality", "resources")]
    order += [i for i in range(len(HEAD)) if i not in order]
    cells = tuple((*(row.cells[i] for i in order), "; ".join(row.remarks)) for row in rows)
    words = 4  # target, fits, equality, resources
    head = tuple(HEAD[i] for i in order)
    return TextTable(
        "Targets",
        (*head[:words], "remarks", *head[words:]),
        tuple((*c[:words], c[-1], *c[words:-1]) for c in cells),
        left=words + 1,
    )


def _test(metrics: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    """The figures on test rows of one network."""
    if not task:
        return _part(metrics, "test")
    groups = (_part(metrics, name) for name in metrics)
    parts = (_part(_part(group, task), "test") for group in groups)
    return next((figures for figures in parts if figures), {})


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = data.get(name)
    return part if isinstance(part, Mapping) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _warnings(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    constant_class = metrics.get("no_better_than")
    synthetic = _part(metrics, "data").get("synthetic") is True
    return tuple(
        text
        for text, applies in (
            ("A generator made these flows: the figures say nothing of real traffic.", synthetic),
            (f"No better than always saying {constant_class}.", bool(constant_class)),
        )
        if applies
    )


def _counts(matrix: object, many: int) -> list[list[int]] | None:
    """The confusion matrix of a file, if it is one."""
    if not isinstance(matrix, list) or len(matrix) != many:
        return None
    rows = [row for row in matrix if isinstance(row, list) and len(row) == many]
    if len(rows) < many or any(type(n) is not int for row in rows for n in row):
        return None
    return rows


def _confusion(counts: list[list[int]], classes: Sequence[str]) -> Confusion:
    cells = tuple(tuple(f"{n:,} ({n / max(sum(row), 1):.1%})" for n in row) for row in counts)
    return Confusion(tuple(classes), cells)


def _by_class(counts: list[list[int]], classes: Sequence[str]) -> TextTable:
    """One row per class, least recall first; no precision for a class that is never predicted."""
    predicted = [sum(column) for column in zip(*counts, strict=True)]
    figures_of = {
        name: {
            "rows": sum(row),
            "precision": row[i] / predicted[i] if predicted[i] else None,
            "recall": row[i] / sum(row) if sum(row) else None,
        }
        for i, (name, row) in enumerate(zip(classes, counts, strict=True))
    }
    least = dict(sorted(figures_of.items(), key=lambda item: item[1]["recall"] or 0.0))
    rows = tuple(tuple(row) for row in class_rows(least))
    return TextTable("Precision and recall of each class on the test rows", CLASS_HEAD, rows)


def _picture(path: Path) -> str:
    """A PNG file as a data URL; empty if it is not one."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_PICTURE + 1)
    except OSError:
        return ""
    if len(data) > _MAX_PICTURE or not data.startswith(_PNG):
        return ""
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"
