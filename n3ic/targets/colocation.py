# SPDX-License-Identifier: Apache-2.0
"""Co-location: how several networks share one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from n3ic.model.network import BinaryModel
from n3ic.options import Options
from n3ic.targets.device import Fit
from n3ic.targets.figures import KINDS, NANOSECONDS, FigureKind, Report


@dataclass(frozen=True, eq=False)
class CoLocatedNetwork:
    """One of several networks that share a device, as exported alone."""

    model: BinaryModel
    options: Options
    fit: Fit
    report: Report

    def value(self, name: str) -> float | None:
        """The value of a figure of its report, or None."""
        return next((f.value for f in self.report.figures if f.name == name), None)

    @property
    def latency(self) -> tuple[float, FigureKind] | None:
        """Latency in nanoseconds and its kind; None if the report has no latency."""
        for figure in self.report.figures:
            if figure.name == "latency" and figure.unit in NANOSECONDS:
                return figure.value * NANOSECONDS[figure.unit], figure.kind
        return None


@dataclass(frozen=True)
class CoLocation:
    """How several networks share a device.

    Attributes:
        way: how they run, in words.
        memory: total bytes in each memory.
        resources: total of each other resource, by the name of its figure.
        latency_ns: time from the networks' input to the last answer; None if a latency is unknown.
        latency_kind: whether it comes from measured, simulated or estimated figures.
        problems: why they do not fit together; empty if they do.
    """

    way: str
    memory: Mapping[str, int]
    resources: Mapping[str, float]
    latency_ns: float | None
    latency_kind: FigureKind | None
    problems: tuple[str, ...] = ()


def summed_memory(members: Sequence[CoLocatedNetwork]) -> dict[str, int]:
    """Total bytes of networks in each memory."""
    memory: dict[str, int] = {}
    for member in members:
        for part in member.fit.placements:
            memory[part.memory] = memory.get(part.memory, 0) + part.bytes
    return memory


def colocate(
    members: Sequence[CoLocatedNetwork],
    way: str,
    combine: Callable[[list[float]], float],
    *,
    memory: Mapping[str, int] | None = None,
    resources: Mapping[str, float] | None = None,
    problems: tuple[str, ...] = (),
) -> CoLocation:
    """Make the co-location of several networks from their figures.

    Args:
        members: the networks.
        way: how they run, in words.
        combine: function from the networks' latencies to the total: ``sum`` if they take turns,
            ``max`` if they run in parallel.
        memory: bytes in each memory; None for the sum over the networks.
        resources: other resources; None for none.
        problems: why they do not fit together.
    """
    latency, kind = _latency(members, combine)
    used = summed_memory(members) if memory is None else memory
    return CoLocation(way, used, resources or {}, latency, kind, problems)


def summed_figures(members: Sequence[CoLocatedNetwork], names: Sequence[str]) -> dict[str, float]:
    """Sums of the networks' figures by name, of figures that all networks have."""
    values_of = {name: [member.value(name) for member in members] for name in names}
    return {
        name: sum(value for value in values if value is not None)
        for name, values in values_of.items()
        if None not in values
    }


def over_budget(needs: Mapping[str, float], room: Mapping[str, float]) -> tuple[str, ...]:
    """Describe needs that exceed the room; needs without a named room are unlimited."""
    return tuple(
        f"{amount:,.0f} {name}, there is room for {room[name]:,.0f}"
        for name, amount in needs.items()
        if amount > room.get(name, amount)
    )


def _latency(
    members: Sequence[CoLocatedNetwork], combine: Callable[[list[float]], float]
) -> tuple[float | None, FigureKind | None]:
    """Combined latency in nanoseconds and its least certain kind; None if one is unknown."""
    latencies = [member.latency for member in members]
    known = [each for each in latencies if each is not None]
    if len(known) != len(latencies):
        return None, None
    return combine([value for value, _ in known]), max((k for _, k in known), key=KINDS.index)
