# SPDX-License-Identifier: Apache-2.0
"""The plan of a cluster: the placement of the layers and its estimated costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from n3ic.errors import ClusterError
from n3ic.systems.cluster.costs import CostEstimate, weight_bytes
from n3ic.systems.cluster.nodes import ClusterDescription, ClusterNode
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.util.display import Displayed, TextTable, View
from n3ic.util.plain_data import from_plain, shown
from n3ic.util.structured import read_json

PLAN_VERSION = 2
NO_RING = "one process without a ring"
_SURE = 1.25  # a smaller gain is within the estimate's error
_MAX_BYTES = 1 << 22
_ABOVE_0 = (
    "clock_hz",
    "slice_bits",
    "slice_clocks",
    "link_bps",
    "together",
    "macs",
    "memory_bytes",
    "slice",
    "cached_slice",
)


@dataclass(frozen=True)
class Alternative:
    """Another placement, for comparison.

    Attributes:
        name: how all layers are placed.
        expected: its estimated costs; None if it does not fit.
    """

    name: str
    expected: CostEstimate | None


@dataclass(frozen=True, repr=False)
class ClusterPlan(Displayed):
    """A placement of a model, with its costs and alternatives.

    Attributes:
        cluster: the nodes and their coordinator.
        placement: the shares of each layer.
        expected: estimated time and traffic.
        used: bytes of weights by node number.
        goal: figure that the plan optimises: ``throughput`` or ``latency``.
        alternatives: simple placements to compare with.
    """

    cluster: ClusterDescription
    placement: ModelPlacement
    expected: CostEstimate
    used: Mapping[int, int]
    goal: str
    alternatives: tuple[Alternative, ...]

    def view(self) -> View:
        """Return the view that a notebook or terminal shows."""
        shape = "-".join(map(str, self.placement.shape))
        return View(
            f"{shape} on {len(self.cluster.nodes)} nodes: {self.expected.rows_per_s:,.0f} rows/s, "
            f"a row alone {_time(self.expected.latency_s)} (estimated, chosen for {self.goal})"
            + (f"; {self.advice}" if self.advice else ""),
            self.tables,
        )

    @property
    def advice(self) -> str:
        """Why one process without a ring is the better choice; empty if it is not."""
        one = next((a.expected for a in self.alternatives if a.name == NO_RING), None)
        if one is None or self.expected.rows_per_s >= _SURE * one.rows_per_s:
            return ""
        gain = self.expected.rows_per_s / one.rows_per_s
        return (
            f"take one node: {NO_RING} computes {one.rows_per_s:,.0f} rows/s, the ring {gain:.2f} "
            f"times as many, which {self.expected.bottleneck} limits"
        )

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """Tables of the layers, the nodes, and the costs of this and other placements."""
        return (self._layers(), self._nodes(), self._expected())

    def _layers(self) -> TextTable:
        layers = zip(self.placement.layers, pairwise(self.placement.shape), strict=True)
        rows = tuple(
            (
                f"{i}: {inputs}-{neurons}",
                layer.split.value,
                layer.shares_text,
                f"{sum(weight_bytes(layer, inputs, neurons).values()):,}",
                _time(self.expected.layers_s[i]),
            )
            for i, (layer, (inputs, neurons)) in enumerate(layers)
        )
        head = ("layer", "split", "shares", "bytes", "latency")
        return TextTable("where the layers lie", head, rows, left=3)

    def _nodes(self) -> TextTable:
        rows = tuple(
            (
                f"{i} {n.name}",
                n.target,
                n.memory,
                f"{self.used.get(i, 0):,}",
                f"{n.bytes:,}",
                f"{n.link_bps / 1e9:g} Gb/s",
                n.figures.kind,
            )
            for i, n in enumerate(self.cluster.nodes, 1)
        )
        head = ("node", "target", "memory", "used", "of", "link", "clocks known by")
        return TextTable("what the nodes hold", head, rows, left=3)

    def _expected(self) -> TextTable:
        every = (Alternative("this plan", self.expected), *self.alternatives)
        rows = tuple(
            (a.name, "does not fit", "", "", "", "")
            if a.expected is None
            else (
                a.name,
                f"{a.expected.rows_per_s:,.0f}",
                _time(a.expected.latency_s),
                f"{a.expected.packets:,.1f}"
                if a.expected.packets > 1
                else f"{a.expected.packets:.2g}",
                f"{a.expected.wire_bytes:,.0f}",
                a.expected.bottleneck,
            )
            for a in every
        )
        head = ("placement", "rows/s", "a row alone", "packets a row", "bytes on the wire")
        title = f"expected, estimated (chosen for {self.goal})"
        return TextTable(title, (*head, "busiest"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        return {
            "version": PLAN_VERSION,
            "placement": self.placement.to_dict(),
            "nodes": [
                _node(n) | {"number": i, "used_bytes": self.used.get(i, 0)}
                for i, n in enumerate(self.cluster.nodes, 1)
            ],
            "home": _node(self.cluster.home),
            "goal": self.goal,
            "advice": self.advice,
            "expected": {"kind": "estimated"} | asdict(self.expected),
            "alternatives": [
                {
                    "name": a.name,
                    "expected": None if a.expected is None else asdict(a.expected),
                }
                for a in self.alternatives
            ],
        }


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def _node(node: ClusterNode) -> dict[str, Any]:
    return asdict(node) | {"kind": node.figures.kind}


def read_placement(path: str | Path) -> ModelPlacement:
    """Read the placement of a plan that ``n3ic cluster plan --out`` wrote.

    Raises:
        ClusterError: The file cannot be read or is not a plan.
    """
    return _placement(_plan_data(path), path)


def read_plan(path: str | Path) -> tuple[ModelPlacement, ClusterDescription]:
    """Read the placement of a plan, and the nodes that it was made for.

    Raises:
        ClusterError: The file cannot be read or is not a plan.
    """
    data = _plan_data(path)
    placement = _placement(data, path)
    nodes = data.get("nodes")
    if not isinstance(nodes, list) or len(nodes) != placement.nodes:
        raise ClusterError(f"{path}: expected {placement.nodes} nodes, as the placement has")
    home = _read_node(data.get("home"), f"{path}: home")
    return placement, ClusterDescription(
        tuple(_read_node(n, f"{path}: nodes[{i}]") for i, n in enumerate(nodes)), home
    )


def _read_node(data: Any, where: str) -> ClusterNode:
    try:
        node = from_plain(ClusterNode, data)
    except ValueError as error:
        raise ClusterError(f"{where}: {error}") from error
    figures = node.figures
    inner = [vars(part) for part in (figures.tiles, figures.array) if part is not None]
    numbers = [pair for part in (vars(node), vars(figures), *inner) for pair in part.items()]
    for name, value in numbers:
        least = 1e-6 if name in _ABOVE_0 else 0
        most = 1 if name == "load" else 1e18
        # Rates divide, so they must be above 0; NaN fails both comparisons and is refused.
        if isinstance(value, int | float) and not least <= value < most:
            problem = f"expected a number from {least:g} to below {most:g}, got {shown(value)}"
            raise ClusterError(f"{where}: {name}: {problem}")
    return node


def _plan_data(path: str | Path) -> dict[str, Any]:
    data = read_json(path, _MAX_BYTES, ClusterError, "a plan")
    if not isinstance(data, dict) or data.get("version") != PLAN_VERSION:
        raise ClusterError(
            f"{path}: expected a plan of version {PLAN_VERSION}; n3ic cluster plan --out writes one"
        )
    return data


def _placement(data: dict[str, Any], path: str | Path) -> ModelPlacement:
    try:
        return ModelPlacement.from_dict(data.get("placement"))
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from error
