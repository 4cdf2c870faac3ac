# SPDX-License-Identifier: Apache-2.0
"""Several models or several targets at once: exports and reports for a run as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from n3ic import plugins
from n3ic.errors import ExportError, MissingDependencyError, ModelError, N3icError, UsageError
from n3ic.model.classifier import Classifier
from n3ic.model.layered import in_layers
from n3ic.options import OptionValue
from n3ic.targets.base import exporter
from n3ic.targets.directory import Exported, export
from n3ic.targets.export_index import find_export
from n3ic.targets.manifest import read_manifest
from n3ic.targets.report import exported_as
from n3ic.util import signals
from n3ic.util.names import path_component

REFUSALS = (ExportError, MissingDependencyError, ModelError, UsageError)


@dataclass(frozen=True)
class ExportItem:
    """One export of a plan: a model, a target, a folder."""

    model: Classifier
    task: str
    target: str
    out: Path
    options: Mapping[str, OptionValue]


@dataclass(frozen=True)
class ExportOutcome:
    """Result of an export item: an export, or the error that prevented it.

    Attributes:
        item: the item of the plan.
        exported: the export; None if the target has none.
        error: the reason for a missing export: one of ``REFUSALS``, or a failure.
        permanent: whether the directory still exists.
    """

    item: ExportItem
    exported: Exported | None
    error: Exception | None
    permanent: bool = True

    @property
    def name(self) -> str:
        """The target and, in a set, the network."""
        return self.item.target + (f" {self.item.task}" if self.item.task else "")

    @property
    def reason(self) -> str:
        """Why there is no export, in words; empty if there is one."""
        if self.error is None:
            return ""
        if isinstance(self.error, MissingDependencyError):
            return f"not exported: {self.error}"
        if isinstance(self.error, REFUSALS):
            return f"refused: {self.error}"
        if isinstance(self.error, N3icError):
            return f"failed: {self.error}"
        return f"failed: {type(self.error).__name__}: {self.error}"

    @property
    def equality(self) -> str:
        """The outcome of the verification in words."""
        checked = None if self.exported is None else self.exported.verification
        return "not verified" if checked is None else str(checked).partition(": ")[2]

    def __str__(self) -> str:
        name, proof = self.name, self.equality
        if self.exported is None:
            return f"{name}: {self.reason}"
        forced = "" if self.exported.fit.ok else " (does not fit, forced)"
        network = self.exported.network
        removed = f" as {network.model.shape_text}" if network.differs else ""
        return f"{name}: {self.exported.path}{removed}{forced}: {proof}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        out: dict[str, Any] = {"target": self.item.target, "task": self.item.task}
        if self.exported is None:
            return out | {"error": str(self.error)}
        checked = self.exported.verification
        return out | {
            "path": str(self.exported.path),
            "fits": self.exported.fit.ok,
            "exported": exported_as(self.exported.network),
            "verified": None if checked is None else checked.ok,
            "figures": [asdict(f) for f in self.exported.report.figures],
        }

    def details(self) -> dict[str, Any]:
        """All facts about the export, as plain data for JSON."""
        if self.exported is None:
            return {"error": str(self.error)}
        exported = self.exported
        return {
            "path": str(exported.path) if self.permanent else None,
            "options": dict(self.item.options),
            "fits": exported.fit.ok,
            "problems": [asdict(p) for p in exported.fit.problems],
            "placements": [asdict(p) for p in exported.fit.placements],
            "figures": [asdict(f) for f in exported.report.figures],
            "notes": list(exported.report.notes),
            "verification": exported.verification
            and asdict(exported.verification) | {"ok": exported.verification.ok},
        }


def export_plan(
    source: Path,
    models: Mapping[str, Classifier],
    target: str,
    out: str | Path | None,
    options: Mapping[str, OptionValue],
) -> list[ExportItem]:
    """Plan exports and their folders: one per target, or per target and model if several.

    Raises:
        UsageError: a target is unknown, or no target knows an option.
    """
    targets = plugins.names("n3ic.exporters") if target == "all" else (target,)
    families = tuple(dict.fromkeys(in_layers(model).family for model in models.values()))
    known = {t: _option_names(t, families, alone=target != "all") for t in targets}
    for name in options:
        if not any(name in names for names in known.values()):
            if target == "all":
                raise UsageError(f"no target has an option --{name}; see n3ic targets NAME")
            exporter(target).for_family(families[0]).parse_options(options)
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
            plan.append(ExportItem(model, task, t, folder, own))
    return plan


def _option_names(target: str, families: Sequence[str], *, alone: bool) -> set[str]:
    """Names of a target's options for models of some families.

    A target that fails to load, lacks a library, or takes no such models has none.
    """
    try:
        tools = [exporter(target).for_family(family) for family in families]
        return {option.name for tool in tools for option in tool.options}
    except REFUSALS:
        if alone:
            raise
        return set()


def export_item(
    item: ExportItem,
    *,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    simplify: bool | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> ExportOutcome:
    """Export one item; any error is stored, so that other items are still exported.

    Callers that export several items raise :func:`failure` after reporting all of them.
    """
    try:
        exported = export(
            item.model,
            item.target,
            item.out,
            options=item.options,
            force=force,
            replace=replace,
            verify=verify,
            simplify=simplify,
            metrics=_metrics_of(metrics, item.task),
        )
    except Exception as error:  # noqa: BLE001 - a defect of one target must not stop the others
        signals.check()  # a library may have turned a signal into an error
        return ExportOutcome(item, None, error)
    return ExportOutcome(item, exported, None)


def failure(outcomes: Sequence[ExportOutcome]) -> Exception | None:
    """The first error that is not a refusal: a wrong export, a full disk, a defect."""
    errors = (o.error for o in outcomes)
    return next((e for e in errors if e is not None and not isinstance(e, REFUSALS)), None)


def _metrics_of(metrics: Mapping[str, Any] | None, task: str) -> Mapping[str, Any] | None:
    """The part of a run's metrics about one of its networks."""
    if metrics is None or not task:
        return metrics
    for value in metrics.values():
        if isinstance(value, dict) and isinstance(value.get(task), dict):
            own: dict[str, Any] = value[task]
            return {"data": metrics.get("data", {})} | own
    return metrics


