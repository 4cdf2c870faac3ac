# SPDX-License-Identifier: Apache-2.0
"""The meter's specification that a table of flows carries.

A Parquet file has it in the entry ``n3ic-meter`` of its schema's metadata, a CSV file in the file
``NAME.meter.json`` beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from n3ic.errors import DataError
from n3ic.model.meter_spec import MeterSpec

METER_KEY = b"n3ic-meter"
MAX_BYTES = 1 << 20
_PARQUET = b"PAR1"


def meter_file(table: str | Path) -> Path:
    """The file beside a CSV table with its meter's specification."""
    return Path(f"{table}.meter.json")


def is_parquet(table: str | Path) -> bool:
    """Whether a file begins like a Parquet file."""
    with Path(table).open("rb") as stream:
        return stream.read(len(_PARQUET)) == _PARQUET


def meter_of(table: str | Path) -> MeterSpec | None:
    """Read the specification of a table's meter; None if the table carries none.

    Raises:
        DataError: the table cannot be read.
        ModelError: the specification is damaged, or of a newer version.
    """
    try:
        if is_parquet(table):
            text = _metadata(table).get(METER_KEY)
            return None if text is None else MeterSpec.from_json(text, str(table))
        file = meter_file(table)
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return MeterSpec.from_json(stream.read(MAX_BYTES), str(file))
    except OSError as error:
        raise DataError(f"{table}: cannot be read: {error.strerror or error}") from error


def other_meter(
    name: str, own: MeterSpec | None, expected: MeterSpec | None, features: Iterable[str]
) -> str:
    """A sentence if flows were metered differently from a model's; empty if not, or if unknown.

    Args:
        name: what the flows are called.
        own: the meter of the flows.
        expected: the meter of the model.
        features: what the model reads.
    """
    if own is None or expected is None or expected.agrees(own, tuple(features)):
        return ""
    return f"{name} was metered differently from the model's flows: {own}; not {expected}"


def _metadata(table: str | Path) -> dict[bytes, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(table).metadata or {}
    except pa.ArrowException as error:
        raise DataError(f"{table}: this Parquet file is damaged: {error}") from error
