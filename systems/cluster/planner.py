# SPDX-License-Identifier: Apache-2.0
"""Place the layers of a model: enumerate the options of each layer and choose the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise, product
from typing import Literal

from n3ic.errors import ClusterError
from n3ic.model.bits import WORD_BITS
from n3ic.systems.cluster.costs import (
    CostEstimate,
    estimate_cost,
    is_tiled,
    kernel_cost,
    memory_used,
    row_bytes,
    weight_bytes,
)
from n3ic.systems.cluster.nodes import ClusterDescription
from n3ic.systems.cluster.placement import LayerPlacement, LayerSplit, ModelPlacement, Share
from n3ic.systems.cluster.plan import NO_RING, Alternative, ClusterPlan
from n3ic.systems.cluster.protocol import MAX_NODES, MAX_OFFSET, MAX_ROW
from n3ic.systems.cluster.traffic import SLICE_BITS, slices_of

Goal = Literal["throughput", "latency"]
_MOST_TRIED = 1500  # placements compared exhaustively; beyond, layers are improved in turn
_FEW = (1, 4, 16, 64, 128)  # numbers of nodes to try in a large cluster
_SAME = 1.01  # rates and latencies this close are equal, and the other figure decides


@dataclass(frozen=True)
class LayerOption:
    """A way to place a layer: how it is divided, and over how many nodes."""

    split: LayerSplit
    nodes: int


@dataclass(frozen=True)
class _Room:
    """The free room of a node."""

    bytes: int
    shares: int | None


def plan_cluster(
    shape: Sequence[int],
    cluster: ClusterDescription,
    model: str = "",
    goal: Goal = "throughput",
    splits: Sequence[LayerSplit] | None = None,
    cores: int = 0,
) -> ClusterPlan:
    """Place a model on a cluster.

    Args:
        shape: input bits, then the neurons of each layer.
        cluster: the nodes.
        model: digest of the model file; empty for a shape alone.
        goal: optimise the throughput with many rows in flight, or the latency of a single row.
        splits: required split of each layer; None to choose the fastest.
        cores: processors that the nodes and the coordinator share if they are processes; 0 if each
            has its own.

    Raises:
        ClusterError: No placement fits; the error names layer, memory and the missing bytes.
    """
    shape = tuple(shape)
    _check_shape(shape)
    if splits is not None and len(splits) != len(shape) - 1:
        raise ClusterError(
            f"expected a split for each of {len(shape) - 1} layers, got {len(splits)}"
        )
    if len(cluster.nodes) > MAX_NODES:
        raise ClusterError(f"a ring has at most {MAX_NODES} nodes, got {len(cluster.nodes)}")
    ways = [
        [w for w in _ways(len(cluster.nodes)) if splits is None or w.split in (splits[i], None)]
        for i in range(len(shape) - 1)
    ]
    better = _order(goal)

    @cache
    def evaluate(options: tuple[LayerOption, ...]) -> tuple[ModelPlacement, CostEstimate] | None:
        placement = place(shape, cluster, options, model)
        return None if placement is None else (placement, estimate_cost(placement, cluster, cores))

    best = _search(ways, evaluate, better)
    if best is None:
        raise ClusterError(_refusal(shape, cluster, splits))
    placement, estimate = best
    return ClusterPlan(
        cluster=cluster,
        placement=placement,
        expected=estimate,
        used=memory_used(placement),
        goal=goal,
        alternatives=_alternatives(shape, cluster, model, cores),
    )


def place(
    shape: Sequence[int], cluster: ClusterDescription, ways: Sequence[LayerOption], model: str = ""
) -> ModelPlacement | None:
    """Place each layer by its option; return None if one does not fit.

    Shares are proportional to the nodes' speed, as far as their memory allows.
    """
    room = {i: _Room(n.bytes, n.figures.shares) for i, n in enumerate(cluster.nodes, 1)}
    layers = []
    for (inputs, neurons), way in zip(pairwise(shape), ways, strict=True):
        layer = _place_layer(cluster, room, way, inputs, neurons)
        if layer is None:
            return None
        for node, size in weight_bytes(layer, inputs, neurons).items():
            space = room[node]
            shares = None if space.shares is None else space.shares - 1
            room[node] = _Room(space.bytes - size, shares)
        # Reducers and thresholds count only now, after the shares were chosen.
        if any(r.bytes < 0 for r in room.values()):
            return None
        layers.append(layer)
    return ModelPlacement(model, tuple(shape), len(cluster.nodes), tuple(layers))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) < 2 or min(shape, default=0) < 1 or shape[-1] < 2:
        raise ClusterError(
            "expected input bits and the neurons of each layer, two classes or more at the end, "
            f"such as 4096-2048-10, got {'-'.join(map(str, shape))}"
        )
    for size in shape:
        if size > min(MAX_ROW, (MAX_OFFSET + 1) * WORD_BITS):
            raise ClusterError(f"a layer has at most {MAX_ROW:,} inputs and neurons, got {size:,}")


def _ways(nodes: int) -> Iterator[LayerOption]:
    """Yield the options of a layer; in a large cluster, only some numbers of nodes."""
    counts = range(1, nodes + 1)
    for count in counts:
        if nodes <= 8 or count in _FEW or count in (nodes // 2, nodes - 2, nodes - 1, nodes):
            yield LayerOption(LayerSplit.OUTPUT, count)
            if count > 1:
                yield LayerOption(LayerSplit.INPUT, count)
                yield LayerOption(LayerSplit.REPLICATED, count)


def _order(goal: Goal) -> Callable[[CostEstimate, CostEstimate], bool]:
    """Return a function that says whether its first argument is better than its second."""

    def better(a: CostEstimate, b: CostEstimate) -> bool:
        rate, delay = a.rows_per_s / b.rows_per_s, b.latency_s / a.latency_s
        first, second = (rate, delay) if goal == "throughput" else (delay, rate)
        # A tie within 1 % is noise of the estimate.
        if first > _SAME or first * _SAME < 1:
            return first > 1
        if second > _SAME or second * _SAME < 1:
            return second > 1
        return a.packets < b.packets

    return better


_Evaluate = Callable[[tuple[LayerOption, ...]], tuple[ModelPlacement, CostEstimate] | None]


def _search(
    ways: Sequence[Sequence[LayerOption]],
    evaluate: _Evaluate,
    better: Callable[[CostEstimate, CostEstimate], bool],
) -> tuple[ModelPlacement, CostEstimate] | None:
    count = 1
    for each in ways:
        count *= len(each)
    if count <= _MOST_TRIED:
        return _best((evaluate(options) for options in product(*ways)), better)
    widest = [max(each, key=lambda w: (w.nodes, w.split is LayerSplit.OUTPUT)) for each in ways]
    narrow = [each[0] for each in ways]
    # A local search only finds a local optimum, so it starts from several extremes.
    begun = [widest, narrow, [*widest[:-1], narrow[-1]], [widest[0], *narrow[1:]]]
    spread = [LayerOption(LayerSplit.OUTPUT, max(1, widest[0].nodes - len(ways) + 1)), *narrow[1:]]
    if spread[0] in ways[0]:
        begun.append(spread)
    return _best((_improved(start, ways, evaluate, better) for start in begun), better)


def _improved(
    start: Sequence[LayerOption],
    ways: Sequence[Sequence[LayerOption]],
    evaluate: _Evaluate,
    better: Callable[[CostEstimate, CostEstimate], bool],
) -> tuple[ModelPlacement, CostEstimate] | None:
    """Search locally: change one layer's option at a time while that improves the placement."""
    # Each change is strictly better and there are finitely many choices, so this ends.
    now, best, changed = list(start), evaluate(tuple(start)), True
    while changed:
        changed = False
        for i, each in enumerate(ways):
            for way in each:
                other = evaluate((*now[:i], way, *now[i + 1 :]))
                if other is not None and (best is None or better(other[1], best[1])):
                    now[i], best, changed = way, other, True
    return best


