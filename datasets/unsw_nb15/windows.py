# SPDX-License-Identifier: Apache-2.0
"""Counts over causal windows of raw rows, as the meter's rings of recent flows give them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from n3ic.data.catalogue import Column
from n3ic.datasets.unsw_nb15.meter import WINDOW_FLOWS, WINDOWS
from n3ic.meter.packet import TCP, UDP

_COLUMNS = {
    "source": "srcip",
    "destination": "dstip",
    "protocol": "proto",
    "source_port": "sport",
    "destination_port": "dsport",
}
WINDOW_COLUMNS = (*_COLUMNS.values(), "ltime")
"""Columns of the raw files that the counts need."""


def causal_windows(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Count how many of the last 100 flows share a source, a destination, ..., with each row.

    Flows are in the order of their last times; flows of the same second are in row order. As in the
    meter, protocols other than TCP and UDP have no ports.

    Args:
        columns: int64 arrays of shape ``(rows,)``, addresses and times of the raw files among them.

    Returns:
        int64 array of shape ``(rows,)`` per window; empty if the columns have no addresses.
    """
    if not {*WINDOW_COLUMNS} <= set(columns):
        return {}
    order = np.argsort(columns["ltime"], kind="stable")
    ports = np.isin(columns["proto"], (TCP, UDP))
    parts = {
        part: (np.where(ports, columns[name], 0) if part.endswith("port") else columns[name])[order]
        for part, name in _COLUMNS.items()
    }
    rows = np.arange(len(order))
    out = {}
    for name, same in WINDOWS.items():
        shared = np.stack([parts[part] for part in same], axis=1)
        key = np.unique(shared, axis=0, return_inverse=True)[1].reshape(-1) * max(1, len(rows))
        sorted_rows = np.sort(key + rows)  # by key, then by row
        oldest = np.maximum(rows - (WINDOW_FLOWS - 1), 0)
        counts = np.searchsorted(sorted_rows, key + rows, "right")
        counts -= np.searchsorted(sorted_rows, key + oldest)
        out[name] = np.empty(len(rows), dtype=np.int64)
        out[name][order] = counts
    return out
