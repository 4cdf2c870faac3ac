# SPDX-License-Identifier: Apache-2.0
"""Turns flow records into rows of a table: keys, features and labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_ntop
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table_meter import METER_KEY, meter_file
from n3ic.meter.compiled import ENDS, Records
from n3ic.meter.labels import Labels
from n3ic.meter.spec_file import write_spec
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.files import new_file

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 16
SYNTHETIC = "synthetic"  # column of tables whose labels say that a generator made the flows
KIND = "kind"  # column of tables whose labels name a kind of traffic
FLOW_KEY = (  # the same in all rows of a flow
    "capture",
    "source",
    "source_port",
    "destination",
    "destination_port",
    "protocol",
    "first_us",
)
_OCTETS = tuple(map(str, range(256)))
KEY_COLUMNS = (*FLOW_KEY, "last_us", "packets", "decided")


def key_table(records: Records, spec: MeterSpec, capture: str) -> pa.Table:
    """Key, times in microseconds, packets and reason for the decision of each record."""
    import pyarrow as pa

    n = len(records)
    either = spec.key != "source-host"
    columns: dict[str, Any] = {
        "capture": texts_of(np.zeros(n, dtype=np.int32), [capture]),
        "source": _addresses(records, "source"),
        "source_port": records["source_port"],
        "destination": _addresses(records, "destination")
        if either
        else pa.array([""] * n, pa.string()),
        "destination_port": records["destination_port"],
        "protocol": records["protocol"],
        **{
            f"{name}_us": records[name].astype("int64") * spec.tick_ns // 1000
            for name in ("first", "last")
        },
        "packets": records["packets"].astype("int64"),
        "decided": texts_of(records["why"], ENDS),
    }
    return pa.table(columns)


def flow_table(records: Records, spec: MeterSpec, capture: str) -> pa.Table:
    """The key and the features of each record."""
    import pyarrow as pa

    table = key_table(records, spec, capture)
    for i, name in enumerate(spec.feature_names):
        table = table.append_column(name, pa.array(records["features"][:, i]))
    return table


def texts_of(index: NDArray[np.integer[Any]], names: Sequence[str]) -> pa.Array:
    """The names at some indices; -1 is the last, as in Python.

    Args:
        index: from -1 to the number of names, shape ``(rows,)``.
        names: the names.
    """
    import pyarrow as pa

    index = (index % len(names)).astype(np.int32)
    return pa.DictionaryArray.from_arrays(index, pa.array(names, pa.string())).cast(pa.string())


def address_text(packed: bytes) -> str:
    """An address of 4 or 16 bytes as text, as the C library writes it."""
    return inet_ntop(AF_INET if len(packed) == 4 else AF_INET6, packed)


def _addresses(records: Records, side: str) -> pa.Array:
    """The addresses of one side of each flow as text."""
    import pyarrow as pa

    raw, is_short = records[side], records["address_bytes"] == 4
    if is_short.all():
        return _dotted(raw[:, :4])
    index = np.empty(len(records), dtype=np.int64)
    short = np.count_nonzero(is_short)
    index[is_short] = np.arange(short)
    # Each distinct one is converted once.
    packed, of_packed = np.unique(
        np.ascontiguousarray(raw[~is_short]).view("V16").ravel(), return_inverse=True
    )
    index[~is_short] = short + of_packed
    texts = pa.array([address_text(bytes(p)) for p in packed], pa.string())
    return pa.concat_arrays([_dotted(raw[is_short, :4]), texts]).take(pa.array(index))


def _dotted(octets: NDArray[np.uint8]) -> pa.Array:
    """IPv4 addresses, shape ``(rows, 4)``, as text."""
    from pyarrow.compute import binary_join_element_wise

    numbers = [texts_of(column.astype(np.int32), _OCTETS) for column in octets.T]
    return binary_join_element_wise(*numbers, ".")


def with_labels(
    table: pa.Table, labels: Labels | None, capture: str, outcomes: Counter[str]
) -> pa.Table:
    """The table with its labels; the outcomes of the join are added to ``outcomes``."""
    import pyarrow as pa

    if labels is None:
        return table
    ends = [_ends(table, side) for side in ("source", "destination")]
    times = (table[name].to_pylist() for name in ("protocol", "first_us", "last_us"))
    find = partial(labels.of, capture=Path(capture).name)
    matches = [find(*flow) for flow in zip(*ends, *times, strict=True)]
    outcomes.update(outcome for _, outcome in matches)
    table = table.append_column("label", pa.array([label for label, _ in matches], pa.string()))
    if labels.kinds:
        kind_of = {source: labels.kind(source) if source else "" for source, _ in {*ends[0]}}
        kinds = [kind_of[source] for source, _ in ends[0]]
        table = table.append_column(KIND, pa.array(kinds, pa.string()))
    if labels.synthetic:
        table = table.append_column(SYNTHETIC, pa.array([True] * len(table), pa.bool_()))
    return table


def _ends(table: pa.Table, side: str) -> list[tuple[bytes, int]]:
    """Address and port of one side of each flow."""
    texts = table[side].to_pylist()
    packed = {text: ip_address(text).packed if text else b"" for text in {*texts}}
    return [
        (packed[t], port) for t, port in zip(texts, table[f"{side}_port"].to_pylist(), strict=True)
    ]


def write_rows(tables: Iterable[pa.Table], out: str | Path, spec: MeterSpec) -> int:
    """Write a table, CSV or Parquet, whole or not at all, with its meter.

    Args:
        tables: the rows, at least one table.
        out: a Parquet file if the name ends in ``.parquet``, CSV otherwise.
        spec: the meter.

    Returns:
        Number of rows.

    Raises:
        N3icError: the file cannot be written.
    """
    parquet = Path(out).suffix.lower() == ".parquet"
    rows = 0
    with new_file(out) as stream:
        writer: Any = None
        for table in _grouped(tables):
            writer = writer or _open(stream, table.schema, spec if parquet else None)
            writer.write_table(table)
            rows += len(table)
        writer.close()
        if not parquet:
            write_spec(spec, meter_file(out))
    return rows


def _grouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Regroup rows into tables of equal size, so that files do not depend on the batches."""
    import pyarrow as pa

    pending: Any = None
    for table in tables:
        pending = pa.concat_tables([pending, table]) if pending else table
        while len(pending) > ROW_GROUP:  # the last group is empty only if there is no row
            yield pending.slice(0, ROW_GROUP).combine_chunks()
            pending = pending.slice(ROW_GROUP)
    yield pending.combine_chunks()


def _open(stream: IO[bytes], schema: pa.Schema, spec: MeterSpec | None) -> Any:
    if spec is not None:
        from pyarrow.parquet import ParquetWriter

        metadata = {b"n3ic-units": b"nic", METER_KEY: spec.to_json().encode()}
        return ParquetWriter(stream, schema.with_metadata(metadata))
    from pyarrow.csv import CSVWriter

    stream.write(b"# n3ic-units: nic\n")
    return CSVWriter(stream, schema)
