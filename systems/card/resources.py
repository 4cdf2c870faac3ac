# SPDX-License-Identifier: Apache-2.0
"""Costs of tasks from exporters' reports, and the resources of a card."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from n3ic.errors import CardError, N3icError
from n3ic.model import passes
from n3ic.model.classifier import Classifier
from n3ic.systems.card.description import Card, NetworkTask, PacketTask, Rate, Task
from n3ic.systems.card.models import open_network
from n3ic.systems.card.tasks.kind import kind_of
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.device import CardLayout
from n3ic.targets.figures import NANOSECONDS, FigureKind, Report

PAGES = "pages"  # the resource of which a task has its on-board memory
INGRESS = "ingress"  # the resource of which every packet takes its bytes
_LAYOUT_PAGE = 1 << 21  # bytes of a page of a device's description
Per = Literal["instance", "packet"]
Within = Literal["region", "card"]


@dataclass(frozen=True)
class Resource:
    """A resource of a card that its tenants share.

    Attributes:
        name: name, such as ``lut_sites``, ``cls``, ``cycles``.
        unit: unit of amounts; for a resource that packets take, of amounts per second.
        per: what takes the resource. ``instance``: an instance of a task, however much it works
            (area, memory, table entries). ``packet``: every packet that it processes (cycles,
            thread-seconds, bytes of a port).
        within: ``region`` if each region has its own, ``card`` if the card has one for all.
        capacity: capacity of one region or of the card; None if it is counted without a limit.
    """

    name: str
    unit: str
    per: Per
    within: Within
    capacity: float | None


@dataclass(frozen=True)
class Amount:
    """An amount, whether it was measured, simulated or estimated, and its source."""

    value: float
    kind: FigureKind
    source: str


@dataclass(frozen=True)
class TaskCost:
    """Cost and rate of one instance of a task.

    Attributes:
        needs: amounts by resource, per instance or per packet as the resource says.
        rate: rate that one instance sustains; None if it is unlimited.
        rate_kind: how the rate is known.
        rate_source: where the rate comes from.
        latency_ns: nanoseconds from a packet's arrival to its departure; None if unknown.
    """

    needs: Mapping[str, Amount]
    rate: Rate | None
    rate_kind: FigureKind
    rate_source: str
    latency_ns: Amount | None

    @property
    def known_by(self) -> tuple[str, ...]:
        """Kinds of its figures: measured, simulated, estimated."""
        kinds = {a.kind for a in self.needs.values()} | ({self.rate_kind} if self.rate else set())
        return tuple(sorted(kinds))


@dataclass(frozen=True)
class Budget:
    """The resources of a card.

    Attributes:
        resources: resources to divide.
        regions: number of equal regions.
        spare: number of regions that are left empty.
        scheduling_ns: nanoseconds of one pass through the scheduler.
        source: where the numbers come from.
    """

    resources: tuple[Resource, ...]
    regions: int
    spare: int
    scheduling_ns: float
    source: str


def budget_of(card: Card) -> Budget:
    """Compute the budget of a card from its target's device and ``card.toml``.

    Raises:
        CardError: no sharing is defined for the target's device, or a task or graph needs a
            resource that the card lacks.
        UsageError: no target has that name.
    """
    device = card.device
    layout = _layout(card)
    regions = device.regions or (layout.regions if layout else 1)
    if device.spare >= regions:
        raise CardError(
            f"{card.source}: [device] has {regions} regions, expected fewer spare ones, "
            f"got {device.spare}"
        )
    commons = {name for t in card.tenants for g in t.graphs for name in g.needs}
    resources: dict[str, Resource] = {}
    for r in layout.resources if layout else ():
        total = device.resources.get(r.name, r.capacity)
        per: Per = "instance" if r.whole is None else "packet"
        # card.toml states totals of the card; regions are equal, so each has the same part.
        each = None if total is None else total / regions
        resources[r.name] = Resource(r.name, r.unit, per, "region", each)
    for name, total in device.resources.items():
        if name in commons:
            resources[name] = Resource(name, "", "packet", "card", total)
        elif name not in resources:
            resources[name] = Resource(name, "", "instance", "region", total / regions)
    _check_needs(card, resources)
    for common in _ingress(card, layout):
        resources[INGRESS] = common
    if any(pages_of(task) for task in card.tasks.values()):
        resources[PAGES] = _pages(card, layout)
    source = layout.source if layout else f"[device] of {card.source or 'the card'}"
    scheduling = device.scheduling_ns or (layout.scheduling_ns if layout else 0.0)
    return Budget(tuple(resources.values()), regions, device.spare, scheduling, source)


def costs_of(
    card: Card, budget: Budget, report_progress: Callable[[str], None] = lambda _: None
) -> dict[str, TaskCost]:
    """Compute the cost of each task of a card, by name.

    Costs of a network that ``card.toml`` does not state come from the target's report, for which
    the network is exported into a temporary folder. Those of a packet task come from its kind. A
    meter, an input stage or a policy without stated costs takes no counted resource.

    Args:
        card: description of the card.
        budget: resources of the card.
        report_progress: called with progress messages.

    Raises:
        CardError: a model cannot be read, or does not fit the target; the error names the line.
    """
    out = {}
    tool = exporter(card.device.target) if card.device.target else None
    for name, task in card.tasks.items():
        report_progress(f"computing the cost of {name}")
        reported = None
        if isinstance(task, NetworkTask) and (task.needs is None or task.rate is None):
            reported = _reported(card, task, tool, budget)
        elif isinstance(task, PacketTask):
            reported = _packet_cost(card, task, budget)
        out[name] = _stated(card, task, reported)
    return out


def uncounted(card: Card, costs: Mapping[str, TaskCost]) -> tuple[str, ...]:
    """Return the tasks that take no counted resource."""
    return tuple(name for name in card.tasks if not costs[name].needs)


def _layout(card: Card) -> CardLayout | None:
    if not card.device.target:
        return None
    tool = exporter(card.device.target)
    if tool.device.card is None and not card.device.resources:
        raise CardError(
            f"{card.source}: no sharing is defined for {tool.device.name}: expected "
            f"[device.resources], or [card] in the device.toml of target {tool.name}"
        )
    return tool.device.card


def _ingress(card: Card, layout: CardLayout | None) -> list[Resource]:
    """Return the ports' bandwidth in Gb/s, if it is bounded."""
    rate = card.device.ingress
    if rate is not None:
        return [Resource(INGRESS, "Gb/s", "packet", "card", rate.value)]
    if layout is not None and layout.ingress_gbps is not None:
        return [Resource(INGRESS, "Gb/s", "packet", "card", layout.ingress_gbps)]
    return []


