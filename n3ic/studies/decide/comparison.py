# SPDX-License-Identifier: Apache-2.0
"""When to decide: accuracy as a function of the packet at which a flow is decided.

Captures are metered once for each N. The networks are trained on the same flows, with the same
split, recipe and seeds; only the packets that the meter saw of each flow differ. One more network
is trained on the decisions of a schedule of all N, and tested at each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.data.split import SplitProtocol, split
from n3ic.data.table import FlowTable
from n3ic.data.user_table import with_positive
from n3ic.errors import DataError, UsageError
from n3ic.evaluation.metrics import Evaluation, evaluate
from n3ic.evaluation.study import StudyResult, write_result
from n3ic.meter.extract import extract
from n3ic.meter.labels import Labels
from n3ic.meter.rows import FLOW_KEY
from n3ic.meter.table import LABEL, load_flows
from n3ic.model.meter_spec import Decision, MeterSpec
from n3ic.runs.experiment import TrainingResult, train
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.training.recipe import Recipe
from n3ic.util.display import TextTable
from n3ic.util.files import new_directory
from n3ic.util.markdown import percent
from n3ic.util.pictures import PALE, legend, look, new_figure, plain, styled

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure

FORMAT, VERSION = "n3ic-decision", 1
FIGURES, REPORT, PLOT = "decision.json", "decision.md", "decision.png"
AT_END = 0  # number of packets that means the flow's end
ALL = -1  # stands for the schedule of all numbers of packets
_KEY = (*FLOW_KEY, LABEL)
_HEAD = (
    "decided at packet", "flows that reach it", "median wait of these", "accuracy", "macro F1",
    "one network for all points: accuracy / F1",
)  # fmt: skip
_BASELINES = ("majority", "tree_depth_9", "float_mlp", "hist_gradient_boosting")


@dataclass(frozen=True, eq=False)
class DecisionRequest:
    """The arguments of :func:`compare_decisions`.

    Attributes:
        captures: pcap and pcapng files, and folders of them.
        labels: labels of the flows.
        spec: the meter; ``packets`` replaces its decision.
        packets: the numbers of packets to compare; :data:`AT_END` stands for the flow's end.
        recipe: how each network is trained.
        out: the folder to write.
        positive: a class to tell from all others; empty to tell all classes apart.
        least: classes with fewer flows are left out.
        protocol: how the flows are split.
        seed: the first seed, of the split, the input bits and the training.
        seeds: number of seeds.
        replace: whether an earlier folder of the same kind may be replaced.
        jobs: number of captures metered at once; None for all cores.
    """

    captures: Sequence[str | Path]
    labels: Labels
    spec: MeterSpec
    packets: tuple[int, ...]
    recipe: Recipe
    out: Path
    positive: str = ""
    least: int = 50
    protocol: SplitProtocol = "random"
    seed: int = 0
    seeds: int = 1
    replace: bool = False
    jobs: int | None = None

    def __post_init__(self) -> None:
        if not self.packets or min(self.packets) < 0 or len({*self.packets}) < len(self.packets):
            raise UsageError(f"expected distinct numbers of packets from 1, got {self.packets}")
        if self.seeds < 1 or self.least < 1:
            raise UsageError("expected at least one seed, and classes of at least one flow")
        self.decision(ALL)  # checks the numbers

    def decision(self, n: int) -> Decision:
        """Return when a flow is decided: at packet ``n``; for :data:`ALL`, at each and the end."""
        early = tuple(sorted({*self.packets} - {AT_END})) if n == ALL else ()
        return replace(self.spec.decision, packets=max(n, 0), schedule=early)


@dataclass(frozen=True)
class DecisionPoint:
    """Figures of the networks that decide at one packet.

    Attributes:
        packets: the packet; :data:`AT_END` for the flow's end.
        reached: share of flows that have that packet; the others were decided at their end.
        wait_us: median time from the first packet of those flows to their decision.
        test: figures of each seed's network on its test flows.
        baselines: figures of each baseline by name, one for each seed.
        one: figures of each seed's network for all points; empty if no point is early.
    """

    packets: int
    reached: float
    wait_us: float
    test: tuple[Evaluation, ...]
    baselines: Mapping[str, tuple[Evaluation, ...]]
    one: tuple[Evaluation, ...] = ()

    @property
    def name(self) -> str:
        """The packet, or the end."""
        return str(self.packets) if self.packets != AT_END else "end"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "packets": self.packets,
            "reached": self.reached,
            "wait_us": self.wait_us,
            "test": [e.to_dict() for e in self.test],
            "one": [e.to_dict() for e in self.one],
            "baselines": {
                name: [e.to_dict() for e in figures] for name, figures in self.baselines.items()
            },
        }


@dataclass(frozen=True, eq=False, repr=False)
class Decisions(StudyResult):
    """Results of a comparison.

    Attributes:
        points: points in the order of their packets, the end last.
        classes: class names.
        flows: number of flows of each network, over training, validation and test.
        left_out: number of flows that are in no table, by reason.
        request: what was compared; its folder has a model of the first seed for each point.
        synthetic: whether a generator made the flows.
    """

    points: tuple[DecisionPoint, ...]
    classes: tuple[str, ...]
    flows: int
    left_out: Mapping[str, int]
    request: DecisionRequest
    synthetic: bool = False

    @property
    def path(self) -> Path:
        """The folder."""
        return self.request.out

    @property
    def subject(self) -> str:
        """The numbers of flows and classes in words."""
        kind = "synthetic flows" if self.synthetic else "flows"
        return f"{self.flows:,} {kind} of {len(self.classes)} classes"

    @property
    def title(self) -> str:
        """What was compared, on which flows."""
        return f"Accuracy by the packet at which a flow is decided: {self.subject}"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """One row per point: means over the seeds, with deviations for the networks."""
        rows = tuple(
            (
                point.name,
                percent(point.reached),
                _time(point.wait_us),
                _spread([e.accuracy for e in point.test]),
                _spread([e.macro_f1 for e in point.test]),
                _accuracy_and_f1(point.one),
                *(_accuracy_and_f1(point.baselines.get(name, ())) for name in _BASELINES),
            )
            for point in self.points
        )
        head = (*_HEAD, *(f"{name.replace('_', ' ')}: accuracy / F1" for name in _BASELINES))
        return (TextTable(f"{self.subject}, {self.request.protocol} split", head, rows, left=0),)

    @property
    def conclusions(self) -> tuple[str, ...]:
        """What the rows share, and the flows that are left out."""
        request = self.request
        return (
            f"the same flows for every line, recipe {request.recipe.name}, means over "
            f"{request.seeds} seeds",
            *(f"left out: {count:,} flows: {reason}" for reason, count in self.left_out.items()),
        )

    def figure(self) -> Figure:
        """Accuracy on the test flows over the packet at which a flow is decided."""
        return decision_figure(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        request = self.request
        return {
            "format": FORMAT,
            "version": VERSION,
            "flows": self.flows,
            "synthetic": self.synthetic,
            "classes": list(self.classes),
            "left_out": dict(self.left_out),
            "recipe": request.recipe.to_dict(),
            "protocol": request.protocol,
            "seeds": list(range(request.seed, request.seed + request.seeds)),
            "points": [point.to_dict() for point in self.points],
        }


def compare_decisions(
    request: DecisionRequest, progress: TrainingProgress | None = None
) -> Decisions:
    """Meter, train and evaluate for each number of packets, and write the results atomically.

    Args:
        request: captures, labels, packets and recipe.
        progress: receives progress messages.

    Raises:
        DataError: a capture cannot be read, or too few flows are labelled.
        UsageError: the recipe does not fit, or ``request.out`` exists.
        MissingDependencyError: libpcap, a C compiler or a training library is missing.
    """
    progress = progress or TrainingProgress()
    written = [FIGURES, REPORT, PLOT, *map(_model_name, (*request.packets, ALL))]
    with new_directory(request.out, replace=request.replace, written=written) as directory:
        with tempfile.TemporaryDirectory(prefix="n3ic-decision-") as scratch:
            tables, left_out = _metered(request, Path(scratch), progress)
            seeds = range(request.seed, request.seed + request.seeds)
            points: list[DecisionPoint] = []
            for n, (table, reached, wait) in tables.items():
                own = (table, request.recipe, request.protocol)
                experiment = Experiment(*own, name="decision", with_baselines=n != ALL)
                results = [train(replace(experiment, seed=seed), progress) for seed in seeds]
                results[0].model.save(directory / _model_name(n))
                if n == ALL:  # the last one
                    points = [_with_one(request, point, table, results) for point in points]
                    continue
                test, names = tuple(r.test for r in results), results[0].baselines
                baselines = {name: tuple(r.baselines[name] for r in results) for name in names}
                points.append(DecisionPoint(n, reached, wait, test, baselines))
        first = next(iter(tables.values()))[0]
        decisions = Decisions(
            tuple(points), first.classes, len(first), left_out, request, first.synthetic
        )
        write_result(decisions, directory / FIGURES)
        write_result(decisions, directory / REPORT, directory / PLOT)
    return decisions


def _metered(
    request: DecisionRequest, scratch: Path, progress: TrainingProgress
) -> tuple[dict[int, tuple[FlowTable, float, float]], dict[str, int]]:
    """Return a table of the same flows in the same order for each N, and the number of others.

    Returns:
        For each N the table, the share of flows that reach packet N, and their median wait in
        microseconds. Then the number of flows left out, by reason.
    """
    import pyarrow.parquet as pq

    read: dict[int, pa.Table] = {}
    packet_counts = sorted(request.packets, key=lambda n: (n == AT_END, n))
    if request.decision(ALL).schedule:
        packet_counts.append(ALL)
    for n in packet_counts:
        where = {AT_END: "its end", ALL: "each of them"}
        progress.stage(f"metering, decided at {where.get(n, f'packet {n}')}")
        spec = replace(request.spec, decision=request.decision(n))
        path = scratch / f"{n}.parquet"
        extract(request.captures, path, spec, labels=request.labels, jobs=request.jobs)
        read[n] = pq.read_table(path)
    shared, left_out = _same_flows(read, request.least)
    out = {}
    for n, table in shared.items():
        path = scratch / f"{n}.parquet"
        pq.write_table(table, path)
        flows = with_positive(load_flows(path), request.positive)
        reach = table["packets"].to_numpy() >= n
        waits = (table["last_us"].to_numpy() - table["first_us"].to_numpy())[reach]
        out[n] = (flows, float(reach.mean()), float(np.median(waits)) if len(waits) else 0.0)
    return out, left_out


def _same_flows(
    tables: Mapping[int, pa.Table], least: int
) -> tuple[dict[int, pa.Table], dict[str, int]]:
    """Return the labelled flows that are in every table, in one order, and why others are left out.

    Raises:
        DataError: fewer than two classes remain.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    first = next(iter(tables.values()))
    labelled = first.filter(pc.not_equal(first[LABEL].fill_null(""), ""))
    counts = labelled.group_by(list(_KEY)).aggregate([([], "count_all")])
    keys = counts.filter(pc.equal(counts["count_all"], 1)).select(list(_KEY))
    once = len(keys)
    for table in tables.values():
        keys = keys.join(table.select(list(_KEY)), list(_KEY), join_type="left semi")
    common = len(keys)
    sizes = keys.group_by(LABEL).aggregate([([], "count_all")])
    classes = sizes.filter(pc.greater_equal(sizes["count_all"], least))[LABEL]
    keys = keys.filter(pc.is_in(keys[LABEL], classes.combine_chunks()))
    if len(classes) < 2:
        raise DataError(
            f"{len(classes)} classes with {least} flows or more among {common:,} labelled flows, "
            "two or more expected; name other labels, or a smaller --least"
        )
    left_out = {
        "no label": len(first) - len(labelled),
        "the same key and time as another": len(labelled) - once,
        "another flow or label at another packet": once - common,
        f"a class of fewer than {least}": common - len(keys),
    }
    number = keys.sort_by([(name, "ascending") for name in _KEY])
    number = number.append_column("n3ic_row", pa.array(np.arange(len(number))))
    tables_of = {}
    for n, table in tables.items():
        order = [(x, "ascending") for x in ("n3ic_row", *("packets", "decided")[: 2 * (n == ALL)])]
        joined = table.join(number, list(_KEY), join_type="inner").sort_by(order)
        tables_of[n] = joined.drop_columns("n3ic_row").replace_schema_metadata(
            table.schema.metadata
        )
    return tables_of, {reason: count for reason, count in left_out.items() if count}


