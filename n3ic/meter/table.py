# SPDX-License-Identifier: Apache-2.0
"""Turns a meter's labelled flows into a table to train on, which carries the meter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.cell_text import same_spelling
from n3ic.data.column_profile import read_cells
from n3ic.data.delimited import Sheet
from n3ic.data.table import Feature, FlowTable, SourceFile
from n3ic.data.table_meter import is_parquet, meter_of
from n3ic.errors import DataError
from n3ic.meter.flow_keys import protocol_name
from n3ic.meter.rows import FLOW_KEY, KIND, SYNTHETIC
from n3ic.model.inputs import UINT32_MAX
from n3ic.model.meter_spec import Decision, MeteredFeature, MeterSpec, Register
from n3ic.util.files import sha256_file

if TYPE_CHECKING:
    import pyarrow as pa

DATA_SET = "metered"  # name of such tables on the command line
LABEL = "label"
_FEW_HOSTS = 32
_Numbers = NDArray[np.int64]


def load_flows(path: str | Path, *, label: str = LABEL) -> FlowTable:
    """Read a labelled table that :func:`~n3ic.meter.extract.extract` wrote.

    Flows without a label are left out. A network that is trained on the table carries the meter.

    Args:
        path: the CSV or Parquet file.
        label: column of the label.

    Raises:
        DataError: the table names no meter, lacks a column, or holds an invalid feature.
        ModelError: the meter's specification is damaged, or of a newer version.
    """
    spec = meter_of(path)
    if spec is None:
        raise DataError(f"{path}: names no meter; write the table with n3ic data extract")
    digest = sha256_file(path)
    table = flow_table(path, read_table(path), spec, label=label, sha256=digest)
    return replace(table, sources=(SourceFile(str(path), digest, len(table), "metered flows"),))


def flow_table(
    path: str | Path, table: pa.Table, spec: MeterSpec, *, label: str = LABEL, sha256: str
) -> FlowTable:
    """Make a table to train on from metered flows; flows without a label are left out.

    Args:
        path: name of the table in errors.
        table: columns of the specification's features, of the label, and of the flows' keys.
        spec: specification of the meter.
        label: column of the label.
        sha256: digest of the data.

    Raises:
        DataError: a column is missing or holds invalid features, or no flow has a label.
    """
    import pyarrow as pa

    of_flow = (*FLOW_KEY, "packets", "decided") if spec.decision.again else ()
    for name in (*spec.feature_names, *of_flow, label):
        if name not in table.column_names:
            hint = "; n3ic data extract joins it with --labels" if name == label else ""
            raise DataError(f"{path}: the column {name!r} is missing{hint}")
    classes_text = table[label].cast(pa.string()).fill_null("").to_numpy().astype(str)
    table, classes_text = (
        table.filter(pa.array(classes_text != "")),
        classes_text[classes_text != ""],
    )
    if not len(table):
        raise DataError(f"{path}: no flow has a label")
    flow, point = _decisions(table, spec.decision)
    texts, rows = np.unique(classes_text, return_inverse=True)
    classes, index = np.unique(same_spelling(texts.tolist()), return_inverse=True)
    return FlowTable(
        name=DATA_SET,
        features={name: _integers(path, name, table[name]) for name in spec.feature_names},
        catalogue=catalogue_of(spec),
        label=index[rows].astype(np.int64),
        classes=tuple(classes.tolist()),
        synthetic=_synthetic(table),
        sha256=sha256,
        category=_kinds(table),
        conversation=_conversations(table),
        flow=flow,
        point=point,
        meter=spec,
    )


def _kinds(table: pa.Table) -> NDArray[np.str_] | None:
    """The kind that the labels name, or else protocol and, where few hosts send flows, source.

    None without a key.
    """
    if "protocol" not in table.column_names:
        return None
    number_texts = table["protocol"].to_numpy().astype(str)
    texts, of_row = np.unique(number_texts, return_inverse=True)
    kinds = np.array([protocol_name(text) for text in texts.tolist()])[of_row]
    if "source" in table.column_names:
        sources = table["source"].dictionary_encode().combine_chunks()
        hosts = np.array(sources.dictionary.fill_null("").to_pylist(), dtype=str)
        if len(hosts) <= _FEW_HOSTS:
            from_host = np.char.add(" from ", hosts)[sources.indices.to_numpy()]
            kinds = np.char.add(kinds, from_host)
    if KIND in table.column_names:
        named = table[KIND].fill_null("").to_numpy().astype(str)
        kinds = np.where(named == "", kinds, named)
    return np.asarray(kinds)


def catalogue_of(spec: MeterSpec) -> tuple[Feature, ...]:
    """Describe a specification's features; those that read the TTL leak the set-up."""
    out = []
    for feature in spec.features:
        read = _registers_read(spec, feature)
        leaks = any(r.field == "ttl" for r in read)
        names = ", ".join(r.name for r in read)
        out.append(
            _entry(
                feature.name,
                _meaning(read[0]) if feature.register else f"computed from {names}",
                feature.unit,
                spec.largest(feature),
                "tells a host and how far away it is" if leaks else "",
            )
        )
    for w in spec.windows:
        same = " and ".join(w.same).replace("_", " ")
        meaning = f"how many of the last {w.flows:,} flows have the same {same}"
        out.append(_entry(w.name, meaning, spec.units[w.name], w.flows, ""))
    seconds = (1 << spec.sources.window) * spec.tick_ns / 10**9
    for f in spec.sources.features:
        meaning = (
            f"{f.count.replace('_', ' ')} of the source in {seconds:.3g} to {2 * seconds:.3g} s"
        )
        out.append(_entry(f.name, meaning, spec.units[f.name], f.largest, ""))
    return tuple(out)


