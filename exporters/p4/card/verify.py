"""Runs every network of a card through its program, tenants interleaved at random."""

from __future__ import annotations

import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from n3ic.card.exporting import CardCheck
from n3ic.card.frames import Asked, hostile, traffic, words_of
from n3ic.card.lowering import SoftwareCard
from n3ic.errors import VerifyError
from n3ic.exporters.p4.card.image import Group, groups_of
from n3ic.exporters.p4.interpreter import Outcome, Switch
from n3ic.exporters.p4.run.packets import INGRESS, SCORE_BITS
from n3ic.model.bits import Bits
from n3ic.model.difference import first_difference

_CROSSED = INGRESS ^ 1
_SIGN = 1 << (SCORE_BITS - 1)


def switch_of(card: SoftwareCard, source: str, commands: str) -> Switch:
    """A switch that runs a card.

    Raises:
        P4Error: the program or an entry would be refused.
    """
    widest = max(n for model in card.networks.values() for n in model.shape)
    switch = Switch(source, field_bits=max(2048, widest))
    switch.load(commands)
    return switch


def verify_card(card: SoftwareCard, source: str, commands: str, packets: int) -> CardCheck:
    """Compare all bytes, scores and hidden bits of all graphs; see the base class."""
    switch = switch_of(card, source, commands)
    rng = np.random.default_rng(5)
    asked = traffic(card, packets)
    runs: dict[int, list[tuple[Asked, Outcome]]] = defaultdict(list)
    sent = 0
    for number, each in enumerate(asked):
        if rng.random() < 0.2:
            other = hostile(card, each, rng)
            sent += 1
            seen = switch.process(other, INGRESS)
            if (seen.port, seen.packet) != (_CROSSED, other):
                raise VerifyError(f"the card: a frame that asks nothing changed, before {number}")
        sent += 1
        outcome = switch.process(each.frame, INGRESS)
        check_packet(card, each, outcome)
        runs[each.graph].append((each, outcome))
    for group in groups_of(card):
        for graph in group.graphs:
            _compare(card, group, runs[card.graphs.index(graph)])
    counts = Counter(each.graph for each in asked)
    return CardCheck(
        f"n3ic P4 interpreter, v1model (lark {importlib.metadata.version('lark')})",
        sent,
        len(asked),
        {g.name: counts[i] for i, g in enumerate(card.graphs)},
    )


def check_packet(card: SoftwareCard, asked: Asked, outcome: Outcome) -> None:
    """Compare what left with what must.

    Raises:
        VerifyError: another port, or other bytes.
    """
    graph, result = card.graphs[asked.graph], asked.results[0]
    rule = next((r for r in graph.rules if r.is_about(result.verdict, result.margin)), None)
    if rule is not None and rule.action == "drop":
        if outcome.port is not None:
            raise VerifyError(f"the card: {graph.name}: a packet left that its policy drops")
        return
    port = rule.value if rule is not None and rule.value else _CROSSED
    frame = bytearray(asked.frame)
    frame[card.result_at : card.result_at + len(result.text)] = result.text
    if card.carrier == "udp-port":
        frame[40:42] = bytes(2)
    if outcome.port != port:
        raise VerifyError(f"the card: {graph.name}: leaves by port {outcome.port}, not {port}")
    if outcome.packet != bytes(frame):
        at = slice(card.result_at, card.offset)
        raise VerifyError(
            f"the card: {graph.name}: answer {outcome.packet[at].hex(' ')}, "
            f"expected {result.text.hex(' ')}"
        )


def _compare(card: SoftwareCard, group: Group, runs: Sequence[tuple[Asked, Outcome]]) -> None:
    """Compare scores and hidden bits, which the metadata hold."""
    graph = card.graphs[runs[0][0].graph]
    branch = graph.branches[0]
    fields = [a.frame[card.offset :][: graph.input_bytes] for a, _ in runs]
    scores = np.array(
        [
            [_signed(o.value(f"metadata.score{c}")) for c in range(group.network.classes)]
            for _, o in runs
        ],
        dtype=np.int32,
    )
    hidden = tuple(
        _bits([o.value(f"metadata.l{layer.index}_y") for _, o in runs], layer.outputs)
        for layer in group.network.layers
        if layer.hidden
    )
    seen = branch.model.inference(scores, hidden)
    difference = first_difference(
        branch.model, seen, words_of(branch.model, fields, features=branch.features)
    )
    if difference is not None:
        raise VerifyError(f"the card: {graph.name}: {difference}")


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value & _SIGN else value


def _bits(values: Sequence[int], width: int) -> Bits:
    return np.array([[value >> i & 1 for i in range(width)] for value in values], dtype=np.bool_)
