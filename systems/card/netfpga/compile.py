# SPDX-License-Identifier: Apache-2.0
"""Compile a plan to a card: executors in regions, and the paths of packets through them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from n3ic.errors import CardError
from n3ic.exporters.netfpga.packet.traffic import BEAT
from n3ic.exporters.netfpga.sequential import layout as sequential_layout
from n3ic.model.network import BinaryModel, binary_network
from n3ic.options import Option, parse_options
from n3ic.systems.card.compile import check_packet_tasks, has_packet_tasks
from n3ic.systems.card.description import (
    Card,
    InputStage,
    Meter,
    NetworkTask,
    PacketTask,
    Parallel,
    Policy,
    Series,
    TaskGraph,
    UserVerilog,
)
from n3ic.systems.card.description import Rule as CardRule
from n3ic.systems.card.models import network_of
from n3ic.systems.card.netfpga.image import (
    ALL_PORTS,
    MAX_BURST,
    MAX_STEP,
    RATE_UNIT,
    CardGraph,
    CardRegion,
    CardTask,
    CardTenant,
    CoreTask,
    HardwarePass,
    HardwareRule,
    InputTask,
    Join,
    NetfpgaCardImage,
    PacketStage,
    UserTask,
)
from n3ic.systems.card.netfpga.user_verilog import UserVerilogError, modules_of
from n3ic.systems.card.plan import CardPlan, GraphPlan, PlannedRegion
from n3ic.systems.card.planner import packet_costs
from n3ic.systems.card.resources import PAGES
from n3ic.systems.card.tasks.kind import DENIED, MEMORY_WORD, kind_of

_LONGEST = 48  # beats of the longest frame, which every bucket must let pass
_MAX_SOURCE_BYTES = 1 << 20
_LIMIT_CLOCKS = 4096  # clocks of a user's task before it is cut off
_NAME = re.compile(r"[A-Za-z0-9_]+\.s?vh?")


@dataclass(frozen=True)
class _Place:
    """Position of a task: its place in a region's chain, and in an executor that it shares."""

    index: int
    model: int = 0


