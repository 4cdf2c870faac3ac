# SPDX-License-Identifier: Apache-2.0
"""Runs only files that n3ic itself would write: exports are written again and compared.

An export is a function of the model and the options, so n3ic can write it again. Digests in the
directory prove nothing, because whoever changes the directory can change them too.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError, ModelError, UsageError
from n3ic.model.passes import Simplified
from n3ic.targets.artefacts import TOOL, copy_files, describe, files_of, write_artefacts
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.bill_of_materials import claimed_versions
from n3ic.targets.figures import Figure, Report
from n3ic.targets.manifest import (
    MANIFEST,
    MAX_JSON_BYTES,
    VERIFICATION,
    exported_network,
    read_manifest,
)
from n3ic.targets.report import REPORT
from n3ic.util.files import read_regular

_WHAT = "this model and these options"
_NAMED = 10  # unexpected files that are reported by name


@dataclass(frozen=True)
class IntegrityCheck:
    """How an export directory differs from what this n3ic writes.

    Attributes:
        changed: files and fields of the manifest that differ or are missing, in words.
        added: files that this n3ic does not write, in words.
        equal: number of files that are equal, byte for byte.
        note: a remark for the reader although nothing differs, or empty.
    """

    changed: tuple[str, ...]
    added: tuple[str, ...]
    equal: int
    note: str = ""


def regenerate(
    directory: Path,
    manifest: Mapping[str, Any],
    tool: Exporter[Any],
    network: Simplified[Any],
    fresh: Path,
) -> IntegrityCheck:
    """Write an export again, into ``fresh``, and compare every file of ``directory`` with it.

    Figures, notes and accuracy of the report come from simulations and from the run, and versions
    of libraries from the machine that wrote it, so they are taken from the directory. Everything
    else, including the page that shows them, is compared.

    Args:
        directory: the export directory.
        manifest: its manifest.
        tool: its target.
        network: its network; see :func:`~n3ic.targets.manifest.exported_network`.
        fresh: an empty directory.
    """
    try:
        options = tool.parse_options(manifest["options"])
        write_artefacts(fresh, tool, network, options)
        fit = tool.check(network.model, options)
    except (ExportError, ModelError, UsageError) as error:
        return IntegrityCheck(
            (f"{MANIFEST}: this n3ic cannot write such an export: {error}",), (), 0
        )
    report, accuracy = _report(directory)
    simplify = manifest["simplify"]
    describe(
        fresh,
        tool,
        network,
        options,
        fit,
        report,
        accuracy,
        simplify=simplify,
        writer=manifest["tool"],
        libraries=claimed_versions(directory),
    )
    expected, present = files_of(fresh), files_of(directory)
    changed = [f"{name} is missing" for name in expected if name not in present]
    equal = 0
    for name in expected:
        if name == MANIFEST or name not in present:
            continue
        if why := difference(directory / name, fresh / name, _WHAT):
            changed.append(f"{name} is {why}")
        else:
            equal += 1
    fields = list(_fields(manifest, json.loads((fresh / MANIFEST).read_text())))
    other = manifest["tool"] != TOOL
    note = ""
    if not difference(directory / MANIFEST, fresh / MANIFEST, _WHAT):
        equal += 1
    elif other and not changed and not fields:
        note = f"written by {manifest['tool']}; {TOOL} writes the same"
    else:
        if other:
            changed.insert(0, f"{MANIFEST}: written by {manifest['tool']}, this is {TOOL}")
        changed += [f"{MANIFEST}: {field} is not what n3ic writes" for field in fields]
        if not other and not fields:
            changed.append(f"{MANIFEST} is not written as n3ic writes it")
    extra_files = [name for name in present if name not in {*expected, VERIFICATION}]
    foreign = [name for name in extra_files if not tool.is_product(name)]
    added = [f"{_shown(name)} is no part of the export" for name in foreign[:_NAMED]]
    if foreign[_NAMED:]:
        added.append(f"nor are {len(foreign) - _NAMED:,} more files")
    built = [name for name in extra_files if tool.is_product(name)]
    if built:
        more = f" and {len(built) - _NAMED:,} more" if built[_NAMED:] else ""
        omission = f"not compared: {', '.join(map(_shown, built[:_NAMED]))}{more}"
        note = "; ".join([*([note] if note else []), omission])
    return IntegrityCheck(tuple(changed), tuple(added), equal, note)


def trusted_copy(directory: Path, place: Path, *, run_changed: bool = False) -> Path:
    """Make a copy of an export directory that may be run; return its path.

    Args:
        directory: the export directory.
        place: an empty directory, for the copy.
        run_changed: whether files may differ from what this n3ic writes.

    Raises:
        ExportError: the directory is not an export, or a file or field of it differs.
        ModelError: its model is damaged.
    """
    fresh, copy = place / "fresh", place / "copy"
    fresh.mkdir()
    manifest = read_manifest(directory)
    network = exported_network(directory, manifest)
    tool = exporter(manifest["target"]).for_family(network.model.family)
    tool = tool.for_options(manifest["options"])
    comparison = regenerate(directory, manifest, tool, network, fresh)
    if not comparison.changed:
        return fresh
    if not run_changed:
        raise ExportError(
            f"{comparison.changed[0]}: n3ic runs only files that it would write itself"
        )
    copy.mkdir()
    copy_files(directory, fresh, copy)
    return copy


def _shown(name: str) -> str:
    """A file's name, which may hold any bytes, as one printable line."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def _fields(own: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*own, *other} - {"tool"}):
        if own.get(name) != other.get(name) or type(own.get(name)) is not type(other.get(name)):
            yield name


def _report(directory: Path) -> tuple[Report, Mapping[str, Any]]:
    """Figures, notes and accuracy that a directory's report claims; empty if it is damaged."""
    empty = Report((), ())
    try:
        data = json.loads(read_regular(directory / REPORT, MAX_JSON_BYTES))
        figures = tuple(Figure(**figure) for figure in data["figures"])
        notes, accuracy = tuple(data["notes"]), data["accuracy"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return empty, {}
    numbers = all(
        isinstance(f.value, (int, float)) and isinstance(f.paper, (int, float, type(None)))
        for f in figures
    )
    texts = [*notes, *(text for f in figures for text in (f.name, f.unit, f.kind, f.source))]
    if not (numbers and all(isinstance(text, str) for text in texts)):
        return empty, {}
    return Report(figures, notes), accuracy if isinstance(accuracy, dict) else {}


def difference(file: Path, written: Path, subject: str) -> str:
    """How an untrusted file differs from one that was just written; empty if it is equal.

    Args:
        file: the file; no more of it is read than ``written`` has.
        written: the expected content.
        subject: the purpose of the file, in words.
    """
    content = written.read_bytes()
    try:
        same = read_regular(file, len(content)) == content
    except OSError as error:
        if error.errno != errno.EFBIG:
            return f"not to be read: {error.strerror}"
        same = False
    return "" if same else f"not what n3ic writes for {subject}"
