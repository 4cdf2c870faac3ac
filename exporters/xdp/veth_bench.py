# SPDX-License-Identifier: Apache-2.0
"""Measures packets per second of one core, from a generator over a veth pair in a namespace.

The kernel generates the packets: ``BPF_PROG_TEST_RUN`` with ``BPF_F_TEST_XDP_LIVE_FRAMES`` sends
frames out of one end, and the program at the other end sees them on the same CPU. Programs take
turns, and every figure includes the generator and the link.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from n3ic.exporters.xdp.libbpf import BpfError, BpfObject, BpfProgram, attach, detach
from n3ic.exporters.xdp.links import add_link, own_network, switch_gro_on
from n3ic.exporters.xdp.program import MeterPrograms, policy_index, policy_value
from n3ic.exporters.xdp.source import compile_program, test_program

Mode = Literal["native", "generic"]
MODES: tuple[Mode, ...] = ("native", "generic")
ROUNDS = 5
PACKETS = 500_000
_GENERATOR = "generator_bench.c"
_ENDS = ("n3icgen0", "n3icgen1")
_WARM = 20_000
_DRAINED_S = 0.02  # time for the last frames of a run to cross the link


@dataclass(frozen=True)
class WireTiming:
    """Throughput of a core with a program at the end of a link.

    Attributes:
        mode: ``native`` or ``generic``.
        name: description of the program.
        median: median nanoseconds per packet, including generator and link.
        difference: median over the rounds of the difference to the program that only drops.
        ratio: median over the rounds of the ratio of packets per second to that program.
        lost: share of packets that did not reach the program.
    """

    mode: str
    name: str
    median: float
    difference: float
    ratio: float
    lost: float

    @property
    def mpps(self) -> float:
        """Million packets per second."""
        return 1e3 / self.median


def measure(
    frame: bytes,
    metered: Sequence[tuple[str, MeterPrograms]],
    *,
    rounds: int = ROUNDS,
    packets: int = PACKETS,
) -> tuple[float, tuple[WireTiming, ...]]:
    """Send packets of 1,000 flows over a link to each program in turn, native and generic.

    Args:
        frame: an IPv4 packet of one flow.
        metered: metering programs with their descriptions; their policies are set to ``drop``.
        rounds: number of turns of each program.
        packets: packets per turn.

    Returns:
        Median nanoseconds per frame of the generator alone, whose frames no program receives; and
            the programs' timings, starting with the program that only drops.

    Raises:
        MissingDependencyError: clang or ``ip`` is not installed.
        BpfError: the kernel refuses a namespace, a link, a program, or live frames.
    """
    image = compile_program(test_program(_GENERATOR), _GENERATOR)
    with (
        _one_cpu(),
        _link() as (there, here),
        BpfObject(image, _GENERATOR) as own,
    ):
        ends = [_End("only drops", own.programs["drop"], lambda: _dropped(own))]
        ends += [_metering_end(*one) for one in metered]
        nothing, generate = own.programs["nothing"], own.programs["generate"]
        alone = [nothing.live_run(frame, here, packets) for _ in range(rounds)]
        timings: list[WireTiming] = []
        for mode in MODES:
            turns = [
                [_turn(end, mode, there, generate, frame, here, packets) for end in ends]
                for _ in range(rounds)
            ]
            timings += _timings(mode, ends, turns, packets)
    return statistics.median(alone), tuple(timings)


@dataclass(frozen=True)
class _End:
    """A program at the end of a link, and a function that counts its packets."""

    name: str
    program: BpfProgram
    packet_count: Callable[[], int]


def _metering_end(name: str, programs: MeterPrograms) -> _End:
    for index in range(policy_index("excess", programs.structure.classes)):
        programs.maps["policies"].update(index, policy_value("drop"))
    return _End(name, programs.program, lambda: programs.counters()["packets"])


def _dropped(own: BpfObject) -> int:
    counts = own.maps["dropped"].each_cpu(0)
    return sum(int.from_bytes(count, sys.byteorder) for count in counts)


def _turn(
    end: _End, mode: Mode, there: int, generate: BpfProgram, frame: bytes, here: int, packets: int
) -> tuple[float, int]:
    """Return the nanoseconds per packet that the program saw, and the number of these packets."""
    attach(there, end.program, mode)
    try:
        generate.live_run(frame, here, _WARM)
        time.sleep(_DRAINED_S)
        before = end.packet_count()
        nanoseconds = generate.live_run(frame, here, packets)
        time.sleep(_DRAINED_S)
        packet_count = end.packet_count() - before
    finally:
        detach(there, mode, end.program)
    if not packet_count:
        raise BpfError(f"{mode}: no frame came over the link to a program that {end.name}")
    return nanoseconds * packets / packet_count, packet_count


def _timings(
    mode: Mode, ends: Sequence[_End], turns: Sequence[Sequence[tuple[float, int]]], packets: int
) -> Iterator[WireTiming]:
    for i, end in enumerate(ends):
        yield WireTiming(
            mode,
            end.name,
            statistics.median(turn[i][0] for turn in turns),
            statistics.median(turn[i][0] - turn[0][0] for turn in turns),
            statistics.median(turn[0][0] / turn[i][0] for turn in turns),
            1 - statistics.mean(turn[i][1] for turn in turns) / packets,
        )


@contextmanager
def _one_cpu() -> Iterator[None]:
    """Pin this thread to one CPU for the block."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def _link() -> Iterator[tuple[int, int]]:
    """Create a veth pair in a network namespace of this thread; yield the indices of its ends."""
    one, other = _ENDS
    with own_network():
        add_link(one, other)
        # In generic mode, veth passes frames to the program only through NAPI.
        switch_gro_on(one)
        yield socket.if_nametoindex(one), socket.if_nametoindex(other)
