"""What a study of shunting leaves behind: a table, a picture, model files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from n3ic.data.streaming import csv_cell
from n3ic.errors import UsageError
from n3ic.evaluation.shunting import ShuntPoint
from n3ic.util.files import free_path, new_directory, write_atomic
from n3ic.util.names import path_component

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from n3ic.usecases.shunting import ShuntStudy

_COLUMNS = [f.name for f in fields(ShuntPoint)]


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


def points_figure(study: ShuntStudy, title: str) -> Figure:
    """Accuracy over the share that the card decides, on the test rows.

    Args:
        study: of one network.
        title: of the figure.
    """
    from n3ic.runs.plots import new_figure

    figure, axes = new_figure()
    shown = (
        ("accuracy", "decided on the card", "black", "-"),
        ("accuracy_unseen", "the same without twins", "black", ":"),
        ("shunted_accuracy", "shunted, by boosted trees", "tab:blue", "-"),
        ("end_to_end", "end to end", "tab:green", "-"),
        ("end_to_end_unseen", "the same without twins", "tab:green", ":"),
    )
    for name, label, colour, style in shown:
        found = [(p.share, getattr(p, name)) for p in study.test if getattr(p, name) is not None]
        axes.plot(
            [100 * share for share, _ in found],
            [100 * value for _, value in found],
            style,
            color=colour,
            label=label,
            marker="." if style == "-" else None,
        )
    chosen = next((p for p in study.test if p.threshold == study.chosen), None)
    if chosen is not None:
        axes.axvline(100 * chosen.share, color="gray", linewidth=1)
        axes.annotate(
            f" threshold {chosen.threshold}",
            (100 * chosen.share, 0.02),
            xycoords=("data", "axes fraction"),
        )
    axes.set_xlabel("test rows that the card decides, %")
    axes.set_ylabel("accuracy, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    plain = title.replace("$", r"\$")  # a dollar sign would begin a formula
    axes.set_title(f"Shunting\n{plain}")
    return figure


def write_figure(study: ShuntStudy, title: str, path: str | Path) -> None:
    """Write :func:`points_figure` as a PNG file, whole or not at all.

    Raises:
        N3icError: the file cannot be written.
    """
    from n3ic.runs.plots import DPI

    picture = io.BytesIO()
    points_figure(study, title).savefig(picture, format="png", dpi=DPI, metadata={"Software": None})
    write_atomic(path, picture.getvalue())


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
