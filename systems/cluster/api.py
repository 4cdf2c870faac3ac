# SPDX-License-Identifier: Apache-2.0
"""The functions ``n3ic.compile_cluster``, ``n3ic.plan_cluster`` and ``n3ic.run_cluster``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from n3ic.errors import ArgumentError, in_python, needed

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor, nn

    from n3ic.api import ModelLike
    from n3ic.systems.cluster.networks.network import IntegerNetwork
    from n3ic.systems.cluster.nodes import ClusterDescription
    from n3ic.systems.cluster.plan import ClusterPlan
    from n3ic.systems.cluster.run import ClusterRun
    from n3ic.systems.cluster.udp import Address


@in_python()
@needed("n3ic.compile_cluster")
def compile_cluster(module: nn.Module, examples: Tensor | ArrayLike) -> IntegerNetwork:
    """Turn a trained PyTorch module into integers that every node of a ring computes exactly.

    ``torch.export`` captures the module in evaluation mode. Weights and activations have 8 bits,
    whose scales, powers of two, are Brevitas's. The module may consist of fully connected layers,
    2-D convolutions, batch norm, ReLU, ReLU6 and other cuts, signs, pools, sums of two values,
    products of a constant matrix (the edges of a graph) with features, and changes of shape.

    :func:`~n3ic.systems.cluster.networks.ring.network_ring` runs the result.

    Args:
        module: the module, which takes one tensor and gives one.
        examples: typical inputs, of which the first axis counts items; their activations give the
            scales. For a module that multiplies edges by features: the features of one graph.

    Returns:
        The network.

    Raises:
        ClusterError: the module computes something else; the error names the node of its graph and
            what to do.
        MissingDependencyError: PyTorch or Brevitas is not installed.
    """
    import torch

    from n3ic.systems.cluster.networks.compile import compile_module

    return compile_module(module, torch.as_tensor(examples, dtype=torch.float32))


@in_python()
@needed("n3ic.plan_cluster")
def plan_cluster(
    model: ModelLike | None = None,
    *,
    shape: Sequence[int] | None = None,
    nodes: int = 4,
    target: str = "netfpga",
    link: str = "10G",
    cluster: str | Path | ClusterDescription | None = None,
    split: str | Sequence[str] | None = None,
    goal: Literal["throughput", "latency"] = "throughput",
    cores: int = 0,
) -> ClusterPlan:
    """Place the layers of a model on nodes: whole, by neurons or by inputs.

    Args:
        model: a model, its file or a run of one network.
        shape: a shape instead of a model: input bits, then the neurons of each layer.
        nodes: number of equal nodes, 1 to 254.
        target: their target.
        link: speed of their links, such as ``10G``, in bit/s.
        cluster: a ``nodes.toml`` or nodes that were read, instead of equal nodes.
        split: ``output``, ``input`` or ``replicated`` for all layers, or one for each; None for the
            fastest.
        goal: optimise many rows in flight, or the latency of a row alone.
        cores: processors that the nodes share if they are processes; 0 if each has its own.

    Returns:
        The plan, with estimated rows/s, latencies in seconds and bytes of each node.

    Raises:
        UsageError: neither or both of model and shape are given, or a split is unknown.
        ClusterError: the model has no layers, or no placement fits; the error names layer, memory
            and missing bytes.
    """
    from n3ic.api import model_of
    from n3ic.systems.cluster import planner
    from n3ic.systems.cluster.layered import layered
    from n3ic.systems.cluster.nodes import ClusterDescription, equal_nodes, read_nodes
    from n3ic.systems.cluster.placement import splits_of

    if (model is None) == (shape is None):
        raise ArgumentError("expected a model or a shape, such as shape=(4096, 2048, 10)")
    network = None if model is None else layered(model_of(model))
    sizes = tuple(shape or ()) if network is None else network.shape
    if cluster is None:
        cards = equal_nodes(nodes, target, link)
    else:
        cards = cluster if isinstance(cluster, ClusterDescription) else read_nodes(cluster)
    digest = "" if network is None else network.digest
    splits = None if split is None else splits_of(split, len(sizes) - 1)
    return planner.plan_cluster(sizes, cards, digest, goal, splits, cores)


@in_python()
@needed("n3ic.run_cluster")
def run_cluster(
    model: ModelLike,
    flows: str | Path | None = None,
    *,
    nodes: int | None = None,
    plan: str | Path | ClusterPlan | None = None,
    split: str | Sequence[str] = "output",
    rows: int | None = None,
    seed: int = 0,
    loss: float = 0.0,
    limit: float = 5.0,
    replacements: int = 0,
    dask: str | None = None,
    cards: Mapping[int, Address] | None = None,
    addresses: Mapping[int, Address] | None = None,
    simulate: Mapping[int, str] | None = None,
) -> ClusterRun:
    """Run a model on a ring of nodes, and compare every row with the single model.

    Nodes are processes, so a script calls this below ``if __name__ == "__main__"``.

    Args:
        model: a binary network, its file, or a run, whose networks run side by side.
        flows: file of the rows to compute, as :func:`~n3ic.predict` takes it; None for vectors that
            test the model.
        nodes: nodes of the ring, 1 to 254; None for 4, or the plan's.
        plan: what :func:`n3ic.plan_cluster` returns, or its file; None for even parts.
        split: without a plan, ``output``, ``input`` or ``replicated`` for all layers, or one for
            each.
        rows: number of rows; None for 200, or the table's.
        seed: seed of random rows and of losses.
        loss: share of datagrams to drop on purpose, 0 to 0.9.
        limit: seconds of silence after which a node counts as dead.
        replacements: nodes that may be lost and are replaced.
        dask: scheduler of a Dask cluster to run on, such as ``tcp://host:8786``; None for processes
            here.
        cards: nodes that are running cards: host and UDP port, by node.
        addresses: addresses of other nodes, and of the home 0.
        simulate: nodes to run as simulated cards: a target, by node.

    Returns:
        The placement, rows/s, latencies in ms, and counts of datagrams.

    Raises:
        UsageError: a split is unknown, or the plan has another number of nodes.
        DataError: the flows cannot be read.
        ClusterError: the model has no layers, or a node does not start, does not answer, or fails.
        VerifyError: a score differs.
        MissingDependencyError: distributed or a card's tool is missing.
    """
    from n3ic.api import model_of
    from n3ic.runs.folder import Run
    from n3ic.systems.cluster.launch import RingOptions
    from n3ic.systems.cluster.layered import layered
    from n3ic.systems.cluster.link import LinkTiming
    from n3ic.systems.cluster.plan import ClusterPlan
    from n3ic.systems.cluster.run import networks_of, run_model
    from n3ic.systems.cluster.udp import FaultInjection

    source = model.path if isinstance(model, Run) else model
    network = networks_of(source) if isinstance(source, str | Path) else layered(model_of(source))
    options = RingOptions(
        dask=dask,
        cards=cards or {},
        addresses=addresses or {},
        timing=LinkTiming(limit=limit),
        faults=FaultInjection(loss, seed),
        replacements=replacements,
    )
    return run_model(
        network,
        flows,
        nodes=nodes,
        plan=plan.placement if isinstance(plan, ClusterPlan) else plan,
        split=split,
        rows=rows,
        options=options,
        simulated=simulate or {},
    )
