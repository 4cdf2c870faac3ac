# SPDX-License-Identifier: Apache-2.0
"""Makes traffic and measures time for benchmarks of meters: many flows, core seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median

import numpy as np
from numpy.typing import NDArray

from n3ic.meter.compiled import Frames

_FLOWS = 20_000
_CAPTURED = 96  # bytes of a frame in the capture: headers, as a snap length leaves them
_TIMES = 5  # a median withstands two disturbed runs


def generated_frames(packets: int) -> Frames:
    """Generate frames of 20,000 TCP and UDP biflows; a few of them carry most packets."""
    rng = np.random.default_rng(0)
    # Heavy-tailed, as traffic is: a few flows carry most packets and stay in the cache.
    flow = (rng.pareto(0.7, packets) * 20).astype(np.uint64) % _FLOWS
    reverse = rng.random(packets) < 0.5
    length = rng.choice(np.array([_CAPTURED, 576, 1514], dtype=np.uint32), packets)
    frame = np.zeros((packets, _CAPTURED), dtype=np.uint8)
    frame[:, 12] = 8  # EtherType 0x0800
    frame[:, 14], frame[:, 22] = 0x45, 64  # IPv4 with a header of 20 bytes; TTL
    total = (length - 14).astype(np.uint16)
    frame[:, 16:18] = _bytes(total)
    udp = flow % 4 == 0
    frame[:, 23] = np.where(udp, 17, 6)
    client = (0x0A000000 + flow).astype(np.uint32)
    server = (0xC0A80000 + flow % 250).astype(np.uint32)
    ports = (1024 + flow).astype(np.uint16), np.full(packets, 443, dtype=np.uint16)
    frame[:, 26:30] = _bytes(np.where(reverse, server, client))
    frame[:, 30:34] = _bytes(np.where(reverse, client, server))
    frame[:, 34:36] = _bytes(np.where(reverse, ports[1], ports[0]))
    frame[:, 36:38] = _bytes(np.where(reverse, ports[0], ports[1]))
    frame[udp, 38:40] = _bytes(total[udp] - 20)
    frame[~udp, 46], frame[~udp, 47] = 0x50, 16  # header of 20 bytes, ACK
    return Frames(
        frame.reshape(-1),
        np.arange(packets, dtype=np.uint64) * _CAPTURED,
        np.full(packets, _CAPTURED, dtype=np.uint32),
        length,
        np.arange(packets, dtype=np.uint64),
    )


def _bytes(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    """Numbers in network order: uint8 array of shape ``(rows, bytes)``."""
    swapped = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder(">")))
    return swapped.view(np.uint8).reshape(len(numbers), -1)


def write_pcap(file: Path, link: int, frames: Frames) -> None:
    """Write frames, whose times are microseconds, as a pcap file."""
    with file.open("wb") as out:
        # Magic number of microseconds, version 2.4, snap length, link type.
        out.write(np.array([0xA1B2C3D4, 4 << 16 | 2, 0, 0, 1 << 18, link], dtype="<u4").tobytes())
        seconds, microseconds = np.divmod(frames.time, np.uint64(10**6))
        heads = np.stack([seconds, microseconds, frames.captured, frames.length], axis=1).astype(
            "<u4"
        )
        data = frames.data.tobytes()
        starts = frames.offset.tolist()
        for head, start, size in zip(heads, starts, frames.captured.tolist(), strict=True):
            out.write(head.tobytes() + data[start : start + size])


def median_seconds(work: Callable[[], object]) -> float:
    """Median of the core seconds of five runs."""
    return median(core_seconds_of(work) for _ in range(_TIMES))


def core_seconds_of(work: Callable[[], object]) -> float:
    """Core seconds of a run, in this process and in those that it starts."""
    start = _core_seconds()
    work()
    return _core_seconds() - start


def _core_seconds() -> float:
    used = (getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN))
    return sum(r.ru_utime + r.ru_stime for r in used)
