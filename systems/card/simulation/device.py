# SPDX-License-Identifier: Apache-2.0
"""A card in virtual time: ``device.c``, which takes turns as the card's library does."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.kernel import build
from n3ic.systems.card.control.scenario import PlacedChain, Scenario
from n3ic.systems.card.description import Series
from n3ic.systems.card.driver import Chain, GraphCounters
from n3ic.systems.card.host.write import TEMPLATES
from n3ic.systems.card.simulation.baselines import SharingPolicy
from n3ic.systems.card.simulation.packets import Packets
from n3ic.util.cache import Cache

_SOURCE = Path(__file__).with_name("device.c")
_SOURCES = (_SOURCE, _SOURCE.with_suffix(".h"), TEMPLATES / "card_turns.h")
# Sums of cycles must not depend on the machine.
_FLAGS = ("-ffp-contract=off", f"-I{TEMPLATES}", "-lm")
_ANY = 0xFFFFFFFF  # owner of a chain that all may use
_FORK, _END = -1, -2


class DeviceEvent(IntEnum):
    """Why a run returned; see ``device.h``."""

    REACHED = 0
    USE = 1
    STUCK = 2
    NO_MEMORY = 3


def _layout(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_F64, _I32, _U32, _U64 = ctypes.c_double, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
_Board = _layout(
    "_Board",
    **dict.fromkeys(("hz", "wire"), _F64),
    **dict.fromkeys(("watchdog", "monitor"), _U64),
    **dict.fromkeys(("schedule", "interval", "head_interval", "before", "after"), _U32),
    **dict.fromkeys(("queue", "store", "chained", "coloured", "by_bytes"), _U32),
)
_Task = _layout(
    "_Task",
    **dict.fromkeys(("gbps", "area"), _F64),
    **dict.fromkeys(("latency", "interval", "credits", "per_inference", "turns"), _U32),
)
_Step = _layout("_Step", task=_I32, branches=_U32, first=_U32)
_Graph = _layout(
    "_Graph",
    **dict.fromkeys(("steps", "starts", "packets"), ctypes.c_void_p),
    **dict.fromkeys(("n_packets", "rate", "burst"), _U64),
    weight=_F64,
    **dict.fromkeys(("tenant", "n_steps", "step", "branches"), _U32),
)
_Counts = _layout(
    "_Counts",
    **dict.fromkeys(("arrived", "queued", "inside", "most_queued", "most_inside"), _U64),
)


@cache
def _library() -> ctypes.CDLL:
    """Return the compiled library; the user's cache keeps it."""
    try:
        compiler = build.find_compiler()
    except build.NoCompilerError as error:
        raise MissingDependencyError(f"a card's simulation is compiled: {error}") from error
    folder = Cache.open(build.CACHE)
    sources = [*(path.read_bytes() for path in _SOURCES), " ".join(_FLAGS).encode()]
    name = build.library_name("card-device", compiler, sources)
    path = folder.find(name)
    if path is None:
        with folder.new_file(name) as out:
            build.compile_shared(compiler, _SOURCE, out, _FLAGS)
        path = folder.directory / name
    library = ctypes.CDLL(str(path))
    device = ctypes.c_void_p
    for function, result, arguments in (
        ("device_open", device, [device, device, _U32, device, _U32, _U32, _U32]),
        ("device_close", None, [device]),
        ("device_run", ctypes.c_int, [device, _U64, device, device]),
        ("device_load", None, [device, _U32, device, _U32, _U32, _U64]),
        ("device_unload", None, [device, _U32]),
        ("device_jam", None, [device, _U32]),
        ("device_rate", None, [device, _U32, _U64]),
        ("device_count", None, [device, _U32, device]),
        ("device_busy", None, [device, device, device]),
    ):
        call = getattr(library, function)
        call.restype, call.argtypes = result, arguments
    return library


