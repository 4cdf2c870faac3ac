"""The manifest of an export directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.errors import (
    ExportError,
)
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Simplified, simplify, unchanged

FORMAT = "n3ic-export"
VERSION = 1
MANIFEST = "manifest.json"
MODEL = "model.n3ic"
_MAX_MANIFEST_BYTES = 16 << 20


def read_manifest(directory: str | Path) -> dict[str, Any]:
    """The manifest of an export directory, checked for form.

    Raises:
        ExportError: the directory is not an export, or of a newer version.
    """
    path = Path(directory) / MANIFEST
    try:
        if path.stat().st_size > _MAX_MANIFEST_BYTES:
            raise ExportError(f"{path}: too large for a manifest")
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExportError(
            f"{directory} is not an export directory ({MANIFEST}: {error.strerror or error})"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is damaged: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ExportError(f"{path} is not a manifest of an n3ic export")
    if data.get("version") != VERSION:
        raise ExportError(f"{path}: version {data.get('version')!r}, this n3ic reads {VERSION}")
    files, options = data.get("files"), data.get("options")
    if not isinstance(data.get("target"), str) or not isinstance(options, dict):
        raise ExportError(f"{path}: target or options are missing")
    if not isinstance(files, dict) or any(
        not isinstance(v, str) or Path(k).is_absolute() or ".." in Path(k).parts
        for k, v in files.items()
    ):
        raise ExportError(f"{path}: the list of files is damaged")
    return data


def exported_network(directory: str | Path, manifest: Mapping[str, Any]) -> Simplified:
    """The network that an export's artefacts hold, and the trained one that it comes from.

    Args:
        directory: the export directory.
        manifest: its manifest, from :func:`read_manifest`.

    Raises:
        ModelError: the model file is missing or damaged.
    """
    model = BinaryModel.load(Path(directory) / MODEL)
    return simplify(model) if manifest.get("simplify") is True else unchanged(model)
