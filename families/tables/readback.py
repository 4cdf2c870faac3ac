# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as an artefact of an export holds them, and where these differ from the model's.

Readers of artefacts share no code with their writers; this comparison is the same for all targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.families.tables.network import TablesModel
from n3ic.targets.decoding import Decoded


@dataclass(frozen=True, eq=False)
class DecodedTables:
    """What one artefact of an export holds.

    Attributes:
        artefact: its path in the export directory.
        bits: for each table, the input bits that address it, the least significant first.
        entries: for each table, its entries: int64 array of shape ``(2 ** len(bits), sums)``.
        bias: int64 array of shape ``(sums,)``.
        cuts: cuts of every field of the input in order, empty for raw bits; None if the artefact
            holds no input stage.
        shunt: the smallest margin that it decides; None if the artefact does not hold it.
        digest: SHA-256 of the model that the artefact names; None if it names none.
    """

    artefact: str
    bits: tuple[tuple[int, ...], ...]
    entries: tuple[NDArray[np.int64], ...]
    bias: NDArray[np.int64]
    cuts: tuple[tuple[int, ...], ...] | None = None
    shunt: int | None = None
    digest: str | None = None


def tables_difference(model: TablesModel, decoded: DecodedTables) -> str:
    """Describe where an artefact differs from the model; empty if nowhere."""
    where = decoded.artefact
    if not len(decoded.bits) == len(decoded.entries) == len(model.tables):
        return f"{where}: {len(decoded.bits)} tables, the model has {len(model.tables)}"
    for t, table in enumerate(model.tables):
        if decoded.bits[t] != table.bits:
            read = f"reads the bits {list(decoded.bits[t][:9])}"
            return f"{where}, table {t}: {read}, the model's {list(table.bits)}"
        if decoded.entries[t].shape != table.entries.shape:
            shape = decoded.entries[t].shape
            return f"{where}, table {t}: shape {shape}, the model has {table.entries.shape}"
        wrong = np.argwhere(decoded.entries[t] != table.entries)
        if len(wrong):
            i, s = (int(v) for v in wrong[0])
            difference = f"entry {i} of sum {s} is {int(decoded.entries[t][i, s])}"
            return f"{where}, table {t}: {difference}, the model has {int(table.entries[i, s])}"
    if decoded.bias.tolist() != model.bias.tolist():
        return (
            f"{where}: biases {decoded.bias.tolist()[:9]}, the model has {model.bias.tolist()[:9]}"
        )
    if decoded.cuts is not None:
        fields = model.input.fields
        if len(decoded.cuts) != len(fields):
            return f"{where}: {len(decoded.cuts)} input fields, the model has {len(fields)}"
        for field, cuts in zip(fields, decoded.cuts, strict=True):
            if tuple(cuts) != tuple(field.cuts):
                return f"{where}, input field {field.feature}: other cuts than the model's"
    if decoded.shunt is not None and decoded.shunt != model.shunt:
        return f"{where}: shunts margins below {decoded.shunt}, the model below {model.shunt}"
    if decoded.digest is not None and decoded.digest != model.digest:
        return f"{where}: of model {decoded.digest}, the model is {model.digest}"
    return ""


def compared(model: TablesModel, decoded: DecodedTables) -> Decoded:
    """Compare what an artefact holds with the model.

    Returns:
        The artefact as :meth:`~n3ic.targets.base.Exporter.decode` reports it.

    Raises:
        VerifyError: the artefact differs from the model.
    """
    wrong = tables_difference(model, decoded)
    if wrong:
        raise VerifyError(wrong)
    return Decoded(decoded.artefact, (), decoded.cuts, digest=decoded.digest, shunt=decoded.shunt)
