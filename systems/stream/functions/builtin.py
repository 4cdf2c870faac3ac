# SPDX-License-Identifier: Apache-2.0
"""The small ready functions, ``recorder`` and ``count``; larger ones have modules of their own."""

from __future__ import annotations

import json
import struct
from typing import Any

from n3ic.meter.packet import LINK_ETHERNET
from n3ic.systems.stream.functions.options import only, open_output, path_of
from n3ic.systems.stream.functions.packets import PacketFunction, PacketView

_HEAD = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, LINK_ETHERNET)  # nanoseconds
_RECORD = struct.Struct("=IIII")


class CountFunction(PacketFunction):
    """Counts packets and bytes, and passes all on; ``out`` gets the counts at the end as JSON."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        only(self.options, "out")
        self.out = path_of(self.options, "out") if "out" in self.options else None
        self.packets = self.bytes = 0

    def on_batch(self, view: PacketView) -> None:
        """Count packets."""
        self.packets += len(view)
        self.bytes += int(view.length.sum())

    def on_end(self) -> None:
        """Write the counts."""
        if self.out:
            counts = {"packets": self.packets, "bytes": self.bytes}
            self.out.write_text(json.dumps(counts) + "\n", "utf-8")


class RecorderFunction(PacketFunction):
    """Appends all packets to the pcap file ``out``, with times in ns, and passes them on."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        only(self.options, "out")
        self.file = open_output(path_of(self.options, "out"))
        if not self.file.tell():
            self.file.write(_HEAD)
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
