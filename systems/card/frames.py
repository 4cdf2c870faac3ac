# SPDX-License-Identifier: Apache-2.0
"""Request frames for a card and their expected answers, the reference for software images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.model.bits import Words, pack, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.network import BinaryModel
from n3ic.model.simplified import unchanged
from n3ic.model.verification_vectors import boundary_features, margin_vectors, verification_vectors
from n3ic.systems.card.compile import Branch, SoftwareCard, SoftwareGraph
from n3ic.systems.card.description import UidCarrier
from n3ic.systems.card.tasks.chain import RunningTasks, head_of, write_head
from n3ic.systems.card.tasks.kind import DENIED

ETHERTYPE = 0x2323  # of frames with a UID in their header or behind a VLAN tag
HOST = 0xFFFF  # class field of a result that the host decides
_MACS = bytes.fromhex("020000000002020000000001")


@dataclass(frozen=True)
class FrameResult:
    """A result as it is encoded in a frame.

    Attributes:
        model: first 32 bits of the network's digest.
        verdict: class index, or ``HOST``.
        margin: best minus second best score; for a vote, votes minus those of the second class.
    """

    model: int
    verdict: int
    margin: int

    @property
    def text(self) -> bytes:
        """Encode the result as ten bytes, big-endian."""
        head = self.model.to_bytes(4, "big") + self.verdict.to_bytes(2, "big")
        return head + self.margin.to_bytes(4, "big")


@dataclass(frozen=True, eq=False)
class RequestFrame:
    """A request frame and the results of its networks.

    Attributes:
        graph: index in :attr:`SoftwareCard.graphs`.
        frame: bytes of the frame.
        scores: scores of each branch.
        results: result of each branch.
        head: headers after the packet tasks; empty on a card without any.
    """

    graph: int
    frame: bytes
    scores: tuple[tuple[int, ...], ...]
    results: tuple[FrameResult, ...]
    head: bytes = b""


def frame_of(
    card: SoftwareCard, graph: SoftwareGraph, field: bytes, rng: np.random.Generator
) -> bytes:
    """Make a request frame of minimum length for a graph."""
    body = bytearray(rng.bytes(card.offset)) + field
    body[:12] = _MACS
    address(body, card.carrier, graph.uid)
    return bytes(body)


def address(frame: bytearray, carrier: UidCarrier, uid: int) -> None:
    """Write the headers that address the graph with a UID, after the MAC addresses."""
    text = uid.to_bytes(2, "big")
    if carrier == "udp-port":
        # The total length stays 0 and the checksum random: cards check neither, and marking
        # updates the checksum by the difference.
        frame[12:24] = b"\x08\x00\x45\x00\x00\x00\x12\x34\x40\x00\x40\x11"
        frame[36:38] = text
    elif carrier == "vlan":
        frame[12:18] = b"\x81\x00" + text + ETHERTYPE.to_bytes(2, "big")
    else:
        frame[12:14] = ETHERTYPE.to_bytes(2, "big")
        frame[18:20] = text


def uid_of(frame: bytes, carrier: UidCarrier) -> int | None:
    """Return the UID in a frame; None if the frame is no request."""
    head = int.from_bytes(frame[12:14], "big")
    if carrier == "udp-port":
        # No fragment: offset and more-fragments must be 0; only don't-fragment (0x4000) may be set.
        # A later fragment has payload where the port would be.
        whole = int.from_bytes(frame[20:22], "big") & 0xBFFF == 0
        asks = head == 0x0800 and frame[14:15] == b"\x45" and whole and frame[23:24] == b"\x11"
        return int.from_bytes(frame[36:38], "big") if asks and len(frame) >= 38 else None
    if carrier == "vlan":
        asks = head == 0x8100 and int.from_bytes(frame[16:18], "big") == ETHERTYPE
        return int.from_bytes(frame[14:16], "big") & 0xFFF if asks else None
    asks = head == ETHERTYPE and len(frame) >= 20
    return int.from_bytes(frame[18:20], "big") if asks else None


def traffic(card: SoftwareCard, count: int, seed: int = 11) -> list[RequestFrame]:
    """Make request frames of all graphs in random order, with inputs at their networks' edges.

    Args:
        card: the card.
        count: frames per graph.
        seed: seed of the inputs and their order.
    """
    rng = np.random.default_rng(seed)
    fields = [_fields(graph, count, rng) for graph in card.graphs]
    answers = [
        _answers(graph, graph_fields)
        for graph, graph_fields in zip(card.graphs, fields, strict=True)
    ]
    next_row = [0] * len(card.graphs)
    out = []
    tasks = RunningTasks(card.packet_tasks.values())
    for g in rng.permutation(np.repeat(np.arange(len(card.graphs)), count)).tolist():
        graph, row = card.graphs[g], next_row[g]
        next_row[g] += 1
        frame = frame_of(card, graph, fields[g][row], rng) + rng.bytes(int(rng.integers(40)))
        request = RequestFrame(g, frame, *answers[g][row])
        out.append(_with_tasks(card, request, tasks, rng) if card.packet_tasks else request)
    return out


def _with_tasks(
    card: SoftwareCard, request: RequestFrame, tasks: RunningTasks, rng: np.random.Generator
) -> RequestFrame:
    """Aim a frame at its graph's packet tasks, and run them."""
    first, *others = [[t.name for t in b.packet_tasks] for b in card.graphs[request.graph].branches]
    frame = bytearray(request.frame)
    head = head_of(frame, card.offset, card.header)
    tasks.aim(first, head, rng)
    write_head(frame, head, card.offset, card.header)
    for names in others:
        tasks.run(names, bytearray(head))
    scores, results = request.scores, request.results
    if tasks.run(first, head) == DENIED:
        scores = ((0,) * len(scores[0]), *scores[1:])
        results = (FrameResult(0, DENIED, 0), *results[1:])
    return RequestFrame(request.graph, bytes(frame), scores, results, bytes(head))


