# SPDX-License-Identifier: Apache-2.0
"""Compile graphs for software targets: networks that read one packet, a join, a policy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from n3ic.errors import CardError
from n3ic.model.classifier import Classifier
from n3ic.systems.card.description import (
    Action,
    Card,
    InputStage,
    Join,
    Meter,
    NetworkTask,
    PacketTask,
    Parallel,
    Policy,
    Rule,
    TaskGraph,
    UidCarrier,
)
from n3ic.systems.card.models import network_of
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.tasks.chain import header_bytes
from n3ic.systems.card.tasks.kind import DENIED, MEMORY_WORD, kind_of

RESULT_AT = {"header": 16, "vlan": 20, "udp-port": 44}  # first byte of the results in a frame
RESULT_BYTES = 10  # model 4, class 2, margin 4
LONGEST_FRAME = 1518
_WEIGHTS = 1 << 16  # sum of all tenants' weights


@dataclass(frozen=True, eq=False)
class Branch:
    """A network that reads the packet.

    Attributes:
        task: full name of its task.
        model: the network.
        features: whether the packet holds integer features; otherwise input bits.
        packet_tasks: the packet tasks, in order.
    """

    task: str
    model: Classifier
    features: bool
    packet_tasks: tuple[PacketTask, ...] = ()

    @property
    def input_bytes(self) -> int:
        """Bytes of its input: four per feature, or the bits as one number."""
        spec = self.model.input
        return 4 * len(spec.features) if self.features else -(-spec.n_bits // 8)


class VerdictRule:
    """Condition of a rule: classes, and margins between two bounds."""

    classes: tuple[int, ...]
    margin: int
    below: int | None

    def is_about(self, verdict: int, margin: int) -> bool:
        """Whether the rule matches a verdict."""
        near = self.margin <= margin and (self.below is None or margin < self.below)
        return near and (not self.classes or verdict in self.classes)


@dataclass(frozen=True)
class SoftwareRule(VerdictRule):
    """Action for a verdict; see :class:`~n3ic.systems.card.description.Rule`.

    Attributes:
        action: forward, drop, mark or mirror.
        classes: indices of the matching classes; empty for all.
        margin: smallest matching margin.
        below: exclusive upper bound of matching margins; None for no bound.
        value: port of ``forward`` and ``mirror``, DSCP of ``mark``; 0 if not given.
    """

    action: Action
    classes: tuple[int, ...]
    margin: int
    below: int | None
    value: int


@dataclass(frozen=True, eq=False)
class SoftwareGraph:
    """The flow of packets with one UID.

    Attributes:
        name: tenant and graph.
        tenant: index of the owner.
        uid: identifier in its packets.
        branches: networks, which all read the same field of the packet.
        join: how the results are joined.
        rules: rules for the packet; the first match counts.
    """

    name: str
    tenant: int
    uid: int
    branches: tuple[Branch, ...]
    join: Join
    rules: tuple[SoftwareRule, ...]

    @property
    def results(self) -> int:
        """Number of results that its packets have room for."""
        return len(self.branches) if self.join == "both" else 1

    @property
    def input_bytes(self) -> int:
        """Bytes of the field in its packets."""
        return self.branches[0].input_bytes


@dataclass(frozen=True)
class SoftwareTenant:
    """A tenant's share of the software.

    Attributes:
        name: its name.
        weight: weight of its turns; all weights sum to about 65,536.
        rate: rate of its token bucket, in bytes per second.
        burst: size of the bucket, in bytes.
    """

    name: str
    weight: int
    rate: int
    burst: int


@dataclass(frozen=True, eq=False)
class SoftwareCard:
    """A plan as software runs it.

    Attributes:
        name: name of the card.
        tenants: tenants of the card.
        graphs: graphs in ascending order of their UIDs.
        carrier: how packets carry a UID.
    """

    name: str
    tenants: tuple[SoftwareTenant, ...]
    graphs: tuple[SoftwareGraph, ...]
    carrier: UidCarrier

    @cached_property
    def networks(self) -> dict[str, Classifier]:
        """All networks by task name, in the order of the graphs."""
        return {b.task: b.model for g in self.graphs for b in g.branches}

    @cached_property
    def packet_tasks(self) -> dict[str, PacketTask]:
        """All packet tasks by name, in the order of the graphs."""
        return {t.name: t for g in self.graphs for b in g.branches for t in b.packet_tasks}

    @property
    def header(self) -> int:
        """Bytes of the packet tasks' own headers before the input of every frame."""
        return header_bytes(self.packet_tasks.values())

    @property
    def result_at(self) -> int:
        """First byte of the results in a frame."""
        return RESULT_AT[self.carrier]

    @property
    def offset(self) -> int:
        """First byte of the input in a frame; every frame has room for the most results."""
        results = max(g.results for g in self.graphs)
        return self.result_at + RESULT_BYTES * results + self.header