def image_of(plan: CardPlan, options: Sequence[Option], clock_hz: float) -> NetfpgaCardImage:
    """Compile the card of a plan.

    Networks of one shape in one region share a sequential executor, as many as it can compute at
    the guaranteed rates. Each costs memory and little logic. Policies take no region, because they
    run where packets leave. Meters take none either, because packets hold features computed before.

    Args:
        plan: the plan; empty regions are left out.
        options: options of the networks.
        clock_hz: clock rate of the card.

    Raises:
        CardError: The target does not support a task or a flow; the error names it.
    """
    card = plan.card
    models = {
        n: binary_network(network_of(card, n))
        for n, t in card.tasks.items()
        if isinstance(t, NetworkTask | InputStage)
    }
    regions_used = used_regions(plan)
    regions: list[CardRegion] = []
    places: dict[tuple[int, str], _Place] = {}
    number = {r.index: i for i, r in enumerate(regions_used)}
    chains = _Chains(card, models, options, _loads(plan), clock_hz)
    for region in regions_used:
        tasks, task_places = chains.tasks(region.chain)
        regions.append(CardRegion(tuple(tasks)))
        places |= {(number[region.index], name): place for name, place in task_places.items()}
    _check_names(regions)
    _check_instances(card, regions)
    planned = {(g.tenant, g.graph): g for g in plan.graphs}
    graphs = [
        _graph(card, t, graph, planned[tenant.name, graph.name], models, number, places)
        for t, tenant in enumerate(card.tenants)
        for graph in tenant.graphs
    ]
    tenants = [CardTenant(tenant.name) for tenant in card.tenants]
    image = NetfpgaCardImage(
        card.name,
        tuple(tenants),
        tuple(graphs),
        tuple(regions),
        carrier=card.device.uid,
        memory_pages=sum(int(r.capacity or 0) for r in plan.resources if r.name == PAGES),
        page_w=(card.device.page_bytes // MEMORY_WORD).bit_length() - 1,
    )
    if queue_slots := card.device.queue:
        bits = queue_slots.bit_length() - 1
        image = replace(image, seq_w=bits, beats_w=bits + image.beats_w - image.seq_w)
    shares = [
        _share(image, t, [planned[tenant.name, g.name] for g in tenant.graphs], clock_hz)
        for t, tenant in enumerate(card.tenants)
    ]
    steps = _steps(plan)
    stepped = tuple(replace(graph, step=steps[graph.uid]) for graph in graphs)
    return replace(image, tenants=tuple(shares), graphs=stepped)


def used_regions(plan: CardPlan) -> list[PlannedRegion]:
    """Return the regions of a plan that the image has, in the order of its regions."""
    return [r for r in plan.regions if any(_placed(plan.card, name) for name in r.chain)]


def taking_turns(plan: CardPlan, options: Sequence[Option], clock_hz: float) -> frozenset[str]:
    """Return the networks that share an executor, where their region has only one such."""
    card = plan.card
    names = [[n for n in r.chain if isinstance(card.tasks[n], NetworkTask)] for r in plan.regions]
    models = {n: binary_network(network_of(card, n)) for chain in names for n in chain}
    chains = _Chains(card, models, options, _loads(plan), clock_hz)
    out = set[str]()
    for chain in names:
        tasks = (task for task in chains.tasks(chain)[0] if isinstance(task, CoreTask))
        shared = [task.names for task in tasks if len(task.names) > 1]
        if len(shared) == 1:
            out |= {*shared[0]}
    return frozenset(out)


def _steps(plan: CardPlan) -> dict[int, int]:
    """Compute how far a packet of each graph puts its tenant's turn off, by UID."""
    shares = {s.tenant: s.dominant_share for s in plan.shares}
    costs = packet_costs(plan)
    steps = {g.uid: costs[g.uid] / (shares[g.tenant] or 1.0) for g in plan.graphs}
    unit = max(steps.values()) / MAX_STEP
    return {uid: max(1, round(step / unit)) if unit else 1 for uid, step in steps.items()}


def _placed(card: Card, name: str) -> bool:
    return not isinstance(card.tasks[name], Policy | Meter)


def _loads(plan: CardPlan) -> dict[str, float]:
    """Compute the inferences per second of each task at the guaranteed rates."""
    loads: dict[str, float] = defaultdict(float)
    flows = {(t.name, g.name): g.flow for t in plan.card.tenants for g in t.graphs}
    for graph in plan.graphs:
        for name in flows[graph.tenant, graph.graph].tasks():
            loads[name] += graph.guaranteed
    return loads


@dataclass
class _Shared:
    """Networks that share an executor, while it has time for more."""

    index: int
    names: list[str]
    models: list[BinaryModel]
    layouts: list[sequential_layout.SequentialLayout]
    load: float


@dataclass(frozen=True)
class _Chains:
    """Builds the chains of the regions.

    Attributes:
        card: the card.
        models: networks by the names of their tasks.
        options: options of the networks.
        loads: inferences per second of each task.
        clock_hz: clock rate of the card.
    """

    card: Card
    models: Mapping[str, BinaryModel]
    options: Sequence[Option]
    loads: Mapping[str, float]
    clock_hz: float

    def tasks(self, names: Sequence[str]) -> tuple[list[CardTask], dict[str, _Place]]:
        """Build the tasks of a region, and return the place of each name among them."""
        tasks: list[CardTask] = []
        places: dict[str, _Place] = {}
        shared: list[_Shared] = []
        for name in names:
            task = self.card.tasks[name]
            if isinstance(task, NetworkTask):
                places[name] = self._network(task, tasks, shared)
            elif isinstance(task, InputStage):
                places[name] = _Place(len(tasks))
                tasks.append(InputTask(self.models[name]))
            elif isinstance(task, PacketTask):
                places[name] = _Place(len(tasks))
                tasks.append(self._stage(task))
            elif isinstance(task, UserVerilog):
                places[name] = _Place(len(tasks))
                tasks.append(_user(self.card, task))
        for each in shared:
            layout = sequential_layout.shared(each.layouts)
            tasks[each.index] = CoreTask(tuple(each.models), layout=layout, names=tuple(each.names))
        return tasks, places

    def _stage(self, task: PacketTask) -> PacketStage:
        tenant = task.name.partition("/")[0]
        owner = next((i for i, t in enumerate(self.card.tenants) if t.name == tenant), 0)
        return PacketStage(task.name, task.task, task.entries, task.pages, owner)

    def _network(self, task: NetworkTask, tasks: list[CardTask], shared: list[_Shared]) -> _Place:
        model = self.models[task.name]
        target_options = parse_options(self.options, task.options, "target netfpga")
        if target_options["style"] == "unrolled":
            outputs: Any = target_options["outputs"]
            tasks.append(
                CoreTask(
                    (model,),
                    "unrolled",
                    None,
                    int(target_options["pipeline"]),
                    outputs,
                    (task.name,),
                )
            )
            return _Place(len(tasks) - 1)
        layout, load = sequential_layout.plan_with(model, target_options), self.loads[task.name]
        for each in shared:
            first = each.layouts[0]
            interval = CoreTask((model,), layout=first).interval
            # One executor computes a network at a time, so the loads of all that share it add up.
            room = self.clock_hz / interval - each.load
            if _alike(first, layout) and load <= room:
                each.names.append(task.name)
                each.models.append(model)
                each.layouts.append(layout)
                each.load += load
                return _Place(each.index, len(each.models) - 1)
        shared.append(_Shared(len(tasks), [task.name], [model], [layout], load))
        tasks.append(CoreTask((model,), layout=layout))
        return _Place(len(tasks) - 1)


def _alike(
    one: sequential_layout.SequentialLayout, other: sequential_layout.SequentialLayout
) -> bool:
    """Whether two networks can share an executor: same shape and same width of scores."""
    shapes = [[(p.n, p.m) for p in each.layers] for each in (one, other)]
    same = one.score_w == other.score_w and one.modules == other.modules
    return shapes[0] == shapes[1] and same and one.tables == other.tables


def _user(card: Card, task: UserVerilog) -> UserTask:
    """Read a user's Verilog, which must not reach files or programs of the simulating machine.

    Raises:
        CardError: A file cannot be read, or uses a refused construct.
    """
    where = f"{card.source}:{task.line}: task {task.name!r}"
    sources, modules = [], set[str]()
    for path in task.sources:
        try:
            with Path(path).open("rb") as stream:
                text = stream.read(_MAX_SOURCE_BYTES + 1).decode("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise CardError(f"{where}: {path} cannot be read as Verilog: {error}") from error
        if len(text) > _MAX_SOURCE_BYTES or not _NAME.fullmatch(path.name):
            raise CardError(
                f"{where}: expected Verilog files of at most {_MAX_SOURCE_BYTES >> 20} MiB with "
                f"names such as filter.v, got {path.name[:80]!r}"
            )
        try:
            modules |= {*modules_of(path.name, text)}
        except UserVerilogError as error:
            raise CardError(f"{where}: {path.name}: {error}") from error
        sources.append((path.name, text))
    if task.top not in modules:
        raise CardError(f"{where}: expected a module {task.top} in its sources, found none")
    return UserTask(task.top, tuple(sources), task.data_bits, _LIMIT_CLOCKS)


def _check_names(regions: Sequence[CardRegion]) -> None:
    """Check that names of users' modules are unique and not those of the card's own modules."""
    sources_of: dict[str, tuple[tuple[str, str], ...]] = {}
    for region in regions:
        for task in region.tasks:
            if not isinstance(task, UserTask):
                continue
            for name in {m for file in task.sources for m in modules_of(*file)}:
                if name.startswith("n3ic_") or sources_of.get(name, task.sources) != task.sources:
                    raise CardError(
                        f"module {name} of a user's task: expected a name that no other task has "
                        "and that does not begin with n3ic_"
                    )
                sources_of[name] = task.sources


def _check_instances(card: Card, regions: Sequence[CardRegion]) -> None:
    """Check that a packet task whose packets meet each other is in one region."""
    placed = Counter(
        task.name
        for region in regions
        for task in region.tasks
        if isinstance(task, PacketStage) and kind_of(task.task).keeps
    )
    for name in (name for name, count in placed.items() if count > 1):
        raise CardError(
            f"{card.source}:{card.tasks[name].line}: task {name!r} keeps what packets do, and the "
            "plan has it in several regions: expected a rate that one region serves"
        )


# --- graphs ------------------------------------------------------------------------------------


def _graph(
    card: Card,
    tenant: int,
    graph: TaskGraph,
    planned: GraphPlan,
    models: Mapping[str, BinaryModel],
    number: Mapping[int, int],
    places: Mapping[tuple[int, str], _Place],
) -> CardGraph:
    where = f"{card.source}:{graph.line}: graph {graph.name!r}"
    if not planned.paths:
        raise CardError(f"{where}: the plan has no path for it")
    check_packet_tasks(card, graph)
    branches, join, policies = _branches(card, graph.flow, where)
    ways = [
        {
            name: number[visit.region]
            for stage in path.stages
            for visit in stage
            for name in visit.tasks
            if _placed(card, name)
        }
        for path in planned.paths
    ]
    legs = tuple(_legs(names, ways, places) for names in branches)
    sizes = {_field_bytes(card, names, models, where) for names in branches}
    if len(sizes) > 1:
        raise CardError(
            f"{where}: its branches read inputs of {sorted(sizes)} bytes, expected one length"
        )
    # Rules name classes; the hardware compares numbers, which are those of the first branch's
    # network.
    classes: tuple[str, ...] = ()
    for name in branches[0]:
        if isinstance(card.tasks[name], NetworkTask):
            classes = models[name].classes
        elif isinstance(task := card.tasks[name], PacketTask):
            classes = kind_of(task.task).classes or classes
    return CardGraph(
        name=f"{card.tenants[tenant].name}/{graph.name}",
        tenant=tenant,
        uid=graph.uid,
        input_bytes=sizes.pop(),
        branches=legs,
        join=join,
        rules=(
            *((HardwareRule((DENIED,), drop=True),) if has_packet_tasks(card, graph) else ()),
            *(_rule(rule, classes, where) for p in policies for rule in p.rules),
        ),
        sources=reduce(or_, card.tenants[tenant].ports, 0) or ALL_PORTS,
    )


def _branches(
    card: Card, flow: Series, where: str
) -> tuple[tuple[tuple[str, ...], ...], Join, list[Policy]]:
    """Split a flow into branches of tasks, from the packet to the join, and its policies."""
    before: list[str] = []
    branches: list[tuple[str, ...]] = []
    join: Join = "both"
    policies: list[Policy] = []
    for step in flow.steps:
        if isinstance(step, Parallel):
            if branches or any(b.parallels for b in step.branches):
                raise CardError(f"{where}: target netfpga allows one join in a flow")
            inside = [
                tuple(n for n in b.tasks() if not isinstance(card.tasks[n], Meter))
                for b in step.branches
            ]
            if any(isinstance(card.tasks[n], Policy) for names in inside for n in names):
                raise CardError(f"{where}: expected the policy after the join, not in a branch")
            branches = [(*before, *names) for names in inside]
            join = step.join
            continue
        task = card.tasks[step]
        if isinstance(task, Policy):
            policies.append(task)
        elif isinstance(task, Meter):
            continue
        elif branches or policies:
            raise CardError(f"{where}: {step!r} follows a join or a policy, expected only policies")
        else:
            before.append(step)
    paths = branches or [tuple(before)]
    if not all(paths):
        raise CardError(f"{where}: expected a network or a user's task, got neither")
    return tuple(paths), join, policies


def _legs(
    names: Sequence[str],
    ways: Sequence[Mapping[str, int]],
    places: Mapping[tuple[int, str], _Place],
) -> tuple[HardwarePass, ...]:
    """Make the passes of a branch; alternative paths become instances where they are alike."""
    shapes = [_passes(names, way, places) for way in ways]
    # The hardware gives a leg a set of regions, so only paths with the same passes can be merged.
    alike = [s for s in shapes if [p[1:] for p in s] == [p[1:] for p in shapes[0]]]
    return tuple(
        HardwarePass(tuple(sorted({s[i][0] for s in alike})), tasks, model)
        for i, (_, tasks, model) in enumerate(alike[0])
    )


def _passes(
    names: Sequence[str], way: Mapping[str, int], places: Mapping[tuple[int, str], _Place]
) -> list[tuple[int, tuple[int, ...], int]]:
    """Return region, tasks and network of each pass."""
    out: list[tuple[int, tuple[int, ...], int]] = []
    for name in names:
        region = way[name]
        place = places[region, name]
        # A chain runs its tasks in one order; going back in it takes another pass.
        if out and out[-1][0] == region and place.index > out[-1][1][-1]:
            _, tasks, model = out[-1]
            out[-1] = (region, (*tasks, place.index), max(model, place.model))
        else:
            out.append((region, (place.index,), place.model))
    return out


def _field_bytes(
    card: Card, names: Sequence[str], models: Mapping[str, BinaryModel], where: str
) -> int:
    """Return the length in bytes of the field that the tasks of a branch read."""
    readers = [t for n in names if not isinstance(t := card.tasks[n], PacketTask)]
    if not readers:
        return 0
    task = readers[0]
    if isinstance(task, InputStage):
        return 4 * len(models[task.name].input.features)
    if isinstance(task, NetworkTask):
        return -(-models[task.name].input.n_bits // 8)
    if isinstance(task, UserVerilog):
        return task.data_bits // 8
    raise CardError(f"{where}: begins with a {task.kind}, expected an input stage or a network")


def _rule(rule: CardRule, classes: Sequence[str], where: str) -> HardwareRule:
    unknown = [c for c in rule.classes if c not in classes]
    if unknown:
        raise CardError(f"{where}: a rule names class {unknown[0]!r}, expected one of {classes}")
    if rule.action == "mark":
        raise CardError(
            f"{where}: target netfpga cannot mark packets: drop, mirror or forward them"
        )
    port = 0 if rule.port is None else rule.port
    return HardwareRule(
        classes=tuple(classes.index(c) for c in rule.classes),
        margin=rule.margin,
        below=rule.below,
        drop=rule.action == "drop",
        to=port if rule.action == "forward" else 0,
        copy=port if rule.action == "mirror" else 0,
    )


def _share(
    image: NetfpgaCardImage, tenant: int, planned: Sequence[GraphPlan], clock_hz: float
) -> CardTenant:
    """Make a tenant whose bucket lets the guaranteed rates of its graphs pass together."""
    beats = 0.0
    mine = [g for g in image.graphs if g.tenant == tenant]
    for graph, graph_plan in zip(mine, planned, strict=True):
        beats += graph_plan.guaranteed * frame_beats(image, graph, graph_plan)
    burst = math.ceil(sum(g.burst_bytes for g in planned) / BEAT)
    return CardTenant(
        image.tenants[tenant].name,
        bucket_rate(beats, clock_hz),
        min(max(_LONGEST, burst), MAX_BURST),
    )


def frame_beats(image: NetfpgaCardImage, graph: CardGraph, planned: GraphPlan) -> int:
    """Return the beats of a graph's mean frame, which holds at least a request."""
    return math.ceil(max(planned.packet_bytes, image.offset + graph.input_bytes) / BEAT)


def bucket_rate(beats: float, clock_hz: float) -> int:
    """Return a tenant's rate as its register holds it, from beats per second."""
    # A rate of 0 would stop the tenant; above one beat per clock, the bus is the limit.
    return min(max(1, math.ceil(beats / clock_hz * RATE_UNIT)), RATE_UNIT)
