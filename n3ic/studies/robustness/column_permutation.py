# SPDX-License-Identifier: Apache-2.0
"""Exchanges columns between rows to detect and other rows that carry a mark.

If verdicts follow the exchanged columns, the model has learned the mark and not the attack.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.evaluation.held_out import HeldOut
from n3ic.kernel.prediction import predict
from n3ic.studies.robustness.shift_row import ShiftRow, shift_row


def exchanged_rows(sample: HeldOut, exchange: str, seed: int) -> Iterator[ShiftRow]:
    """Yield four rows: the class to detect and the marked others, unchanged and exchanged.

    In the exchanged rows, each flow gets the columns of a random flow of the other kind. Flows in
    which all these columns are 0, such as flows without a handshake, are left out.

    Args:
        sample: a model that detects a class, and rows that it was not trained on.
        exchange: columns and a mark, such as ``tcprtt,synack:sttl=31``.
        seed: seed of the draws.

    Raises:
        UsageError: ``exchange`` is malformed, a column is missing, or a kind has no rows.
    """
    names, column, value = _parsed(sample, exchange)
    label, positive = sample.label, sample.positive
    features = {n: v[sample.rows] for n, v in sample.table.features.items()}
    known = np.any([features[n] > 0 for n in names], axis=0)
    detected = np.flatnonzero(known & (label == positive))
    marked = np.flatnonzero(known & (label != positive) & (features[column] == value))
    if positive is None or not len(detected) or not len(marked):
        raise UsageError(
            f"--exchange {exchange}: expected rows to detect and others with {column} = {value}, "
            f"both with {', '.join(names)}; found {len(detected)} and {len(marked)}"
        )
    rng = np.random.default_rng(seed)
    for kind, own, donors, of in (
        (sample.model.classes[positive], detected, marked, f"{column} = {value}"),
        (f"{column} = {value}", marked, detected, sample.model.classes[positive]),
    ):
        before = sample.inference.classes[own]
        yield shift_row(f"{kind}, as they are", label[own], before, positive, before)
        columns = {n: features[n][own] for n in sample.model.input.features}
        drawn = rng.choice(donors, len(own))
        columns |= {n: features[n][drawn] for n in names if n in columns}
        verdicts: NDArray[np.integer] = predict(sample.model, sample.model.encode(columns)).classes
        shift = f"{kind}, with {names[0]} and so on of {of}"
        yield shift_row(shift, label[own], verdicts, positive, before)


def _parsed(sample: HeldOut, exchange: str) -> tuple[list[str], str, int]:
    listed, _, mark = exchange.partition(":")
    names = [name.strip() for name in listed.split(",") if name.strip()]
    column, _, value = mark.partition("=")
    if not names or not column or not value.strip().isdecimal():
        raise UsageError(
            f"--exchange {exchange}: expected columns, a colon, and a column with its integer, "
            "such as tcprtt,synack:sttl=31"
        )
    missing = [n for n in (*names, column) if n not in sample.table.features]
    if missing:
        raise UsageError(f"--exchange {exchange}: {sample.table.name} has no column {missing[0]}")
    return names, column, int(value)
