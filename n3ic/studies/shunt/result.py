# SPDX-License-Identifier: Apache-2.0
"""The results of a study of shunting for one network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from n3ic.data.split import SplitProtocol
from n3ic.errors import UsageError
from n3ic.evaluation.metrics import Evaluation
from n3ic.evaluation.study import StudyResult
from n3ic.model.classifier import Classifier
from n3ic.studies.shunt.guarantee import ClaimRow, KindRow, at_least
from n3ic.studies.shunt.left_out import LeftOutKind
from n3ic.studies.shunt.points import ShuntPoint
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 24  # thresholds in a table; the CSV and the JSON have all
POINT_COLUMNS = (
    *("threshold", "validated: on card", "right at least", "test: on card", "accuracy"),
    *("deduplicated", "host, on the rest", "end to end", "deduplicated"),
)
_BRIEF = (0, 1, 2, 3, 4, 6, 7)  # columns shown for several networks
_STAGES = {
    "card": "card alone",
    "host": "boosted trees alone",
    "decided": "decided on the card",
    "shunted_card": "shunted, had the card decided",
    "shunted_host": "shunted, by boosted trees",
    "end_to_end": "end to end",
}


@dataclass(frozen=True)
class ThresholdObjective:
    """The aim that a threshold must meet; at most one of the first three attributes is given.

    Attributes:
        accuracy: least accuracy on the flows that the card decides.
        host_load: largest share of the flows sent to the host.
        margin: the threshold itself.
        confidence: probability that the accuracy, the load or the share of kinds is kept; see
            :mod:`n3ic.studies.shunt.guarantee`.
        left_out: largest share of kinds that the network has not seen and that it would block.
        times: how many flows of the positive class block a host.

    Raises:
        UsageError: several are given, a share is not in 0..1, or the confidence not in 0.5..1.
    """

    accuracy: float | None = None
    host_load: float | None = None
    margin: int | None = None
    confidence: float = 0.95
    left_out: float | None = None
    times: int = 1

    def __post_init__(self) -> None:
        given = (self.accuracy, self.host_load, self.margin, self.left_out)
        if sum(value is not None for value in given) > 1:
            raise UsageError(
                "give an accuracy, a host load, a margin or a share of left-out kinds, but only "
                "one of them"
            )
        if self.times < 1:
            raise UsageError(f"a host is blocked after 1 flow or more, not {self.times}")
        shares = {"accuracy": self.accuracy, "host load": self.host_load}
        for name, value in (shares | {"share of left-out kinds": self.left_out}).items():
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"the {name} must be a share from 0 to 1, not {value}")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(f"the confidence must be from 0.5 to below 1, not {self.confidence}")

    def __str__(self) -> str:
        sure = f"with {percent(self.confidence)} confidence"
        if self.accuracy is not None:
            return f"an accuracy of {percent(self.accuracy)} at least on the card, {sure}"
        if self.host_load is not None:
            return f"a host load of {percent(self.host_load)} at most, {sure}"
        if self.left_out is not None:
            return f"{percent(self.left_out)} at most of left-out kinds blocked, {sure}"
        return "" if self.margin is None else f"a margin of {self.margin}"


@dataclass(frozen=True, eq=False, repr=False)
class ShuntStudy(StudyResult):
    """Results of shunting for one network.

    Attributes:
        model: the network, with the chosen threshold if there is one.
        aim: the aim of the threshold; the margin itself if it is the model's own.
        protocol: how the rows were split.
        seed: seed of the split and of the second stage.
        trained_rows: whether the split is that of the network's training. If not, the network has
            seen none of the rows; the second stage has seen its training rows.
        host_features: features of the second stage.
        rows: number of training, validation and test rows.
        validation: points on the validation rows, by threshold.
        test: points on the test rows, of the same thresholds.
        chosen: the chosen threshold; None without an aim and without a threshold of the model.
        figures: figures of the stages on the test rows at that threshold; see
            :func:`~n3ic.studies.shunt.points.stage_figures`.
        claims: the card's decisions at that threshold, on the rows that chose it and on others.
        kinds: the card's verdicts on test rows at that threshold, by class and category.
        left_out: kinds that networks trained without them judged, if they chose the threshold.
    """

    model: Classifier
    aim: ThresholdObjective
    protocol: SplitProtocol
    seed: int
    trained_rows: bool
    host_features: tuple[str, ...]
    rows: Mapping[str, int]
    validation: tuple[ShuntPoint, ...]
    test: tuple[ShuntPoint, ...]
    chosen: int | None
    figures: Mapping[str, Evaluation]
    claims: tuple[ClaimRow, ...] = ()
    kinds: tuple[KindRow, ...] = ()
    left_out: tuple[LeftOutKind, ...] = ()

    @property
    def title(self) -> str:
        """The network, its threshold and what the threshold does on test rows."""
        point = next((p for p in self.test if p.threshold == self.chosen), None)
        if point is None:
            return f"{self.model.name}: no threshold chosen"
        return (
            f"{self.model.name}: threshold {point.threshold}: {percent(point.share)} of "
            f"{self.rows['test']:,} test rows decided on the card, end to end "
            f"{percent(point.end_to_end)} right"
        )

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """The thresholds, and the results of the chosen one if there is one."""
        return _tables(self)

    def figure(self, source: str = "") -> Figure:
        """Accuracy on test rows over the share that the card decides.

        Args:
            source: the run or model file in words; empty for the network's name.
        """
        from n3ic.studies.shunt.picture import shunting_figure

        rows = f"{source or self.model.name}, {self.rows['test']:,} test rows"
        return shunting_figure(self.test, rows, self.chosen)

    def records(self) -> list[dict[str, object]]:
        """Every threshold on validation rows, then on test rows."""
        parts = (("validation", self.validation), ("test", self.test))
        return [{"rows": rows, **asdict(point)} for rows, points in parts for point in points]

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
            "validation": [asdict(p) for p in self.validation],
            "test": [asdict(p) for p in self.test],
            "threshold": self.chosen,
            "confidence": self.aim.confidence,
            "claims": [row.to_dict() for row in self.claims],
            "kinds": [row.to_dict() for row in self.kinds],
            "left_out": [kind.to_dict() for kind in self.left_out],
            "figures": {name: e.to_dict() for name, e in self.figures.items()},
        }


@dataclass(frozen=True, eq=False, repr=False)
class ShuntStudies(StudyResult):
    """Results of shunting for each network of a run.

    Attributes:
        source: the run or model file in words.
        studies: studies by network; a single one has the empty name.
    """

    source: str
    studies: Mapping[str, ShuntStudy]

    @property
    def title(self) -> str:
        """The run or model file."""
        return f"Shunting of {self.source}"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """Tables of a single network; a row for each of several with thresholds."""
        studies = self.studies
        if len(studies) > 1 and all(study.chosen is not None for study in studies.values()):
            return (_overview(self.source, studies),)
        out = []
        for name, study in studies.items():
            first, *further = study.tables
            where = f"{self.source}{f' ({name})' if name else ''}"
            out += [replace(first, title=f"{where}: {first.title}"), *further]
        return tuple(out)

    def figure(self) -> Figure | None:
        """The picture of a single network; None for several."""
        if len(self.studies) > 1:
            return None
        return next(iter(self.studies.values())).figure(self.source)

    def records(self) -> list[dict[str, object]]:
        """Every threshold of every network."""
        return [
            {"network": name, **record}
            for name, study in self.studies.items()
            for record in study.records()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, by network."""
        return {name: study.to_dict() for name, study in self.studies.items()}


