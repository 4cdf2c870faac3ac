# SPDX-License-Identifier: Apache-2.0
"""Run every network of a card in the joint image, with tenants interleaved at random."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.packet.traffic import BEAT, Frame, edge_features
from n3ic.exporters.netfpga.tools.simulate import Simulator
from n3ic.model.bits import Words, unpack
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import verification_vectors
from n3ic.systems.card.frames import words_of
from n3ic.systems.card.netfpga import simulation, traffic
from n3ic.systems.card.netfpga.image import (
    MAX_BURST,
    RATE_UNIT,
    CardGraph,
    CoreTask,
    NetfpgaCardImage,
    PacketStage,
    UserTask,
)
from n3ic.systems.card.netfpga.traffic import ExpectedOutcome, TrafficPacket
from n3ic.systems.card.tasks.chain import RunningTasks

SIMULATED_PAGE_W = 4
"""log2 of the words of a page in simulation: a real one takes long to fill with zeros."""
_ACCESS_CLOCKS = 40  # of two accesses to the bench's memory, on average
_SLACK = 8  # clocks on top of those that a packet's inferences take


@dataclass(frozen=True)
class CardRun:
    """Statistics of a card that passed in simulated traffic.

    Attributes:
        packets: number of packets sent.
        requests: number of requests of each graph.
        inferences: number of inferences compared with the networks, score by score.
        latency: fewest and most clocks from last beat in to last beat out, for each graph.
        simulator: name of the simulator.
    """

    packets: int
    requests: tuple[int, ...]
    inferences: int
    latency: tuple[tuple[int, int], ...]
    simulator: str


def verify_card(
    directory: Path, image: NetfpgaCardImage, count: int = 24, simulator: Simulator = "auto"
) -> CardRun:
    """Run a card and compare all bytes, scores and hidden bits with its networks.

    Packets of all graphs arrive in random order, mixed with near misses: packets that are cut
    short, have an unknown UID, or are of other types. They arrive no faster than the slowest region
    computes, so none may be dropped.

    Args:
        directory: directory that :func:`~n3ic.systems.card.netfpga.write.write_card` wrote.
        image: the card.
        count: packets per graph.
        simulator: the simulator to use.

    Raises:
        MissingDependencyError: No simulator is installed.
        VerifyError: A packet is lost, reordered or answered wrongly, or a network computes another
            result; the error names it.
    """
    image = replace(image, page_w=min(image.page_w, SIMULATED_PAGE_W))
    packets = packets_of(image, count)
    # Buckets are opened to the line rate, so that none of the traffic is over its rate.
    open_all = [
        simulation.set_register(simulation.register(simulation.TENANT, t, word), value)
        for t in range(len(image.tenants))
        for word, value in ((0, RATE_UNIT), (1, MAX_BURST))
    ]
    log = simulation.run(directory, image, packets, open_all, simulator=simulator)
    tasks = traffic.tasks_of(image)
    outcomes = [_outcome(image, packet, tasks) for packet in packets]
    compare(image, outcomes, log)
    inferences = compare_inferences(image, packets, outcomes, log)
    graphs = range(len(image.graphs))
    numbers = [[n for n, o in enumerate(outcomes) if o and o.graph == g] for g in graphs]
    latency = [log.latencies(mine) or [0] for mine in numbers]
    return CardRun(
        len(packets),
        tuple(len(mine) for mine in numbers),
        inferences,
        tuple((min(clocks), max(clocks)) for clocks in latency),
        log.simulator,
    )


def packets_of(image: NetfpgaCardImage, count: int) -> list[TrafficPacket]:
    """Make packets of all graphs in random order, and other packets between them."""
    rng = np.random.default_rng(11)
    fields = [inputs_of(image, graph, count, rng) for graph in image.graphs]
    order = rng.permutation([g for g in range(len(image.graphs)) for _ in range(count)])
    packets: list[TrafficPacket] = []
    for g in order.tolist():
        graph = image.graphs[g]
        # The lowest port that the graph accepts.
        source = graph.sources & -graph.sources
        body = traffic.build(image, graph, fields[g].pop(), rng)
        gap = work(image, graph) + int(rng.integers(_SLACK))
        packets.append(TrafficPacket(Frame(body + rng.bytes(int(rng.integers(70)))), source, gap))
        kind = int(rng.integers(12))
        other = bytearray(body)
        if kind == 0:
            packets.append(
                TrafficPacket(Frame(bytes(other[: int(rng.integers(1, len(other)))])), source)
            )
        elif kind == 1:
            other[12:20] = rng.bytes(8)
            packets.append(TrafficPacket(Frame(bytes(other)), source))
        elif kind == 2 and len(other) % BEAT:  # only a last beat has bytes missing
            packets.append(TrafficPacket(Frame(bytes(other) + b"\0", hole=len(other) - 1), source))
    return packets


def work(image: NetfpgaCardImage, graph: CardGraph) -> int:
    """Return the clocks that a packet takes if its regions are used one after another."""
    clocks = 0
    for branch in graph.branches:
        for leg in branch:
            for index in leg.tasks:
                task = image.regions[leg.regions[0]].tasks[index]
                if isinstance(task, CoreTask):
                    clocks += task.interval
                elif isinstance(task, PacketStage) and task.pages:
                    clocks += _ACCESS_CLOCKS * len(image.memory_stages)
                clocks += _SLACK
    return clocks


def inputs_of(
    image: NetfpgaCardImage, graph: CardGraph, count: int, rng: np.random.Generator
) -> list[bytes]:
    """Make verification inputs for each network of the graph in turn."""
    cores = [c for branch in graph.branches for leg in branch if (c := image.core_of(leg))]
    if not cores or _users(image, graph):
        return [rng.bytes(graph.input_bytes) for _ in range(count)]
    out = []
    share = -(-count // len(cores))
    for _, model in cores:
        if image.has_input(graph.branches[0]):
            rows = edge_features(model.input, share, rng)
            out += [b"".join(int(v).to_bytes(4, "big") for v in row) for row in rows]
        else:
            words = verification_vectors(model, share)
            bits = unpack(words[rng.permutation(len(words))[:share]], model.input.n_bits)
            packed = np.packbits(bits, axis=1, bitorder="little")
            out += [row.tobytes()[::-1] for row in packed]
    return out[:count]


def _users(image: NetfpgaCardImage, graph: CardGraph) -> bool:
    """Whether a user's own task, which has no reference, contributes to the answer."""
    return any(
        isinstance(image.regions[leg.regions[0]].tasks[k], UserTask)
        for branch in graph.branches
        for leg in branch
        for k in leg.tasks
    )


