# SPDX-License-Identifier: Apache-2.0
"""Components of a simulated cluster: nodes with their servers, and their work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.cluster.costs import EMPTY_BYTES
from n3ic.systems.cluster.nodes import ClusterDescription, ClusterNode
from n3ic.systems.cluster.protocol import PACKET_BYTES
from n3ic.systems.cluster.traffic import SLICE_BITS

SLICE, MAC = "slice", "mac"
"""Operations: a slice of one neuron's weights that a node counts together, and a
multiply-accumulate."""


@dataclass(frozen=True)
class SimNode:
    """Times of a node, in seconds.

    Attributes:
        name: name for reports.
        packet: time from one handled packet to the next.
        datagram: time of a datagram, besides its packets.
        classify: time from arrival until a task is classified.
        forward: time from arrival to departure of a packet that is passed on.
        stream: minimum time of a packet's elements in the kernel.
        pipeline: time from the last operation of a task to its result.
        rates: operations per second, by kind.
        memory_bps: bytes per second that RDMA reads.
        link_bps: speed of its link in bits per second.
        latency: time from its port to the next node's port.
        together: maximum packets per datagram.
        serial: whether packets and operations take turns on one thread.
        slice_bits: weights of one neuron that are counted together.
        core: processor whose cores run the node; -1 if it has its own circuits.
        sums: time from the last multiplication of a task to its result; None for ``pipeline``.
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
    sums: float | None = None

    def slices(self, inputs: int) -> int:
        """Return the number of operations of a neuron with ``inputs`` inputs."""
        return -(-inputs // self.slice_bits)

    def delay(self, kind: str) -> float:
        """Return the time from the last operation of a kind to its result."""
        return self.pipeline if kind != MAC or self.sums is None else self.sums

    def slowed(self, factor: float) -> SimNode:
        """Return a straggler: the same node, slower in everything but its link."""
        return replace(
            self,
            packet=self.packet * factor,
            datagram=self.datagram * factor,
            classify=self.classify * factor,
            forward=self.forward * factor,
            stream=self.stream * factor,
            pipeline=self.pipeline * factor,
            sums=None if self.sums is None else self.sums * factor,
            rates={name: rate / factor for name, rate in self.rates.items()},
        )


def sim_node(node: ClusterNode) -> SimNode:
    """Convert a node of a plan to the simulator's times."""
    f, seconds = node.figures, node.seconds
    return SimNode(
        name=node.name,
        packet=seconds(f.packet),
        datagram=seconds(f.datagram),
        classify=seconds(f.classify),
        forward=seconds(f.forward),
        stream=seconds(f.stream),
        # The simulator needs the delay of both as a whole: nothing else happens between them.
        pipeline=seconds(f.compute + f.result),
        rates={SLICE: 1 / seconds(f.slice_clocks), MAC: f.macs / seconds(1)},
        memory_bps=f.memory_bytes / seconds(1),
        link_bps=node.link_bps,
        latency=node.latency_s,
        together=f.together,
        serial=f.serial,
        slice_bits=f.slice_bits,
        sums=None if f.array is None else seconds(f.array.delay),
    )


def sim_nodes(cluster: ClusterDescription) -> tuple[SimNode, ...]:
    """Convert the coordinator and the nodes of a cluster."""
    return tuple(sim_node(n) for n in (cluster.home, *cluster.nodes))


def wire_seconds(packets: int, datagrams: int, sender: SimNode) -> float:
    """Return the seconds that a sender's link needs for packets in ``datagrams`` datagrams."""
    return (packets * PACKET_BYTES + datagrams * EMPTY_BYTES) * 8 / sender.link_bps


@dataclass(frozen=True)
class PacketTrain:
    """Equal task packets of one origin, and the work that they cause; node 0 is the coordinator.

    Attributes:
        origin: node that puts them on the ring.
        packets: number of packets.
        work: operations that they cause at each node that owns their data.
        kind: kind of operation.
        fetch: packets of data that the work needs from other nodes; the tasks are frozen until the
            data has arrived.
        reads: packets of elements that an operation reads in the memory of its node; 0 if the
            packets bring the elements.
    """

    origin: int
    packets: int
    work: tuple[tuple[int, float], ...]
    kind: str = MAC
    fetch: tuple[tuple[int, int], ...] = ()
    reads: float = 0.0


@dataclass(frozen=True, eq=False)
class Stage:
    """One run of a kernel on a cluster of ``n`` nodes, for both programming models.

    Attributes:
        name: name of the kernel.
        flows: tasks of the data-centric model. A node starts its flows of the next stage when its
            own work of this stage is done.
        results: packets that each node sends home at the end, int64 array of shape ``(n + 1,)``.
        local: operations of each node in the compute-centric model, float64, same shape.
        streamed: elements that these operations read, in packets, float64, same shape.
        gathered: bytes that each node first sends to all others, float64, same shape.
        halo: bytes that each node sends to each of its two neighbours, float64, same shape.
        kind: kind of operation.
        whole: whether the packets only bring inputs. The kernel then begins when all have arrived,
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
    """Stages that run one after another."""

    name: str
    stages: tuple[Stage, ...]

    @property
    def operations(self) -> float:
        """Number of operations of all stages and nodes."""
        return float(sum(s.local.sum() for s in self.stages))


@dataclass(frozen=True, eq=False)
class RingTrace:
    """Results of a simulation.

    Attributes:
        seconds: time until the last result was home.
        packets: packets on all links, without acknowledgements.
        handler: fraction of the time that each node's handlers were busy; coordinator first.
        kernel: the same for its kernels.
        link: the same for its link.
        rows: seconds at which each row's last result was home; empty without rows.
    """

    seconds: float
    packets: int
    handler: tuple[float, ...]
    kernel: tuple[float, ...]
    link: tuple[float, ...]
    rows: tuple[float, ...] = ()


def nothing(nodes: int) -> NDArray[np.float64]:
    """Return a zero for the coordinator and for each node."""
    return np.zeros(nodes + 1)
