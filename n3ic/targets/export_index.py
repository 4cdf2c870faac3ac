# SPDX-License-Identifier: Apache-2.0
"""Find existing exports to report on; they are read, never run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError, N3icError
from n3ic.model.classifier import Classifier
from n3ic.targets.artefacts import TOOL
from n3ic.targets.base import exporter
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.directory import Exported
from n3ic.targets.figures import Figure, Report
from n3ic.targets.manifest import (
    MANIFEST,
    MAX_JSON_BYTES,
    VERIFICATION,
    exported_network,
    read_manifest,
)
from n3ic.targets.report import REPORT
from n3ic.targets.verification import Verification
from n3ic.targets.verification_record import ARTEFACTS, state_of
from n3ic.util.files import read_regular
from n3ic.util.plain_data import from_plain

_DEPTH = 3  # exports/MODEL/TARGET/TASK
_STALE = "{path} is not verified: verification.json is about other files; next: n3ic verify {path}"


def find_export(root: Path, target: str, model: Classifier) -> tuple[Exported | None, str]:
    """Find an export of a model for a target, below a folder, for the figures of a report.

    It must be written by this version of n3ic from this very model, and its manifest must confirm
    ``report.json``. Exports with the target's default options come first, then newer ones.

    Returns:
        The export, or None; and why its verification does not count, or why an existing export
        was not used; empty if neither applies.
    """
    candidates = sorted(_candidates(root, target, model.digest), key=lambda f: (bool(f[1]), -f[2]))
    why = ""
    for path, _, _ in candidates:
        try:
            export = read_export(path)
        except N3icError as error:
            why = f"{path} is not used: {error}"
            continue
        stale = export.verification is None and (path / VERIFICATION).exists()
        return export, _STALE.format(path=path) if stale else ""
    return None, why


def read_export(path: Path) -> Exported:
    """The target, report and verification that an export directory records.

    Raises:
        ExportError: the directory is not an export, or its report was changed.
        ModelError: its model is damaged.
    """
    manifest = read_manifest(path)
    network = exported_network(path, manifest)
    text = _read(path / REPORT)
    if manifest["files"].get(REPORT) != hashlib.sha256(text).hexdigest():
        raise ExportError(f"{path / REPORT} is not what was written")
    data = _object(path / REPORT, text)
    try:
        fit = Fit(_all(Placement, data, "placements"), _all(Problem, data, "problems"))
        report = Report(_all(Figure, data, "figures"), tuple(map(str, data.get("notes", ()))))
        checked = _recorded(path, manifest["target"], network.model.family)
    except ValueError as error:
        raise ExportError(f"{path} is damaged: {error}") from error
    return Exported(path, manifest["target"], network, fit, report, checked)


def _recorded(path: Path, target: str, family: str) -> Verification | None:
    """The outcome of the last verification, if it belongs to the present files."""
    if not (path / VERIFICATION).is_file():
        return None
    data = _object(path / VERIFICATION, _read(path / VERIFICATION))
    verification = from_plain(Verification, data)
    same = data.get(ARTEFACTS) == state_of(path, exporter(target).for_family(family))
    return verification if same else None


def _candidates(root: Path, target: str, digest: str) -> Iterator[tuple[Path, dict[str, Any], int]]:
    """Export directories of a model for a target: path, options, time of writing."""
    for depth in range(1, _DEPTH + 1):
        for path in root.glob("*/" * depth + MANIFEST):
            try:
                manifest = read_manifest(path.parent)
                written = path.stat().st_mtime_ns
            except (N3icError, OSError):
                continue
            known = (manifest["target"], manifest["model"]["sha256"], manifest["tool"])
            if known == (target, digest, TOOL):
                yield path.parent, manifest["options"], written


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_JSON_BYTES)
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror or error}") from error


def _object(path: Path, text: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ExportError: the text is not a JSON object.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict):
        raise ExportError(f"{path} is damaged: expected an object")
    return data


def _all(kind: type[Any], data: dict[str, Any], name: str) -> tuple[Any, ...]:
    records = data.get(name)
    if not isinstance(records, list):
        raise ValueError(f"{name} is missing")
    return tuple(from_plain(kind, each) for each in records)