def report_all(
    models: Mapping[str, Classifier],
    metrics: Mapping[str, Any] | None,
    exports: Sequence[Path] = (),
    progress: Callable[[str], object] = lambda _: None,
    note: Callable[[str], object] = lambda _: None,
) -> list[ExportOutcome]:
    """Report every target's figures for a run's models, from existing or temporary exports.

    Args:
        models: the run's networks, by task.
        metrics: the run's metrics, for reports that are written.
        exports: folders with existing exports; a target without one there is exported temporarily.
        progress: called with each step.
        note: called with the reason why an existing export was not used, or why no export exists.

    Returns:
        The outcome of each network for each target, ordered by target.
    """
    out = []
    with tempfile.TemporaryDirectory(prefix="n3ic-report-") as folder:
        for item in export_plan(Path("run"), models, "all", folder, {}):
            existing, why = _existing(exports, item)
            if why:
                note(why)
            if existing is not None:
                options = read_manifest(existing.path)["options"]
                out.append(ExportOutcome(replace(item, options=options), existing, None))
                continue
            progress(f"exporting for {item.target} {item.task}".rstrip())
            out.append(replace(export_item(item, verify=False, metrics=metrics), permanent=False))
    if exports and not any(outcome.permanent for outcome in out):
        places = " or ".join(map(str, exports))
        note(
            f"no export of this model in {places}: nothing is verified here; "
            "next: n3ic export --target all, or name the folder of its exports with --exports"
        )
    return out


def _existing(folders: Sequence[Path], item: ExportItem) -> tuple[Exported | None, str]:
    """The export of an item in the first folder that has one, and why others were not used."""
    reasons = []
    for folder in folders:
        exported, why = find_export(folder, item.target, item.model)
        if exported is not None:
            return exported, why
        reasons.append(why)
    return None, "; ".join(filter(None, reasons))
