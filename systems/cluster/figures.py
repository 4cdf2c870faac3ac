# SPDX-License-Identifier: Apache-2.0
"""Clocks that a node of a cluster needs for packets and for slices of weights."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from n3ic.errors import ClusterError
from n3ic.systems.cluster.traffic import SLICE_BITS
from n3ic.targets.base import Exporter, exporter
from n3ic.targets.device import Device, Memory
from n3ic.targets.figures import KINDS, FigureKind

NODE_FILE = "node.toml"
FOLDER = Path(__file__).resolve().parent


_NANOSECONDS = 1000.0  # MHz of a target without a clock, so that a clock is a nanosecond


@dataclass(frozen=True)
class TileFigures:
    """Clocks of a process in a ring whose nodes all take tiles.

    Attributes:
        message: clocks of each tile that is received or sent, whatever its size.
        row: clocks of each row in each layer that the node computes, besides its weights.
        slice: clocks of a slice of one neuron's weights, if the node's weights exceed the cache.
        cached_slice: the same for weights within the cache.
        cache: bytes of the cache.
    """

    message: float
    row: float
    slice: float
    cached_slice: float
    cache: int


@dataclass(frozen=True)
class ArrayFigures:
    """Clocks of a card with columns of a matrix, besides its multiplications.

    Attributes:
        row: clocks of each row.
        totals: clocks of a packet of sums.
        delay: clocks from a row's last sum to the packet that carries it, besides ``row``.
    """

    row: float
    totals: float
    delay: float


@dataclass(frozen=True)
class NodeFigures:
    """Clocks of a node, and whether they are measured, simulated or estimated.

    Attributes:
        clock_hz: clock rate; the other figures count these clocks.
        memory: name of the memory that holds weights.
        bytes: bytes of that memory that weights may use.
        slice_bits: weights of one neuron that are counted together: a slice, which is a word of
            the memory. The last slice of a neuron may be partly filled.
        slice_clocks: clocks of XNOR, popcount and sum of a slice.
        packet: clocks from one received or sent packet to the next.
        datagram: clocks of a datagram, besides those of its packets.
        classify: clocks from a task packet's arrival until its slice is stored.
        forward: clocks from its arrival to its departure, if another node owns it.
        compute: clocks from the last slice to the first result, besides ``slice_clocks``.
        result: clocks from a result to the packet that carries it.
        macs: multiply-accumulates per clock in integer kernels.
        stream: minimum clocks for the elements of one packet in an integer kernel.
        memory_bytes: bytes per clock that RDMA reads.
        shares: maximum number of layers of which it holds a part; None if memory is the only limit.
        together: maximum packets per datagram; 1 for a card.
        serial: whether one thread handles packets and weights in turn; else each has a pipeline.
        kind: whether the clocks are measured, simulated or estimated.
        source: where the clocks come from.
        tiles: clocks in a ring of processes; None for a card, which takes packets of 512 bits.
        array: clocks with columns of a matrix; None for those of binary neurons.
    """

    clock_hz: float
    memory: str
    bytes: int
    slice_bits: int
    slice_clocks: float
    packet: float
    datagram: float
    classify: float
    forward: float
    compute: float
    result: float
    macs: float
    stream: float
    memory_bytes: float
    shares: int | None
    together: int
    serial: bool
    kind: FigureKind
    source: str
    tiles: TileFigures | None = None
    array: ArrayFigures | None = None

    def seconds(self, clocks: float) -> float:
        """Convert clocks to seconds."""
        return clocks / self.clock_hz

    def neuron_clocks(self, inputs: int) -> float:
        """Return the clocks of one neuron with ``inputs`` input bits, in whole slices."""
        return -(-inputs // self.slice_bits) * self.slice_clocks


def node_figures(target: str) -> NodeFigures:
    """Return the figures of a target's node: from its ``node.toml``, else from its device.

    The file is in the target's folder here, or in ``cluster/`` beside an exporter of another
    package.

    Raises:
        UsageError: No target has that name.
        ClusterError: The target's device has no memory for weights.
    """
    plugin = exporter(target)
    # The cluster's own files first: exporters of this package know nothing of clusters.
    for folder in (FOLDER / plugin.name, plugin.folder / "cluster"):
        if (folder / NODE_FILE).is_file():
            text = (folder / NODE_FILE).read_text(encoding="utf-8")
            return _described(plugin, tomllib.loads(text), folder / NODE_FILE)
    return _estimated(plugin)


def figures_of(path: Path) -> NodeFigures:
    """Read the figures of a ``node.toml`` that describes its own memory.

    Raises:
        ClusterError: The file cannot be read or lacks a key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        # The file alone describes the node, so its memory need not be one of a target's device.
        memory = Memory(data["memory"], data["bytes"]["weights"], word_bits=SLICE_BITS)
        return _from_toml(data, memory, memory.bytes, path)
    except OSError as error:
        raise ClusterError(f"{path}: cannot be read: {error.strerror or error}") from error
    except KeyError as error:
        raise ClusterError(f"{path}: expected {error.args[0]!r}; it is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise ClusterError(f"{path}: not a description of a node: {str(error)[:200]}") from error


def memory_of(device: Device, name: str) -> Memory | None:
    """Return the device's memory of that name, or None."""
    return next((m for m in device.memories if m.name == name), None)


def room_in(device: Device, memory: Memory) -> int:
    """Return the bytes of a memory that the device's other programs leave free."""
    return max(0, memory.bytes - int(device.limits.get(f"reserve_{memory.name}", 0)))


def _described(plugin: Exporter, data: dict[str, Any], path: Path) -> NodeFigures:
    memory = plugin.device.memory(data["memory"]) if "memory" in data else _fastest(plugin)
    return _from_toml(data, memory, room_in(plugin.device, memory), path)


def _from_toml(data: dict[str, Any], memory: Memory, room: int, path: Path) -> NodeFigures:
    arithmetic = data.get("arithmetic", {})
    clocks, kind = data["clocks"], data["kind"]
    if kind not in KINDS:
        raise ClusterError(f"{path}: kind: expected {KINDS}, got {kind!r}")
    return NodeFigures(
        clock_hz=data["clock_mhz"] * 1e6,
        memory=memory.name,
        bytes=data.get("bytes", {}).get("weights", room),
        slice_bits=_slice_bits(data, path),
        slice_clocks=clocks.get("slice", 1),
        packet=clocks["packet"],
        datagram=clocks.get("datagram", 0),
        classify=clocks["classify"],
        forward=clocks["forward"],
        compute=clocks["compute"],
        result=clocks["result"],
        macs=arithmetic.get("macs", 1),
        stream=arithmetic.get("stream", 1),
        memory_bytes=arithmetic.get("memory_bytes", memory.word_bits / 8),
        shares=data.get("shares"),
        together=data.get("together", 1),
        serial=data.get("serial", False),
        kind=kind,
        source=data["source"],
        tiles=TileFigures(**data["tiles"]) if "tiles" in data else None,
        array=ArrayFigures(**arithmetic["matrix"]) if "matrix" in arithmetic else None,
    )


def _slice_bits(data: dict[str, Any], path: Path) -> int:
    bits = data.get("slice_bits", SLICE_BITS)
    if isinstance(bits, bool) or not isinstance(bits, int) or bits < 1:
        raise ClusterError(f"{path}: slice_bits: expected a number of bits, got {bits!r:.60}")
    return bits


def _estimated(plugin: Exporter) -> NodeFigures:
    """Estimate a pipeline that reads its fastest memory word by word."""
    device, memory = plugin.device, _fastest(plugin)
    mhz = device.clock_mhz or _NANOSECONDS
    # A pipeline reads at most one word per clock, however fast the memory is.
    access = max(1.0, memory.access_ns_max * mhz / 1000)
    return NodeFigures(
        clock_hz=mhz * 1e6,
        memory=memory.name,
        bytes=room_in(device, memory),
        slice_bits=memory.word_bits,
        slice_clocks=access,
        packet=8,
        datagram=0,
        classify=16,
        forward=16,
        compute=16,
        result=8,
        macs=1,
        stream=1,
        memory_bytes=memory.word_bits / 8 / access,
        shares=None,
        together=1,
        serial=False,
        kind="estimated",
        source=f"{device.name}: {memory.name} read word by word; clocks of packets assumed",
    )


def _fastest(plugin: Exporter) -> Memory:
    if not plugin.device.memories:
        raise ClusterError(
            f"target {plugin.name} has no memory of known size, so nothing can be placed on it"
        )
    return plugin.device.memories[0]
