# SPDX-License-Identifier: Apache-2.0
"""Write the files of an export directory from the model and the options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic import __version__
from n3ic.errors import ExportError
from n3ic.model.passes import Simplified
from n3ic.options import Options, applying
from n3ic.targets.base import Exporter
from n3ic.targets.bill_of_materials import library_versions, write_bill_of_materials
from n3ic.targets.device import Fit
from n3ic.targets.figures import Report
from n3ic.targets.manifest import FORMAT, MANIFEST, MODEL, VERSION
from n3ic.targets.report import exported_as, identity_of, write_report
from n3ic.util.files import read_regular, sha256_file, write_atomic
from n3ic.util.json_text import json_text

TOOL = f"n3ic {__version__}"
MAX_FILES = 10_000
_SLACK = 1 << 20


def write_artefacts(
    directory: Path, tool: Exporter[Any], network: Simplified[Any], options: Options
) -> None:
    """Write the target's artefacts, its README and the model into an empty directory.

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
    writer: str = TOOL,
    libraries: Mapping[str, str] | None = None,
) -> None:
    """Add report, bill of materials and manifest to a directory that holds the artefacts.

    The last two arguments are what the bill of materials names as its tools: n3ic, and the
    libraries of this machine if they are None.
    """
    write_report(directory, tool, network, fit, report, accuracy)
    options = applying(tool.options_for(network.model), options)
    write_bill_of_materials(
        directory,
        network.source,
        tool.name,
        options,
        writer,
        library_versions() if libraries is None else libraries,
        files_of(directory),
    )
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tool": TOOL,
        "target": tool.name,
        "device": tool.device.name,
        "options": options,
        "model": identity_of(network.source),
        "simplify": simplify,
        "exported": exported_as(network),
        "fits": fit.ok,
        "problems": [str(p) for p in fit.problems],
        "files": {name: sha256_file(directory / name) for name in files_of(directory)},
    }
    write_atomic(directory / MANIFEST, json_text(manifest))


def exports_below(directory: Path) -> list[Path]:
    """List the export directories at or below a path, sorted, without exports inside others.

    Raises:
        ExportError: see :func:`files_of`.
    """
    if not directory.is_dir():
        return [directory]
    manifests = [directory / name for name in files_of(directory, MANIFEST)]
    return [path.parent for path in manifests if path.name == MANIFEST]


def files_of(directory: Path, alone: str = "") -> list[str]:
    """List the paths of everything in a directory except folders, including links, sorted.

    Args:
        directory: the directory.
        alone: name of a file; if a folder holds it, nothing else in that folder is listed.

    Raises:
        ExportError: a folder cannot be read, or there are more than ``MAX_FILES`` files and
            folders.
    """
    files: list[str] = []
    folders = [""]
    count = 0
    while folders:
        at = folders.pop()
        if alone and os.path.lexists(directory / at / alone):
            files.append(at + alone)
            continue
        try:
            with os.scandir(directory / at) as entries:
                for entry in entries:
                    count += 1
                    if count > MAX_FILES:
                        raise ExportError(
                            f"{directory} holds more than {MAX_FILES:,} files and folders, "
                            "which no export does"
                        )
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{at}{entry.name}/")
                    else:
                        files.append(at + entry.name)
        except OSError as error:
            raise ExportError(f"{directory / at} cannot be read: {error.strerror}") from error
    return sorted(files)


def copy_files(directory: Path, like: Path, into: Path) -> None:
    """Copy the files of an export that others may have changed, to decode or run them.

    Tools that do not expect hostile files read the copy. It holds only regular files that n3ic
    writes, none much larger than n3ic's own. Other files are left out.

    Args:
        directory: the export directory.
        like: the same export as n3ic writes it.
        into: an empty directory.
    """
    for name in sorted({*files_of(like)} & {*files_of(directory)}):
        most = 2 * (like / name).stat().st_size + _SLACK
        try:
            data = read_regular(directory / name, most)
        except OSError:
            continue  # reported where the directories were compared
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_bytes(data)
