# SPDX-License-Identifier: Apache-2.0
"""The models of a study of shunting, with their chosen thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from n3ic.errors import UsageError
from n3ic.studies.shunt.result import ShuntStudy
from n3ic.util.files import free_path, new_directory
from n3ic.util.names import path_component


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
