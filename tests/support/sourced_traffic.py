# SPDX-License-Identifier: Apache-2.0
"""Traffic of many sources: visitors that are answered, floods, scans of ports and of hosts."""

import struct
from dataclasses import replace

from n3ic.meter.sources import with_sources

SERVER = bytes([192, 168, 0, 1])


def udp_frame(source, destination, source_port, destination_port):
    """A UDP frame of 60 bytes or more between addresses of either version."""
    body = struct.pack(">HHHH", source_port, destination_port, 8, 0)
    if len(source) == 4:
        head = b"\x08\x00" + struct.pack(">BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
    else:
        head = b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, 8, 17, 64)
    return (bytes(12) + head + source + destination + body).ljust(60, b"\0")


def frames_of_sources(r, count, step, sources=40):
    """Frames of so many sources with their lengths and times, ``step`` units apart at most."""
    now, out = 10**6, []
    for _ in range(count):
        now += r.choice([0, 1, step // 7, step])
        if r.random() < 0.02:
            now = max(0, now - r.choice([1, step]))
        # Few sources send most, so that some stay in their sets and others come and go.
        number = min(r.randrange(sources), r.randrange(sources), r.randrange(sources))
        source = bytes([10, 0, number, 1])
        server = SERVER[:3] + bytes([r.choice([1, r.randrange(90)])])
        if number % 3 == 0:
            network = bytes([0x20, 1, 0, 0, 0, 0, 0, number])
            source, server = network + r.randbytes(1) + bytes(7), server * 4
        ends = (source, server, r.randint(1, 9), r.choice([53, 443, r.randint(1, 99)]))
        out.append((udp_frame(*ends), 60, now))
        if r.random() < 0.3:
            out.append((udp_frame(server, source, ends[3], ends[2]), 60, now))
    return out


def sourced(spec, window=20, entries=1 << 16, features=slice(None)):
    """A specification with the features by source, or some of them."""
    spec = with_sources(spec)
    few = spec.sources.features[features]
    return replace(
        spec, sources=replace(spec.sources, features=few, window=window, entries=entries)
    )