def software_card(plan: CardPlan, target: str) -> SoftwareCard:
    """Compile a plan for a target that runs networks, input stages, joins and policies.

    Args:
        plan: the plan.
        target: name of the target, for errors.

    Raises:
        CardError: software targets do not support a task or flow; the error names its line.
    """
    card = unplanned_card(plan.card, target)
    return replace(card, tenants=tuple(_tenants(plan, card)))


def has_packet_tasks(card: Card, graph: TaskGraph) -> bool:
    """Whether a graph has packet tasks."""
    return any(isinstance(card.tasks[name], PacketTask) for name in graph.flow.tasks())


def check_packet_tasks(card: Card, graph: TaskGraph) -> None:
    """Check that packets have the headers that packet tasks read, and one branch changes them.

    Raises:
        CardError: they have not, or several would.
    """
    where = f"{card.source}:{graph.line}: graph {graph.name!r}"
    own = {n: t for n in graph.flow.tasks() if isinstance(t := card.tasks[n], PacketTask)}
    if own and card.device.uid != "udp-port":
        raise CardError(
            f'{where}: packet tasks read UDP headers: expected uid = "udp-port" in [device], got '
            f"{card.device.uid!r}"
        )
    for name, task in own.items():
        if kind_of(task.task).keeps and "/" not in name:
            raise CardError(
                f"{where}: {name!r} keeps what packets do: expected a tenant's own task"
            )
    for fork in graph.flow.parallels:
        outside = [n for n in own if n in graph.flow.steps]
        if outside:
            raise CardError(
                f"{where}: {outside[0]!r} before branches runs in each: expected it in the first"
            )
        others = [n for branch in fork.branches[1:] for n in branch.tasks() if n in own]
        if acts := [n for n in others if kind_of(own[n].task).acts]:
            raise CardError(
                f"{where}: {acts[0]!r} changes or drops packets: expected it in the first branch"
            )
        if own and fork.join != "both":
            raise CardError(f"{where}: join {fork.join!r} with packet tasks, expected 'both'")


def unplanned_card(card: Card, target: str) -> SoftwareCard:
    """Compile a card before a plan sets the tenants' shares.

    Args:
        card: its description.
        target: name of the target, for errors.

    Raises:
        CardError: software targets do not support a task or flow; the error names its line.
    """
    for tenant in card.tenants:
        if tenant.ports:
            raise CardError(
                f"{card.source}:{tenant.line}: tenant {tenant.name!r}: target {target} has no "
                "ports of tenants: remove 'ports' from [[tenants]]"
            )
    graphs = [
        _graph(card, t, graph, target)
        for t, tenant in enumerate(card.tenants)
        for graph in tenant.graphs
    ]
    unplanned = SoftwareCard(
        card.name,
        tuple(SoftwareTenant(t.name, 1, 1, 1) for t in card.tenants),
        tuple(sorted(graphs, key=lambda g: g.uid)),
        card.device.uid,
    )
    for graph in graphs:
        if unplanned.offset + graph.input_bytes > LONGEST_FRAME:
            raise CardError(
                f"{card.source}: graph {graph.name}: its packets have "
                f"{unplanned.offset + graph.input_bytes} bytes, expected at most {LONGEST_FRAME}"
            )
    return unplanned


def frame_lengths(plan: CardPlan, card: SoftwareCard) -> dict[str, float]:
    """Mean bytes of each graph's frames: a request is as long as its field needs, if not longer."""
    stated = {f"{g.tenant}/{g.graph}": g.packet_bytes for g in plan.graphs}
    return {g.name: max(stated[g.name], card.offset + g.input_bytes) for g in card.graphs}


