# SPDX-License-Identifier: Apache-2.0
"""What a simulated cluster consists of: nodes with their servers, and the work that they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.cluster.costs import EMPTY_BYTES
from n3ic.systems.cluster.nodes import ClusterDescription, ClusterNode
from n3ic.systems.cluster.protocol import PACKET_BYTES
from n3ic.systems.cluster.traffic import SLICE_BITS

SLICE, MAC = "slice", "mac"
"""Operations: a slice of one neuron's weights, as many as a node counts together; one
multiplication and addition."""


@dataclass(frozen=True)
class SimNode:
    """A node's times, in seconds.

    Attributes:
        name: for reports.
        packet: from one packet that is handled to the next.
        datagram: of a datagram, beside its packets.
        classify: from arrival to the task being known.
        forward: from arrival to departure of what is passed on.
        stream: of the elements that a packet holds through the kernel, at least.
        pipeline: from the last operation of a task to its result.
        rates: operations a second, by kind.
        memory_bps: bytes a second that RDMA reads.
        link_bps: bits a second of its link.
        latency: from its port to the next node's.
        together: packets in a datagram at most.
        serial: whether packets and operations take turns.
        slice_bits: weights of one neuron that are counted together.
        core: of which processor's cores it needs one for all that it does; -1 for its own circuits.
    """

    name: str
    packet: float
    datagram: float
    classify: float
    forward: float
    stream: float
    pipeline: float
    rates: Mapping[str, float]
    memory_bps: float
    link_bps: float
    latency: float
    together: int = 1
    serial: bool = False
    slice_bits: int = SLICE_BITS
    core: int = -1

    def slices(self, inputs: int) -> int:
        """Operations that a neuron of so many inputs takes."""
        return -(-inputs // self.slice_bits)

    def slowed(self, factor: float) -> SimNode:
        """The same node, slower in everything but its link: a straggler."""
        return replace(
            self,
            packet=self.packet * factor,
            datagram=self.datagram * factor,
            classify=self.classify * factor,
            forward=self.forward * factor,
            stream=self.stream * factor,
            pipeline=self.pipeline * factor,
            rates={name: rate / factor for name, rate in self.rates.items()},
        )


def sim_node(node: ClusterNode) -> SimNode:
    """A node of a plan as the simulator has it."""
    f, seconds = node.figures, node.seconds
    return SimNode(
        name=node.name,
        packet=seconds(f.packet),
        datagram=seconds(f.datagram),
        classify=seconds(f.classify),
        forward=seconds(f.forward),
        stream=seconds(f.stream),
        pipeline=seconds(f.compute + f.result),
        rates={SLICE: 1 / seconds(f.slice_clocks), MAC: f.macs / seconds(1)},
        memory_bps=f.memory_bytes / seconds(1),
        link_bps=node.link_bps,
        latency=node.latency_s,
        together=f.together,
        serial=f.serial,
        slice_bits=f.slice_bits,
    )


def sim_nodes(cluster: ClusterDescription) -> tuple[SimNode, ...]:
    """The home and the nodes of a cluster."""
    return tuple(sim_node(n) for n in (cluster.home, *cluster.nodes))


def wire_seconds(packets: int, datagrams: int, sender: SimNode) -> float:
    """How long a sender's link carries packets in so many datagrams."""
    return (packets * PACKET_BYTES + datagrams * EMPTY_BYTES) * 8 / sender.link_bps


@dataclass(frozen=True)
class PacketTrain:
    """Equal task packets of one origin, and what they cause; node 0 is the home.

    Attributes:
        origin: who puts them on the ring.
        packets: how many.
        work: operations that they cause at each node whose data they concern.
        kind: of operation.
        fetch: packets of data that the work needs of other nodes: the tasks are frozen until they
            have come.
    """

    origin: int
    packets: int
    work: tuple[tuple[int, float], ...]
    kind: str = MAC
    fetch: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Stage:
    """One kernel's run on a cluster of ``n`` nodes, for both programming models.

    Attributes:
        name: of the kernel.
        flows: tasks of the data-centric model; a node starts those of the next stage when all work
            of this stage that lies at it is done.
        results: packets that each node sends home at the end, int64 array of shape ``(n + 1,)``.
        local: operations of each node in the compute-centric model, float64, same shape.
        streamed: packets' worth of elements that they go through, float64, same shape.
        gathered: bytes that each node gives to all others before it, float64, same shape.
        halo: bytes that each node gives to each of its two neighbours, float64, same shape.
        kind: of operation.
        whole: the flows' packets only bring inputs; the kernel begins when all of them are there,
            with the operations of ``local``.
    """

    name: str
    flows: tuple[PacketTrain, ...]
    results: NDArray[np.int64]
    local: NDArray[np.float64]
    streamed: NDArray[np.float64]
    gathered: NDArray[np.float64]
    halo: NDArray[np.float64]
    kind: str = MAC
    whole: bool = False


@dataclass(frozen=True, eq=False)
class Workload:
    """Stages, one after the other."""

    name: str
    stages: tuple[Stage, ...]

    @property
    def operations(self) -> float:
        """Of all stages and nodes."""
        return float(sum(s.local.sum() for s in self.stages))


@dataclass(frozen=True, eq=False)
class RingTrace:
    """What a simulation found.

    Attributes:
        seconds: until the last result was home.
        packets: on all links, acknowledgements aside.
        handler: share of the time that each node's handlers were busy; home first.
        kernel: the same of its kernels.
        link: the same of its link.
        frozen: most packets of tasks that waited for remote data at one node.
        rows: when each row's last result was home, in seconds; empty where there are no rows.
    """

    seconds: float
    packets: int
    handler: tuple[float, ...]
    kernel: tuple[float, ...]
    link: tuple[float, ...]
    frozen: int = 0
    rows: tuple[float, ...] = field(default=())


def nothing(nodes: int) -> NDArray[np.float64]:
    """Zero of each node."""
    return np.zeros(nodes + 1)