def pages_of(task: Task) -> int:
    """Return the pages of on-board memory of a task."""
    return task.pages if isinstance(task, PacketTask) else 0


def _pages(card: Card, layout: CardLayout | None) -> Resource:
    """Return the on-board memory, which is no region's."""
    device = card.device
    own = layout.pages * _LAYOUT_PAGE // device.page_bytes if layout else 0
    capacity = own if device.memory_pages is None else device.memory_pages
    if not capacity:
        task = next(t for t in card.tasks.values() if pages_of(t))
        raise CardError(
            f"{card.source}:{task.line}: {task.name!r} has its pairs in on-board memory: expected "
            f"'memory_pages' in [device], target {device.target!r} states none"
        )
    return Resource(PAGES, f"{device.page_bytes} bytes", "instance", "card", float(capacity))


def _check_needs(card: Card, resources: Mapping[str, Resource]) -> None:
    stated = [
        *((t.name, t.line, t.needs or {}, "region") for t in card.tasks.values()),
        *((g.name, g.line, g.needs, "card") for t in card.tenants for g in t.graphs),
    ]
    for owner, line, needs, within in stated:
        for name in needs:
            if name not in resources or resources[name].within != within:
                usable = ", ".join(r.name for r in resources.values() if r.within == within)
                raise CardError(
                    f"{card.source}:{line}: {owner} needs {name!r}, expected one of "
                    f"{usable or 'none (see [device.resources])'}"
                )


