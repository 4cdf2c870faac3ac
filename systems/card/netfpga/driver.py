# SPDX-License-Identifier: Apache-2.0
"""A card's Verilog in a simulator as the control loop drives it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from n3ic.errors import CardError, DataError
from n3ic.exporters.netfpga.packet.traffic import BEAT, Frame
from n3ic.systems.card.compile import LONGEST_FRAME
from n3ic.systems.card.control.scenario import PlacedChain, Scenario
from n3ic.systems.card.driver import WIRE_NAME, Chain, GraphCounters
from n3ic.systems.card.frames import uid_of
from n3ic.systems.card.netfpga import control
from n3ic.systems.card.netfpga.compile import bucket_rate, frame_beats, used_regions
from n3ic.systems.card.netfpga.image import RATE_UNIT, CoreTask, HardwarePass, NetfpgaCardImage
from n3ic.systems.card.netfpga.live import MOST_TEXT, LiveBench
from n3ic.systems.card.netfpga.simulation import (
    COUNTER,
    COUNTERS,
    TENANT,
    Operation,
    SentPacket,
    read_register,
    register,
    set_register,
    zeroed,
)
from n3ic.systems.card.netfpga.traffic import FIRST_CLOCK, TrafficPacket, build, packet_text
from n3ic.systems.card.netfpga.verify import inputs_of
from n3ic.systems.card.plan import CardPlan

_TOGETHER = 256  # packets that are handed to the bench at once
_MOST_CLOCKS = 20_000  # simulated at once: some seconds in Icarus
_OFFERED = ("admitted", "overflow", "left")


class NetfpgaDriver:
    """A simulated card; see :class:`~n3ic.systems.card.control.run.RunningCard`.

    The control plane works beside the packets, at a word each clock. Only the reading of counters
    holds the input up, for four clocks each.

    The regions of an image are fixed, so an exported chain is served by the region that holds it,
    whatever its number in the loop. It is released when its chain is loaded, and held else. Where a
    bitstream would be loaded, it stays in reset for that time, and then its networks are written
    through the write port.

    Args:
        plan: the plan.
        image: its card.
        directory: the written card; it is not read after this call.
        clock_hz: clock rate of the card.
        departed: called with each packet that leaves.

    Attributes:
        bench: the simulated card.
    """

    simulated = True

    def __init__(
        self,
        plan: CardPlan,
        image: NetfpgaCardImage,
        directory: Path,
        clock_hz: float,
        departed: Callable[[SentPacket], object] = lambda packet: None,
    ) -> None:
        self._image = image
        self._hz = clock_hz
        self._chains = {i: r.chain for i, r in enumerate(used_regions(plan))}
        planned = {f"{g.tenant}/{g.graph}": g for g in plan.graphs}
        self._lengths = {g.name: frame_beats(image, g, planned[g.name]) for g in image.graphs}
        self._rates = [t.rate for t in image.tenants]
        self._now = 0.0
        self._sent = 0
        self._reached = 0  # clock until which the card was simulated
        self._free = 0  # clock in which the input is free again
        self._waiting: deque[tuple[int, int, str]] = deque()  # last clock, beats, text of a packet
        self._regions: dict[int, int] = {}  # of the image, by the loop's
        self._starts: dict[int, int] = {}  # clocks in which regions of the image begin to serve
        # All regions are held until a chain is loaded.
        self._program = [op for r in self._chains for op in control.hold_region(r)]
        self.bench = LiveBench(directory, image, departed)

    # --- the loop ------------------------------------------------------------------------------

    def counters(self) -> Mapping[str, GraphCounters]:
        """Read the tenants' counters, and divide each evenly among the tenant's graphs."""
        names = [g.tenant for g in self._image.graphs]
        counted = self._read(_OFFERED, len(self._image.tenants))
        out = {}
        for graph in self._image.graphs:
            admitted, overflow, left = counted[graph.tenant]
            offered = (admitted + overflow) / names.count(graph.tenant)
            out[graph.name] = GraphCounters(offered, admitted - left)
        return out

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Set the tenants' token buckets, and close the graphs of those who are not there.

        Frames of a closed graph pass unchanged, as frames that name no graph.
        """
        self._advance(self._clock(now))
        graphs = self._image.graphs
        for number in range(len(self._image.tenants)):
            own = (g.name for g in graphs if g.tenant == number)
            beats = sum(rates.get(name, 0.0) * self._lengths[name] for name in own)
            self._rates[number] = bucket_rate(beats, self._hz)
            self._program.append(set_register(register(TENANT, number), self._rates[number]))
        for number, graph in enumerate(graphs):
            change = control.open_graph if graph.name in rates else control.close_graph
            self._program += change(self._image, number)

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Let a region that holds a chain serve from a second on; see the class.

        Raises:
            CardError: no region that does not serve yet holds the chain.
        """
        self.unload(region)
        busy = self._regions.values()
        own = next((i for i, c in self._chains.items() if c == chain and i not in busy), None)
        if own is None:
            raise CardError(f"the image has no free region with {' > '.join(chain)}")
        self._regions[region] = own
        if ready > self._now:
            self._program += control.clear_region(own)
        elif own not in self._starts:
            self._program += control.start_region(own)
            return
        self._starts[own] = self._clock(ready)

    def unload(self, region: int) -> None:
        """Hold the region of the image."""
        own = self._regions.pop(region, None)
        # One that is still in reset stays so until it is loaded again.
        if own is not None and own not in self._starts:
            self._program += control.hold_region(own)

    # --- frames --------------------------------------------------------------------------------

    def send(self, frame: bytes, now: float) -> None:
        """Queue a frame for its clock; see the protocol.

        It comes from the lowest port that its graph is open to. The input takes a beat a clock.

        Raises:
            DataError: the frame is empty or too long.
        """
        if not 0 < len(frame) <= LONGEST_FRAME:
            raise DataError(
                f"a frame of {len(frame)} bytes, expected 1 to {LONGEST_FRAME} for a card"
            )
        uid = uid_of(frame, self._image.carrier)
        ports = next((g.sources for g in self._image.graphs if g.uid == uid), 1)
        packet = TrafficPacket(Frame(frame), ports & -ports)
        at, beats = max(self._clock(now), self._free), packet.frame.beats
        self._free = at + beats
        self._waiting.append((self._free - 1, beats, packet_text(self._sent, packet, at)))
        self._sent += 1
        if len(self._waiting) >= _TOGETHER:
            self._advance(self._clock(now))

    def wait(self, until: float) -> float:
        """Let time pass; the simulation follows when somebody asks what came of it."""
        self._now = max(self._now, until)
        return self._now

    def finish(self) -> None:
        """Let all regions serve, and wait until all packets have left; see the protocol."""
        self._regions = {region: region for region in self._chains}
        for region in self._chains.keys() - self._starts.keys():
            self._program += control.start_region(region)
        last = max([self._free, self._clock(self._now), *self._starts.values()])
        self._advance(last)
        self._program += control.drained(range(len(self._image.tenants) + 1))
        self._advance(last)

    def close(self) -> None:
        """End the simulation; see the protocol."""
        self.bench.close()

    def fitted(self, scenario: Scenario) -> Scenario:
        """A scenario with the regions of the image; see the protocol."""
        chains = tuple(self._chains.values())
        placed = tuple(PlacedChain(chain) for chain in chains)
        return replace(scenario, regions=len(chains), placed=placed, exported=chains)

    def requests(self, count: int) -> Mapping[str, Sequence[bytes]]:
        """Make frames; see the protocol."""
        rng = np.random.default_rng(11)
        return {
            graph.name: [
                build(self._image, graph, field, rng)
                for field in inputs_of(self._image, graph, count, rng)
            ]
            for graph in self._image.graphs
        }

    def guaranteed(self) -> Mapping[str, int]:
        """Return the rates of the token buckets; see the protocol."""
        unit = BEAT * self._hz / RATE_UNIT
        names = (t.name for t in self._image.tenants)
        return {name: round(rate * unit) for name, rate in zip(names, self._rates, strict=True)}

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Read the card's counters; see the protocol."""
        names = [*(t.name for t in self._image.tenants), WIRE_NAME]
        counted = self._read(COUNTERS, len(names))
        return {n: dict(zip(COUNTERS, c, strict=True)) for n, c in zip(names, counted, strict=True)}

    def control(self, operations: Sequence[Operation]) -> None:
        """Give the control plane operations, such as those of a change of the card."""
        self._program += operations

    # --- the simulation ------------------------------------------------------------------------

    def _clock(self, second: float) -> int:
        return FIRST_CLOCK + zeroed(self._image) + round(second * self._hz)

    def _advance(self, clock: int, reads: Sequence[Operation] = ()) -> list[int]:
        """Simulate until a clock, start the regions that are ready by then, and read registers."""
        for at, region in sorted((at, r) for r, at in self._starts.items() if at <= clock):
            if region in self._regions.values():
                self._step(at)
                self._program += self._start(region)
                del self._starts[region]
        return self._step(clock, reads)

    def _start(self, region: int) -> Iterator[Operation]:
        """Take a region out of reset, and write the networks that its bitstream held."""
        yield from control.hold_region(region)
        for k, task in enumerate(self._image.regions[region].tasks):
            if isinstance(task, CoreTask) and task.layout is not None:
                for m, model in enumerate(task.models):
                    leg = HardwarePass((region,), (k,), m)
                    yield from control.load_network(self._image, leg, model)
        yield from control.start_region(region)

    def _step(self, clock: int, reads: Sequence[Operation] = ()) -> list[int]:
        # An interrupt ends the run between two steps.
        while clock - self._reached > _MOST_CLOCKS:
            self._exchange(self._reached + _MOST_CLOCKS)
        return self._exchange(clock, reads)

    def _exchange(self, clock: int, reads: Sequence[Operation] = ()) -> list[int]:
        packets, beats, last = "", 0, 0
        while self._waiting and self._waiting[0][0] <= clock:
            if len(packets) + len(self._waiting[0][2]) > MOST_TEXT:
                self.bench.step(packets, beats, self._taken(), last)
                packets, beats = "", 0
            last, count, text = self._waiting.popleft()
            packets += text
            beats += count
        self._reached = max(clock, self._reached)
        return self.bench.step(packets, beats, self._taken(), clock, reads)

    def _taken(self) -> list[Operation]:
        """Take the operations that are due."""
        program, self._program = self._program, []
        return program

    def _read(self, names: Sequence[str], queues: int) -> list[list[int]]:
        """Read counters of the first queues."""
        places = [COUNTERS.index(name) for name in names]
        reads = [read_register(register(COUNTER, q, p)) for q in range(queues) for p in places]
        values = self._advance(self._clock(self._now), reads)
        return [values[q * len(names) :][: len(names)] for q in range(queues)]
