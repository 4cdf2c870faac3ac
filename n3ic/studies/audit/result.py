# SPDX-License-Identifier: Apache-2.0
"""What an audit found, as tables, conclusions, a picture and plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from n3ic.evaluation.study import StudyResult
from n3ic.runs.column_uses import ColumnUse, columns_table
from n3ic.studies.audit.ablation import Loss
from n3ic.studies.audit.finding import Finding, MarkFacts
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 24
_HEAD = (
    "column", "tells", "among", "by", "accuracy", "in groups", "chance", "tells the class", "leaks",
)  # fmt: skip
_LOST = ("without", "of", "rows", "accuracy", "points lost")
_RECORD = (
    "how", "mark", "value", "where", "rows", "share", "accuracy", "within", "chance", "label_class",
    "label_gap", "cut", "agree", "leaks",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class Audit(StudyResult):
    """What the audit of a table found.

    Attributes:
        name: the table.
        rows: number of rows that were read.
        synthetic: whether a generator made them.
        classes: class names.
        marks: the marks.
        columns: the audited columns.
        strata: parts of the rows, with their numbers.
        singles: the best finding for each column and mark, the most revealing first.
        pairs: pairs that reveal more than each of their columns, the most revealing first.
        paired: columns whose pairs were all tried.
        losses: accuracy lost without columns; see :mod:`n3ic.studies.audit.ablation`.
        uses: the columns that training leaves out or doubts by default, and why.
    """

    name: str
    rows: int
    synthetic: bool
    classes: tuple[str, ...]
    marks: tuple[MarkFacts, ...]
    columns: tuple[str, ...]
    strata: Mapping[str, int]
    singles: tuple[Finding, ...]
    pairs: tuple[Finding, ...]
    paired: tuple[str, ...]
    losses: tuple[Loss, ...] = ()
    uses: tuple[ColumnUse, ...] = ()

    @property
    def leaking(self) -> tuple[str, ...]:
        """Columns that raise the alarm by themselves, the most revealing first."""
        return tuple(dict.fromkeys(f.columns[0] for f in self.singles if f.leaks))

    @property
    def leaking_pairs(self) -> tuple[Finding, ...]:
        """Pairs that raise the alarm although neither column does."""
        return tuple(f for f in self.pairs if f.leaks)

    @property
    def suspects(self) -> tuple[str, ...]:
        """The leaking columns, and the columns of leaking pairs."""
        return tuple(
            dict.fromkeys([*self.leaking, *(c for f in self.leaking_pairs for c in f.columns)])
        )

    def best(self) -> tuple[Finding, ...]:
        """The strongest finding for each column: leaks first, then the most revealing."""
        strongest: dict[str, Finding] = {}
        for finding in sorted(self.singles, key=lambda f: (not f.leaks, -f.sure)):
            strongest.setdefault(finding.columns[0], finding)
        return tuple(strongest.values())

    @property
    def title(self) -> str:
        """The table."""
        return f"Leak audit of {self.name}"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """What training leaves out or doubts, marks, columns, pairs and losses."""
        uses = columns_table([asdict(use) for use in self.uses])
        known = () if uses is None else (uses,)
        if not self.marks:
            return known
        marks = tuple(
            (m.name, m.kind, ", ".join(m.values), percent((1 + m.label) / 2)) for m in self.marks
        )
        paired = f"pairs of {len(self.paired)} of {len(self.columns)} columns"
        further = (
            TextTable(paired, _HEAD, tuple(map(_cells, self.pairs[:_MOST])), left=4),
            TextTable("without", _LOST, tuple(map(_loss_cells, self.losses)), left=2),
        )
        return (
            *known,
            TextTable("marks", ("mark", "kind", "values", "class told"), marks, left=3),
            TextTable("columns", _HEAD, tuple(map(_cells, self.best()[:_MOST])), left=4),
            *(each for each in further if each.rows),
        )

    @property
    def conclusions(self) -> tuple[str, ...]:
        """What was audited and what leaks."""
        return tuple(_conclusions(self))

    def figure(self) -> Figure | None:
        """The most revealing columns by mark; None without marks."""
        from n3ic.studies.audit.picture import audit_figure

        if not self.marks:
            return None
        subject = f"{self.name}: {self.rows:,} rows"
        return audit_figure(subject, self.marks, self.best(), self.singles, self.losses)

    def records(self) -> list[dict[str, object]]:
        """Every finding, single columns before pairs."""
        return [
            {
                "columns": " ".join(finding.columns),
                **{key: getattr(finding, key) for key in _RECORD},
            }
            for finding in (*self.singles, *self.pairs)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            **asdict(self),
            "strata": dict(self.strata),
            "leaking": list(self.leaking),
            "leaking_pairs": [list(f.columns) for f in self.leaking_pairs],
        }


def _cells(finding: Finding) -> tuple[str, ...]:
    by = (
        finding.rule
        if finding.agree is None or finding.how != "cut"
        else f"{finding.rule}: {percent(finding.agree, 2)}"
    )
    return (
        " and ".join(finding.columns),
        f"{finding.mark} = {finding.value}",
        f"{finding.where} ({finding.rows:,})",
        by,
        percent(finding.accuracy),
        percent(finding.within) or "-",
        "" if finding.chance is None else f"{finding.chance:.2f}",
        f"{finding.label_class} {100 * finding.label_gap:.0f}",
        "yes" if finding.leaks else "",
    )


def _loss_cells(loss: Loss) -> tuple[str, ...]:
    lost = f"{100 * loss.lost:.2f} +- {100 * loss.error:.2f}"
    return ", ".join(loss.columns), loss.kind, f"{loss.rows:,}", percent(loss.before, 2), lost


def _conclusions(result: Audit) -> list[str]:
    """What was audited and what leaks, a line each."""
    kind = "synthetic rows" if result.synthetic else "rows"
    marks = ", ".join(mark.name for mark in result.marks)
    lines = []
    for use in ("left out", "in doubt"):
        names = [item.name for item in result.uses if item.use == use]
        lines += [f"{use} by training: {', '.join(names)}"] if names else []
    if not marks:
        return [f"{result.name}: {result.rows:,} {kind}, no marks that columns could tell", *lines]
    lines = [
        f"{result.name}: {result.rows:,} {kind}, {len(result.columns)} columns, marks {marks}",
        *lines,
    ]
    if len(result.paired) < len(result.columns):
        lines.append(
            f"pairs: those of {len(result.paired)} of {len(result.columns)} columns were tried"
        )
    if not result.leaking and not result.leaking_pairs:
        return [*lines, "no column and no pair leaks"]
    if result.leaking:
        lines.append(f"leaking: {', '.join(result.leaking)}")
    if result.leaking_pairs:
        pairs = ", ".join(" and ".join(f.columns) for f in result.leaking_pairs)
        lines.append(f"leaking together: {pairs}")
    every = [item for item in result.losses if {*item.columns} == {*result.suspects}]
    for item in every:
        free = "nothing beyond the error" if item.free else f"{100 * item.lost:.2f} points"
        lines.append(
            f"without {'it' if len(item.columns) == 1 else 'them'}, the {item.kind} lose {free}"
        )
    return lines
