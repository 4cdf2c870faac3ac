# SPDX-License-Identifier: Apache-2.0
"""The content of a ``card.toml``: the device, its tenants, and their graphs of network tasks.

The terms are those of SuperNIC (Shan et al., "Optimizing Hardware-Based Network Computation DAGs
for Multiple Tenants with SuperNIC"). A *network task* is one stage of packet processing. A *graph*
is the flow of tasks for one kind of packet. Packets name their graph by a UID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from n3ic.options import OptionValue

RateUnit = Literal["packets/s", "inferences/s", "Gb/s"]
RATE_UNITS: tuple[RateUnit, ...] = ("packets/s", "inferences/s", "Gb/s")

Join = Literal["vote", "most-certain", "both"]
JOINS: tuple[Join, ...] = ("vote", "most-certain", "both")

Action = Literal["forward", "drop", "mark", "mirror"]
ACTIONS: tuple[Action, ...] = ("forward", "drop", "mark", "mirror")

UidCarrier = Literal["header", "vlan", "udp-port"]
UID_BITS: Mapping[UidCarrier, int] = {"header": 16, "vlan": 12, "udp-port": 16}


@dataclass(frozen=True)
class Rate:
    """An amount of traffic: packets or inferences per second, or bandwidth of Ethernet frames."""

    value: float
    unit: RateUnit

    def __str__(self) -> str:
        return f"{self.value:.12g} {self.unit}"

    def packets(self, packet_bytes: float, inferences_per_packet: float) -> float:
        """Convert the rate to packets per second of a graph.

        Args:
            packet_bytes: mean length of the graph's frames.
            inferences_per_packet: mean number of inferences that its meter triggers per packet.
        """
        if self.unit == "Gb/s":
            return self.value * 1e9 / (8 * packet_bytes)
        return self.value / (inferences_per_packet if self.unit == "inferences/s" else 1)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A network task; a value of None is taken from the exporter's report.

    Attributes:
        name: full name: ``task`` if all tenants may use it, ``tenant/task`` for a tenant's own.
            Graphs that name the same task may share its instances.
        needs: amount of each resource that one instance takes, by resource name.
        rate: rate that one instance sustains.
        latency_ns: time from a packet's arrival to its departure, in nanoseconds.
        line: line in ``card.toml``, from 1; 0 if not read from a file.
    """

    kind: ClassVar[str] = ""
    name: str
    needs: Mapping[str, float] | None = None
    rate: Rate | None = None
    latency_ns: float | None = None
    # Not compared: the same task elsewhere in the file is the same task.
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Meter(Task):
    """A meter, which turns packets into flows and decides when a flow is classified.

    Attributes:
        model: model file or run with the meter; None if ``spec`` is given.
        spec: JSON file with the specification of a meter.
        network: name of the network in a run of several.
    """

    kind: ClassVar[str] = "meter"
    model: Path | None = None
    spec: Path | None = None
    network: str = ""


@dataclass(frozen=True, kw_only=True)
class InputStage(Task):
    """An input stage, which turns integer features into the input bits of a network.

    Attributes:
        model: model file or run with the input stage.
        network: name of the network in a run of several.
    """

    kind: ClassVar[str] = "input"
    model: Path
    network: str = ""


@dataclass(frozen=True, kw_only=True)
class NetworkTask(Task):
    """A binary network.

    Attributes:
        model: model file or run.
        network: name of the network in a run of several.
        options: options of the exporter.
    """

    kind: ClassVar[str] = "network"
    model: Path
    network: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """An action for packets with certain verdicts.

    Attributes:
        action: forward, drop, mark or mirror.
        classes: names of the matching classes; empty for all.
        margin: smallest matching margin.
        below: exclusive upper bound of matching margins; None for no bound.
        port: destination of ``forward`` and ``mirror``.
        mark: DSCP that ``mark`` writes, 0 to 63.
    """

    action: Action
    classes: tuple[str, ...] = ()
    margin: int = 0
    below: int | None = None
    port: int | None = None
    mark: int | None = None


@dataclass(frozen=True, kw_only=True)
class Policy(Task):
    """A policy, which acts on a packet by class and margin; the first matching rule counts.

    A packet without a matching rule is forwarded as it would be without the graph.
    """

    kind: ClassVar[str] = "policy"
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True)
class UserVerilog(Task):
    """A user's own task: a Verilog module with an AXI4-Stream slave and master port.

    Attributes:
        sources: Verilog files.
        top: name of the module.
        data_bits: width of ``tdata``.
    """

    kind: ClassVar[str] = "verilog"
    sources: tuple[Path, ...]
    top: str
    data_bits: int = 256


@dataclass(frozen=True, kw_only=True)
class PacketTask(Task):
    """A task on a packet's headers, such as a firewall.

    Attributes:
        task: name of its folder in :mod:`n3ic.systems.card.tasks`.
        entries: words of its table's entries by their index.
        pages: pages of on-board memory.
    """

    kind: ClassVar[str] = "packet"
    task: str
    entries: Mapping[int, tuple[int, ...]]
    pages: int = 0