def _stated(card: Card, task: Task, reported: TaskCost | None) -> TaskCost:
    """Merge the costs that ``card.toml`` states with those of the report."""
    source = f"{Path(card.source).name}:{task.line}"
    needs: Mapping[str, Amount] = reported.needs if reported else {}
    if task.needs is not None:
        needs = {n: Amount(v, "estimated", source) for n, v in task.needs.items()}
    if pages := pages_of(task):
        needs = {**needs, PAGES: Amount(pages, "estimated", source)}
    latency = reported.latency_ns if reported else None
    if task.latency_ns is not None:
        latency = Amount(task.latency_ns, "estimated", source)
    # A rate without a report is stated, or unlimited if card.toml has none.
    if task.rate is not None or reported is None:
        return TaskCost(needs, task.rate, "estimated", source, latency)
    return TaskCost(needs, reported.rate, reported.rate_kind, reported.rate_source, latency)


def _packet_cost(card: Card, task: PacketTask, budget: Budget) -> TaskCost:
    """Return what a packet task takes of the resources that the card has."""
    known = {resource.name for resource in budget.resources}
    needs = {
        name: Amount(value, "measured", "Yosys 0.70")
        for name, value in kind_of(task.task).needs.items()
        if name in known
    }
    layout = _layout(card)
    if task.pages and layout and layout.accesses:
        rate = Rate(layout.accesses, "packets/s")
        return TaskCost(needs, rate, "estimated", "an access to the memory at a time", None)
    return TaskCost(needs, None, "estimated", "as much as arrives", None)


def _reported(card: Card, task: NetworkTask, tool: Exporter | None, budget: Budget) -> TaskCost:
    """Read the costs of a network from the target's report."""
    place = f"{card.source}:{task.line}"
    if tool is None:
        raise CardError(
            f"{place}: expected 'needs' and 'rate' of task {task.name!r}: without 'target' in "
            "[device], no report states them"
        )
    try:
        model = open_network(task.model, task.network)
        report = _report(tool, model, task)
    except N3icError as error:
        raise CardError(f"{place}: task {task.name!r}: {error}") from error
    return _cost(tool, report, budget)


def _report(target: Exporter, model: Classifier, task: NetworkTask) -> Report:
    tool = target.for_family(model.family)
    options = tool.parse_options(task.options)
    # Cost what the export writes: it simplifies the network first.
    network = passes.simplify(model).model
    fit = tool.check(network, options)
    if not fit.ok:
        raise CardError("; ".join(str(p) for p in fit.problems))
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as folder:
        tool.write(network, options, Path(folder))
        return tool.report(network, options, Path(folder))


def _cost(tool: Exporter, report: Report, budget: Budget) -> TaskCost:
    figures = {f.name: f for f in report.figures}
    layout = tool.device.card
    needs: dict[str, Amount] = {}
    timed = False
    for r in layout.resources if layout else ():
        figure = figures.get(r.figure)
        if figure is None:
            continue
        if r.whole is None:
            needs[r.name] = Amount(figure.value, figure.kind, figure.source)
        else:
            timed = True
            source = f"{r.whole:g} {r.unit} give {figure.value:g} {figure.unit}: {figure.source}"
            # The reported figure is the rate with the whole resource, so one packet takes whole /
            # rate of it.
            needs[r.name] = Amount(r.whole / figure.value, figure.kind, source)
    time = figures.get("latency")
    latency = None
    if time is not None and time.unit in NANOSECONDS:
        latency = Amount(time.value * NANOSECONDS[time.unit], time.kind, time.source)
    throughput = figures.get("throughput")
    if throughput is None or timed:  # a task that takes time is bounded by the available time
        return TaskCost(needs, None, "estimated", "as much as arrives", latency)
    rate = Rate(throughput.value, "inferences/s")
    return TaskCost(needs, rate, throughput.kind, throughput.source, latency)
