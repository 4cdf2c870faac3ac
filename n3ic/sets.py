"""Several models or several targets at once: exports and reports for a run as a whole."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from n3ic import plugins
from n3ic.errors import ExportError, N3icError, UsageError
from n3ic.export import Exporter, Member, OptionValue
from n3ic.exporting import Exported, export, exporter
from n3ic.files import write_atomic
from n3ic.model import BinaryModel
from n3ic.names import path_component
from n3ic.runs import METRICS, load_metrics, models_of, newest_run, use_case

SET_REPORT = "set.json"
SET_PAGE = "set.md"


@dataclass(frozen=True)
class Item:
    """One export of a plan: a model, a target, a folder."""

    model: BinaryModel
    task: str
    target: str
    out: Path
    options: Mapping[str, OptionValue]


@dataclass(frozen=True)
class Outcome:
    """What became of an item: an export, or the error that refused it."""

    item: Item
    exported: Exported | None
    error: N3icError | None

    def __str__(self) -> str:
        name = self.item.target + (f" {self.item.task}" if self.item.task else "")
        if self.exported is None:
            return f"{name}: refused: {self.error}"
        checked = self.exported.verification
        proof = "not verified" if checked is None else str(checked).partition(": ")[2]
        forced = "" if self.exported.fit.ok else " (does not fit, forced)"
        return f"{name}: {self.exported.path}{forced}: {proof}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        out: dict[str, Any] = {"target": self.item.target, "task": self.item.task}
        if self.exported is None:
            return out | {"error": str(self.error)}
        checked = self.exported.verification
        return out | {
            "path": str(self.exported.path),
            "fits": self.exported.fit.ok,
            "verified": None if checked is None else checked.ok,
            "figures": [asdict(f) for f in self.exported.report.figures],
        }


def open_models(
    path: str | Path | None,
) -> tuple[Path, dict[str, BinaryModel], dict[str, Any] | None]:
    """The models of a run, or a model file, with the run's metrics where there are any.

    Args:
        path: a run folder or a model file; the newest run where None.

    Raises:
        UsageError: there is no run.
        ModelError: a model is damaged.
    """
    source = newest_run() if path is None else Path(path)
    models = {task: BinaryModel.load(p) for task, p in models_of(source).items()}
    folder = source if source.is_dir() else source.parent
    metrics = load_metrics(folder) if (folder / METRICS).is_file() else None
    return source, models, metrics


def export_plan(
    source: Path,
    models: Mapping[str, BinaryModel],
    target: str,
    out: str | Path | None,
    options: Mapping[str, OptionValue],
) -> list[Item]:
    """What to export where: a folder a target, and a folder a model in it if they are several.

    Raises:
        UsageError: an unknown target, or an option that no target knows.
    """
    targets = plugins.names("n3ic.exporters") if target == "all" else (target,)
    known = {t: {o.name for o in exporter(t).options} for t in targets}
    for name in options:
        if not any(name in names for names in known.values()):
            if target == "all":
                raise UsageError(f"no target has an option --{name}; see n3ic targets NAME")
            exporter(target).parse_options(options)
    label = path_component(next(iter(models.values())).name if len(models) == 1 else source.name)
    if out is not None:
        root = Path(out)
    elif target == "all":
        root = Path("exports") / label
    else:
        root = Path("exports") / f"{label}-{target}"
    plan = []
    for t in targets:
        base = root / t if target == "all" else root
        own = {k: v for k, v in options.items() if k in known[t]}
        for task, model in models.items():
            folder = base / path_component(task) if len(models) > 1 else base
            plan.append(Item(model, task, t, folder, own))
    return plan


def export_item(
    item: Item,
    *,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    metrics: Mapping[str, Any] | None = None,
) -> Outcome:
    """Export one item; a refusal is kept, so that the others go on."""
    try:
        done = export(
            item.model,
            item.target,
            item.out,
            options=item.options,
            force=force,
            replace=replace,
            verify=verify,
            metrics=_metrics_of(metrics, item.task),
        )
    except (ExportError, UsageError) as error:
        return Outcome(item, None, error)
    return Outcome(item, done, None)


def _metrics_of(metrics: Mapping[str, Any] | None, task: str) -> Mapping[str, Any] | None:
    """The part of a run's metrics that is about one of its networks."""
    if metrics is None or not task:
        return metrics
    for value in metrics.values():
        if isinstance(value, dict) and isinstance(value.get(task), dict):
            own: dict[str, Any] = value[task]
            return {"data": metrics.get("data", {})} | own
    return metrics


