# SPDX-License-Identifier: Apache-2.0
"""Packets for a card and their expected outcomes, with which its Verilog is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from n3ic.exporters.netfpga.packet.traffic import BEAT, MACS, Frame
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel
from n3ic.systems.card.description import PacketTask
from n3ic.systems.card.frames import FrameResult, address, joined, results_of, uid_of, words_of
from n3ic.systems.card.netfpga.image import RESULT_BYTES, CardGraph, NetfpgaCardImage
from n3ic.systems.card.tasks.chain import RunningTasks, head_of, write_head
from n3ic.systems.card.tasks.kind import DENIED

FIRST_CLOCK = 49  # of the bench, in which the card takes a beat


@dataclass(frozen=True)
class TrafficPacket:
    """A packet and its place in the traffic.

    Attributes:
        frame: bytes of the packet.
        source: port that it comes from, as a bit of ``tuser``.
        gap: clocks between the packet before it and its first beat.
    """

    frame: Frame
    source: int = 1
    gap: int = 0


@dataclass(frozen=True)
class ExpectedOutcome:
    """The expected outcome of a packet.

    Attributes:
        tenant: index of its owner; None for a packet that names no graph.
        graph: index of the graph that it names.
        data: bytes that leave.
        to: destination ports in ``tuser``; None if they are unchanged.
        dropped: whether the graph's policy drops it.
        denied: whether a packet task drops it, before its branch's network.
    """

    tenant: int | None
    graph: int | None
    data: bytes
    to: int | None = None
    dropped: bool = False
    denied: bool = False


def tasks_of(image: NetfpgaCardImage) -> RunningTasks | None:
    """Return the packet tasks of a card as they start; None if it has none."""
    tasks = [
        PacketTask(name=s.name, task=s.task, entries=image.entries_of(s)) for s in image.stages
    ]
    return RunningTasks(tasks) if tasks else None


def build(
    image: NetfpgaCardImage, graph: CardGraph, field: bytes, rng: np.random.Generator
) -> bytes:
    """Make a request frame of minimum length for a graph."""
    body = bytearray(rng.bytes(image.offset + graph.input_bytes))
    body[:12] = MACS
    address(body, image.carrier, graph.uid)
    if tasks := tasks_of(image):
        head = head_of(bytes(body), image.offset, image.header)
        tasks.aim([s.name for s in image.stages_of(graph.branches[0])], head, rng)
        write_head(body, head, image.offset, image.header)
    body[image.offset :] = field
    return bytes(body)


def named(image: NetfpgaCardImage, packet: TrafficPacket) -> int | None:
    """Return the graph that a packet names; None for no graph, or one that is closed to it."""
    data = packet.frame.data
    uid = uid_of(data, image.carrier)
    for index, graph in enumerate(image.graphs):
        if graph.on and graph.uid == uid and graph.sources & packet.source:
            need = image.offset + graph.input_bytes
            # The ingress judges a packet at the last byte of its input, by that byte's bit in
            # tkeep.
            if len(data) >= need and packet.frame.hole != need - 1:
                return index
    return None


def result_of(model: BinaryModel, words: Words, *, class_only: bool = False) -> FrameResult:
    """Compute a network's result for one packed input."""
    ((_, result),) = results_of(model, words)
    return replace(result, margin=0) if class_only else result


def outcome(
    image: NetfpgaCardImage,
    packet: TrafficPacket,
    results: Sequence[FrameResult] | None = None,
    tasks: RunningTasks | None = None,
) -> ExpectedOutcome:
    """Compute the expected outcome of a packet, and its ``results`` unless they are given.

    Args:
        image: the card.
        packet: the packet.
        results: result of each branch.
        tasks: the card's packet tasks, which have run for the packets before.
    """
    data = packet.frame.data
    index = named(image, packet)
    if index is None:
        return ExpectedOutcome(None, None, data)
    graph = image.graphs[index]
    branch_outputs = branch_results(image, index, packet) if results is None else [*results]
    out = bytearray(data)
    if tasks:
        head = head_of(data, image.offset, image.header)
        for b, branch in enumerate(graph.branches):
            own = head if b == 0 else bytearray(head)
            verdict = tasks.run([stage.name for stage in image.stages_of(branch)], own)
            network = any(image.core_of(leg) for leg in branch)
            if verdict == DENIED or (verdict is not None and not network):
                branch_outputs[b] = FrameResult(0, verdict, 0)
        write_head(out, head, image.offset, image.header)
    answers = joined(graph.join, branch_outputs)
    text = b"".join(r.text for r in answers).ljust(RESULT_BYTES * image.results, b"\0")
    out[image.result_at : image.offset - image.header] = text
    if image.carrier == "udp-port":
        out[40:42] = b"\0\0"
    first = answers[0]
    for rule in graph.rules:
        if rule.is_about(first.verdict, first.margin):
            to = rule.to | rule.copy
            denied = rule.drop and rule.classes == (DENIED,)
            return ExpectedOutcome(graph.tenant, index, bytes(out), to or None, rule.drop, denied)
    return ExpectedOutcome(graph.tenant, index, bytes(out))


def branch_results(image: NetfpgaCardImage, index: int, packet: TrafficPacket) -> list[FrameResult]:
    """Compute the result of each branch of a graph for a packet."""
    graph = image.graphs[index]
    field = packet.frame.data[image.offset : image.offset + graph.input_bytes]
    branch_outputs = []
    for branch in graph.branches:
        if image.stages and not any(image.core_of(leg) for leg in branch):
            branch_outputs.append(FrameResult(0, 0, 0))
        for leg in branch:
            core = image.core_of(leg)
            if core is None:
                continue
            task, model = core
            features = image.has_input(branch)
            words = words_of(model, [field], features=features)
            branch_outputs.append(
                result_of(model, words, class_only=task.outputs == "class" and task.layout is None)
            )
    return branch_outputs


def packet_text(number: int, packet: TrafficPacket, clock: int) -> str:
    """Format a packet for ``n3ic_card_tb.v``, a line for each beat.

    Args:
        number: number of the packet.
        packet: the packet; its gap does not count.
        clock: clock of its first beat.
    """
    frame = packet.frame
    user = len(frame.data) | packet.source << 16
    lines = []
    for beat in range(frame.beats):
        data = frame.data[BEAT * beat : BEAT * beat + BEAT].ljust(BEAT, b"\0")[::-1]
        head = (clock + beat, int(beat == frame.beats - 1), frame.keep(beat), user, number)
        lines.append(" ".join([*(f"{v:08x}" for v in head), data.hex(" ", 4)]) + "\n")
    return "".join(lines)


def packets_text(packets: Sequence[TrafficPacket], clock: int = FIRST_CLOCK) -> str:
    """Format packets from a clock on, with their gaps between them; see :func:`packet_text`."""
    texts = []
    for number, packet in enumerate(packets):
        clock += packet.gap
        texts.append(packet_text(number, packet, clock))
        clock += packet.frame.beats
    return "".join(texts)
