"""The files of an export directory, from the model and the options to the last byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.model.passes import Simplified
from n3ic.options import Options, applying
from n3ic.targets.base import Exporter
from n3ic.targets.device import Fit
from n3ic.targets.figures import Report
from n3ic.targets.manifest import FORMAT, MANIFEST, MODEL, VERSION
from n3ic.targets.report import exported_as, identity_of, write_report
from n3ic.util.files import sha256_file, write_atomic
from n3ic.util.json_text import json_text

TOOL = f"n3ic {__version__}"


def write_artefacts(
    directory: Path, tool: Exporter[Any], network: Simplified[Any], options: Options
) -> None:
    """Write what the target runs, its README and the model into an empty directory.

    Raises:
        ExportError: the model cannot be expressed for the target.
    """
    tool.refuse_shunting(network.source)
    tool.write(network.model, options, directory)
    network.source.save(directory / MODEL)


def describe(
    directory: Path,
    tool: Exporter[Any],
    network: Simplified[Any],
    options: Options,
    fit: Fit,
    report: Report,
    accuracy: Mapping[str, Any],
    *,
    simplify: bool,
) -> None:
    """Add the report and the manifest to a directory that holds the artefacts."""
    write_report(directory, tool, network, fit, report, accuracy)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tool": TOOL,
        "target": tool.name,
        "device": tool.device.name,
        "options": applying(tool.options, options),
        "model": identity_of(network.source),
        "simplify": simplify,
        "exported": exported_as(network),
        "fits": fit.ok,
        "problems": [str(p) for p in fit.problems],
        "files": {name: sha256_file(directory / name) for name in files_of(directory)},
    }
    write_atomic(directory / MANIFEST, json_text(manifest))


def files_of(directory: Path) -> list[str]:
    """Paths of all that lies in a directory and is no folder, links included, sorted."""
    return sorted(p.relative_to(directory).as_posix() for p in _walk(directory))


def _walk(directory: Path) -> Iterator[Path]:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)
        else:
            yield entry
