# SPDX-License-Identifier: Apache-2.0
"""Replays the flows of a capture or a table as a stream would deliver them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import DataError, UsageError
from n3ic.meter.capture import is_capture
from n3ic.meter.compiled import KEY, Records
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch, FlowColumns, decided, features_read

_NUMBERED = 10 << 24  # flows without addresses get those of 10.0.0.0/8, in their order
_TIMES = ("first", "last")


@dataclass(frozen=True, eq=False)
class ReplayedFlows(FlowColumns):
    """Flows of a table, in its order, with their labels.

    Attributes:
        features: the model's features, uint32, shape ``(flows, features)``.
        label: index in the model's classes, -1 without a label, int64, shape ``(flows,)``.
        records: key and times of each flow, shape ``(flows,)``.
    """

    features: NDArray[np.uint32]
    label: NDArray[np.int64]
    records: Records

    def batch(self, model: Classifier, rows: slice) -> FlowBatch:
        """Decide some of the flows with a model."""
        return decided(model, self.records[rows], self.features[rows])


def replayed(path: str | Path, model: Classifier, *, dataset: str | None = None) -> ReplayedFlows:
    """Read the flows of a table from ``n3ic data extract`` or of a data set.

    Flows of a data set have no keys; each gets its own address.

    Raises:
        DataError: The table cannot be read, or lacks a feature.
        UsageError: No data set reads it.
    """
    from n3ic.data.table_meter import meter_of
    from n3ic.usecases.evaluation import labelled_flows

    if not Path(path).is_file():
        raise DataError(f"{path}: No such file")
    if is_capture(path):
        raise UsageError(f"{path}: expected a table of flows, got a capture")
    if dataset is None and meter_of(path) is not None:
        return _metered(path, model)
    (flows,) = labelled_flows(model, path, dataset).values()
    features = [flows.table.features[name] for name in model.input.features]
    return ReplayedFlows(
        np.stack(features, axis=1).astype(np.uint32), flows.label, numbered(len(flows.label))
    )


def flows_of(path: str | Path, model: Classifier, dataset: str | None = None) -> ReplayedFlows:
    """Read all flows of a capture or of a table; those of a capture have no labels.

    Raises:
        DataError: It holds no flow, or cannot be read.
        UsageError: No data set reads it, or a capture is given and the model has no meter.
    """
    from n3ic.meter.records import meter_capture

    if not is_capture(path):
        return replayed(path, model, dataset=dataset)
    if model.meter is None:
        raise UsageError(f"{path}: {model.name} has no meter: give a table of flows")
    parts = [records for records, _ in meter_capture(path, model.meter) if len(records)]
    if not parts:
        raise DataError(f"{path}: expected flows, got none")
    records = np.concatenate(parts)
    features = features_read(model, model.meter.feature_names, records)
    return ReplayedFlows(features, np.full(len(features), -1, np.int64), records)


def numbered(rows: int, start: int = 0) -> Records:
    """Make records for flows without keys: address and time are the flow's number."""
    records = np.zeros(rows, _record_type())
    number = np.arange(start, start + rows, dtype=np.int64)
    octets = (number + _NUMBERED).astype(">u4").view(np.uint8).reshape(-1, 4)
    records["source"][:, :4] = octets
    records["destination"][:, :4] = 10, 255, 255, 255
    records["address_bytes"] = 4
    for name in _TIMES:
        records[name] = number
    return records


def _metered(path: str | Path, model: Classifier) -> ReplayedFlows:
    from n3ic.meter.table import LABEL, read_table

    table = read_table(path)
    lacking = [name for name in model.input.features if name not in table.column_names]
    if lacking:
        raise DataError(f"{path}: the column {lacking[0]!r} is missing, which the model reads")
    features = [table[name].to_numpy().astype(np.int64) for name in model.input.features]
    label = np.full(len(table), -1, np.int64)
    if LABEL in table.column_names:
        index = {name: i for i, name in enumerate(model.classes)}
        label = np.array([index.get(str(x), -1) for x in table[LABEL].to_pylist()], np.int64)
    records = np.zeros(len(table), _record_type())
    for side in ("source", "destination"):
        texts = table[side].to_pylist()
        packed = {t: ip_address(t).packed if t else b"" for t in {*texts}}
        for i, text in enumerate(texts):
            raw = packed[text]
            records[side][i, : len(raw)] = np.frombuffer(raw, np.uint8)
            records["address_bytes"][i] = max(len(raw), records["address_bytes"][i])
        records[f"{side}_port"] = table[f"{side}_port"].to_numpy()
    records["protocol"] = table["protocol"].to_numpy()
    tick = model.meter.tick_ns if model.meter else 1000
    for name in _TIMES:
        records[name] = table[f"{name}_us"].to_numpy().astype(np.int64) * 1000 // tick
    return ReplayedFlows(np.stack(features, axis=1).astype(np.uint32), label, records)


def _record_type() -> np.dtype[np.void]:
    """The dtype of a record without features: key and times."""
    return np.dtype([*KEY, *((name, np.uint64) for name in _TIMES)], align=True)