def _with_one(
    request: DecisionRequest,
    point: DecisionPoint,
    table: FlowTable,
    results: Sequence[TrainingResult],
) -> DecisionPoint:
    """Return the point with the figures of the networks for all points.

    Every test flow counts; one that does not reach the point counts with the decision at its end.
    """
    figures = []
    for seed, result in enumerate(results, request.seed):
        test = table.rows(split(table, request.protocol, seed).test)
        assert test.flow is not None and test.point is not None  # noqa: S101 - it has a schedule
        at_point = test.point == point.packets
        at_point |= (test.point == AT_END) & ~np.isin(test.flow, test.flow[at_point])
        scores = result.test_scores["model"][at_point]
        classes = scores.argmax(axis=1).astype(np.int64)
        figures.append(evaluate(test.label[at_point], classes, scores, len(table.classes)))
    return replace(point, one=tuple(figures))


def _model_name(packets: int) -> str:
    names = {AT_END: "packet-end.n3ic", ALL: "packets-all.n3ic"}
    return names.get(packets, f"packet-{packets}.n3ic")


@styled
def decision_figure(decisions: Decisions) -> Figure:
    """Accuracy on the test flows over the packet at which a flow is decided."""
    figure, axes = new_figure(7.0, 5.4)
    places = np.arange(len(decisions.points))
    curves: list[tuple[str, Callable[[DecisionPoint], Sequence[Evaluation]]]] = [
        ("binary network", lambda point: point.test),
        ("one network for all points", lambda point: point.one),
        *((b.replace("_", " "), lambda p, b=b: p.baselines.get(b, ())) for b in _BASELINES),
    ]
    for i, (name, of) in enumerate(curves):
        accuracy = [np.array([e.accuracy for e in of(point)]) for point in decisions.points]
        if not all(len(a) for a in accuracy):
            continue
        mean, deviation = ([100 * float(f(a)) for a in accuracy] for f in (np.mean, np.std))
        width = 1.5 if i else 2.8
        axes.errorbar(
            places, mean, deviation, label=name, capsize=3, linewidth=width, **look(i).curve
        )
    axes.set_xticks(places, [point.name for point in decisions.points])
    axes.set_xlabel("packet at which a flow is decided")
    axes.set_ylabel("accuracy on test flows, %")
    axes.grid(color=PALE)
    axes.set_title(plain(decisions.subject, 60))
    legend(figure)
    return figure


def _spread(values: Sequence[float]) -> str:
    mean, deviation = 100 * np.mean(values), 100 * np.std(values)
    return f"{mean:.1f} +- {deviation:.1f} %" if len(values) > 1 else f"{mean:.1f} %"


def _accuracy_and_f1(figures: Sequence[Evaluation]) -> str:
    if not figures:
        return ""
    means = (np.mean([getattr(e, key) for e in figures]) for key in ("accuracy", "macro_f1"))
    return " / ".join(f"{100 * mean:.1f}" for mean in means)


def _time(us: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.2f} {unit}"
    return f"{us:.0f} us"