def _entry(name: str, meaning: str, unit: str, largest: int, leak: str) -> Feature:
    return Feature(
        name=name,
        meaning=meaning,
        source_unit=unit,
        unit=unit,
        scale=1,
        bits=max(1, min(largest, UINT32_MAX).bit_length()),
        nic=True,
        nic_reason="integers of the flow's registers",
        leaks=bool(leak),
        leak_reason=leak,
    )


def _meaning(register: Register) -> str:
    quantity = (register.field or "packets").replace("_", " ")
    return f"{register.update} of {quantity}, {register.guard.direction}"


def _registers_read(spec: MeterSpec, feature: MeteredFeature) -> list[Register]:
    """The registers that a feature reads, each once."""
    operands: Iterable[str] = (o for step in feature.program for o in (step.left, step.right))
    names = [feature.register] if feature.register else operands
    return [spec.registers[spec.index[name]] for name in dict.fromkeys(names) if name in spec.index]


def read_table(path: str | Path | Sheet) -> pa.Table:
    """Read all columns of a table of flows.

    Raises:
        DataError: the table is damaged.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if isinstance(path, Sheet):
            return read_cells(path, path.first).rename_columns(path.first)
        if is_parquet(path):
            return parquet.read_table(path)
        with Path(path).open("rb") as stream:
            head = stream.read(1)
        return csv.read_csv(path, csv.ReadOptions(skip_rows=int(head == b"#")))
    except pa.ArrowException as error:
        raise DataError(f"{path}: this table is damaged: {error}") from error


def _synthetic(table: pa.Table) -> bool:
    """Whether a row says that a generator made its flow."""
    if SYNTHETIC not in table.column_names:
        return False
    return "true" in {str(value).lower() for value in table[SYNTHETIC].unique().to_pylist()}


def _conversations(table: pa.Table) -> NDArray[np.int64] | None:
    """Index of each flow's 5-tuple, in either direction; None if the table lacks the key."""
    ends = ("source", "source_port"), ("destination", "destination_port")
    if {*ends[0], *ends[1], "protocol"} - {*table.column_names}:
        return None
    sides = (zip(*(table[name].to_pylist() for name in end), strict=True) for end in ends)
    known: dict[tuple[object, ...], int] = {}
    keys = zip(*sides, table["protocol"].to_pylist(), strict=True)
    numbers = [known.setdefault((frozenset((a, b)), p), len(known)) for a, b, p in keys]
    return np.array(numbers, dtype=np.int64)


def _decisions(table: pa.Table, rule: Decision) -> tuple[_Numbers | None, _Numbers | None]:
    """Each row's flow, and its point in the schedule; None if flows are decided once."""
    if not rule.again:
        return None, None
    known: dict[tuple[object, ...], int] = {}
    keys = zip(*(table[name].to_pylist() for name in FLOW_KEY), strict=True)
    flow = np.array([known.setdefault(key, len(known)) for key in keys], np.int64)
    if not rule.schedule:
        return flow, None
    why, packets = (table[name].to_numpy() for name in ("decided", "packets"))
    # A decision by time replaces the first point.
    early = np.where(why == "after", rule.schedule[0], packets)
    return flow, np.where(np.isin(why, ("after", "packets")), early, 0).astype(np.int64)


def _integers(path: str | Path, name: str, column: pa.ChunkedArray) -> NDArray[np.int64]:
    import pyarrow as pa

    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"{path}, column {name!r}: expected integers, got {column.type} or blanks")
    values = column.to_numpy().astype(np.int64)
    if len(values) and not 0 <= values.min() <= values.max() <= UINT32_MAX:
        raise DataError(f"{path}, column {name!r}: expected integers from 0 to {UINT32_MAX:,}")
    return np.asarray(values)
