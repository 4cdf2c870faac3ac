# SPDX-License-Identifier: Apache-2.0
"""What a stream counts while it runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from n3ic.errors import needed
from n3ic.meter.compiled import ASIDE
from n3ic.systems.stream.flows.state import Successor

_LONGEST_US = 3600 * 10**6
PERCENTILES = (50.0, 90.0, 99.0, 99.9)


class Latencies:
    """A histogram of times (HDR: three significant digits from 1 us to an hour).

    Attributes:
        histogram: the ``HdrHistogram``.
        sum_us: sum of all times in microseconds.

    Raises:
        MissingDependencyError: hdrhistogram is not installed.
    """

    def __init__(self) -> None:
        with needed("measuring latencies"):
            from hdrh.histogram import HdrHistogram

        self.histogram = HdrHistogram(1, _LONGEST_US, 3)
        self.sum_us = 0

    def add(self, nanoseconds: int, count: int) -> None:
        """Count a time for ``count`` flows."""
        us = min(max(1, nanoseconds // 1000), _LONGEST_US)
        if count:
            self.histogram.record_value(us, count)
            self.sum_us += us * count

    def to_dict(self) -> dict[str, float]:
        """The percentiles and the largest time, in microseconds; empty without flows."""
        if not self.histogram.get_total_count():
            return {}
        percentiles = {f"p{p:g}_us": self.histogram.get_value_at_percentile(p) for p in PERCENTILES}
        return {**percentiles, "max_us": self.histogram.get_max_value()}


class StreamFigures:
    """Counts of a stream; one thread writes each, and all may read it.

    Attributes:
        packets: packets (or rows) read since the stream began.
        read: packets (or rows) read since this process began.
        frame_bytes: bytes of the packets on the wire, since this process began.
        flows: flows decided since the stream began.
        classes: the same flows, by verdict.
        meter: see :meth:`~n3ic.meter.compiled.CompiledMeter.counters`.
        lost: packets lost since the stream began, by place and reason.
        waiting: for each queue, the items that wait now, the most that have waited, and its room.
        commits: states written since the stream began.
        models: the models since the stream began, in their order, each with its first flow.
        decided: times from the arrival of a packet batch to the decision.
        written: times from the arrival of a packet batch until the sinks had the flow.
    """

    def __init__(self) -> None:
        self.packets = self.read = self.frame_bytes = self.flows = self.commits = 0
        self.classes: Counter[str] = Counter()
        self.models: tuple[Successor, ...] = ()
        self.meter: Mapping[str, int] = {}
        self.lost: Mapping[str, int] = {}
        self.waiting: Mapping[str, tuple[int, int, int]] = {}
        self.decided, self.written = Latencies(), Latencies()
        self.began = time.monotonic()
        self.seconds = 0.0

    def tick(self) -> None:
        """Update the elapsed time."""
        self.seconds = time.monotonic() - self.began

    @property
    def dropped(self) -> dict[str, int]:
        """Packets that belong to no flow, by place and reason."""
        aside = {f"meter: {name}": n for name in ASIDE if (n := self.meter.get(name, 0))}
        return {**{name: n for name, n in self.lost.items() if n}, **aside}

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain data for JSON."""
        seconds = max(self.seconds, 1e-9)
        return {
            "packets": self.packets,
            "packets_this_run": self.read,
            "bytes_this_run": self.frame_bytes,
            "flows": self.flows,
            "classes": dict(self.classes),
            "models": [asdict(model) for model in self.models],
            "dropped": self.dropped,
            "meter": dict(self.meter),
            "commits": self.commits,
            "seconds": round(self.seconds, 6),
            "packets_per_second": round(self.read / seconds),
            "latency_decided": self.decided.to_dict(),
            "latency_written": self.written.to_dict(),
            "queues": {
                name: {"waiting": now, "highest": high, "room": room}
                for name, (now, high, room) in self.waiting.items()
            },
        }