def _outcome(
    image: NetfpgaCardImage, packet: TrafficPacket, tasks: RunningTasks | None
) -> ExpectedOutcome | None:
    """Compute the expected outcome of a packet; None if a user's task decides."""
    index = traffic.named(image, packet)
    if index is not None and _users(image, image.graphs[index]):
        return ExpectedOutcome(image.graphs[index].tenant, index, b"")
    return traffic.outcome(image, packet, tasks=tasks)


def compare(
    image: NetfpgaCardImage,
    outcomes: Sequence[ExpectedOutcome | None],
    log: simulation.SimulationLog,
) -> None:
    """Compare the packets that left with the expected ones.

    Raises:
        VerifyError: A packet is lost, duplicated, changed or out of order; the error names it.
    """
    departures: dict[int, simulation.SentPacket] = {}
    last: dict[int | None, int] = {}
    for packet in log.departures:
        expected = outcomes[packet.number] if packet.number < len(outcomes) else None
        if expected is None or packet.number in departures or expected.dropped:
            raise VerifyError(f"the card: packet {packet.number} should not have left")
        departures[packet.number] = packet
        where = "other" if expected.graph is None else image.graphs[expected.graph].name
        # Only the order within a tenant is promised; tenants may overtake each other.
        if last.get(expected.tenant, -1) > packet.number:
            raise VerifyError(f"the card: packet {packet.number} of {where} left before its turn")
        last[expected.tenant] = packet.number
        if expected.data and packet.data != expected.data:
            at = slice(image.result_at, image.offset)
            raise VerifyError(
                f"the card: packet {packet.number} of {where}: answer "
                f"{packet.data[at].hex(' ')}, expected {expected.data[at].hex(' ')}"
            )
        if expected.to is not None and packet.user >> 24 & 0xFF != expected.to:
            raise VerifyError(f"the card: packet {packet.number} of {where} goes to another port")
    missing = [n for n, o in enumerate(outcomes) if o and not o.dropped and n not in departures]
    if missing:
        raise VerifyError(f"the card: {len(missing)} packets are lost, the first is {missing[0]}")


