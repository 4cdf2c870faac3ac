"""What a ``card.toml`` says: the device, its tenants, and their graphs of network tasks.

The terms are those of SuperNIC (Shan et al., "Optimizing Hardware-Based Network Computation DAGs
for Multiple Tenants with SuperNIC"): a *network task* is one stage of packet processing, a
*graph* is what one kind of packet runs through, and packets name their graph by a UID.
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
    """How much traffic: packets or inferences a second, or bandwidth of Ethernet frames."""

    value: float
    unit: RateUnit

    def __str__(self) -> str:
        return f"{self.value:.12g} {self.unit}"

    def packets(self, packet_bytes: float, inferences_per_packet: float) -> float:
        """The packets a second of a graph at which this rate is reached.

        Args:
            packet_bytes: mean length of its frames.
            inferences_per_packet: how many inferences its meter makes of a packet.
        """
        if self.unit == "Gb/s":
            return self.value * 1e9 / (8 * packet_bytes)
        return self.value / (inferences_per_packet if self.unit == "inferences/s" else 1)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A network task; what is None comes from the exporter's report.

    Attributes:
        name: its full name: ``task`` where all tenants may use it, ``tenant/task`` of a tenant's
            own. Graphs that name the same task may share its instances.
        needs: amount of each resource that one instance takes, by the resource's name.
        rate: what one instance sustains.
        latency_ns: from a packet's arrival to its departure.
        line: where ``card.toml`` says it, from 1; 0 if not from a file.
    """

    kind: ClassVar[str] = ""
    name: str
    needs: Mapping[str, float] | None = None
    rate: Rate | None = None
    latency_ns: float | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Meter(Task):
    """Packets to flows: which features are computed, and when a flow is decided.

    Attributes:
        model: model file or run whose meter it is; None where ``spec`` is given.
        spec: JSON file of a meter's specification.
        network: which network of a run of several.
    """

    kind: ClassVar[str] = "meter"
    model: Path | None = None
    spec: Path | None = None
    network: str = ""


@dataclass(frozen=True, kw_only=True)
class InputStage(Task):
    """Integer features to the input bits of a network.

    Attributes:
        model: model file or run whose input stage it is.
        network: which network of a run of several.
    """

    kind: ClassVar[str] = "input"
    model: Path
    network: str = ""


@dataclass(frozen=True, kw_only=True)
class Network(Task):
    """A binary network.

    Attributes:
        model: model file or run.
        network: which network of a run of several.
        options: the exporter's options.
    """

    kind: ClassVar[str] = "network"
    model: Path
    network: str = ""
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Rule:
    """What is done with packets of some verdicts.

    Attributes:
        action: forward, drop, mark or mirror.
        classes: names of the classes that it is about; empty for all.
        margin: smallest margin that it is about.
        below: margin from which on it is not about a packet any more; None for no such bound.
        port: where ``forward`` and ``mirror`` send to.
        mark: what ``mark`` writes: a DSCP, 0 to 63.
    """

    action: Action
    classes: tuple[str, ...] = ()
    margin: int = 0
    below: int | None = None
    port: int | None = None
    mark: int | None = None


@dataclass(frozen=True, kw_only=True)
class Policy(Task):
    """What becomes of a packet, by class and margin: the first rule that is about it counts.

    A packet that no rule is about is forwarded as it would be without the graph.
    """

    kind: ClassVar[str] = "policy"
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True)
class UserVerilog(Task):
    """A user's own task: a Verilog module with an AXI4-Stream slave and master port.

    Attributes:
        sources: Verilog files.
        top: the module.
        data_bits: width of ``tdata``.
    """

    kind: ClassVar[str] = "verilog"
    sources: tuple[Path, ...]
    top: str
    data_bits: int = 256


@dataclass(frozen=True)
class Parallel:
    """Branches that read the same packet, and how their results become one.

    Attributes:
        branches: two or more series.
        join: ``vote``: the class that most branches give, the lowest index of those that tie;
            ``most-certain``: the result of the largest margin, the first branch of those that
            tie; ``both``: all results, in the order of the branches.
    """

    branches: tuple[Series, ...]
    join: Join


@dataclass(frozen=True)
class Series:
    """Steps one after the other: names of tasks, or parallel branches."""

    steps: tuple[str | Parallel, ...]

    def tasks(self) -> Iterator[str]:
        """Names of its tasks, those of branches in their order; a topological order."""
        for step in self.steps:
            if isinstance(step, str):
                yield step
            else:
                for branch in step.branches:
                    yield from branch.tasks()

    def edges(self) -> Iterator[tuple[str, str]]:
        """Pairs of tasks of which the second needs the first's result."""
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
        """Tasks that it begins with."""
        return _ends(self, 0)

    def lasts(self) -> tuple[str, ...]:
        """Tasks that it ends with."""
        return _ends(self, -1)

    @property
    def parallels(self) -> tuple[Parallel, ...]:
        """Its own parallel branches, not those within branches."""
        return tuple(s for s in self.steps if isinstance(s, Parallel))


def _ends(series: Series, at: int) -> tuple[str, ...]:
    step = series.steps[at]
    if isinstance(step, str):
        return (step,)
    return tuple(name for branch in step.branches for name in _ends(branch, at))


@dataclass(frozen=True)
class Graph:
    """What packets of one UID run through.

    Attributes:
        name: its name within the tenant.
        uid: what its packets carry; unique on the card.
        wants: ingress bandwidth, packets or inferences a second that the tenant wants.
        flow: its tasks.
        packet_bytes: mean length of its frames, without preamble and gap.
        inferences_per_packet: share of packets that its meter decides a flow at.
        needs: what it takes besides its tasks at the wanted rate, such as on-board memory.
        line: where ``card.toml`` says it.
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
        """Packets a second that the tenant wants served."""
        return self.wants.packets(self.packet_bytes, self.inferences_per_packet)


@dataclass(frozen=True)
class Tenant:
    """Somebody who has graphs on the card.

    Attributes:
        name: unique on the card.
        weight: share of the card that is due to it, relative to the others.
        graphs: one or more.
        line: where ``card.toml`` says it.
        ports: that its packets come from, as the target names them; any if empty. A packet of its
            UIDs from another port is not its own.
    """

    name: str
    weight: float
    graphs: tuple[Graph, ...]
    line: int = field(default=0, compare=False)
    ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class CardDevice:
    """What of a device the tenants share; what is None comes from the target's device.

    Attributes:
        target: the exporter that writes for it; empty where every task states what it needs.
        regions: equal regions that it is divided into.
        spare: regions that are left empty, for tenants to come.
        resources: amount of each resource on the whole card, over all regions.
        ingress: bandwidth of its ports together.
        uid: how packets carry the UID of their graph.
        scheduling_ns: one pass through the scheduler.
    """

    target: str = ""
    regions: int | None = None
    spare: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    ingress: Rate | None = None
    uid: UidCarrier = "header"
    scheduling_ns: float | None = None


@dataclass(frozen=True)
class Card:
    """A ``card.toml``.

    Attributes:
        name: of the card.
        device: what is shared.
        tasks: by full name, in the file's order.
        tenants: in the file's order.
        source: the file; empty if not from one.
    """

    name: str
    device: CardDevice
    tasks: Mapping[str, Task]
    tenants: tuple[Tenant, ...]
    source: str = ""

    @property
    def graphs(self) -> Mapping[int, tuple[Tenant, Graph]]:
        """Each graph and its tenant, by UID."""
        return {g.uid: (t, g) for t in self.tenants for g in t.graphs}
