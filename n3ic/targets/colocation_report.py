# SPDX-License-Identifier: Apache-2.0
"""The report of several networks on one device, as data and as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from n3ic.targets.base import exporter
from n3ic.targets.batch import ExportOutcome
from n3ic.targets.colocation import CoLocatedNetwork
from n3ic.util.files import write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.markdown import escaped, table

Rows = Sequence[Mapping[str, Any]]
TablesOf = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Rows]]

SET_REPORT = "set.json"
SET_PAGE = "set.md"


def set_summary(outcomes: Sequence[ExportOutcome]) -> dict[str, Any]:
    """How several networks share each target's device.

    Returns:
        By target: ``networks``, ``refused`` (number of refused networks by reason), and the
        attributes of the others' :class:`~n3ic.targets.colocation.CoLocation`, None if there are
        no others.
    """
    out: dict[str, Any] = {}
    for name in dict.fromkeys(o.item.target for o in outcomes):
        of_target = [o for o in outcomes if o.item.target == name]
        members = [
            CoLocatedNetwork(
                o.exported.network.model,
                exporter(name)
                .for_family(o.exported.network.model.family)
                .parse_options(o.item.options),
                o.exported.fit,
                o.exported.report,
            )
            for o in of_target
            if o.exported is not None
        ]
        out[name] = {
            "networks": len(members),
            "refused": dict(Counter(str(o.error) for o in of_target if o.error is not None)),
            "together": _together(name, members) if members else None,
        }
    return out


def _together(target: str, members: Sequence[CoLocatedNetwork]) -> dict[str, Any]:
    """The target's co-location of the set, with problems of networks exported by force."""
    figures = asdict(exporter(target).for_family(members[0].model.family).colocate(members))
    alone = [str(problem) for member in members for problem in member.fit.problems]
    return figures | {"problems": [*dict.fromkeys(alone), *figures["problems"]]}


def write_set_report(
    outcomes: Sequence[ExportOutcome], tables_of: TablesOf | None = None
) -> Path | None:
    """Write the figures of a set of several networks beside its folders.

    Args:
        outcomes: the outcome of each export.
        tables_of: makes tables of the networks' use case from :func:`set_summary`'s figures.

    Returns:
        The Markdown page, with ``set.json`` beside it; None if each target has a single network.
    """
    exported = [o for o in outcomes if o.exported is not None]
    if len({o.item.task for o in outcomes}) < 2 or not exported:
        return None
    root = exported[0].item.out.parent
    if len({o.item.target for o in outcomes}) > 1:
        root = root.parent
    summary = set_summary(outcomes)
    extra_tables = tables_of(summary) if tables_of else {}
    tables = {title: [dict(row) for row in rows] for title, rows in extra_tables.items()}
    data = {"targets": summary, "tables": tables}
    write_atomic(root / SET_REPORT, json_text(data))
    write_atomic(root / SET_PAGE, set_markdown(summary, tables))
    return root / SET_PAGE


def set_markdown(
    summary: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> str:
    """The figures of a set of several networks as a Markdown page.

    Args:
        summary: by target, as :func:`set_summary` gives them.
        tables: rows of equal keys, by title.
    """
    lines = ["# Several networks on one device", ""]
    lines += _markdown_table([_set_row(target, s) for target, s in summary.items()])
    for title, rows in tables.items():
        lines += ["", f"## {title}", "", *_markdown_table(rows)]
    for title, lines_of in (
        ("Does not fit together", _over_budget(summary)),
        ("Refused", _refused(summary)),
    ):
        if lines_of:
            lines += ["", f"## {title}", "", *(f"- {escaped(line)}" for line in lines_of)]
    return "\n".join(lines) + "\n"


def _set_row(target: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    row = {"target": target, "networks": figures["networks"]}
    together = figures["together"]
    if together is None:
        return row | dict.fromkeys(("how they run", "they take", "latency", "fit together"))
    demand = [f"{name} {size:,} B" for name, size in together["memory"].items()]
    demand += [f"{name} {amount:,.0f}" for name, amount in together["resources"].items()]
    latency = together["latency_ns"]
    return row | {
        "how they run": together["way"],
        "they take": ", ".join(demand) or None,
        "latency": None
        if latency is None
        else f"{latency / 1000:,.2f} us ({together['latency_kind']})",
        "fit together": not together["problems"] if demand else None,
    }


def _over_budget(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{target}: {problem}"
        for target, s in summary.items()
        if s["together"]
        for problem in s["together"]["problems"]
    ]


def _refused(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{target}, {count} networks: {reason}"
        for target, s in summary.items()
        for reason, count in s["refused"].items()
    ]


def _markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return ["No figures."]
    return table(list(rows[0]), ([_cell(v) for v in row.values()] for row in rows), "l")


def _cell(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
