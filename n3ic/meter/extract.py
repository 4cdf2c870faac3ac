"""Flow tables from captures: metered by a specification, labelled where labels are at hand."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from n3ic.data.metered import METER_KEY, meter_file
from n3ic.errors import UsageError
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import ASIDE, ENDS, CompiledMeter, Records
from n3ic.meter.labels import Labels
from n3ic.meter.specification import write_spec
from n3ic.model.metering import MeterSpec
from n3ic.util.files import new_file

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_PACKETS = 1 << 16
KEY_COLUMNS = (
    "capture",
    "source",
    "source_port",
    "destination",
    "destination_port",
    "protocol",
    "first_us",
    "last_us",
    "packets",
    "decided",
)


@dataclass(frozen=True)
class Extracted:
    """What came of a table's captures.

    Attributes:
        flows: rows that were written.
        packets: packets that were read.
        late: packets after the end of their flow.
        evicted: flows that ended because the flow cache was full.
        aside: packets that belong to no flow, by reason.
        labels: flows that are ``matched``, ``unmatched`` and ``ambiguous``, where there are labels.
    """

    flows: int
    packets: int
    late: int
    evicted: int
    aside: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


def left_out(counters: Mapping[str, int]) -> Iterator[str]:
    """Lines about packets that belong to no flow, and flows that ended early, where there are any.

    Args:
        counters: as :meth:`CompiledMeter.counters` gives them.
    """
    for reason in ASIDE:
        if counters.get(reason):
            yield f"put aside: {counters[reason]:,} packets ({reason})"
    if counters.get("late"):
        yield f"after the end of their flow: {counters['late']:,} packets"
    if counters.get("evicted"):
        yield f"evicted: {counters['evicted']:,} flows, whose cache was full"


def meter_capture(path: str | Path, spec: MeterSpec) -> Iterator[tuple[Records, dict[str, int]]]:
    """Records of a capture's flows, batch by batch in bounded memory, with the counters so far.

    Args:
        path: see :class:`~n3ic.meter.capture.Capture`.
        spec: what a flow is and which integers are kept of it.

    Raises:
        DataError: the capture cannot be read.
        MissingDependencyError: libpcap or a C compiler is missing.
    """
    with Capture(path) as capture, CompiledMeter(spec, capture.link) as meter:
        handler = ctypes.cast(meter.library.meter_packet, ctypes.c_void_p)
        more = True
        while more:
            more = capture.dispatch(handler, meter.pointer, BATCH_PACKETS)
            records = meter.records() if more else meter.finish()
            yield records, meter.counters()


def extract(
    captures: Sequence[str | Path],
    out: str | Path,
    spec: MeterSpec,
    *,
    labels: Labels | None = None,
    tell: Callable[[str, int, int], None] | None = None,
) -> Extracted:
    """Write a table of the flows of captures, whole or not at all.

    The key columns come first, then the specification's features as the integers that a NIC
    keeps, then the label where labels are given. The table carries the specification, see
    :mod:`n3ic.data.metered`.

    Args:
        captures: pcap and pcapng files; ``-`` for standard input.
        out: a CSV file, or a Parquet file where the name ends in ``.parquet``.
        spec: what a flow is and which integers are kept of it.
        labels: labels of the flows.
        tell: called with a capture's name, and the packets and flows of all so far.

    Raises:
        DataError: a capture cannot be read.
        UsageError: no capture is named, or a feature has the name of a key column.
        MissingDependencyError: libpcap or a C compiler is missing.
        N3icError: the file cannot be written.
    """
    if not captures:
        raise UsageError("name at least one capture")
    clash = set(KEY_COLUMNS) & set(spec.feature_names)
    if clash:
        raise UsageError(f"the feature {min(clash)!r} has the name of a column of the flow's key")
    total: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    flows = 0
    parquet = Path(out).suffix.lower() == ".parquet"
    with new_file(out) as stream:
        write, close = _writer(stream, spec if parquet else None)
        for path in captures:
            name = Path(path).name
            counters: dict[str, int] = {}
            for records, so_far in meter_capture(path, spec):
                write(_table(records, spec, name, labels, outcomes))
                counters, flows = so_far, flows + len(records)
                if tell:
                    tell(name, total["packets"] + counters["packets"], flows)
            total.update(counters)
        close()
        if not parquet:
            write_spec(spec, meter_file(out))
    aside = {reason: total[reason] for reason in ASIDE if total[reason]}
    return Extracted(
        flows, total["packets"], total["late"], total["evicted"], aside, dict(outcomes)
    )


def key_table(records: Records, spec: MeterSpec, capture: str) -> pa.Table:
    """Whose flows the records are, when they were and why they were decided: a row each."""
    import pyarrow as pa

    source, destination = (_ends(records, side) for side in ("source", "destination"))
    others = ["" if spec.key == "source-host" else _text(address) for address, _ in destination]
    columns: dict[str, Any] = {
        "capture": pa.array([capture] * len(records), pa.string()),
        "source": pa.array([_text(address) for address, _ in source], pa.string()),
        "source_port": records["source_port"],
        "destination": pa.array(others, pa.string()),
        "destination_port": records["destination_port"],
        "protocol": records["protocol"],
        **{
            f"{name}_us": records[name].astype("int64") * spec.tick_ns // 1000
            for name in ("first", "last")
        },
        "packets": records["packets"].astype("int64"),
        "decided": pa.array([ENDS[i] for i in records["why"].tolist()], pa.string()),
    }
    return pa.table(columns)


def _table(
    records: Records,
    spec: MeterSpec,
    capture: str,
    labels: Labels | None,
    outcomes: Counter[str],
) -> pa.Table:
    """The records as a table; how their labels came out is counted in ``outcomes``."""
    import pyarrow as pa

    table = key_table(records, spec, capture)
    times = (table[name].to_pylist() for name in ("protocol", "first_us", "last_us"))
    for i, name in enumerate(spec.feature_names):
        table = table.append_column(name, pa.array(records["features"][:, i]))
    if labels is not None:
        ends = (_ends(records, side) for side in ("source", "destination"))
        found = [
            labels.of(source, destination, protocol, start, end, capture)
            for source, destination, protocol, start, end in zip(*ends, *times, strict=True)
        ]
        outcomes.update(outcome for _, outcome in found)
        table = table.append_column("label", pa.array([label for label, _ in found], pa.string()))
    return table


def _ends(records: Records, side: str) -> list[tuple[bytes, int]]:
    """Address and port of one side of each flow."""
    parts = (records[name].tolist() for name in ("address_bytes", f"{side}_port"))
    return [(bytes(a[:n]), port) for a, n, port in zip(records[side], *parts, strict=True)]


def _text(address: bytes) -> str:
    return str(ip_address(address))


def _writer(
    stream: IO[bytes], spec: MeterSpec | None
) -> tuple[Callable[[pa.Table], None], Callable[[], None]]:
    """Functions that write a table and that end the file: Parquet that names its meter, or CSV."""
    opened: list[Any] = []

    def write(table: pa.Table) -> None:
        if not opened:
            opened.append(_open(stream, table.schema, spec))
        opened[0].write_table(table)

    def close() -> None:
        for writer in opened:
            writer.close()

    return write, close


def _open(stream: IO[bytes], schema: pa.Schema, spec: MeterSpec | None) -> Any:
    if spec is not None:
        from pyarrow.parquet import ParquetWriter

        said = {b"n3ic-units": b"nic", METER_KEY: spec.to_json().encode()}
        return ParquetWriter(stream, schema.with_metadata(said))
    from pyarrow.csv import CSVWriter

    stream.write(b"# n3ic-units: nic\n")
    return CSVWriter(stream, schema)
