#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure which share of honest flows the XDP program decides while it is flooded with new flows.

200 honest TCP flows run at a time, with one packet per second each. Each should be decided at its
8th packet, and is then replaced by a new one. Meanwhile comes a flood of one-packet flows, from 100
sources or each from its own source. Frames carry their times, so the results do not depend on the
machine's speed. Needs root, clang and libbpf.

Usage: scripts/xdp_flood.py [--seconds 10] [--rates 3000,30000,300000] [--scale 1] [--json]
  --scale 16 divides tables, budgets and rates by 16: the same shares with fewer packets.
"""

from __future__ import annotations

import argparse
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from n3ic.exporters.xdp.bench import FLOWS, spread_model
from n3ic.exporters.xdp.libbpf import BpfObject
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.program import MeterPrograms
from n3ic.exporters.xdp.source import METER, Table, compile_program, meter_program, test_program
from n3ic.exporters.xdp.verdict_lists import Limits
from n3ic.meter.standard import standard_spec

PACKETS = 8  # the packet at which a flow is decided
HONEST = 200
SLICE_NS = 10_000_000  # at scale 1
GAP_NS = 10**9
START_NS = 10**12  # not 0: a clock of 0 means before any packet
SPEC = standard_spec(packets=PACKETS)
WAYS: tuple[tuple[str, Table, int, int], ...] = (
    ("before: lru, 65,536 flows", "lru", 65_536, 0),
    ("buckets, 65,536 flows", "buckets", 65_536, 0),
    ("now: buckets, 65,536 flows, 1,000 new flows a source", "buckets", 65_536, 1000),
    ("now with --new-flows 100", "buckets", 65_536, 100),
    ("now with --flows 524288", "buckets", 524_288, 1000),
)


@dataclass(frozen=True)
class Flooded:
    """A measurement.

    Attributes:
        way: table and limits.
        sources: number of sources of the flood; 0 for a new source with each packet.
        rate: new flows of the flood per second.
        honest: number of honest flows that sent 8 packets.
        decided: share of these that was decided at its 8th packet.
        undecided: flows that left the table without a decision; a lower bound.
        evicted: flows that were decided early, to make room.
        excess: packets over the budget of their source.
    """

    way: str
    sources: int
    rate: int
    honest: int
    decided: float
    undecided: int
    evicted: int
    excess: int


def tcp(address: int, port: int, flags: int) -> bytes:
    """An empty TCP segment of 192.168/16 or, for the flood, of any source."""
    source = bytes([192, 168, address >> 8, address & 255])
    head = bytes.fromhex("45000028000000004006 0000") + source + bytes([198, 51, 100, 1])
    body = struct.pack(">HHIIBBHI", port, 80, 0, 0, 0x50, flags, 512, 0)
    return bytes(12) + b"\x08\x00" + head + body + bytes(6)


def honest_packets(end_ns: int) -> Iterator[tuple[int, bytes]]:
    """Yield times and frames of honest flows, in order of time."""
    rng = np.random.default_rng(0)
    due: list[tuple[int, bytes]] = []
    for i in range(HONEST):
        time, sent, port = int(rng.integers(0, GAP_NS)), 0, 1024
        while time < end_ns:
            sent += 1
            due.append((time, tcp(i, port, 0x02 if sent == 1 else 0x10)))
            time += GAP_NS
            if sent == PACKETS:
                port, sent = port + 1, 0
    yield from sorted(due)


def measure(image: bytes, way: tuple[str, Table, int, int], sources: int, rate: int, seconds: float,
            slice_ns: int, model_value: bytes, structure: object) -> Flooded:  # fmt: skip
    """Flood a program for some seconds of its clock, with one run of the flood per slice.

    Slices are needed because a run costs the kernel some milliseconds, however few its packets.
    """
    name, table, flows, new_flows = way
    generator = compile_program(test_program(FLOWS), FLOWS)
    end_ns = int(seconds * 1e9)
    flood_frame, honest = tcp(0, 0, 0x02), 0
    of_flow: dict[bytes, int] = {}
    with (
        BpfObject(generator, FLOWS) as flood,
        MeterPrograms(
            image, METER, SPEC, structure, clock="trailer", events=False, flows=flows,  # type: ignore[arg-type]
            table=table, limits=Limits(new_flows=new_flows),
        ) as programs,
    ):  # fmt: skip
        programs.set_model(0, model_value)
        flood.maps["measured"].update(0, programs.program.fd)
        packets, interval = honest_packets(end_ns), 10**9 // rate
        following = next(packets, None)
        sent = 0
        for start in range(0, end_ns, slice_ns):
            while following is not None and following[0] < start + slice_ns:
                _, frame = following
                tick = (START_NS + start) // SPEC.tick_ns
                programs.program.test_run(programs.replayed(frame, len(frame), tick))
                key = frame[26:38]
                of_flow[key] = of_flow.get(key, 0) + 1
                honest += of_flow[key] == PACKETS
                following = next(packets, None)
            count = rate * (start + slice_ns) // 10**9 - sent
            value = struct.pack("=5Q", START_NS + start, interval, sent, sources, SPEC.tick_ns)
            flood.maps["floods"].update(0, value)
            if count:
                flood.programs["flood_on"].test_run(flood_frame, repeat=count)
            sent += count
        counters, flows_in_table = programs.counters(), programs.held()
    undecided = max(0, counters["started"] - counters["flows_decided"] - flows_in_table)
    return Flooded(
        name,
        sources,
        rate,
        honest,
        counters["decided: packets"] / honest,
        undecided,
        counters["decided: evicted"],
        counters["excess"],
    )


def main() -> None:
    """Print a line per table, flood and rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rates", default="3000,30000,300000")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    units = [(feature.name, feature.unit) for feature in SPEC.features]
    model = spread_model(units, (1 << 8, 1 << 15, 1 << 31), np.random.default_rng(0))
    structure = structure_of([model])
    images = {
        table: compile_program(meter_program(SPEC, structure, per_cpu=False, table=table), METER)
        for table in ("lru", "buckets")
    }
    value = value_bytes(structure, model)
    for name, table, flows, new_flows in WAYS:
        way = name, table, flows // arguments.scale, -(-new_flows // arguments.scale)
        for sources in (100, 0):
            for rate in (int(rate) // arguments.scale for rate in arguments.rates.split(",")):
                result = measure(images[table], way, sources, rate, arguments.seconds,
                                SLICE_NS * arguments.scale, value, structure)  # fmt: skip
                if arguments.json:
                    print(json.dumps(asdict(result)), flush=True)
                    continue
                flood = f"{rate:,}/s from {sources or 'spoofed'} sources"
                print(
                    f"{way[0]}, {flood}: {result.decided:.1%} of {result.honest:,} honest flows "
                    f"decided at packet {PACKETS}; {result.undecided:,} flows undecided, "
                    f"{result.evicted:,} decided early, {result.excess:,} packets put aside",
                    flush=True,
                )


if __name__ == "__main__":
    main()
