"""Packets for a card, and what must come of each: what its Verilog is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.exporters.netfpga.card.image import ALL_PORTS, RESULT_BYTES, CardGraph, CardImage
from n3ic.exporters.netfpga.packet.traffic import BEAT, MACS, Frame
from n3ic.model.bits import Words, pack
from n3ic.model.network import BinaryModel

HOST = 0xFFFF  # in place of a class where the host decides
ETHERTYPE = 0x2323


@dataclass(frozen=True)
class Packet:
    """A packet and its place in the traffic.

    Attributes:
        frame: its bytes.
        source: port that it comes from, as a bit of ``tuser``.
        gap: clocks between the packet before it and its first beat.
    """

    frame: Frame
    source: int = 1
    gap: int = 0


@dataclass(frozen=True)
class Outcome:
    """What must come of a packet.

    Attributes:
        tenant: whose it is; None for a packet that names no graph.
        graph: which one it names.
        data: the bytes that leave.
        to: destination ports in ``tuser``; None where they are left alone.
        dropped: whether the graph's policy drops it.
    """

    tenant: int | None
    graph: int | None
    data: bytes
    to: int | None = None
    dropped: bool = False


def build(image: CardImage, graph: CardGraph, field: bytes, rng: np.random.Generator) -> bytes:
    """A frame that asks a graph about a field, without a byte more than it must have."""
    body = bytearray(rng.bytes(image.offset + graph.input_bytes))
    body[:12] = MACS
    uid = graph.uid.to_bytes(2, "big")
    if image.carrier == "udp-port":
        body[12:24] = b"\x08\x00\x45\x00\x00\x00\x12\x34\x40\x00\x40\x11"
        body[36:38] = uid
    elif image.carrier == "vlan":
        body[12:18] = b"\x81\x00" + uid + ETHERTYPE.to_bytes(2, "big")
    else:
        body[12:14] = ETHERTYPE.to_bytes(2, "big")
        body[18:20] = uid
    body[image.offset :] = field
    return bytes(body)


def named(image: CardImage, packet: Packet) -> int | None:
    """Which graph a packet asks; None for none, or one that is closed to it."""
    data = packet.frame.data
    uid = _uid(image, data)
    for index, graph in enumerate(image.graphs):
        if graph.on and graph.uid == uid and graph.sources & packet.source:
            need = image.offset + graph.input_bytes
            if len(data) >= need and packet.frame.hole != need - 1:
                return index
    return None


def _uid(image: CardImage, data: bytes) -> int | None:
    head = int.from_bytes(data[12:14], "big")
    if image.carrier == "udp-port":
        plain = int.from_bytes(data[20:22], "big") & 0xBFFF == 0
        asks = head == 0x0800 and data[14:15] == b"\x45" and plain and data[23:24] == b"\x11"
        return int.from_bytes(data[36:38], "big") if asks else None
    if image.carrier == "vlan":
        asks = head == 0x8100 and int.from_bytes(data[16:18], "big") == ETHERTYPE
        return int.from_bytes(data[14:16], "big") & 0xFFF if asks else None
    return int.from_bytes(data[18:20], "big") if head == ETHERTYPE else None


@dataclass(frozen=True)
class Result:
    """A result as it stands in a packet: model, class, margin."""

    model: int
    verdict: int
    margin: int

    @property
    def text(self) -> bytes:
        """Ten bytes."""
        head = self.model.to_bytes(4, "big") + self.verdict.to_bytes(2, "big")
        return head + self.margin.to_bytes(4, "big")


def result_of(model: BinaryModel, words: Words, *, class_only: bool = False) -> Result:
    """What a network says of one packed input."""
    found = model.infer(words)
    margin = 0 if class_only else int(found.margins[0])
    return Result(int(model.digest[:8], 16), int(model.verdicts(found.scores)[0]) & HOST, margin)


def joined(graph: CardGraph, results: Sequence[Result]) -> tuple[Result, ...]:
    """The results of a graph's branches as its packets show them; see ``n3ic_card_join``."""
    if graph.join == "both" or len(results) == 1:
        return tuple(results)
    if graph.join == "most-certain":
        return (max(results, key=lambda r: r.margin),)
    votes = Counter(r.verdict for r in results)
    (winner, most), *others = sorted(votes.items(), key=lambda v: (-v[1], v[0]))
    first = next(r for r in results if r.verdict == winner)
    return (Result(first.model, winner, most - (others[0][1] if others else 0)),)


def words_of(model: BinaryModel, field: bytes, *, features: bool) -> Words:
    """The packed input of a network, from the field of a packet."""
    if features:
        names = model.input.features
        values = np.frombuffer(field, dtype=">u4").astype(np.int64)
        return model.encode({n: values[i : i + 1] for i, n in enumerate(names)})
    bits = np.unpackbits(np.frombuffer(field[::-1], dtype=np.uint8), bitorder="little")
    return pack(bits[None, : model.input.n_bits].astype(np.bool_))


def outcome(image: CardImage, packet: Packet, results: Sequence[Result] | None = None) -> Outcome:
    """What must come of a packet; ``results`` of the branches are computed if not given."""
    data = packet.frame.data
    index = named(image, packet)
    if index is None:
        return Outcome(None, None, data)
    graph = image.graphs[index]
    found = branch_results(image, index, packet) if results is None else results
    answers = joined(graph, found)
    text = b"".join(r.text for r in answers).ljust(RESULT_BYTES * image.results, b"\0")
    out = bytearray(data)
    out[image.result_at : image.offset] = text
    if image.carrier == "udp-port":
        out[40:42] = b"\0\0"
    first = answers[0]
    for rule in graph.rules:
        about = not rule.classes or first.verdict in rule.classes
        if (
            about
            and rule.margin <= first.margin
            and (rule.below is None or first.margin < rule.below)
        ):
            to = (rule.to or 0) | rule.copy
            return Outcome(graph.tenant, index, bytes(out), to or None, rule.drop)
    return Outcome(graph.tenant, index, bytes(out))


def branch_results(image: CardImage, index: int, packet: Packet) -> list[Result]:
    """What each branch of a graph's networks says of a packet."""
    graph = image.graphs[index]
    field = packet.frame.data[image.offset : image.offset + graph.input_bytes]
    found = []
    for branch in graph.branches:
        for leg in branch:
            core = image.core_of(leg)
            if core is None:
                continue
            task, model = core
            features = image.has_input(branch)
            words = words_of(model, field, features=features)
            found.append(
                result_of(model, words, class_only=task.outputs == "class" and task.layout is None)
            )
    return found


def beats_text(packets: Sequence[Packet]) -> str:
    """The packets as ``n3ic_card_tb.v`` reads them."""
    lines = []
    for number, packet in enumerate(packets):
        frame = packet.frame
        user = len(frame.data) | packet.source << 16
        for beat in range(frame.beats):
            gap = packet.gap if beat == 0 else 0
            data = frame.data[BEAT * beat : BEAT * beat + BEAT].ljust(BEAT, b"\0")[::-1]
            head = (gap, int(beat == frame.beats - 1), frame.keep(beat), user, number)
            lines.append(" ".join([*(f"{v:08x}" for v in head), data.hex(" ", 4)]))
    return "\n".join(lines) + "\n"


__all__ = ["ALL_PORTS", "Outcome", "Packet", "Result", "beats_text", "build", "named", "outcome"]