@dataclass(frozen=True)
class Parallel:
    """Branches that read the same packet, and how their results are joined.

    Attributes:
        branches: two or more branches.
        join: ``vote``: the class of most branches; ties go to the lowest index. ``most-certain``:
            the result with the largest margin; ties go to the first branch. ``both``: all results,
            in the order of the branches.
    """

    branches: tuple[Series, ...]
    join: Join


@dataclass(frozen=True)
class Series:
    """Steps in sequence: names of tasks, or parallel branches."""

    steps: tuple[str | Parallel, ...]

    def tasks(self) -> Iterator[str]:
        """Yield the tasks in a topological order, branch after branch."""
        for step in self.steps:
            if isinstance(step, str):
                yield step
            else:
                for branch in step.branches:
                    yield from branch.tasks()

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of tasks, where the second needs the first's result."""
        previous: tuple[str, ...] = ()
        for step in self.steps:
            if isinstance(step, str):
                yield from ((p, step) for p in previous)
                previous = (step,)
                continue
            ends: list[str] = []
            for branch in step.branches:
                yield from branch.edges()
                yield from ((p, first) for p in previous for first in branch.firsts())
                ends += branch.lasts()
            previous = tuple(ends)

    def firsts(self) -> tuple[str, ...]:
        """Return the tasks that the series begins with."""
        return _ends(self, 0)

    def lasts(self) -> tuple[str, ...]:
        """Return the tasks that the series ends with."""
        return _ends(self, -1)

    @property
    def parallels(self) -> tuple[Parallel, ...]:
        """Its own parallel branches, without those nested in branches."""
        return tuple(s for s in self.steps if isinstance(s, Parallel))


def _ends(series: Series, at: int) -> tuple[str, ...]:
    step = series.steps[at]
    if isinstance(step, str):
        return (step,)
    return tuple(name for branch in step.branches for name in _ends(branch, at))


@dataclass(frozen=True)
class TaskGraph:
    """The flow of tasks for packets with one UID.

    Attributes:
        name: name within the tenant.
        uid: identifier in its packets, unique on the card.
        wants: wanted rate of packets or inferences, or wanted ingress bandwidth.
        flow: its tasks.
        packet_bytes: mean length of its frames, without preamble and gap.
        inferences_per_packet: mean number of flows that its meter decides per packet.
        needs: further resources at the wanted rate besides those of its tasks, such as on-board
            memory.
        line: line in ``card.toml``.
    """

    name: str
    uid: int
    wants: Rate
    flow: Series
    packet_bytes: float = 64.0
    inferences_per_packet: float = 1.0
    needs: Mapping[str, float] = field(default_factory=dict)
    line: int = field(default=0, compare=False)

    @property
    def wanted(self) -> float:
        """Packets per second that the tenant wants served."""
        return self.wants.packets(self.packet_bytes, self.inferences_per_packet)


@dataclass(frozen=True)
class Tenant:
    """An owner of graphs on the card.

    Attributes:
        name: name, unique on the card.
        weight: share of the card relative to the other tenants'.
        graphs: one or more graphs.
        line: line in ``card.toml``.
        ports: ports that its packets arrive on, as the target names them; empty for any. A packet
            with one of its UIDs from another port is not treated as the tenant's.
        bucket_ms: milliseconds of its guaranteed rate that its token bucket holds; a bucket holds
            at least 16 frames.
    """

    name: str
    weight: float
    graphs: tuple[TaskGraph, ...]
    line: int = field(default=0, compare=False)
    ports: tuple[int, ...] = ()
    bucket_ms: float = 1.0


@dataclass(frozen=True)
class CardDevice:
    """The shared part of a device; a value of None is taken from the target's device.

    Attributes:
        target: exporter for the card; empty if every task states its needs.
        regions: number of equal regions.
        spare: number of regions left empty for future tenants.
        resources: amount of each resource on the whole card, over all regions.
        ingress: total bandwidth of its ports.
        uid: how packets carry the UID of their graph.
        scheduling_ns: nanoseconds of one pass through the scheduler.
        queue: packets of a tenant that the card holds, a power of two.
        memory_pages: pages of its on-board memory.
        page_bytes: bytes of a page, a power of two.
    """

    target: str = ""
    regions: int | None = None
    spare: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    ingress: Rate | None = None
    uid: UidCarrier = "header"
    scheduling_ns: float | None = None
    queue: int | None = None
    memory_pages: int | None = None
    page_bytes: int = 1 << 21


@dataclass(frozen=True)
class Card:
    """A ``card.toml``.

    Attributes:
        name: name of the card.
        device: the shared device.
        tasks: tasks by full name, in the file's order.
        tenants: tenants in the file's order.
        source: path of the file; empty if not read from one.
    """

    name: str
    device: CardDevice
    tasks: Mapping[str, Task]
    tenants: tuple[Tenant, ...]
    source: str = ""

    @property
    def graphs(self) -> Mapping[int, tuple[Tenant, TaskGraph]]:
        """Each graph with its tenant, by UID."""
        return {g.uid: (t, g) for t in self.tenants for g in t.graphs}