def _overview(source: str, studies: Mapping[str, ShuntStudy]) -> TextTable:
    """A row for each network, at its chosen threshold."""
    rows = []
    for name, study in studies.items():
        pairs = zip(study.validation, study.test, strict=True)
        (pair,) = (pair for pair in pairs if pair[0].threshold == study.chosen)
        alone = (percent(study.figures[stage].accuracy) for stage in ("card", "host"))
        cells = point_cells(*pair, study.aim.confidence, chosen=False)
        rows.append((name, *(cells[i] for i in _BRIEF), *alone))
    aim = next(iter(studies.values())).aim
    head = ("network", *(POINT_COLUMNS[i] for i in _BRIEF), "card alone", "trees alone")
    return TextTable(f"{source}: for {aim}", head, tuple(rows))


def _tables(study: ShuntStudy) -> tuple[TextTable, ...]:
    """The thresholds of a network, and the results of the chosen one if there is one."""
    rows = study.rows
    origin = "the split of its training" if study.trained_rows else "rows it was not trained on"
    title = (
        f"{study.protocol} split, {rows['validation']:,} validation rows and "
        f"{rows['test']:,} test rows ({origin})"
    )
    pairs = list(zip(study.validation, study.test, strict=True))
    cells = tuple(
        point_cells(*pair, study.aim.confidence, chosen=pair[0].threshold == study.chosen)
        for pair in _thinned(pairs, study.chosen)
    )
    points = TextTable(title, POINT_COLUMNS, cells)
    if study.chosen is None:
        return (points,)
    stages = tuple(
        (
            _STAGES[name],
            f"{e.rows:,}",
            percent(e.rows / rows["test"]),
            percent(e.accuracy),
            percent(e.accuracy_unseen),
            percent(e.macro_f1),
        )
        for name, e in study.figures.items()
    )
    head = ("", "rows", "share", "accuracy", "deduplicated", "macro F1")
    decided = TextTable(f"threshold {study.chosen}, for {study.aim}; test rows", head, stages)
    return points, *_claims(study.claims), *_kinds(study.kinds), *_left_out(study), decided


