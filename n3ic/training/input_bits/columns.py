# SPDX-License-Identifier: Apache-2.0
"""Columns of training rows and single cuts: the common ground of all choices of input bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import UsageError
from n3ic.model.inputs import Field

Columns = Mapping[str, NDArray[np.int64]]
Cut = tuple[str, int]  # a feature and the integer that its value is compared with


def matrix_of(
    columns: Columns, label: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names and the matrix ``(rows, features)`` of columns that fit the label."""
    if not columns:
        raise UsageError("no feature to choose from; name at least one")
    rows = len(label)
    wrong = [name for name, column in columns.items() if np.shape(column) != (rows,)]
    if wrong:
        raise UsageError(f"column {wrong[0]}: expected {rows} rows, one per label")
    return tuple(columns), np.stack([np.asarray(c, dtype=np.int64) for c in columns.values()], 1)


def unit_of(catalogue: Mapping[str, Feature] | None, name: str) -> tuple[str, float]:
    """Integer unit and scale of a feature, from a catalogue if it has the feature."""
    if catalogue is None or name not in catalogue:
        return "", 1.0
    return catalogue[name].unit, catalogue[name].scale


def thermometer_fields(
    cuts: Sequence[Cut],
    order: Sequence[str],
    *,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of single cuts, one per feature, in the order of ``order``."""
    fields = []
    for name in order:
        own = sorted({cut for feature, cut in cuts if feature == name})
        if own:
            unit, scale = unit_of(catalogue, name)
            fields.append(Field.thermometer(name, own, unit=unit, scale=scale))
    return tuple(fields)
