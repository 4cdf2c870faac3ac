# SPDX-License-Identifier: Apache-2.0
"""The contents of a card: tenants, graphs and regions as the hardware represents them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, takewhile
from typing import ClassVar, Literal

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.exporters.netfpga.sequential.layout import clog2
from n3ic.exporters.netfpga.unrolled.network import class_width, score_width
from n3ic.model.network import BinaryModel
from n3ic.systems.card.compile import RESULT_AT, RESULT_BYTES, VerdictRule
from n3ic.systems.card.description import Join, UidCarrier
from n3ic.systems.card.tasks.kind import FRAME_HEAD, kind_of

CARRIERS: tuple[UidCarrier, ...] = ("header", "vlan", "udp-port")
JOINS: tuple[Join, ...] = ("both", "vote", "most-certain")
RATE_UNIT = 1 << 16  # one beat per clock
MAX_BURST = (1 << 12) - 1  # beats
MAX_STEP = (1 << 12) - 1  # of a turn beyond the guarantee
_AROUND = 7  # clocks of a layer besides its rows and its popcount
MAX_PAGES = 1 << 15  # of the registers that give and take them
MAX_NEED = 800  # bytes of a packet that the card parses
ALL_PORTS = 0xFF


@dataclass(frozen=True)
class CoreTask:
    """Networks of one shape that share an executor; an unrolled executor has only one.

    Attributes:
        models: the networks; a packet selects one by its index.
        style: ``sequential`` or ``unrolled``.
        layout: layout of a sequential executor; None for an unrolled one.
        pipeline: look-up tables between registers of an unrolled executor.
        outputs: ``scores`` or ``class`` of an unrolled executor.
        names: full names of the networks' tasks on the card; empty if they have none.
    """

    kind: ClassVar[str] = "core"
    models: tuple[BinaryModel, ...]
    style: Literal["sequential", "unrolled"] = "sequential"
    layout: sequential_layout.SequentialLayout | None = None
    pipeline: int = 1
    outputs: Literal["scores", "class"] = "scores"
    names: tuple[str, ...] = ()

    @property
    def interval(self) -> int:
        """Maximum clocks between two inferences that follow back to back.

        This is the number of rows of the slowest layer. For a layer with few rows it is half of the
        layer's latency, because a layer holds up to two vectors.
        """
        if self.layout is None:
            return 1
        clocks = 1
        for layer in self.layout.layers:
            groups, popcount = -(-layer.part // (2 if layer.masked else 3)), 3
            # A level of the popcount compresses six counts into one, and takes two clocks.
            while groups > 6:
                groups, popcount = -(-groups // 6), popcount + 2
            clocks = max(clocks, layer.rows, -(-(layer.rows + popcount + _AROUND) // 2))
        # Modules take vectors in turn, so an inference starts that much more often.
        return -(-clocks // self.layout.modules)

    @property
    def score_w(self) -> int:
        """Bits of a score and of a margin."""
        return score_width(self.models[0]) if self.layout is None else self.layout.score_w

    @property
    def class_w(self) -> int:
        """Bits of a class index."""
        return class_width(self.models[0]) if self.layout is None else self.layout.class_w

    @property
    def comment(self) -> str:
        """One-line description."""
        count = len(self.models)
        what = f"{count} networks" if count > 1 else "network"
        return f"{what} {self.models[0].shape_text}, {self.style}"


@dataclass(frozen=True)
class InputTask:
    """The input stage of a model, which turns integer features into bits."""

    kind: ClassVar[str] = "input"
    model: BinaryModel

    @property
    def comment(self) -> str:
        """One-line description."""
        return f"input stage of {len(self.model.input.features)} features"


@dataclass(frozen=True)
class UserTask:
    """A user's Verilog behind a watchdog.

    Attributes:
        top: name of the module.
        sources: names and texts of its files.
        bits: width of its streams.
        limit: maximum clocks that it may take for a packet.
    """

    kind: ClassVar[str] = "user"
    top: str
    sources: tuple[tuple[str, str], ...]
    bits: int = 256
    limit: int = 4096

    @property
    def comment(self) -> str:
        """One-line description."""
        return f"user's task {self.top}"


@dataclass(frozen=True)
class PacketStage:
    """A task on the heads of packets.

    Attributes:
        name: full name of the task on the card.
        task: name of its kind.
        entries: words of its table's entries.
        pages: pages of on-board memory.
        owner: index of the tenant whose pages these are.
    """

    kind: ClassVar[str] = "packet"
    name: str
    task: str
    entries: Mapping[int, tuple[int, ...]]
    pages: int = 0
    owner: int = 0

    @property
    def comment(self) -> str:
        """One-line description."""
        return f"{self.task}, {kind_of(self.task).summary}"


CardTask = CoreTask | InputTask | PacketStage | UserTask


@dataclass(frozen=True)
class CardRegion:
    """A chain of tasks; ``in_reset`` regions start in reset."""

    tasks: tuple[CardTask, ...]
    in_reset: bool = False


@dataclass(frozen=True)
class HardwarePass:
    """A pass through a region.

    Attributes:
        regions: regions that it may run in, which are instances of one chain.
        tasks: indices of the chain's tasks that are not skipped.
        model: index of the network in its executor.
    """

    regions: tuple[int, ...]
    tasks: tuple[int, ...] = (0,)
    model: int = 0


@dataclass(frozen=True)
class HardwareRule(VerdictRule):
    """Action for a verdict; the first matching rule counts.

    Attributes:
        classes: indices of the matching classes; empty for all classes and the host's verdict.
        margin: smallest matching margin.
        below: exclusive upper bound of matching margins; None for no bound.
        drop: whether the packet is dropped.
        to: destination ports in place of its own, as bits of ``tuser``; 0 keeps its own.
        copy: additional destination ports.
    """

    classes: tuple[int, ...] = ()
    margin: int = 0
    below: int | None = None
    drop: bool = False
    to: int = 0
    copy: int = 0


@dataclass(frozen=True)
class CardGraph:
    """The tasks for the packets of a UID.

    Attributes:
        name: names of tenant and graph, for comments.
        tenant: index of its owner.
        uid: identifier in its packets.
        input_bytes: length of the input field in its packets.
        branches: legs of each parallel branch, in order.
        join: how the results of several branches are joined.
        rules: rules for the answer.
        sources: ports that its packets may come from, as bits of ``tuser``.
        on: whether the graph is open from the start.
        step: how far a packet puts its tenant's turn off among those beyond their guarantees, 1 to
            4,095: its longest time at a resource over the weight of the tenant, in any unit.
    """

    name: str
    tenant: int
    uid: int
    input_bytes: int
    branches: tuple[tuple[HardwarePass, ...], ...]
    join: Join = "both"
    rules: tuple[HardwareRule, ...] = ()
    sources: int = ALL_PORTS
    on: bool = True
    step: int = 1

    @property
    def results(self) -> int:
        """Number of results that its packets have room for."""
        return len(self.branches) if self.join == "both" else 1


@dataclass(frozen=True)
class CardTenant:
    """A tenant's share of the ingress.

    Attributes:
        name: name of the tenant.
        rate: beats of 32 bytes per clock, in 1/65536.
        burst: size of its bucket in beats.
    """

    name: str
    rate: int = RATE_UNIT
    burst: int = 128


@dataclass(frozen=True)
class NetfpgaCardImage:
    """A card as it is written.

    Attributes:
        name: name of the card.
        tenants: tenants of the card.
        graphs: graphs of all tenants.
        regions: regions with their tasks.
        carrier: how packets carry a UID.
        beats_w: log2 of the beats of 32 bytes that a tenant's queue holds.
        seq_w: log2 of the packets that a tenant's queue holds.
        credit_w: log2 of the packets that a task holds at a time.
        memory_pages: pages of its on-board memory.
        page_w: log2 of the words of 32 bytes of a page.
    """

    name: str
    tenants: tuple[CardTenant, ...]
    graphs: tuple[CardGraph, ...]
    regions: tuple[CardRegion, ...]
    carrier: UidCarrier = "header"
    beats_w: int = 7
    seq_w: int = 5
    credit_w: int = 3
    memory_pages: int = 0
    page_w: int = 16

    def __post_init__(self) -> None:
        """Check that values fit the hardware's fields.

        Raises:
            ExportError: A value is out of range; the error says which.
        """
        if self.stages and self.carrier != "udp-port":
            raise ExportError(f"packet tasks read UDP headers, expected no UIDs in {self.carrier}")
        if self.need > MAX_NEED:
            raise ExportError(
                f"a packet with the longest input has {self.need} bytes, the card parses at most "
                f"{MAX_NEED}"
            )
        if len(self.tenants) > 126 or len(self.graphs) > 512 or len(self.regions) > 256:
            raise ExportError("a card has at most 126 tenants, 512 graphs and 256 regions")
        if sum(self.page_limits) > min(self.memory_pages, MAX_PAGES):
            raise ExportError(
                f"its tasks have {sum(self.page_limits)} pages of on-board memory, expected at "
                f"most {min(self.memory_pages, MAX_PAGES)}"
            )
        for tenant in self.tenants:
            if not 0 < tenant.rate <= RATE_UNIT or not 0 < tenant.burst <= MAX_BURST:
                raise ExportError(
                    f"tenant {tenant.name}: expected a rate up to {RATE_UNIT} and a burst up to "
                    f"{MAX_BURST} beats, got {tenant.rate} and {tenant.burst}"
                )

    # --- the packet --------------------------------------------------------------------------

    @property
    def results(self) -> int:
        """Number of results that each packet has room for."""
        return max(graph.results for graph in self.graphs)

    @property
    def result_at(self) -> int:
        """First byte of the results."""
        return RESULT_AT[self.carrier]

    @property
    def offset(self) -> int:
        """First byte of the input."""
        return self.result_at + RESULT_BYTES * self.results + self.header

    @property
    def header(self) -> int:
        """Bytes of the packet tasks' own headers, before the input."""
        return max((kind_of(s.task).header for s in self.stages), default=0)

    @property
    def need(self) -> int:
        """Bytes of a packet with the longest input."""
        return self.offset + max(graph.input_bytes for graph in self.graphs)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Different lengths of inputs, in bytes."""
        return tuple(sorted({graph.input_bytes for graph in self.graphs}))

    # --- widths ------------------------------------------------------------------------------

    @cached_property
    def cores(self) -> tuple[CoreTask, ...]:
        """All executors."""
        return tuple(t for r in self.regions for t in r.tasks if isinstance(t, CoreTask))

    @cached_property
    def stages(self) -> tuple[PacketStage, ...]:
        """All packet tasks."""
        return tuple(t for r in self.regions for t in r.tasks if isinstance(t, PacketStage))

    @property
    def memory_stages(self) -> tuple[PacketStage, ...]:
        """All packet tasks with on-board memory, in the order of their ports."""
        return tuple(stage for stage in self.stages if stage.pages)

    @property
    def page_limits(self) -> tuple[int, ...]:
        """Pages of each tenant; its tasks have them in the order of their ports."""
        owned = [(stage.owner, stage.pages) for stage in self.memory_stages]
        return tuple(sum(n for o, n in owned if o == t) for t in range(len(self.tenants)))

    @property
    def page_bases(self) -> tuple[int, ...]:
        """First entry of each tenant in the page table."""
        return tuple(accumulate(self.page_limits, initial=0))[:-1]

    def pages_of(self, stage: PacketStage) -> range:
        """Return a task's entries in the page table, which it begins with the same pages."""
        earlier = takewhile(lambda other: other is not stage, self.memory_stages)
        first = self.page_bases[stage.owner]
        first += sum(other.pages for other in earlier if other.owner == stage.owner)
        return range(first, first + stage.pages)

    @property
    def frame_w(self) -> int:
        """Bits of a physical page."""
        return max(1, clog2(self.memory_pages))

    def entries_of(self, stage: PacketStage) -> Mapping[int, tuple[int, ...]]:
        """Return the table of a packet task; with on-board memory, its words."""
        return {0: (stage.pages << self.page_w,)} if stage.pages else stage.entries

    def stages_of(self, branch: tuple[HardwarePass, ...]) -> list[PacketStage]:
        """Return the packet tasks of a branch, in order."""
        tasks = (self.regions[leg.regions[0]].tasks[k] for leg in branch for k in leg.tasks)
        return [task for task in tasks if isinstance(task, PacketStage)]

    @property
    def head_w(self) -> int:
        """Bits of the heads that packet tasks get; 0 on a card without any."""
        return 8 * (FRAME_HEAD + self.header) if self.stages else 0

    @property
    def data_w(self) -> int:
        """Bits of the data between tasks: a head, and a field."""
        return self.head_w + self.field_w

    @property
    def field_w(self) -> int:
        """Bits of the inputs between tasks."""
        inside = [
            task.model.input.n_bits
            for region in self.regions
            for task in region.tasks
            if isinstance(task, InputTask)
        ]
        return max(*(8 * size for size in self.sizes), *inside, 1)

    @property
    def margin_w(self) -> int:
        """Bits of a margin."""
        return max((core.score_w for core in self.cores), default=32)

    @property
    def result_w(self) -> int:
        """Bits of a result: model, class, margin."""
        return 48 + self.margin_w

    @property
    def queue_w(self) -> int:
        """Bits of a queue's number; there is a queue per tenant and one for all other packets."""
        return max(1, clog2(len(self.tenants) + 1))

    @property
    def graph_w(self) -> int:
        """Bits of a graph's number."""
        return max(1, clog2(len(self.graphs)))

    @property
    def branches(self) -> int:
        """Largest number of branches of a graph."""
        return max(len(graph.branches) for graph in self.graphs)

    @property
    def branch_w(self) -> int:
        """Bits of a branch."""
        return max(1, clog2(self.branches))

    @property
    def leg_w(self) -> int:
        """Bits of a leg."""
        return max(1, clog2(max(len(b) for g in self.graphs for b in g.branches)))

    @property
    def tasks(self) -> int:
        """Number of tasks of the longest chain."""
        return max(len(region.tasks) for region in self.regions)

    @property
    def model_w(self) -> int:
        """Bits of a network's index in its executor."""
        return max([1, *(clog2(len(core.models)) for core in self.cores)])

    @property
    def wr_model_w(self) -> int:
        """Bits of the write port's model; bit 7 is for the table of a packet task."""
        return 8 if self.stages else self.model_w

    @property
    def wr_aw(self) -> int:
        """Address bits of the write port."""
        widths = [c.layout.address_map.width for c in self.cores if c.layout is not None]
        return max([16 if self.stages else 1, *widths])

    @property
    def side_w(self) -> int:
        """Bits of the side data that accompany a packet through the regions."""
        return (
            self.packet_at + self.leg_w + self.branch_w + self.seq_w + self.queue_w + self.graph_w
        )

    @property
    def packet_at(self) -> int:
        """First bit of the side data that identify the packet, after model, skip bits and flags."""
        return self.model_w + self.tasks + 3

    @property
    def again(self) -> bool:
        """Whether packets may go to a second task."""
        return self.tasks > 1 or any(len(b) > 1 for g in self.graphs for b in g.branches)

    def has_input(self, branch: tuple[HardwarePass, ...]) -> bool:
        """Whether a branch runs through an input stage."""
        return any(
            isinstance(self.regions[leg.regions[0]].tasks[k], InputTask)
            for leg in branch
            for k in leg.tasks
        )

    def passes_of(self, name: str) -> list[HardwarePass]:
        """Return the legs of a network, by the full name of its task: one per region with it."""
        return [
            HardwarePass((r,), (k,), task.names.index(name))
            for r, region in enumerate(self.regions)
            for k, task in enumerate(region.tasks)
            if isinstance(task, CoreTask) and name in task.names
        ]

    def places_of(self, name: str) -> list[tuple[int, int]]:
        """Return the regions with a packet task, and its place in their chains."""
        return [
            (r, k)
            for r, region in enumerate(self.regions)
            for k, task in enumerate(region.tasks)
            if isinstance(task, PacketStage) and task.name == name
        ]

    def core_of(self, leg: HardwarePass) -> tuple[CoreTask, BinaryModel] | None:
        """Return the executor and the network of a leg; None for a leg without a network."""
        for index in leg.tasks:
            task = self.regions[leg.regions[0]].tasks[index]
            if isinstance(task, CoreTask):
                return task, task.models[leg.model]
        return None
