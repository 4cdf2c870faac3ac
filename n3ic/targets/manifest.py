# SPDX-License-Identifier: Apache-2.0
"""The manifest of an export directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError
from n3ic.model.file import read_file
from n3ic.model.layered import written
from n3ic.model.load import parse_model
from n3ic.model.passes import Simplified
from n3ic.util.files import read_regular

FORMAT = "n3ic-export"
CARD_FORMAT = "n3ic-card"  # of exports of several tenants' models, by n3ic.systems.card
VERSION = 1
MANIFEST = "manifest.json"
MODEL = "model.n3ic"
VERIFICATION = "verification.json"
MAX_JSON_BYTES = 4 << 20  # of a manifest, a report or a verification
_MAX_TEXT = 1000


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_options(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(v, (int, float)) or _is_text(v) for v in value.values()
    )


def _is_model(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_text(value.get("name"))
        and _is_text(value.get("sha256"))
        and isinstance(value.get("shape"), list)
    )


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(v) and not Path(k).is_absolute() and ".." not in Path(k).parts
        for k, v in value.items()
    )


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "tool": _is_text,
    "target": _is_text,
    "device": _is_text,
    "options": _is_options,
    "model": _is_model,
    "simplify": _is_flag,
    "fits": _is_flag,
    "problems": _is_texts,
    "files": _is_files,
}


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """Read the manifest of an export directory; every field is checked for its type.

    Raises:
        ExportError: the directory is not an export, or of a newer version, or damaged.
    """
    path = Path(directory) / MANIFEST
    try:
        data = json.loads(read_regular(path, MAX_JSON_BYTES))
    except OSError as error:
        raise ExportError(
            f"{directory} is not an export directory ({MANIFEST}: {error.strerror or error})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is damaged: {error}") from error
    if isinstance(data, dict) and data.get("format") == CARD_FORMAT:
        raise ExportError(f"{directory} is a card of several tenants: n3ic card verify {directory}")
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ExportError(f"{path} is not a manifest of an n3ic export")
    if data.get("version") != VERSION:
        text = repr(data.get("version"))[:100]
        raise ExportError(f"{path}: version {text}, this n3ic reads {VERSION}")
    data = {"simplify": False} | data  # older manifests lack it: nothing was left out
    for name, check in _FIELDS.items():
        if not check(data.get(name)):
            text = repr(data.get(name))[:100]
            raise ExportError(f"{path} is damaged: {name} is missing or wrong: {text}")
    return data


def exported_network(directory: str | Path, manifest: Mapping[str, Any]) -> Simplified[Any]:
    """The network of an export's artefacts, and the trained network behind it.

    Args:
        directory: the export directory.
        manifest: its manifest, from :func:`read_manifest`.

    Raises:
        ModelError: the model file is missing or damaged.
    """
    path = Path(directory) / MODEL
    model = parse_model(read_file(path, follow=False), str(path))
    return written(model, smaller=manifest["simplify"])
