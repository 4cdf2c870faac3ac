# SPDX-License-Identifier: Apache-2.0
"""Figures on other files of the same data set, such as its other partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from n3ic.evaluation.held_out import HeldOut, held_out
from n3ic.studies.robustness.shift_row import ShiftRow, shift_row
from n3ic.usecases.evaluation import labelled_flows


def rows_of(sample: HeldOut, path: Path) -> Iterator[ShiftRow]:
    """Yield a row of figures on other labelled flows.

    Args:
        sample: the model.
        path: files in the format of the data set that the model was trained on.

    Raises:
        UsageError: No data set reads the flows.
        DataError: The flows cannot be read, or their classes are not the model's.
    """
    (flows,) = labelled_flows(sample.model, path).values()
    other = held_out(sample.model, flows.table, label=flows.label, positive=sample.positive)
    name = f"other rows: {path.name}"
    yield shift_row(name, other.label, other.inference.classes, sample.positive)