class VirtualTimeCard:
    """A card in virtual time; see :class:`~n3ic.systems.card.driver.CardDriver`.

    Args:
        scenario: the card, its tasks and graphs.
        policy: how it is shared.
        placed: chain of each region at the start, with its owner.
        packets: packets of each graph in the order of time, as :data:`PACKET`; the card writes
            what becomes of them.

    Raises:
        MissingDependencyError: no C compiler is installed.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: SharingPolicy,
        placed: Sequence[PlacedChain],
        packets: Mapping[str, Packets],
    ) -> None:
        self._scenario = scenario
        self._c = _library()
        self._numbers = {name: i for i, name in enumerate(scenario.tasks)}
        self._owners = [self._tenant(p.owner) if p.owner else _ANY for p in placed]
        board, hz = scenario.board, scenario.board.clock_hz
        before = board.fixed * 2 // 3
        c_board = _Board(
            hz, board.wire * hz, board.watchdog, self.cycle(board.monitor), board.schedule,
            board.schedule_interval, board.head_interval, before, board.fixed - before,
            board.ingress_queue, board.store, policy.chained, policy.adapts,
            policy.name == "per-task",
        )  # fmt: skip
        tasks = (_Task * len(scenario.tasks))(
            *(
                _Task(t.gbps, t.area, t.latency, t.interval, t.credits, t.per_inference, t.turns)
                for t in scenario.tasks.values()
            )
        )
        heaviest = max(g.weight for g in scenario.graphs)
        # The card keeps pointers to what is made here.
        self._kept: list[Any] = [tasks, *packets.values()]
        graphs = (_Graph * len(scenario.graphs))()
        for c_graph, graph in zip(graphs, scenario.graphs, strict=True):
            own = packets[graph.name]
            steps, starts, first = self._steps(graph.flow)
            c_steps, c_starts = (_Step * len(steps))(*steps), (_U32 * len(starts))(*starts)
            self._kept += [c_steps, c_starts]
            c_graph.steps, c_graph.starts = ctypes.addressof(c_steps), ctypes.addressof(c_starts)
            c_graph.n_steps, c_graph.step, c_graph.branches = len(steps), first, len(starts)
            c_graph.packets, c_graph.n_packets = own.ctypes.data, len(own)
            mean, longest = graph.load.mean_bytes, int(own["bytes"].max(initial=0))
            # A frame above the bucket's size could never be paid for.
            c_graph.rate = self._bytes(graph.entitled * mean)
            c_graph.burst = max(round(graph.burst * mean), longest)
            c_graph.weight, c_graph.tenant = graph.weight / heaviest, self._tenant(graph.tenant)
        sizes = len(scenario.tenants), scenario.regions
        self._card = self._c.device_open(
            ctypes.byref(c_board), tasks, len(tasks), graphs, len(graphs), *sizes
        )
        if not self._card:
            raise _no_memory()
        self._kept.append(graphs)
        weakref.finalize(self, self._c.device_close, self._card)

    def cycle(self, seconds: float) -> int:
        """Return the first cycle that is not before a second."""
        return math.ceil(seconds * self._scenario.board.clock_hz - 1e-6)

    def run(self, until: int) -> tuple[DeviceEvent, float, int]:
        """Run what happens before a cycle, or until the control loop is needed.

        Returns:
            Why it returned, at which second, and the number of the graph or region.
        """
        now, which = _U64(), _U32()
        event = DeviceEvent(
            self._c.device_run(self._card, until, ctypes.byref(now), ctypes.byref(which))
        )
        if event == DeviceEvent.NO_MEMORY:
            raise _no_memory()
        return event, now.value / self._scenario.board.clock_hz, which.value

    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the packets that arrived and those inside; see the protocol."""
        return {n: GraphCounters(c["arrived"], c["inside"]) for n, c in self.counts().items()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return all counts of each graph."""
        out, counts = {}, _Counts()
        for number, graph in enumerate(self._scenario.graphs):
            self._c.device_count(self._card, number, ctypes.byref(counts))
            out[graph.name] = {name: int(getattr(counts, name)) for name, _ in counts._fields_}
        return out

    def busy(self) -> tuple[Any, Any]:
        """Return the area times cycles that tasks were busy, by region and by tenant."""
        regions, tenants = np.zeros(self._scenario.regions), np.zeros(len(self._scenario.tenants))
        self._c.device_busy(self._card, regions.ctypes.data, tenants.ctypes.data)
        return regions, tenants

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Set the rates of the graphs' buckets; see the protocol."""
        for number, graph in enumerate(self._scenario.graphs):
            rate = self._bytes(rates.get(graph.name, 0.0) * graph.load.mean_bytes)
            self._c.device_rate(self._card, number, rate)

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Drain the old chain, load the bitstream, and open the region; see the protocol."""
        numbers = (_U32 * len(chain))(*(self._numbers[t] for t in chain))
        owner = self._owners[region] if region < len(self._owners) else _ANY
        at = self.cycle(ready)
        self._c.device_load(self._card, region, numbers, len(chain), owner, at)

    def unload(self, region: int) -> None:
        """Send no more packets to a region; see the protocol."""
        self._c.device_unload(self._card, region)

    def jam(self, region: int) -> None:
        """Let the tasks of a region give no more results."""
        self._c.device_jam(self._card, region)

    def _tenant(self, name: str) -> int:
        return [t.name for t in self._scenario.tenants].index(name)

    @staticmethod
    def _bytes(rate: float) -> int:
        return max(1, math.ceil(rate))  # as drivers of software

    def _steps(self, flow: Series) -> tuple[list[Any], list[int], int]:
        """Return the steps of a graph, the first steps of its branches, and its own first one."""
        steps: list[Any] = []
        starts: list[int] = []

        def add(series: Series) -> int:
            own = []
            for step in series.steps:
                if isinstance(step, str):
                    own.append(_Step(self._numbers[step]))
                    continue
                firsts = [add(branch) for branch in step.branches]
                own.append(_Step(_FORK, len(firsts), len(starts)))
                starts.extend(firsts)
            begin = len(steps)
            steps.extend([*own, _Step(_END)])
            return begin

        return steps, starts, add(flow)


def _no_memory() -> N3icError:
    return N3icError("the simulated card: out of memory")
