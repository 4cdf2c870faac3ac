# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster: read from ``nodes.toml``, or equal ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from n3ic.errors import ClusterError
from n3ic.systems.cluster.figures import NodeFigures, memory_of, node_figures, room_in
from n3ic.systems.cluster.protocol import MAX_NODES
from n3ic.targets.base import exporter
from n3ic.util.structured import read_toml

_MAX_BYTES = 1 << 18
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_LINK = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([GM])")
_HOP_US = 1.0  # assumption: a store-and-forward switch and its cables
_KEYS = ("name", "target", "count", "link", "latency_us", "memory", "bytes", "load")


@dataclass(frozen=True)
class ClusterNode:
    """A node of the ring, or its coordinator.

    Attributes:
        name: unique name in the cluster.
        target: target of the node, as in ``--target``.
        memory: name of the memory that holds weights.
        bytes: bytes of that memory that weights may use.
        link_bps: speed of its link in bits per second.
        latency_s: seconds from a packet's last bit at this port to its last bit at the next node's.
        load: fraction of its time that other work takes, from 0 to below 1.
        figures: clocks of the node.
    """

    name: str
    target: str
    memory: str
    bytes: int
    link_bps: float
    latency_s: float
    load: float
    figures: NodeFigures

    def seconds(self, clocks: float) -> float:
        """Convert clocks to seconds, slowed by the other load of the node."""
        return self.figures.seconds(clocks) / (1 - self.load)


@dataclass(frozen=True)
class ClusterDescription:
    """The nodes in the order of the ring, and the coordinator (``[home]`` in the file)."""

    nodes: tuple[ClusterNode, ...]
    home: ClusterNode


def like_coordinator(
    count: int, target: str, link: str, figures: NodeFigures | None = None
) -> ClusterDescription:
    """Describe a ring of equal nodes, the coordinator included.

    Args:
        count: number of nodes beside the coordinator.
        target: target of each node.
        link: speed of the links, such as ``10G``.
        figures: clocks of the nodes; None for those of the target.
    """
    cluster = equal_nodes(count, target, link, home=target)
    if figures is None:
        return cluster
    # The coordinator is a node like the others here, so measured clocks hold for it as well.
    home, *nodes = (replace(n, figures=figures) for n in (cluster.home, *cluster.nodes))
    return ClusterDescription(tuple(nodes), home)


def equal_nodes(
    count: int, target: str, link: str = "10G", home: str = "host"
) -> ClusterDescription:
    """Describe a ring of equal nodes.

    Args:
        count: number of nodes.
        target: target of each node.
        link: speed of the links, such as ``10G``.
        home: target of the coordinator.

    Raises:
        ClusterError: The count is out of range, or the link is not a speed.
        UsageError: No target has that name.
    """
    where = "--nodes"
    nodes = _group({"name": "node", "target": target, "count": count, "link": link}, where)
    return ClusterDescription(nodes, _home({"target": home, "link": link}, "the home"))


def read_nodes(path: str | Path) -> ClusterDescription:
    """Read a ``nodes.toml``.

    Raises:
        ClusterError: The file cannot be read, or an entry is invalid; the error names it.
        UsageError: No target has that name.
    """
    table = read_toml(path, _MAX_BYTES, ClusterError, "a list of nodes")
    _only(table, ("home", "nodes"), str(path))
    entries = table.get("nodes")
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(e, dict) for e in entries)
    ):
        raise ClusterError(f"{path}: expected [[nodes]], one table per node or group of nodes")
    nodes: list[ClusterNode] = []
    for i, entry in enumerate(entries):
        nodes += _group(entry, f"{path}: [[nodes]] {i}")
    names = [n.name for n in nodes]
    for name in names:
        if names.count(name) > 1:
            raise ClusterError(f"{path}: two nodes named {name!r}, expected a name for each")
    if len(nodes) > MAX_NODES:
        raise ClusterError(f"{path}: {len(nodes)} nodes, expected at most {MAX_NODES}")
    home = table.get("home", {})
    if not isinstance(home, dict):
        raise ClusterError(f"{path}: expected [home], a table")
    return ClusterDescription(tuple(nodes), _home(home, f"{path}: [home]"))


def link_speed(text: object, where: str) -> float:
    """Convert a speed such as ``10G`` or ``100M`` to bits per second.

    Raises:
        ClusterError: The text is not a speed.
    """
    match = _LINK.fullmatch(text) if isinstance(text, str) else None
    speed = float(match[1]) * {"G": 1e9, "M": 1e6}[match[2]] if match else 0.0
    if not speed:
        raise ClusterError(f"{where}: link: expected a speed such as 10G or 100M, got {text!r}")
    return speed


def _home(entry: Mapping[str, Any], where: str) -> ClusterNode:
    _only(entry, ("target", "link", "latency_us", "load"), where)
    (home,) = _group({"target": "host", **entry, "name": "home"}, where)
    return home


def _group(entry: Mapping[str, Any], where: str) -> tuple[ClusterNode, ...]:
    """Read one node, or a group of equal nodes numbered from 1."""
    _only(entry, _KEYS, where)
    count = _number(entry, "count", 1, 1, MAX_NODES, where, whole=True)
    name = entry.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ClusterError(
            f"{where}: name: expected letters, digits, '_', '-' and '.', at most 63, got {name!r}"
        )
    target = entry.get("target")
    if not isinstance(target, str):
        raise ClusterError(f"{where}: target: expected the name of a target, got {target!r}")
    figures = node_figures(target)
    # The free room of the memory is the default; `bytes` may state less or more.
    memory, room = _memory(entry, target, figures, where)
    node = ClusterNode(
        name=name,
        target=target,
        memory=memory,
        bytes=int(_number(entry, "bytes", room, 1, 1 << 50, where, whole=True)),
        link_bps=link_speed(entry.get("link", "10G"), where),
        latency_s=_number(entry, "latency_us", _HOP_US, 0, 1e6, where) * 1e-6,
        load=_number(entry, "load", 0.0, 0, 0.99, where),
        figures=figures,
    )
    # A group of one is numbered, too: its name must not change when the group grows.
    if "count" not in entry:
        return (node,)
    return tuple(replace(node, name=f"{name}{i}") for i in range(1, int(count) + 1))


def _memory(
    entry: Mapping[str, Any], target: str, figures: NodeFigures, where: str
) -> tuple[str, int]:
    """Return the memory that holds weights, and its free bytes."""
    name = entry.get("memory", figures.memory)
    if name == figures.memory:
        return figures.memory, figures.bytes
    device = exporter(target).device
    memory = memory_of(device, name) if isinstance(name, str) else None
    if memory is None:
        memories = ", ".join(m.name for m in device.memories) or "none"
        raise ClusterError(f"{where}: memory: expected one of {memories}, got {name!r}")
    return memory.name, room_in(device, memory)


def _number(
    entry: Mapping[str, Any],
    key: str,
    default: float,
    least: float,
    most: float,
    where: str,
    *,
    whole: bool = False,
) -> float:
    value = entry.get(key, default)
    right = int if whole else (int, float)
    if not isinstance(value, right) or isinstance(value, bool) or not least <= value <= most:
        what = "a whole number" if whole else "a number"
        raise ClusterError(f"{where}: {key}: expected {what} in {least:g}..{most:g}, got {value!r}")
    return value


def _only(entry: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in entry:
        if key not in keys:
            raise ClusterError(f"{where}: unknown key {key!r}, expected one of {', '.join(keys)}")
