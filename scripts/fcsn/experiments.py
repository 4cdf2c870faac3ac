# SPDX-License-Identifier: Apache-2.0
"""Sweeps over kernels and numbers of nodes, and FCsN's published speed-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from n3ic.systems.cluster.figures import NodeFigures, figures_of
from n3ic.systems.cluster.nodes import like_coordinator
from n3ic.systems.cluster.protocol import PACKET_BYTES
from n3ic.systems.cluster.simulation.components import MAC, RingTrace, SimNode, Stage, sim_nodes
from n3ic.systems.cluster.simulation.engine import simulate
from scripts.fcsn.workloads import GRAPHS, SPARSE, KernelProblem, Travels, workload

FCSN = Path(__file__).with_name("fcsn.toml")


@dataclass(frozen=True)
class NodeModel:
    """The nodes of a sweep.

    Attributes:
        target: target of the nodes.
        link: speed of their links.
        figures: clocks of the nodes; None for those of the target.
    """

    target: str
    link: str
    figures: NodeFigures | None = None

    def nodes(self, count: int) -> tuple[SimNode, ...]:
        """Make a coordinator and ``count`` nodes of this kind."""
        return sim_nodes(like_coordinator(count, self.target, self.link, self.figures))


@dataclass(frozen=True)
class Point:
    """One simulation of a sweep.

    Attributes:
        kernel: name of the kernel.
        nodes: number of nodes.
        data_s: seconds in the data-centric model.
        compute_s: seconds in the compute-centric model.
        one_s: seconds of one big node that holds everything.
        packets: packets on all links, data-centric.
        imbalance: busy time of the busiest kernel over the mean, data-centric; 0 if none was busy.
        link: fraction of the time that the busiest link was busy, data-centric.
    """

    kernel: str
    nodes: int
    data_s: float
    compute_s: float
    one_s: float
    packets: int
    imbalance: float
    link: float

    @property
    def speedup(self) -> float:
        """Speed-up over one big node, data-centric; in weak scaling, the efficiency."""
        return self.one_s / self.data_s


def slower(points: Sequence[Point], weak: bool = False) -> tuple[Point, ...]:
    """Return the rings of several nodes that are slower than one big node, data-centric.

    Args:
        points: points of a sweep.
        weak: whether the problems grew with the nodes, so that one node would take
            ``nodes`` times as long.
    """
    return tuple(p for p in points if p.nodes > 1 and p.speedup * (p.nodes if weak else 1) < 1)


def sweep(
    problems: Sequence[KernelProblem],
    counts: Sequence[int],
    card: NodeModel,
    *,
    weak: bool = False,
    straggler: float = 1.0,
    train: int | None = None,
    progress: Callable[[float, str], None] = lambda share, text: None,
) -> tuple[Point, ...]:
    """Simulate kernels on several numbers of nodes.

    Args:
        problems: problems to simulate.
        counts: numbers of nodes.
        card: the nodes.
        weak: whether the problem grows with the nodes; the single node keeps the original one.
        straggler: slow-down factor of the last node.
        train: packets per train; None chooses by the number of packets.
        progress: called with the completed fraction, 0 to 1, and the current step.
    """
    points: list[Point] = []
    slice_bits = card.nodes(1)[1].slice_bits
    # A slice is as wide as the nodes' memory; it decides how many operations a neuron takes.
    for problem in (replace(p, slice_bits=slice_bits) for p in problems):
        # With barriers, because on a single node both models are the same computation.
        alone = simulate(workload(problem, 1), card.nodes(1), barrier=True).seconds
        for count in counts:
            progress(len(points) / len(problems) / len(counts), f"{problem.kernel}, {count} nodes")
            work = workload(problem.grown(count) if weak else problem, count)
            nodes = list(card.nodes(count))
            nodes[-1] = nodes[-1].slowed(straggler)
            data = simulate(work, nodes, train=train)
            compute = simulate(work, nodes, barrier=True)
            points.append(_point(problem, count, data, compute, alone))
    return tuple(points)


def _point(
    problem: KernelProblem, count: int, data: RingTrace, compute: RingTrace, alone: float
) -> Point:
    kernels = data.kernel[1:]
    mean = sum(kernels) / len(kernels)
    return Point(
        kernel=problem.kernel,
        nodes=count,
        data_s=data.seconds,
        compute_s=compute.seconds,
        one_s=alone,
        packets=data.packets,
        imbalance=max(kernels) / mean if mean else 0.0,
        link=max(data.link),
    )


@dataclass(frozen=True)
class Claim:
    """A speed-up over MPI on 16 cores that FCsN reports.

    Attributes:
        name: name of the kernel, network or graph.
        problem: our problem of the same sizes, as far as the publication states them.
        speedup: data-centric speed-up over the CPU.
        compute: compute-centric speed-up over the CPU; 0 if the publication gives none.
    """

    name: str
    problem: KernelProblem
    speedup: float
    compute: float = 0.0


CLAIMS: tuple[Claim, ...] = (
    Claim("2-D convolution", KernelProblem("conv2d"), 2.3, 2.3 / 1.1),
    Claim("GEMM", KernelProblem("gemm"), 2.3, 2.0),
    Claim("SPMV", KernelProblem("spmv"), 6.7, 3.8),
    Claim("SPGEMM", KernelProblem("spgemm"), 6.7, 3.8),
    Claim("aggregation", KernelProblem("aggregation"), 6.7, 3.8),
    Claim("MLP", KernelProblem("mlp"), 3.3, 2.9),
    Claim("Cora", KernelProblem("gnn", graph=GRAPHS["cora"]), 5.38, 1.52),
    Claim("CoraFull", KernelProblem("gnn", graph=GRAPHS["corafull"]), 5.08, 1.86),
    Claim("Pubmed", KernelProblem("gnn", graph=GRAPHS["pubmed"]), 6.04, 4.82),
    Claim("CoauthorPhysics", KernelProblem("gnn", graph=GRAPHS["physics"]), 6.64, 5.08),
    Claim("Reddit", KernelProblem("gnn", graph=GRAPHS["reddit"]), 10.13, 8.5),
)
"""FCsN, section V-B. Matrices are 2048 x 2048. For the three sparse kernels the publication gives
only an average. It gives no layer sizes of MLP and graph networks; ours are the defaults of
:class:`KernelProblem`."""


@dataclass(frozen=True)
class Profile:
    """Where the simulated time of a kernel goes, and the least that each resource allows.

    Attributes:
        name: name of the claim.
        nodes: number of nodes.
        way: what travels in a sparse product, ``tasks`` for another kernel, or ``barriers``.
        seconds: simulated seconds.
        link: fraction of the time that the busiest link was busy, frames included.
        handler: the same of the packet handlers.
        kernel: the same of the kernels.
        link_s: seconds of the packets alone at the rate of the link, mean of all links.
        elements_s: seconds of the sparse elements that a node reads.
        macs_s: seconds of the multiplications of a node.
        hops_s: seconds of one turn round the ring for each stage that communicates.
        asked_s: seconds on MPI that FCsN's speed-up asks for at this time.
    """

    name: str
    nodes: int
    way: str
    seconds: float
    link: float
    handler: float
    kernel: float
    link_s: float
    elements_s: float
    macs_s: float
    hops_s: float
    asked_s: float


def _communicates(stage: Stage, *, barrier: bool) -> bool:
    """Whether anything travels in a stage, by exchanges with barriers or by tasks."""
    if barrier:
        return bool(stage.gathered.any() or stage.halo.any())
    return any(flow.packets or flow.fetch for flow in stage.flows)


def profiles(claim: Claim, count: int) -> Iterator[Profile]:
    """Simulate each way of a claim's kernel on FCsN's card.

    Args:
        claim: kernel and sizes.
        count: number of nodes.

    Yields:
        Tasks for each thing that may travel, then barriers.
    """
    nodes, sparse = fcsn_card().nodes(count), claim.problem.kernel in SPARSE
    card = nodes[-1]
    hop = card.latency + card.forward + card.classify + card.packet
    for way in [*(Travels if sparse else ["tasks"]), "barriers"]:
        travels = way if isinstance(way, Travels) else Travels.OPERAND
        work = workload(replace(claim.problem, travels=travels), count)
        barrier = way == "barriers"
        trace = simulate(work, nodes, barrier=barrier)
        turns = sum(_communicates(stage, barrier=barrier) for stage in work.stages)
        links = trace.packets * PACKET_BYTES / (count + 1)
        yield Profile(
            name=claim.name,
            nodes=count,
            way=str(way),
            seconds=trace.seconds,
            link=max(trace.link),
            handler=max(trace.handler),
            kernel=max(trace.kernel),
            link_s=links * 8 / card.link_bps,
            elements_s=sum(float(s.streamed.max()) for s in work.stages) * card.stream,
            macs_s=sum(float(s.local.max()) for s in work.stages) / card.rates[MAC],
            hops_s=turns * count * hop,
            asked_s=trace.seconds * (claim.compute if barrier else claim.speedup),
        )


def fcsn_card() -> NodeModel:
    """Return FCsN's card with links of 100 Gb/s."""
    return NodeModel("netfpga", "100G", figures_of(FCSN))


def shrunk(problem: KernelProblem, most: int) -> KernelProblem:
    """Leave out edges of a graph network until ``most`` remain.

    All nodes stay: with fewer, their features would fit a cache, and an edge take a fifth of its
    time.
    """
    g = problem.graph
    return replace(problem, graph=replace(g, edges=min(g.edges, most)))