def hostile(card: SoftwareCard, request: RequestFrame, rng: np.random.Generator) -> bytes:
    """Make a near miss of a request frame: cut short, with an unknown UID, or of another type."""
    frame = bytearray(request.frame)
    kind = int(rng.integers(3))
    if kind == 0:
        whole = card.offset + card.graphs[request.graph].input_bytes
        return bytes(frame[: int(rng.integers(0, whole))])
    if kind == 1:
        frame[12:20] = rng.bytes(8)
        return bytes(frame)
    uids = {g.uid for g in card.graphs}
    # Below 4096, so that the UID also fits a VLAN tag.
    free = next(uid for uid in range(1, 4096) if uid not in uids)
    return frame_of(card, _renamed(card.graphs[request.graph], free), bytes(8), rng)


def mark(frame: bytearray, dscp: int) -> None:
    """Set the DSCP of an IPv4 header, and update its checksum incrementally (RFC 1624, eqn. 3)."""
    old, checksum = (int.from_bytes(frame[at : at + 2], "big") for at in (14, 24))
    frame[15] = dscp << 2 | frame[15] & 3
    total = (checksum ^ 0xFFFF) + (old ^ 0xFFFF) + int.from_bytes(frame[14:16], "big")
    # Ones' complement addition: each carry is added back at the low end.
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    frame[24:26] = (total ^ 0xFFFF).to_bytes(2, "big")


def joined(join: str, results: Sequence[FrameResult]) -> tuple[FrameResult, ...]:
    """Join the results of the branches.

    For a vote, the model is that of the first branch that voted for the winner.
    """
    if join == "both" or len(results) == 1:
        return tuple(results)
    if join == "most-certain":
        return (max(results, key=lambda r: r.margin),)
    votes = Counter(r.verdict for r in results)
    # Ties go to the lowest class index, as in the generated code.
    (winner, most), *others = sorted(votes.items(), key=lambda v: (-v[1], v[0]))
    first = next(r for r in results if r.verdict == winner)
    return (FrameResult(first.model, winner, most - (others[0][1] if others else 0)),)


