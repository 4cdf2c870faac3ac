# SPDX-License-Identifier: Apache-2.0
"""The report of one export, as data and as a Markdown page."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from n3ic.errors import N3icWarning
from n3ic.model.classifier import Classifier
from n3ic.model.passes import Simplified
from n3ic.targets.base import Exporter
from n3ic.targets.device import Fit
from n3ic.targets.figures import Report
from n3ic.util.files import write_atomic
from n3ic.util.json_text import json_text
from n3ic.util.markdown import escaped, table

REPORT = "report.json"
REPORT_PAGE = "report.md"
_ACCURACY = (  # figures of a run that a report repeats, in this order
    *("accuracy", "accuracy_unseen", "macro_f1", "fpr", "roc_auc", "rows"),
    *("data_name", "data_synthetic"),
)


def accuracy_of(metrics: Mapping[str, Any] | None, model: Classifier) -> dict[str, Any]:
    """The figures of a run's metrics that a target's report repeats.

    Args:
        metrics: the part of the run's ``metrics.json`` about one network.
        model: the network of the report; figures of another one are left out.

    Warns:
        N3icWarning: the metrics belong to another model.
    """
    if not metrics:
        return {}
    measured = metrics.get("model")
    digest = measured.get("sha256") if isinstance(measured, Mapping) else None
    if digest != model.digest:
        warnings.warn(
            f"the run's metrics are not of this model (their sha256: {digest}, this model's: "
            f"{model.digest}): the report repeats no accuracy",
            N3icWarning,
            stacklevel=2,
        )
        return {}
    test, data = (
        part if isinstance(part, Mapping) else {}
        for part in (metrics.get("test"), metrics.get("data"))
    )
    every = {**test, **{f"data_{k}": v for k, v in data.items()}}
    return {k: every[k] for k in _ACCURACY if k in every}


def exported_as(network: Simplified[Any]) -> dict[str, Any] | None:
    """Shape, digest, input bits and removed parts of a written network; None if it is the model.

    ``bits`` are the trained network's input bits, in the order of the written ones.
    """
    if not network.differs:
        return None
    return {
        "shape": list(network.model.shape),
        "sha256": network.model.digest,
        "bits": list(network.source_bits),
        "removed": network.findings.to_dict(),
    }


def identity_of(model: Classifier) -> dict[str, Any]:
    """Name, shape and digest of a model, and its meter's digest and threshold where it has them."""
    meter = {} if model.meter is None else {"meter": model.meter.digest}
    shunt = {"shunt": model.shunt} if model.shunt else {}
    identity = {"name": model.name, "shape": list(model.shape), "sha256": model.digest}
    return {**identity, **meter, **shunt}


def write_report(
    directory: Path,
    tool: Exporter[Any],
    network: Simplified[Any],
    fit: Fit,
    report: Report,
    accuracy: Mapping[str, Any],
) -> None:
    """Write ``report.json`` and ``report.md`` into an export directory.

    Args:
        directory: the export directory.
        tool: the target.
        network: the network that was written, and the trained one.
        fit: the placement on the device.
        report: the target's figures.
        accuracy: the result of :func:`accuracy_of`.
    """
    model = network.source
    data = {
        "target": tool.name,
        "device": tool.device.name,
        "model": identity_of(model),
        "exported": exported_as(network),
        "accuracy": dict(accuracy),
        "placements": [asdict(p) for p in fit.placements],
        "problems": [asdict(p) for p in fit.problems],
        "figures": [asdict(f) for f in report.figures],
        "notes": list(report.notes),
    }
    write_atomic(directory / REPORT, json_text(data))
    lines = [f"# {escaped(model.name)} ({model.shape_text}) on {tool.device.name}", ""]
    if accuracy:
        accuracy_text = ", ".join(
            f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {escaped(str(v))}"
            for k, v in ((k, accuracy[k]) for k in _ACCURACY if k in accuracy)
        )
        lines += [f"Accuracy of the run that it comes from: {accuracy_text}.", ""]
    if model.meter is not None:
        lines += [f"Features from packets: {model.meter} (`model.n3ic` has the meter).", ""]
    if model.shunt:
        lines += [
            f"Class or shunt: a flow of a margin below {model.shunt} is left to the host.",
            "",
        ]
    if network.differs:
        lines += [f"## Exported as {network.model.shape_text}", ""]
        lines += [f"- {escaped(line)}" for line in network.lines]
        lines.append("")
    lines += [f"**Does not fit:** {escaped(str(p))}" for p in fit.problems]
    if fit.placements:
        parts = ([p.part, p.memory, f"{p.bytes:,}"] for p in fit.placements)
        lines += ["## What lies where", "", *table(["part", "memory", "bytes"], parts, "llr"), ""]
    head = ["figure", "value", "unit", "kind", "paper", "source"]
    figures = (
        [
            f.name,
            _number(f.value),
            f.unit,
            f.kind,
            "" if f.paper is None else _number(f.paper),
            f.source,
        ]
        for f in report.figures
    )
    lines += ["## Figures", "", *table(head, figures, "lrllrl")]
    lines += ["", *(f"- {escaped(note)}" for note in report.notes)]
    write_atomic(directory / REPORT_PAGE, "\n".join(lines).rstrip() + "\n")


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}"
