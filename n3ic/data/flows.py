"""Flows to classify: the features that a model reads, from a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic import plugins
from n3ic.data.dataset import data_set
from n3ic.data.files import printable, read_contents
from n3ic.errors import DataError
from n3ic.model.network import BinaryModel

Columns = Mapping[str, NDArray[np.int64]]


class NotPlainError(DataError):
    """A table without a numeric column for every feature of the model."""


def read_features(path: str | Path, model: BinaryModel, dataset: str | None = None) -> Columns:
    """Integer features of every row of a table.

    A table whose header names every feature that the model reads, with numbers in the
    features' source units, is read as it is. Any other goes through the data set that the
    model was trained on, which knows its own layouts and codes.

    Args:
        path: a CSV file, plain or compressed.
        model: the model that reads the features.
        dataset: name of the data set whose layout the table has; the model's own where None.

    Returns:
        int64 array of shape ``(rows,)`` per feature, in its integer unit.

    Raises:
        DataError: the table lacks a feature or holds something that is no number; names file,
            line and column.
    """
    if dataset is None:
        try:
            return read_plain(path, model)
        except NotPlainError as error:
            dataset = model.provenance.get("data", "")
            if dataset not in plugins.names("n3ic.datasets"):
                raise DataError(str(error)) from error
    columns = data_set(dataset).read_features(path)
    missing = [f for f in model.input.features if f not in columns]
    if missing:
        raise DataError(f"{path}: the model needs the features {', '.join(missing)}")
    return columns


def read_plain(path: str | Path, model: BinaryModel) -> Columns:
    """Integer features of a table that names them all in its header.

    Raises:
        NotPlainError: a feature has no column, or a column of text.
        DataError: the file is empty, damaged, or has a ragged line.
    """
    contents = list(read_contents(path))
    if len(contents) != 1:
        raise DataError(f"{path}: one table expected, the archive holds {len(contents)}")
    try:
        text = contents[0].data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: this is no table of text; a CSV file is expected") from error
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    missing = [f for f in model.input.features if f not in header]
    if missing:
        raise NotPlainError(
            f"{path}: the header lacks the columns {', '.join(missing)}, which the model reads"
        )
    wanted = [(name, header.index(name)) for name in model.input.features]
    cells: dict[str, list[float]] = {name: [] for name, _ in wanted}
    for row in lines:
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"{path}, line {lines.line_num}: {len(header)} cells expected, got {len(row)}"
            )
        for name, i in wanted:
            try:
                cells[name].append(float(row[i]))
            except ValueError as error:
                raise NotPlainError(
                    f"{path}, line {lines.line_num}, column {name}: "
                    f"a number expected, got {printable(row[i])!r}"
                ) from error
    if not cells[wanted[0][0]]:
        raise DataError(f"{path}: no row below the header")
    scales = {f.feature: f for f in model.input.fields}
    out = {}
    for name, values in cells.items():
        array = np.asarray(values, dtype=np.float64)
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            raise DataError(f"{path}, row {bad[0] + 1}, column {name}: not a finite number")
        out[name] = scales[name].integer(array)
    return out