def words_of(model: Classifier, fields: Sequence[bytes], *, features: bool) -> Words:
    """Pack the inputs of a network from the fields of packets.

    Args:
        model: the network.
        fields: field of each packet.
        features: whether fields hold integer features; otherwise input bits, possibly padded.
    """
    spec = model.input
    if features:
        rows = np.frombuffer(b"".join(fields), dtype=">u4").reshape(len(fields), -1)
        return model.encode(
            {name: rows[:, i].astype(np.int64) for i, name in enumerate(spec.features)}
        )
    # The bits are one big-endian number, so the reversed bytes begin with bit 0.
    field_bytes = np.stack([np.frombuffer(field[::-1], dtype=np.uint8) for field in fields])
    bits = np.unpackbits(field_bytes, axis=1, count=spec.n_bits, bitorder="little")
    return pack(bits.astype(np.bool_))


def results_of(model: Classifier, words: Words) -> list[tuple[tuple[int, ...], FrameResult]]:
    """Compute scores and results of packed inputs."""
    inference = model.infer(words)
    number = int(model.digest[:8], 16)
    verdicts = model.verdicts(inference.scores)
    return [
        (tuple(map(int, scores)), FrameResult(number, int(verdict) & HOST, int(margin)))
        for scores, verdict, margin in zip(
            inference.scores, verdicts, inference.margins, strict=True
        )
    ]


def _answers(
    graph: SoftwareGraph, fields: Sequence[bytes]
) -> list[tuple[tuple[tuple[int, ...], ...], tuple[FrameResult, ...]]]:
    each = [
        results_of(b.model, words_of(b.model, fields, features=b.features)) for b in graph.branches
    ]
    return [
        (tuple(scores for scores, _ in row), tuple(result for _, result in row))
        for row in zip(*each, strict=True)
    ]


def _fields(graph: SoftwareGraph, count: int, rng: np.random.Generator) -> list[bytes]:
    """Make inputs at the edges of each branch, in turn."""
    out: list[bytes] = []
    share = -(-count // len(graph.branches))
    for branch in graph.branches:
        out += _of_branch(graph, branch, share, rng)
    return [out[i] for i in rng.permutation(len(out))[:count]]


def _of_branch(
    graph: SoftwareGraph, branch: Branch, count: int, rng: np.random.Generator
) -> list[bytes]:
    model = branch.model
    if branch.features:
        rows = np.stack(list(boundary_features(model.input, 0).values()), axis=1)
        drawn_rows = rows[rng.integers(len(rows), size=count)]
        return [row.astype(">u4").tobytes() for row in drawn_rows]
    words = np.concatenate([margin_vectors(model), _vectors(model, 2 * count)])
    drawn_rows = words[rng.permutation(len(words))[:count]]
    bits = unpack(drawn_rows, model.input.n_bits)
    ordered = [b.model.input for b in graph.branches if not isinstance(b.model, BinaryModel)]
    for spec in ordered:
        bits[:, : spec.n_bits] = spec.ordered(bits[:, : spec.n_bits])
    fields = [row.tobytes()[::-1] for row in np.packbits(bits, axis=1, bitorder="little")]
    more = count - len(fields)
    if ordered:
        return fields + [fields[i] for i in rng.integers(len(fields), size=more)]
    return fields + [rng.bytes(branch.input_bytes) for _ in range(more)]


def _vectors(model: Classifier, count: int) -> Words:
    """Inputs at a network's edges, or inputs that decide the parameters of another family."""
    if isinstance(model, BinaryModel):
        return verification_vectors(model, count)
    return family(model.family).vectors(unchanged(model), count, 0)


def _renamed(graph: SoftwareGraph, uid: int) -> SoftwareGraph:
    return SoftwareGraph(graph.name, graph.tenant, uid, graph.branches, graph.join, graph.rules)
