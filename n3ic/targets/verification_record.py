# SPDX-License-Identifier: Apache-2.0
"""``verification.json``: the last outcome of a verification, and the digest of its files."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.errors import ExportError
from n3ic.targets.artefacts import files_of
from n3ic.targets.base import Exporter
from n3ic.targets.manifest import VERIFICATION
from n3ic.util.files import open_regular, write_atomic
from n3ic.util.json_text import json_text

ARTEFACTS = "artefacts"
MAX_BYTES = 1 << 30  # of all files of an export


def state_of(directory: Path, tool: Exporter[Any]) -> str:
    """SHA-256 over names and digests of an export's files, without the record and built files.

    Args:
        directory: the export directory.
        tool: its target.

    Raises:
        ExportError: there are more files or bytes than any export has.
    """
    names = [n for n in files_of(directory) if n != VERIFICATION and not tool.is_product(n)]
    digests = {}
    room = MAX_BYTES
    for name in names:
        digests[name], size = _digest(directory / name, room)
        room -= size
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def write_record(directory: Path, outcome: Mapping[str, Any], state: str) -> None:
    """Write an outcome beside the verified files.

    Args:
        directory: the export directory.
        outcome: outcome of the verification, as plain data.
        state: state of the directory when it was verified, from :func:`state_of`.

    Raises:
        N3icError: the file cannot be written.
    """
    write_atomic(directory / VERIFICATION, json_text({**outcome, ARTEFACTS: state}))


def _digest(path: Path, most: int) -> tuple[str, int]:
    """Digest and bytes of a file."""
    try:
        with open_regular(path, most) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), stream.tell()
    except OSError as error:
        if error.errno == errno.EINVAL:
            return "no regular file", 0
        raise ExportError(f"{path} cannot be read: {error.strerror}") from error