def compare_inferences(
    image: NetfpgaCardImage,
    packets: Sequence[TrafficPacket],
    outcomes: Sequence[ExpectedOutcome | None],
    log: simulation.SimulationLog,
) -> int:
    """Compare observed scores and hidden bits, where the packet determines the input.

    Returns:
        Number of compared inferences.

    Raises:
        VerifyError: A value differs from the network's; the error names layer, neuron and vector.
    """
    turns: dict[int, int] = defaultdict(int)
    # by tenant, number, graph and branch
    admitted: dict[tuple[int, int, int, int], list[int]] = defaultdict(list)
    for number, expected in enumerate(outcomes):
        if expected is not None and expected.tenant is not None and expected.graph is not None:
            # The hardware numbers a tenant's packets with few bits, so numbers repeat.
            seq = turns[expected.tenant] & (1 << image.seq_w) - 1
            turns[expected.tenant] += 1
            for b in range(len(image.graphs[expected.graph].branches)):
                if b or not expected.denied:
                    admitted[expected.tenant, seq, expected.graph, b].append(number)
    rounds: dict[simulation.ObservedInference, int] = defaultdict(int)
    runs_of: dict[tuple[int, int, int], list[tuple[int, simulation.ObservedInference]]] = (
        defaultdict(list)
    )
    for inference in log.inferred:
        # A tenant's packets stay in order, so order tells apart packets with the same number.
        place = replace(inference, region=0, model=0, scores=0, hidden=0)
        same = admitted[inference.queue, inference.seq, inference.graph, inference.branch]
        if rounds[place] >= len(same):
            raise VerifyError(
                f"the card: region {inference.region} computes a result for no packet"
            )
        number = same[rounds[place]]
        rounds[place] += 1
        runs_of[inference.graph, inference.branch, inference.leg].append((number, inference))
    count = 0
    for (g, b, k), runs in sorted(runs_of.items()):
        graph = image.graphs[g]
        core = image.core_of(graph.branches[b][k])
        if core is None or _users(image, graph):
            continue
        task, model = core
        features = image.has_input(graph.branches[b])
        fields = [packets[n].frame.data[image.offset :][: graph.input_bytes] for n, _ in runs]
        words = words_of(model, fields, features=features)
        _compare_runs(graph.name, task, model, words, [inference for _, inference in runs])
        count += len(runs)
    return count


def _compare_runs(
    where: str,
    task: CoreTask,
    model: BinaryModel,
    words: Words,
    runs: Sequence[simulation.ObservedInference],
) -> None:
    if any(run.model != int(model.digest[:8], 16) for run in runs):
        raise VerifyError(f"{where}: another network answered than {model.digest[:8]}")
    if task.layout is None and task.outputs == "class":
        return  # its scores are 0
    width, half = task.score_w, 1 << (task.score_w - 1)
    scores = [
        [((r.scores >> width * c & (2 * half - 1)) ^ half) - half for c in range(model.shape[-1])]
        for r in runs
    ]
    ends = np.cumsum([layer.n_outputs for layer in model.hidden])
    hidden = [[r.hidden >> i & 1 for i in range(int(ends[-1]))] for r in runs] if len(ends) else []
    bits = np.array(hidden, dtype=np.bool_).reshape(len(runs), -1)
    expected = np.array(scores, dtype=np.int32)
    inference = model.inference(
        expected, tuple(np.split(bits, ends[:-1], axis=1)) if len(ends) else ()
    )
    difference = first_difference(model, inference, words)
    if difference is not None:
        raise VerifyError(f"{where}: {difference}")
