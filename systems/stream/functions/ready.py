# SPDX-License-Identifier: Apache-2.0
"""Functions that are ready to use: meter and network, recorder, count."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.api import load
from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.meter.compiled import CompiledMeter, Records
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.rows import key_table
from n3ic.meter.verdicts import features_of
from n3ic.systems.stream.functions.packets import PacketFunction, PacketView, SharedPackets

_PCAP_NS = 0xA1B23C4D
_RECORD = struct.Struct("=IIII")


class CountFunction(PacketFunction):
    """Counts packets and bytes, and passes all on; ``out`` gets the counts at the end as JSON."""

    def __init__(
        self, options: Mapping[str, Any], routes: tuple[str, ...], shared: SharedPackets
    ) -> None:
        super().__init__(options, routes, shared)
        _only(options, "out")
        self.out = _path(options, "out") if "out" in options else None
        self.packets = self.bytes = 0

    def on_batch(self, view: PacketView) -> None:
        """Count packets."""
        self.packets += len(view)
        self.bytes += int(view.length.sum())

    def on_end(self) -> None:
        """Write the counts."""
        if self.out:
            said = {"packets": self.packets, "bytes": self.bytes}
            self.out.write_text(json.dumps(said) + "\n", "utf-8")


class RecorderFunction(PacketFunction):
    """Appends all packets to the pcap file ``out``, with nanoseconds, and passes them on."""

    def __init__(
        self, options: Mapping[str, Any], routes: tuple[str, ...], shared: SharedPackets
    ) -> None:
        super().__init__(options, routes, shared)
        _only(options, "out")
        self.file = _append(_path(options, "out"))
        if not self.file.tell():
            self.file.write(struct.pack("=IHHiIII", _PCAP_NS, 2, 4, 0, 0, 1 << 18, LINK_ETHERNET))
            self.file.flush()

    def on_batch(self, view: PacketView) -> None:
        """Write packets."""
        columns = (view.time.tolist(), view.captured.tolist(), view.length.tolist())
        for i, (time, captured, length) in enumerate(zip(*columns, strict=True)):
            seconds, rest = divmod(time, 10**9)
            self.file.write(_RECORD.pack(seconds & 0xFFFFFFFF, rest, captured, length))
            self.file.write(view.packet(i).data)
        self.file.flush()

    def on_end(self) -> None:
        """Close the file."""
        self.file.close()


class MeterFunction(PacketFunction):
    """Meters packets, classifies flows by ``model``, and appends a JSON line each to ``out``."""

    def __init__(
        self, options: Mapping[str, Any], routes: tuple[str, ...], shared: SharedPackets
    ) -> None:
        super().__init__(options, routes, shared)
        _only(options, "model", "out", "task")
        self.model = load(_path(options, "model"), str(options.get("task", "")))
        if self.model.meter is None:
            raise UsageError(f"{options['model']}: the model has no meter")
        self.spec = self.model.meter
        self.meter = CompiledMeter(self.spec, LINK_ETHERNET)
        self.out = _append(_path(options, "out"))

    def on_batch(self, view: PacketView) -> None:
        """Count packets where they lie, and tell the flows that were decided."""
        self.meter.count_frames(view.frames(self.spec.tick_ns))
        self._tell(self.meter.records())

    def on_end(self) -> None:
        """Decide the flows that are left."""
        more = True
        while more:
            more = self.meter.end(1024)
            self.shared.alive()
            self._tell(self.meter.records())
        self.meter.close()
        self.out.close()

    def _tell(self, records: Records) -> None:
        if not len(records):
            return
        columns = features_of(records, self.spec)
        found = predict(self.model, self.model.encode(columns))
        verdicts = self.model.verdicts(found.scores)
        rows = key_table(records, self.spec, "").drop_columns(["capture"]).to_pylist()
        names, classes = self.model.verdict_names, np.asarray(found.classes).tolist()
        lines = []
        for i, (row, verdict) in enumerate(zip(rows, verdicts.tolist(), strict=True)):
            row["verdict"], row["class"] = names[verdict], self.model.classes[classes[i]]
            row["margin"] = int(found.margins[i])
            row["scores"] = found.scores[i].tolist()
            lines.append(json.dumps(row).encode() + b"\n")
        self.out.write(b"".join(lines))
        self.out.flush()


READY: Mapping[str, type[PacketFunction]] = {
    "count": CountFunction,
    "meter": MeterFunction,
    "recorder": RecorderFunction,
}


def _only(options: Mapping[str, Any], *known: str) -> None:
    for name in options:
        if name not in known:
            raise UsageError(f"options.{name}: unknown, expected {', '.join(known)}")


def _path(options: Mapping[str, Any], name: str) -> Path:
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise UsageError(f"options.{name}: expected a path, got {value!r}")
    return Path(value)


def _append(path: Path) -> BufferedWriter:
    try:
        return path.open("ab")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
