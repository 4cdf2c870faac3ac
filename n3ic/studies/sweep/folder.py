# SPDX-License-Identifier: Apache-2.0
"""A sweep's folder: the request, and each training as soon as it is done."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from n3ic.errors import UsageError
from n3ic.studies.sweep.result import SeedFigures
from n3ic.util.files import (
    parents_of,
    report_kept_work,
    reserved_folder,
    write_atomic,
)
from n3ic.util.json_text import json_text

SWEEP, POINTS, PAGE, PICTURE = "sweep.json", "points.csv", "report.md", "front.png"
FORMAT, VERSION = "n3ic-sweep", 2
_MAX_BYTES = 1 << 20
_OWN = re.compile(r"point-[0-9a-f]{64}\.json|sweep\.json|points\.csv|report\.md|front\.png")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "sha256": (str,),
    "sites": (int, float, type(None)),
    "latency_ns": (int, float, type(None)),
    "validation": (int, float),
    "test": (int, float),
}


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder.

    Attributes:
        path: the folder.
        request: the values that decide the sweep, as plain data.
    """

    path: Path
    request: Mapping[str, Any]

    def find(self, digest: str) -> SeedFigures | None:
        """Return the figures of a training; None if it is not done, or if its file is damaged.

        Args:
            digest: digest of everything that decides the training.
        """
        record = _read(self._point(digest))
        # The digest is inside as well, so a file that was renamed is not taken for another
        # training.
        if not isinstance(record, dict) or record.pop("digest", None) != digest:
            return None
        try:
            beside = {name: (size, share) for name, (size, share) in record["beside"].items()}
            figures = SeedFigures(**{**record, "shape": tuple(record["shape"]), "beside": beside})
        except (TypeError, KeyError, ValueError, AttributeError):
            return None
        numbers_beside = [number for pair in figures.beside.values() for number in pair]
        numbers = (
            (*figures.shape, *figures.memory.values()) if _is_sizes(figures.memory) else (None,)
        )
        right = all(isinstance(getattr(figures, n), kinds) for n, kinds in _KINDS.items())
        # A damaged file is trained again: its figures would otherwise end up in the tables.
        right = right and all(isinstance(n, int | float) for n in numbers_beside)
        return figures if right and all(type(n) is int for n in numbers) else None

    def write(self, digest: str, figures: SeedFigures) -> None:
        """Write the figures of a training atomically."""
        # The request is written with the first result, so a sweep that fails at once leaves no
        # folder.
        if not (self.path / SWEEP).exists():
            write_atomic(self.path / SWEEP, json_text(dict(self.request)))
        write_atomic(self._point(digest), json_text({"digest": digest, **asdict(figures)}))

    def _point(self, digest: str) -> Path:
        return self.path / f"point-{digest}.json"


@contextmanager
def sweep_folder(
    path: Path, request: Mapping[str, Any], replace: bool, note: Callable[[str], object]
) -> Iterator[SweepFolder]:
    """Open the folder of a sweep, which one process at a time may use.

    If the block fails, the folder stays so that the same sweep can resume; an empty one is removed.

    Args:
        path: the folder, made if missing.
        request: the values that decide the sweep, as plain data.
        replace: whether the results of another sweep may be removed.
        note: called with how to resume if the block fails.

    Raises:
        UsageError: the folder holds another sweep or other files, or another process uses it.
    """
    # Through JSON and back, because the stored request has lists where this one has tuples.
    full = {"format": FORMAT, "version": VERSION, **json.loads(json.dumps(request))}
    with parents_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with reserved_folder(path, _OWN) as place:
            if (place / SWEEP).exists() and (difference := _difference(place / SWEEP, full)):
                if not replace:
                    raise UsageError(f"{path} {difference}: name another folder, or add --replace")
                # reserved_folder() has checked that the folder holds nothing but files of a sweep.
                for old in list(place.iterdir()):
                    old.unlink()
            with report_kept_work(place, "point-*", "network", note):
                yield SweepFolder(place, full)


def _difference(path: Path, request: Mapping[str, Any]) -> str:
    """Describe how the sweep in a folder differs from the request; empty if it does not."""
    record = _read(path)
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return f"holds a damaged {SWEEP}"
    names = [*request, *sorted(set(record) - set(request))]
    differ = [n for n in names if record.get(n) != request.get(n)]
    differences = (
        f"{n} {_short(record.get(n))} there, {_short(request.get(n))} asked for" for n in differ
    )
    return f"holds another sweep ({'; '.join(differences)})" if differ else ""


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _read(path: Path) -> Any:
    """Return the content of a JSON file; None if it cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _is_sizes(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)
