# SPDX-License-Identifier: Apache-2.0
"""The tables of an audit, for the terminal, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict

from n3ic.runs.column_uses import columns_table
from n3ic.studies.audit.ablation import Loss
from n3ic.studies.audit.audit import Audit, Finding
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent
from n3ic.util.markdown import table as markdown_table

_MOST = 24
_CSV = (
    "columns", "how", "mark", "value", "where", "rows", "share", "told", "within", "chance",
    "label_class", "label_gap", "cut", "agree", "leaks",
)  # fmt: skip


def tables(found: Audit) -> tuple[TextTable, ...]:
    """Return the tables of what training leaves out or doubts, marks, columns, pairs and losses."""
    uses = columns_table([asdict(one) for one in found.uses])
    marks = [(m.name, m.kind, ", ".join(m.values), percent((1 + m.label) / 2)) for m in found.marks]
    head = (
        "column",
        "tells",
        "among",
        "by",
        "told",
        "in groups",
        "chance",
        "tells the class",
        "leaks",
    )
    best = [_row(one) for one in found.best()[:_MOST]]
    pairs = [_row(one) for one in found.pairs[:_MOST]]
    lost = [_lost(one) for one in found.losses]
    paired = f"pairs of {len(found.paired)} of {len(found.columns)} columns"
    known = () if uses is None else (uses,)
    if not found.marks:
        return known
    return (
        *known,
        TextTable("marks", ("mark", "kind", "values", "class told"), tuple(marks), left=3),
        TextTable("columns", head, tuple(best), left=4),
        *([TextTable(paired, head, tuple(pairs), left=4)] if pairs else []),
        *(
            [
                TextTable(
                    "without",
                    ("without", "of", "rows", "accuracy", "points lost"),
                    tuple(lost),
                    left=2,
                )
            ]
            if lost
            else []
        ),
    )


def _row(one: Finding) -> tuple[str, ...]:
    by = (
        one.rule
        if one.agree is None or one.how != "cut"
        else f"{one.rule}: {percent(one.agree, 2)}"
    )
    return (
        " and ".join(one.columns),
        f"{one.mark} = {one.value}",
        f"{one.where} ({one.rows:,})",
        by,
        percent(one.told),
        percent(one.within) or "-",
        "" if one.chance is None else f"{one.chance:.2f}",
        f"{one.label_class} {100 * one.label_gap:.0f}",
        "yes" if one.leaks else "",
    )


def _lost(one: Loss) -> tuple[str, ...]:
    lost = f"{100 * one.lost:.2f} +- {100 * one.error:.2f}"
    return ", ".join(one.columns), one.kind, f"{one.rows:,}", percent(one.before, 2), lost


def verdict(found: Audit) -> list[str]:
    """Return the conclusions of the audit, one line each."""
    kind = "synthetic rows" if found.synthetic else "rows"
    marks = ", ".join(mark.name for mark in found.marks)
    lines = []
    for use in ("left out", "in doubt"):
        names = [one.name for one in found.uses if one.use == use]
        lines += [f"{use} by training: {', '.join(names)}"] if names else []
    if not marks:
        return [f"{found.name}: {found.rows:,} {kind}, no marks that columns could tell", *lines]
    lines = [
        f"{found.name}: {found.rows:,} {kind}, {len(found.columns)} columns, marks {marks}",
        *lines,
    ]
    if len(found.paired) < len(found.columns):
        lines.append(
            f"pairs: those of {len(found.paired)} of {len(found.columns)} columns were tried"
        )
    if not found.leaking and not found.leaking_pairs:
        return [*lines, "no column and no pair leaks"]
    if found.leaking:
        lines.append(f"leaking: {', '.join(found.leaking)}")
    if found.leaking_pairs:
        pairs = ", ".join(" and ".join(f.columns) for f in found.leaking_pairs)
        lines.append(f"leaking together: {pairs}")
    every = [one for one in found.losses if {*one.columns} == {*found.suspects}]
    for one in every:
        free = "nothing beyond the error" if one.free else f"{100 * one.lost:.2f} points"
        lines.append(
            f"without {'it' if len(one.columns) == 1 else 'them'}, the {one.kind} lose {free}"
        )
    return lines


def markdown(found: Audit, picture: str = "") -> str:
    """Format the audit as a Markdown page.

    Args:
        found: the audit.
        picture: file name of the picture beside the page; empty for none.
    """
    lines = [f"# Leak audit of {found.name}", "", *(f"- {line}" for line in verdict(found)), ""]
    for one in tables(found):
        sides = "l" * one.left + "r"
        lines += [f"## {one.title[:1].upper()}{one.title[1:]}", ""]
        lines += [*markdown_table(one.head, one.rows, sides), ""]
    if picture:
        lines += [f"![which column tells which mark]({picture})", ""]
    return "\n".join(lines)


def csv_text(found: Audit) -> str:
    """Format every finding as a line of CSV, single columns before pairs."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV)
    findings: Sequence[Finding] = (*found.singles, *found.pairs)
    for one in findings:
        writer.writerow([" ".join(one.columns), *(getattr(one, key) for key in _CSV[1:])])
    return stream.getvalue()
