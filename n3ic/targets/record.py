"""``verification.json``: the last outcome of a verification, and which files it is of."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.targets.artefacts import files_of
from n3ic.targets.base import Exporter
from n3ic.targets.manifest import VERIFICATION
from n3ic.util.files import sha256_file, write_atomic
from n3ic.util.json_text import json_text

ARTEFACTS = "artefacts"


def state_of(directory: Path, tool: Exporter[Any]) -> str:
    """SHA-256 over names and digests of an export's files, without the record and what was built.

    Args:
        directory: the export directory.
        tool: its target.
    """
    names = (n for n in files_of(directory) if n != VERIFICATION and not tool.is_product(n))
    digests = {name: _digest(directory / name) for name in names}
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def write_record(directory: Path, outcome: Mapping[str, Any], state: str) -> None:
    """Write an outcome beside the files that it is of.

    Args:
        directory: the export directory.
        outcome: of the verification, as plain data.
        state: of the directory when it was verified, from :func:`state_of`.

    Raises:
        N3icError: it cannot be written.
    """
    write_atomic(directory / VERIFICATION, json_text({**outcome, ARTEFACTS: state}))


def _digest(path: Path) -> str:
    return sha256_file(path) if stat.S_ISREG(path.lstat().st_mode) else "no regular file"
