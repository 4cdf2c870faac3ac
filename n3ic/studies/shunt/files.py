# SPDX-License-Identifier: Apache-2.0
"""The files of a study of shunting: points as CSV, a picture, models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from n3ic.data.streaming import csv_cell
from n3ic.errors import UsageError
from n3ic.studies.shunt.points import ShuntPoint
from n3ic.studies.shunt.result import ShuntStudy
from n3ic.util.files import free_path, new_directory, write_atomic
from n3ic.util.names import path_component

_COLUMNS = [f.name for f in fields(ShuntPoint)]


def points_csv(studies: Mapping[str, ShuntStudy]) -> bytes:
    """Format every point of every network as CSV: validation rows, then test rows."""
    return b"".join(line + b"\n" for line in _lines(studies))


def _lines(studies: Mapping[str, ShuntStudy]) -> Iterator[bytes]:
    yield ",".join(["network", "rows", *_COLUMNS]).encode()
    for task, study in studies.items():
        for rows, points in (("validation", study.validation), ("test", study.test)):
            for point in points:
                values = (getattr(point, name) for name in _COLUMNS)
                cells = ["" if v is None else str(v) for v in values]
                yield b",".join((csv_cell(task), rows.encode(), *(c.encode() for c in cells)))


def write_figure(study: ShuntStudy, title: str, path: str | Path) -> None:
    """Write the picture of a study's test rows as a PNG file, atomically.

    Args:
        study: the study of one network.
        title: name of the model and data.
        path: the file.

    Raises:
        N3icError: the file cannot be written.
        MissingDependencyError: matplotlib is not installed.
    """
    from n3ic.studies.shunt.picture import shunting_figure
    from n3ic.util.pictures import png

    rows = f"{title}, {study.rows['test']:,} test rows"
    write_atomic(path, png(shunting_figure(study.test, rows, study.chosen)))


def check_place(path: str | Path, count: int, *, replace: bool) -> None:
    """Refuse a path for models before the work starts.

    Raises:
        UsageError: the path exists and may not be replaced. Several models need a new folder.
    """
    if count == 1:
        free_path(path, replace)
    elif Path(path).exists():
        raise UsageError(f"{path} exists: {count} networks are written into a new folder")


def write_models(studies: Mapping[str, ShuntStudy], path: str | Path, *, replace: bool) -> None:
    """Write networks with their chosen thresholds: one to a file, several to a new folder.

    Args:
        studies: studies with a chosen threshold.
        path: the file, or the folder for ``models/TASK.n3ic``.
        replace: whether an existing file, such as the studied model, may be replaced.

    Raises:
        UsageError: the path exists and may not be replaced.
        N3icError: the file cannot be written; an existing one is unchanged.
    """
    check_place(path, len(studies), replace=replace)
    if len(studies) == 1:
        next(iter(studies.values())).model.save(path)
        return
    with new_directory(path) as folder:
        (folder / "models").mkdir()
        for task, study in studies.items():
            study.model.save(folder / "models" / f"{path_component(task)}.n3ic")