def _kinds(kinds: Sequence[KindRow]) -> tuple[TextTable, ...]:
    rows = [
        (
            row.name,
            row.kind,
            f"{row.flows:,}",
            *(f"{n:,}" for n in (row.right, row.wrong, row.shunted)),
            percent(row.right / row.flows),
        )
        for row in kinds[:_SHOWN]
    ]
    if left := kinds[_SHOWN:]:
        rows.append((f"{len(left)} other kinds", "", f"{sum(r.flows for r in left):,}", *[""] * 4))
    head = ("class", "kind", "flows", "right", "wrong", "shunted", "right, share")
    title = "test rows by kind, the least caught first"
    return (TextTable(title, head, tuple(rows), left=2),) if rows else ()


def _left_out(study: ShuntStudy) -> tuple[TextTable, ...]:
    kinds, threshold = study.left_out, study.chosen or 0
    rows = tuple(
        (
            kind.kind,
            f"{kind.flows:,}",
            f"{kind.called:,}",
            "-" if kind.blocked_to < 0 else str(kind.blocked_to),
            "blocked" if kind.blocked_to >= threshold else "",
        )
        for kind in kinds
    )
    head = ("kind", "flows", "called", "blocked up to", f"at {threshold}")
    title = (
        f"kinds judged by networks that were trained without them; {study.aim.times} flows block"
    )
    return (TextTable(title, head, rows),) if rows else ()


def _claims(claims: Sequence[ClaimRow]) -> tuple[TextTable, ...]:
    rows = tuple(
        (
            claim.rows,
            f"{claim.flows:,}",
            percent(claim.decided / claim.flows if claim.flows else None),
            percent(claim.right / claim.decided if claim.decided else None),
            " to ".join(map(percent, claim.interval)),
        )
        for claim in claims
    )
    head = ("rows", "flows", "on card", "right", "95 % interval")
    return (TextTable("what the card decides", head, rows),) if rows else ()


def point_cells(
    validation: ShuntPoint, test: ShuntPoint, confidence: float, *, chosen: bool
) -> tuple[str, ...]:
    """Format a row of :data:`POINT_COLUMNS`; the chosen threshold has a star.

    The column ``right at least`` is the one-sided bound for this threshold alone, on validation
    rows without a duplicate among the training rows.
    """
    rows = validation.decided_unseen
    right = round((validation.accuracy_unseen or 0.0) * rows)
    return (
        f"{'* ' if chosen else ''}{test.threshold}",
        percent(validation.share),
        percent(float(at_least(right, rows, confidence)) if rows else None),
        percent(test.share),
        percent(test.accuracy),
        percent(test.accuracy_unseen),
        percent(test.shunted_accuracy),
        percent(test.end_to_end),
        percent(test.end_to_end_unseen),
    )


def _thinned(
    pairs: Sequence[tuple[ShuntPoint, ShuntPoint]], chosen: int | None
) -> list[tuple[ShuntPoint, ShuntPoint]]:
    """Keep about as many points as fit on a screen, always including the chosen one."""
    step = -(-len(pairs) // _SHOWN)
    return [
        pair
        for i, pair in enumerate(pairs)
        if i % step == 0 or i == len(pairs) - 1 or pair[0].threshold == chosen
    ]