def _tenants(plan: CardPlan, card: SoftwareCard) -> Iterator[SoftwareTenant]:
    length_of = frame_lengths(plan, card)
    planned = {(g.tenant, g.graph): g for g in plan.graphs}
    total = sum(s.dominant_share for s in plan.shares)
    for tenant, share in zip(plan.card.tenants, plan.shares, strict=True):
        plans = [planned[tenant.name, g.name] for g in tenant.graphs]
        lengths = [length_of[f"{g.tenant}/{g.graph}"] for g in plans]
        bursts = [g.burst_bytes * n / g.packet_bytes for g, n in zip(plans, lengths, strict=True)]
        part = share.dominant_share / total if total else 1 / len(plan.shares)
        yield SoftwareTenant(
            tenant.name,
            # No weight or rate may round to 0, or the tenant would never be served.
            max(1, round(_WEIGHTS * part)),
            max(1, math.ceil(sum(g.guaranteed * n for g, n in zip(plans, lengths, strict=True)))),
            # A bucket below one frame would never let that frame pass.
            max(2 * LONGEST_FRAME, math.ceil(sum(bursts))),
        )


def _graph(card: Card, tenant: int, graph: TaskGraph, target: str) -> SoftwareGraph:
    where = f"{card.source}:{graph.line}: graph {graph.name!r}"
    check_packet_tasks(card, graph)
    before: list[str] = []
    ways: list[tuple[str, ...]] = []
    join: Join = "both"
    rules: list[Rule] = []
    for step in graph.flow.steps:
        if isinstance(step, Parallel):
            if ways or any(b.parallels for b in step.branches):
                raise CardError(f"{where}: target {target} allows one join in a flow")
            # The steps before the fork belong to every branch: each branch is compiled as a line of
            # its own.
            inside = [[n for n in b.tasks() if not _before(card, n)] for b in step.branches]
            ways = [(*before, *names) for names in inside]
            join = step.join
            continue
        task = card.tasks[step]
        if isinstance(task, Policy):
            rules += task.rules
        elif _before(card, step):
            continue
        elif ways or rules:
            raise CardError(f"{where}: {step!r} follows a join or a policy, expected only policies")
        else:
            before.append(step)
    branches = tuple(_branch(card, way, where, target) for way in ways or [tuple(before)])
    fields = {(b.features, b.input_bytes) for b in branches}
    if len(fields) > 1:
        lengths = sorted(length for _, length in fields)
        raise CardError(f"{where}: its branches read fields of {lengths} bytes, expected one field")
    first = branches[0].model
    denies = has_packet_tasks(card, graph)
    names = {b.model.input.features for b in branches if b.features}
    if len(names) > 1:
        raise CardError(f"{where}: its branches read different features, expected the same ones")
    return SoftwareGraph(
        f"{card.tenants[tenant].name}/{graph.name}",
        tenant,
        graph.uid,
        branches,
        join,
        (
            *((SoftwareRule("drop", (DENIED,), 0, None, 0),) if denies else ()),
            *(_rule(rule, first.classes, where) for rule in rules),
        ),
    )


def _before(card: Card, name: str) -> bool:
    """Whether a task runs before the card, so that packets hold the features of a meter."""
    return isinstance(card.tasks[name], Meter)


def _branch(card: Card, way: Sequence[str], where: str, target: str) -> Branch:
    own: list[PacketTask] = []
    for name in way:
        task = card.tasks[name]
        if isinstance(task, PacketTask) and target == "host":
            words = task.pages * card.device.page_bytes // MEMORY_WORD
            own.append(replace(task, entries={0: (words,)}) if words else task)
        elif not isinstance(task, InputStage | NetworkTask):
            what = "policy in a branch" if isinstance(task, Policy) else f"{task.kind} task"
            raise CardError(
                f"{where}: {name!r}: target {target} has no {what} on a shared card: its graphs "
                "are an input stage, networks, a join and a policy"
            )
    stages, networks = (
        [n for n in way if isinstance(card.tasks[n], kind)] for kind in (InputStage, NetworkTask)
    )
    if len(networks) != 1 or len(stages) > 1 or way[-1] != networks[0]:
        raise CardError(
            f"{where}: expected at most one input stage and then one network, got "
            f"{' > '.join(way) or 'nothing'}"
        )
    model = network_of(card, networks[0])
    if stages and network_of(card, stages[0]).input != model.input:
        raise CardError(f"{where}: {networks[0]!r} was trained on another input than {stages[0]!r}")
    return Branch(networks[0], model, bool(stages), tuple(own))


def _rule(rule: Rule, classes: Sequence[str], where: str) -> SoftwareRule:
    unknown = [c for c in rule.classes if c not in classes]
    if unknown:
        names = ", ".join(classes)
        raise CardError(f"{where}: a rule names class {unknown[0]!r}, expected one of {names}")
    value = rule.mark if rule.action == "mark" else rule.port
    return SoftwareRule(
        rule.action,
        tuple(classes.index(c) for c in rule.classes),
        rule.margin,
        rule.below,
        value or 0,
    )