def _best(
    candidates: Iterator[tuple[ModelPlacement, CostEstimate] | None],
    better: Callable[[CostEstimate, CostEstimate], bool],
) -> tuple[ModelPlacement, CostEstimate] | None:
    best = None
    for one in candidates:
        if one is not None and (best is None or better(one[1], best[1])):
            best = one
    return best


def _place_layer(
    cluster: ClusterDescription, room: dict[int, _Room], way: LayerOption, inputs: int, neurons: int
) -> LayerPlacement | None:
    open_ = [i for i, r in room.items() if r.shares != 0]
    if way.split is LayerSplit.REPLICATED:
        whole = LayerPlacement(way.split, (Share(1, 0, neurons),))
        size = weight_bytes(whole, inputs, neurons)[1]
        nodes = _choose([i for i in open_ if room[i].bytes >= size], room, way.nodes)
        return _whole(way, nodes, neurons)
    nodes = _choose(open_, room, way.nodes)
    if nodes is None:
        return None
    size = inputs if way.split is LayerSplit.INPUT else neurons
    word = WORD_BITS * (row_bytes(inputs) + 4)  # bytes of 32 neurons with their thresholds
    if way.split is LayerSplit.INPUT:
        shares = _input_shares(cluster, room, nodes, inputs, neurons)
        # A node that holds a limited number of shares is a card, and cards add no partial sums.
        holders = [i for i in nodes if room[i].shares is None]
        if shares is None or not holders:
            return None
        holders = holders[: -(-neurons // WORD_BITS)]
        reducers = _shares(neurons, holders, [1.0] * len(holders), [MAX_ROW] * len(holders))
        return None if reducers is None else LayerPlacement(way.split, shares, reducers)
    shares = _shares(
        size,
        nodes,
        [_speed(cluster, i, inputs) for i in nodes],
        [room[i].bytes // word for i in nodes],
    )
    return None if shares is None else LayerPlacement(way.split, shares)


def _input_shares(
    cluster: ClusterDescription,
    room: dict[int, _Room],
    nodes: Sequence[int],
    inputs: int,
    neurons: int,
) -> tuple[Share, ...] | None:
    """Divide inputs in whole slices, so that each packet of the coordinator has one owner."""
    slice_bytes = neurons * row_bytes(SLICE_BITS)
    caps = [max(0, room[i].bytes - 4 * neurons) // slice_bytes for i in nodes]
    speeds = [_speed(cluster, i, SLICE_BITS) for i in nodes]
    return _shares(inputs, nodes, speeds, caps, SLICE_BITS)


def _whole(way: LayerOption, nodes: Sequence[int] | None, neurons: int) -> LayerPlacement | None:
    if nodes is None:
        return None
    return LayerPlacement(way.split, tuple(Share(i, 0, neurons) for i in nodes))


def _choose(open_: Sequence[int], room: dict[int, _Room], count: int) -> list[int] | None:
    """Choose the nodes with the most room, in ring order."""
    if len(open_) < count:
        return None
    return sorted(sorted(open_, key=lambda i: (-room[i].bytes, i))[:count])


def _speed(cluster: ClusterDescription, node: int, inputs: int) -> float:
    """Return the neurons with ``inputs`` inputs that a node computes per second."""
    at = cluster.nodes[node - 1]
    return 1 / at.seconds(at.figures.neuron_clocks(inputs))


def _shares(
    size: int,
    nodes: Sequence[int],
    speeds: Sequence[float],
    caps: Sequence[int],
    unit: int = WORD_BITS,
) -> tuple[Share, ...] | None:
    """Divide neurons or inputs in proportion to speed, in whole units, within capacities.

    Args:
        size: number of neurons or inputs.
        nodes: nodes to divide among.
        speeds: speed of each node.
        caps: maximum units of each node.
        unit: indivisible number of neurons or inputs.

    Returns:
        Shares of all nodes; None if they lack room, or if a node would get nothing.
    """
    units = -(-size // unit)
    if sum(caps) < units or units < len(nodes):
        return None
    counts = [0] * len(nodes)
    for _ in range(units):
        # Each unit goes to the node that would finish it first, which minimises the longest time.
        i = min(
            (i for i in range(len(nodes)) if counts[i] < caps[i]),
            key=lambda i: ((counts[i] + 1) / speeds[i], i),
        )
        counts[i] += 1
    if 0 in counts:
        return None
    ends = [min(size, unit * end) for end in accumulate(counts)]
    return tuple(Share(n, a, b) for n, (a, b) in zip(nodes, pairwise([0, *ends]), strict=True))


def _alternatives(
    shape: Sequence[int], cluster: ClusterDescription, model: str, cores: int
) -> tuple[Alternative, ...]:
    """Estimate simple placements: one node, and all layers alike on all nodes.

    Beside processes, one process without a ring: the first node's kernel alone.
    """
    count = len(cluster.nodes)
    plain = {
        "one node": LayerOption(LayerSplit.OUTPUT, 1),
        "replicated": LayerOption(LayerSplit.REPLICATED, count),
        "split by output": LayerOption(LayerSplit.OUTPUT, count),
        "split by input": LayerOption(LayerSplit.INPUT, count),
    }
    alternatives = []
    for name, way in plain.items():
        if count == 1 and name != "one node":
            continue
        ways = [
            LayerOption(way.split, min(way.nodes, _parts(way.split, inputs, neurons)))
            for inputs, neurons in pairwise(shape)
        ]
        placement = place(shape, cluster, ways, model)
        estimate = None if placement is None else estimate_cost(placement, cluster, cores)
        alternatives.append(Alternative(name, estimate))
        if name == "one node" and placement is not None and is_tiled(cluster):
            alternatives.append(Alternative(NO_RING, kernel_cost(placement, cluster)))
    return tuple(alternatives)


def _parts(split: LayerSplit, inputs: int, neurons: int) -> int:
    """Return the maximum number of nodes that a layer can be divided among."""
    if split is LayerSplit.OUTPUT:
        return -(-neurons // WORD_BITS)
    return slices_of(inputs) if split is LayerSplit.INPUT else MAX_NODES


def _refusal(
    shape: Sequence[int], cluster: ClusterDescription, splits: Sequence[LayerSplit] | None
) -> str:
    """Explain why a model does not fit: which layer, which memory, how many bytes."""
    room = {i: _Room(n.bytes, n.figures.shares) for i, n in enumerate(cluster.nodes, 1)}
    order = sorted(
        enumerate(pairwise(shape)), key=lambda e: (-e[1][0] * e[1][1], e[0])
    )  # the largest first
    for number, (inputs, neurons) in order:
        split = None if splits is None else splits[number]
        needed = _bytes(inputs, neurons)
        open_ = {i: r for i, r in room.items() if r.shares != 0}
        there = sum(r.bytes for r in open_.values())
        if split is LayerSplit.REPLICATED:
            there = max((r.bytes for r in open_.values()), default=0)
        memory = cluster.nodes[0].memory
        what = f"layer {number} ({inputs}-{neurons}) takes {needed:,} bytes"
        if not open_:
            return (
                f"{what}, and no node is left for it: a {cluster.nodes[0].target} node holds "
                f"{cluster.nodes[0].figures.shares} layer; give more nodes with --nodes"
            )
        if needed > there:
            each = max(n.bytes for n in cluster.nodes)
            hint = f"about {-(-_total(shape) // each)} nodes of {each:,} bytes hold all layers"
            return (
                f"{what}; the memory {memory} of {len(open_)} nodes has {there:,} bytes left: "
                f"{needed - there:,} bytes are missing; {hint}"
            )
        for i, space in sorted(open_.items(), key=lambda e: -e[1].bytes):
            used = min(needed, space.bytes)
            needed -= used
            shares = None if space.shares is None else space.shares - 1
            room[i] = replace(space, bytes=space.bytes - used, shares=shares)
            if not needed:
                break
    return (
        "the layers fit together, but not in whole words of 32 neurons per node or slices of "
        f"{SLICE_BITS} inputs: give the nodes more memory, or add a node"
    )


def _bytes(inputs: int, neurons: int) -> int:
    return neurons * (row_bytes(inputs) + 4)


def _total(shape: Sequence[int]) -> int:
    return sum(_bytes(a, b) for a, b in pairwise(shape))
