"""Export directories: written whole, self-describing, and proven against the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.errors import (
    ExportError,
    UsageError,
    VerifyError,
)
from n3ic.model import passes
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Simplified
from n3ic.options import OptionValue, applying
from n3ic.targets.base import exporter
from n3ic.targets.device import Fit
from n3ic.targets.figures import Report
from n3ic.targets.manifest import FORMAT, MANIFEST, MODEL, VERSION
from n3ic.targets.report import exported_as, write_report
from n3ic.targets.verification import Verification, verify_directory
from n3ic.util.files import new_directory, sha256_file, write_atomic
from n3ic.util.json_text import json_text


@dataclass(frozen=True)
class Exported:
    """An export directory that was written.

    Attributes:
        path: the directory.
        target: the target's name.
        network: the network that was written, and what the passes removed.
        fit: what went where, and what does not fit (only with ``force``).
        report: the target's figures.
        verification: the check at export time, or None where it was not asked for.
    """

    path: Path
    target: str
    network: Simplified
    fit: Fit
    report: Report
    verification: Verification | None


def export(
    model: BinaryModel,
    target: str,
    out: str | Path,
    *,
    options: Mapping[str, OptionValue] | None = None,
    force: bool = False,
    replace: bool = False,
    verify: bool = True,
    metrics: Mapping[str, Any] | None = None,
    simplify: bool = True,
) -> Exported:
    """Write a model for a target into the directory ``out``, whole or not at all.

    Args:
        model: the model.
        target: the target's name.
        out: the directory; its parents are made.
        options: the target's options, by name.
        force: write a model that does not fit; the manifest says so.
        replace: replace ``out`` if it is an export directory already.
        verify: run a few hundred vectors before the directory appears. A target whose tool is
            missing is written all the same, and the result says what is missing.
        metrics: the run's metrics, for the report.
        simplify: leave out neurons and input bits that make no difference to the scores; see
            :mod:`n3ic.model.passes`. False keeps the trained shape, so that weights of another
            training of that shape can be loaded into the device later.

    Raises:
        UsageError: unknown target or option, or ``out`` exists.
        ExportError: the model does not fit.
        VerifyError: the artefacts do not compute the model's scores.
        N3icError: the directory cannot be written.
    """
    tool = exporter(target)
    parsed = tool.parse_options(options or {})
    network = passes.simplify(model) if simplify else passes.unchanged(model)
    fit = tool.check(network.model, parsed)
    if not fit.ok and not force:
        listed = "; ".join(str(p) for p in fit.problems)
        raise ExportError(
            f"{network.model.shape_text} does not fit {tool.device.name}: {listed} "
            "(--force writes it anyway)"
        )
    if replace and Path(out).is_dir() and not (Path(out) / MANIFEST).is_file():
        raise UsageError(f"{out} exists and is not an export directory; it is left as it is")
    with new_directory(out, replace=replace) as directory:
        tool.write(network.model, parsed, directory)
        model.save(directory / MODEL)
        report = tool.report(network.model, parsed, directory)
        write_report(directory, tool, network, fit, report, metrics)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "tool": f"n3ic {__version__}",
            "target": target,
            "device": tool.device.name,
            "options": applying(tool.options, parsed),
            "model": {"name": model.name, "sha256": model.digest, "shape": list(model.shape)},
            "simplify": simplify,
            "exported": exported_as(network),
            "fits": fit.ok,
            "problems": [str(p) for p in fit.problems],
            "files": {name: sha256_file(directory / name) for name in sorted(_files(directory))},
        }
        write_atomic(directory / MANIFEST, json_text(manifest))
        result = None
        if verify:
            result = verify_directory(directory, vectors=tool.quick_vectors, record=False)
            if result.failures:
                raise VerifyError(str(result))
    return Exported(Path(out), target, network, fit, report, result)


def _files(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*"):
        if path.is_file():
            yield path.relative_to(directory).as_posix()