def set_summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How several networks share each target's device.

    Returns:
        By target: ``networks``, ``refused`` (the reason and how many networks it refused), and
        what :class:`~n3ic.export.Together` says of the others, None where there are none.
    """
    out: dict[str, Any] = {}
    for name in dict.fromkeys(o.item.target for o in outcomes):
        target = exporter(name)
        of_target = [o for o in outcomes if o.item.target == name]
        members = [
            Member(
                o.item.model,
                target.parse_options(o.item.options),
                o.exported.fit,
                o.exported.report,
            )
            for o in of_target
            if o.exported is not None
        ]
        out[name] = {
            "networks": len(members),
            "refused": dict(Counter(str(o.error) for o in of_target if o.error is not None)),
            "together": _together(target, members) if members else None,
        }
    return out


def _together(target: Exporter, members: Sequence[Member]) -> dict[str, Any]:
    """What the target says of the set, and what it said of networks that were forced on it."""
    found = asdict(target.together(members))
    alone = [str(problem) for member in members for problem in member.fit.problems]
    return found | {"problems": [*dict.fromkeys(alone), *found["problems"]]}


def write_set_report(
    outcomes: Sequence[Outcome], metrics: Mapping[str, Any] | None = None
) -> Path | None:
    """Write the figures of a set of several networks beside its folders.

    Args:
        outcomes: what became of each export.
        metrics: of the run, whose use case may add tables of its own.

    Returns:
        The page for people, ``set.json`` beside it; None where each target got a single network.
    """
    done = [o for o in outcomes if o.exported is not None]
    if len({o.item.task for o in outcomes}) < 2 or not done:
        return None
    root = done[0].item.out.parent
    if len({o.item.target for o in outcomes}) > 1:
        root = root.parent
    summary = set_summary(outcomes)
    tables = _use_case_tables(summary, metrics)
    data = {"targets": summary, "tables": tables}
    write_atomic(root / SET_REPORT, json.dumps(data, indent=2, sort_keys=True) + "\n")
    write_atomic(root / SET_PAGE, set_markdown(summary, tables))
    return root / SET_PAGE


def _use_case_tables(
    summary: Mapping[str, Mapping[str, Any]], metrics: Mapping[str, Any] | None
) -> dict[str, list[dict[str, Any]]]:
    name = str((metrics or {}).get("use_case", ""))
    if name not in plugins.names("n3ic.usecases"):
        return {}
    tables = use_case(name).set_report(summary)
    return {title: [dict(row) for row in rows] for title, rows in tables.items()}


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
    for title, found in (
        ("Does not fit together", _too_much(summary)),
        ("Refused", _refused(summary)),
    ):
        if found:
            lines += ["", f"## {title}", "", *(f"- {line}" for line in found)]
    return "\n".join(lines) + "\n"


def _set_row(target: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    row = {"target": target, "networks": figures["networks"]}
    together = figures["together"]
    if together is None:
        return row | dict.fromkeys(("how they run", "they take", "latency", "fit together"))
    taken = [f"{name} {size:,} B" for name, size in together["memory"].items()]
    taken += [f"{name} {amount:,.0f}" for name, amount in together["resources"].items()]
    latency = together["latency_ns"]
    return row | {
        "how they run": together["way"],
        "they take": ", ".join(taken) or None,
        "latency": None
        if latency is None
        else f"{latency / 1000:,.2f} us ({together['latency_kind']})",
        "fit together": not together["problems"] if taken else None,
    }


def _too_much(summary: Mapping[str, Mapping[str, Any]]) -> list[str]:
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
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    return lines + [f"| {' | '.join(_cell(v) for v in row.values())} |" for row in rows]


def _cell(value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def report_all(
    models: Mapping[str, BinaryModel], metrics: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Figures of every target for a run's models, without keeping the exports."""
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="n3ic-report-") as folder:
        plan = export_plan(Path("run"), models, "all", folder, {})
        for item in plan:
            name = item.target + (f" {item.task}" if item.task else "")
            result = export_item(item, verify=False, metrics=metrics)
            if result.exported is None:
                out[name] = {"error": str(result.error)}
            else:
                out[name] = {
                    "figures": [asdict(f) for f in result.exported.report.figures],
                    "notes": list(result.exported.report.notes),
                }
    return out
