"""What a study of shunting leaves behind: a table, a picture, model files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.data.streaming import csv_cell
from n3ic.errors import UsageError
from n3ic.evaluation.shunting import ShuntPoint
from n3ic.util.display import Table
from n3ic.util.files import free_path, new_directory, write_atomic
from n3ic.util.markdown import percent
from n3ic.util.names import path_component

if TYPE_CHECKING:
    from n3ic.usecases.shunting import ShuntStudy

_COLUMNS = [f.name for f in fields(ShuntPoint)]
_SHOWN = 24  # thresholds in a table; the CSV and the JSON have all
POINT_COLUMNS = (
    *("threshold", "validated: on card", "accuracy", "test: on card", "accuracy"),
    *("without twins", "host, on the rest", "end to end", "without twins"),
)
_STAGES = {
    "card": "card alone",
    "host": "boosted trees alone",
    "decided": "decided on the card",
    "shunted_card": "shunted, had the card decided",
    "shunted_host": "shunted, by boosted trees",
    "end_to_end": "end to end",
}


def points_csv(studies: Mapping[str, ShuntStudy]) -> bytes:
    """Every point of every network as CSV: validation rows, then test rows."""
    return b"".join(line + b"\n" for line in _lines(studies))


def _lines(studies: Mapping[str, ShuntStudy]) -> Iterator[bytes]:
    yield ",".join(["network", "rows", *_COLUMNS]).encode()
    for task, study in studies.items():
        for rows, points in (("validation", study.validation), ("test", study.test)):
            for point in points:
                values = (getattr(point, name) for name in _COLUMNS)
                cells = ["" if v is None else str(v) for v in values]
                yield b",".join((csv_cell(task), rows.encode(), *(c.encode() for c in cells)))


def study_tables(study: ShuntStudy) -> tuple[Table, ...]:
    """The thresholds of a network, and what the chosen one gives where there is one."""
    rows = study.rows
    origin = "the split of its training" if study.trained_rows else "rows it was not trained on"
    title = (
        f"{study.protocol} split, {rows['validation']:,} validation rows and "
        f"{rows['test']:,} test rows ({origin})"
    )
    pairs = list(zip(study.validation, study.test, strict=True))
    cells = tuple(
        point_cells(*pair, chosen=pair[0].threshold == study.chosen)
        for pair in _thinned(pairs, study.chosen)
    )
    points = Table(title, POINT_COLUMNS, cells)
    if study.chosen is None:
        return (points,)
    stages = tuple(
        (
            _STAGES[name],
            f"{e.rows:,}",
            percent(e.rows / rows["test"]),
            percent(e.accuracy),
            percent(e.accuracy_unseen),
            percent(e.macro_f1),
        )
        for name, e in study.figures.items()
    )
    head = ("", "rows", "share", "accuracy", "without twins", "macro F1")
    return points, Table(f"threshold {study.chosen}, for {study.aim}; test rows", head, stages)


def point_cells(validation: ShuntPoint, test: ShuntPoint, *, chosen: bool) -> tuple[str, ...]:
    """A row of :data:`POINT_COLUMNS`; the chosen threshold has a star."""
    return (
        f"{'* ' if chosen else ''}{test.threshold}",
        percent(validation.share),
        percent(validation.accuracy),
        percent(test.share),
        percent(test.accuracy),
        percent(test.accuracy_unseen),
        percent(test.shunted_accuracy),
        percent(test.end_to_end),
        percent(test.end_to_end_unseen),
    )


def _thinned(
    pairs: Sequence[tuple[ShuntPoint, ShuntPoint]], chosen: int | None
) -> list[tuple[ShuntPoint, ShuntPoint]]:
    """As many points as a screen shows, the chosen one among them."""
    step = -(-len(pairs) // _SHOWN)
    return [
        pair
        for i, pair in enumerate(pairs)
        if i % step == 0 or i == len(pairs) - 1 or pair[0].threshold == chosen
    ]


def write_figure(study: ShuntStudy, title: str, path: str | Path) -> None:
    """Write the picture of a study's test rows as a PNG file, whole or not at all.

    Args:
        study: of one network.
        title: what was studied.
        path: the file.

    Raises:
        N3icError: the file cannot be written.
        MissingDependencyError: matplotlib is not installed.
    """
    from n3ic.runs.pictures import shunting_figure
    from n3ic.util.pictures import png

    rows = f"{title}, {study.rows['test']:,} test rows"
    write_atomic(path, png(shunting_figure(study.test, rows, study.chosen)))


def check_place(path: str | Path, count: int, *, replace: bool) -> None:
    """Refuse a place for models before the work that leads to them.

    Raises:
        UsageError: it exists and may not be replaced; of several models, it exists.
    """
    if count == 1:
        free_path(path, replace)
    elif Path(path).exists():
        raise UsageError(f"{path} exists: {count} networks are written into a new folder")


def write_models(studies: Mapping[str, ShuntStudy], path: str | Path, *, replace: bool) -> None:
    """Write networks with their chosen thresholds: one to a file, several to a new folder.

    Args:
        studies: of a chosen threshold each.
        path: the file, or the folder that gets ``models/TASK.n3ic``.
        replace: whether an existing file may be replaced, such as the model that was read.

    Raises:
        UsageError: it exists and may not be replaced.
        N3icError: it cannot be written; what was there before is untouched.
    """
    check_place(path, len(studies), replace=replace)
    if len(studies) == 1:
        next(iter(studies.values())).model.save(path)
        return
    with new_directory(path) as folder:
        (folder / "models").mkdir()
        for task, study in studies.items():
            study.model.save(folder / "models" / f"{path_component(task)}.n3ic")
