"""Causal windows over raw rows, by the meter's own rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.errors import DataError
from n3ic.meter.packet import Packet
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec

_KEY = ("srcip", "dstip", "proto", "sport", "dsport", "ltime")


def causal_windows(table: FlowTable) -> Mapping[str, NDArray[np.int64]]:
    """How many of the last 100 flows share a source, a destination, ..., with each row.

    The flows are decided in the order of the rows; each passes the reference meter as one packet.

    Args:
        table: rows of the raw files in the order of their last times.

    Returns:
        int64 array of shape ``(rows,)`` for each window of the standard specification.

    Raises:
        DataError: the table has no addresses, or its rows are in another order.
    """
    if not set(_KEY) <= set(table.features):
        raise DataError(f"{table.name}: windows need the addresses and times of the raw files")
    if (np.diff(table.features["ltime"]) < 0).any():
        raise DataError(f"{table.name}: windows need rows in the order of their last times")
    spec = standard_spec(packets=1, idle_timeout_us=1)
    records = ReferenceMeter(spec).run(_packets(table))
    counts = [[r.features[w.name] for w in spec.windows] for r in records]
    columns = np.array(counts, dtype=np.int64).reshape(-1, len(spec.windows)).T
    return {w.name: column for w, column in zip(spec.windows, columns, strict=True)}


def _packets(table: FlowTable) -> Iterator[Packet]:
    """A packet a row, so late that the row before it has ended."""
    keys = zip(*(table.features[name].tolist() for name in _KEY[:5]), strict=True)
    for i, (source, destination, protocol, source_port, destination_port) in enumerate(keys):
        yield Packet(
            time=2 * i,
            wire_length=0,
            ip_length=0,
            payload_length=0,
            source=source.to_bytes(4, "big"),
            destination=destination.to_bytes(4, "big"),
            protocol=protocol,
            source_port=source_port,
            destination_port=destination_port,
            ttl=0,
            tcp_flags=0,
            tcp_window=0,
        )
