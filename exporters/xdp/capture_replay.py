# SPDX-License-Identifier: Apache-2.0
"""Replays a capture through the metering program, and returns its flows for verification."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.xdp.layout import NO_MODEL
from n3ic.exporters.xdp.program import SHORTEST, MeterPrograms
from n3ic.exporters.xdp.replay import Frame, replay, replayable
from n3ic.exporters.xdp.source import Table
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import ASIDE, ENDS
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.rows import address_text
from n3ic.model.bits import Words, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.meter_spec import MeterSpec, Tunnel

_LEAST = 4096  # flows; small LRU maps evict long before they are full, because they do so per CPU
_SPARE = {"lru": 4, "buckets": 16}  # spare entries per flow, so that no bucket ever overflows


def room_for(capture: Path, table: Table, tunnels: Collection[Tunnel]) -> int:
    """Return a table size, in flows, at which no flow of a capture is evicted.

    Raises:
        DataError: the capture cannot be read.
    """
    keys = set()
    with Capture(capture) as opened:
        for frame, length, _ in opened.packets():
            packet = parse(LINK_ETHERNET, frame, length, 0, tunnels)
            if not isinstance(packet, str):
                ends = packet.source, packet.destination
                ports = packet.source_port, packet.destination_port
                # Sorted endpoints make both directions of a flow one key.
                keys.add((*sorted(zip(ends, ports, strict=True)), packet.protocol))
    return max(_LEAST, _SPARE[table] * len(keys))


def replay_capture(
    programs: MeterPrograms, capture: Path
) -> tuple[NDArray[np.void], dict[str, int]]:
    """Return flows in the order of their decisions, and counters of the packets.

    Frames that are too short for an interface are counted here, as the reference meter counts them.

    Raises:
        DataError: the capture cannot be read.
    """
    short = 0

    def frames(opened: Capture) -> Iterator[Frame]:
        nonlocal short
        for frame, length, time in opened.packets():
            short += len(frame) < SHORTEST
            yield from replayable([(frame, length, time // programs.spec.tick_ns)])

    with Capture(capture) as opened:
        events = replay(programs, frames(opened))
    counters = programs.counters()
    counters["packets"] += short
    counters["link header cut short"] += short
    return events, {name: counters[name] for name in ("packets", "late", "forgotten", *ASIDE)}


def flow_rows(
    model: Classifier, spec: MeterSpec, events: NDArray[np.void], bits: Words
) -> tuple[tuple[str, ...], ...]:
    """Convert decided flows to the form of :class:`~n3ic.targets.base.MeteredCapture`."""
    inputs = unpack(bits, model.input.n_bits).astype(int)
    return tuple(
        (
            str(i),
            *_ends(spec, event),
            str(event["protocol"]),
            *(str(int(event[name]) * spec.tick_ns // 1000) for name in ("first", "last")),
            str(event["packets"]),
            ENDS[int(event["why"])],
            "none" if event["verdict"] == NO_MODEL else model.verdict_names[int(event["verdict"])],
            str(event["margin"]),
            *map(str, event["scores"].tolist()),
            *map(str, event["registers"].tolist()[: len(spec.registers)]),
            *map(str, event["features"].tolist()),
            "".join(map(str, inputs[i].tolist())),
        )
        for i, event in enumerate(events)
    )


def _ends(spec: MeterSpec, event: np.void) -> Iterator[str]:
    size = int(event["address_bytes"])
    for end in ("source", "destination"):
        one_sided = end == "destination" and spec.key == "source-host"
        yield "" if one_sided else address_text(bytes(event[end][:size]))
        yield str(event[f"{end}_port"])
