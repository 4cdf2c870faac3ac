# SPDX-License-Identifier: Apache-2.0
"""Run every network of a card in its program, with tenants at random and at their limits."""

from __future__ import annotations

import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.p4.interpreter import Switch, SwitchOutcome
from n3ic.exporters.p4.interpreter.tables import Keys
from n3ic.model.bits import Bits
from n3ic.model.difference import first_difference
from n3ic.systems.card.compile import LONGEST_FRAME, SoftwareCard, SoftwareGraph
from n3ic.systems.card.export import CardCheck
from n3ic.systems.card.frames import RequestFrame, hostile, joined, mark, traffic, words_of
from n3ic.systems.card.p4.image import P4CardImage, image_of
from n3ic.systems.card.p4.write import change_files
from n3ic.targets.packets import INGRESS, SCORE_BITS

_CROSSED = INGRESS ^ 1
_SIGN = 1 << (SCORE_BITS - 1)


def switch_of(card: SoftwareCard, source: str, commands: str) -> Switch:
    """Make a switch that runs a card.

    Raises:
        P4Error: The program or an entry would be refused.
    """
    widest = max(n for model in card.networks.values() for n in model.shape)
    switch = Switch(source, field_bits=max(2048, widest))
    switch.load(commands)
    return switch


def verify_card(
    card: SoftwareCard, source: str, commands: str, packets: int, changes: Mapping[str, str]
) -> CardCheck:
    """Compare all bytes, scores and hidden bits of all graphs; see the base class.

    Args:
        card: the card.
        source: program of the card.
        commands: entries of the card.
        packets: packets per graph.
        changes: commands that add and remove graphs, by file name.
    """
    switch = switch_of(card, source, commands)
    image = image_of(card)
    rng = np.random.default_rng(5)
    requests = traffic(card, packets)
    runs: dict[int, list[tuple[RequestFrame, SwitchOutcome]]] = defaultdict(list)
    sent = now = 0
    for number, each in enumerate(requests):
        if rng.random() < 0.2:
            other = hostile(card, each, rng)
            sent += 1
            crossed = switch.process(other, INGRESS, now)
            if (crossed.port, crossed.packet) != (_CROSSED, other):
                raise VerifyError(f"the card: a frame that is no request changed, before {number}")
        sent += 1
        now += refill(card)
        outcome = switch.process(each.frame, INGRESS, now)
        check_packet(card, each, outcome)
        runs[each.graph].append((each, outcome))
    for index in runs:
        _compare(image, runs[index])
    # Reversed, so that each graph keeps its first frame.
    first = {each.graph: each for each in reversed(requests)}
    for index, each in first.items():
        now += refill(card)
        sent += _check_changes(card, switch, card.graphs[index], each, now, changes)
    sent += _check_rates(card, switch, requests, now + refill(card))
    counts = Counter(each.graph for each in requests)
    return CardCheck(
        f"n3ic P4 interpreter, v1model (lark {importlib.metadata.version('lark')})",
        sent,
        sum(len(each.results) for each in requests),
        {g.name: counts[i] for i, g in enumerate(card.graphs)},
    )


def refill(card: SoftwareCard) -> int:
    """Return the microseconds until every tenant's bucket is full."""
    return max(-(-t.burst * 10**6 // t.rate) for t in card.tenants)


def _check_changes(
    card: SoftwareCard,
    switch: Switch,
    graph: SoftwareGraph,
    request: RequestFrame,
    now: int,
    changes: Mapping[str, str],
) -> int:
    """Remove a graph and add it again by its files, and check that nothing answers in between.

    Returns:
        Number of packets sent.

    Raises:
        P4Error: A command of a file would be refused or misread.
        VerifyError: A removed graph answers, or an added graph differs from before.
    """
    come, remove = change_files(graph)
    before = _entries(switch)
    switch.load(changes[remove])
    outcome = switch.process(request.frame, INGRESS, now)
    if any(outcome.packet[card.result_at :][:4]):
        raise VerifyError(f"the card: {graph.name} answers after graphs/{remove}")
    switch.load(changes[come])
    if _entries(switch) != before:
        raise VerifyError(
            f"the card: {graph.name} answers otherwise than before after graphs/{come}"
        )
    return 1


def _entries(switch: Switch) -> dict[str, list[tuple[Keys, str, tuple[int, ...]]]]:
    """Return all entries of a switch, by table."""
    return {
        name: [(entry.keys, entry.does.action, entry.does.data) for entry in table.entries]
        for name, table in switch.tables.items()
    }


def _check_rates(
    card: SoftwareCard, switch: Switch, requests: Sequence[RequestFrame], now: int
) -> int:
    """Let each tenant flood at one moment, and check that only its burst passes.

    Returns:
        Number of packets sent.

    Raises:
        VerifyError: A packet passed above the rate or was dropped below it, or another tenant was
            affected.
    """
    first = {card.graphs[a.graph].tenant: a for a in reversed(requests)}
    sent = 0
    for tenant, mine in first.items():
        now += refill(card)
        tokens = {t: card.tenants[t].burst for t in first}
        long = replace(mine, frame=mine.frame.ljust(LONGEST_FRAME, b"\0"))
        others = [a for t, a in first.items() if t != tenant]
        for number in range(2 + tokens[tenant] // LONGEST_FRAME):
            for each in (long, *others[number : number + 1]):
                sent += 1
                outcome = switch.process(each.frame, INGRESS, now)
                owner = card.graphs[each.graph].tenant
                if len(each.frame) <= tokens[owner]:
                    tokens[owner] -= len(each.frame)
                    check_packet(card, each, outcome)
                elif outcome.port is not None:
                    name = card.tenants[owner].name
                    raise VerifyError(f"the card: a packet of {name} passed above its rate")
    return sent


def check_packet(card: SoftwareCard, request: RequestFrame, outcome: SwitchOutcome) -> None:
    """Compare the packet that left with the expected one.

    Raises:
        VerifyError: The port or the bytes differ.
    """
    graph = card.graphs[request.graph]
    results = joined(graph.join, request.results)
    text = b"".join(r.text for r in results)
    first = results[0]
    rule = next((r for r in graph.rules if r.is_about(first.verdict, first.margin)), None)
    if rule is not None and rule.action == "drop":
        if outcome.port is not None:
            raise VerifyError(f"the card: {graph.name}: a packet left that its policy drops")
        return
    forwards = rule is not None and rule.action == "forward" and rule.value
    port = rule.value if rule is not None and forwards else _CROSSED
    frame = bytearray(request.frame)
    frame[card.result_at : card.offset] = text.ljust(card.offset - card.result_at, b"\0")
    if card.carrier == "udp-port":
        frame[40:42] = bytes(2)
    if rule is not None and rule.action == "mark":
        mark(frame, rule.value)
    if outcome.port != port:
        raise VerifyError(f"the card: {graph.name}: leaves by port {outcome.port}, not {port}")
    if outcome.packet != bytes(frame):
        at = slice(card.result_at, card.offset)
        raise VerifyError(
            f"the card: {graph.name}: answer {outcome.packet[at].hex(' ')}, "
            f"expected {text.hex(' ')}"
        )


def _compare(image: P4CardImage, runs: Sequence[tuple[RequestFrame, SwitchOutcome]]) -> None:
    """Compare scores and hidden bits in the metadata of each pass."""
    card = image.card
    graph = card.graphs[runs[0][0].graph]
    fields = [a.frame[card.offset :][: graph.input_bytes] for a, _ in runs]
    for number, branch in enumerate(graph.branches):
        network = image.place(branch.task)[0].network
        scores = np.array(
            [
                [_signed(o.value(f"metadata.score{c}", number)) for c in range(network.classes)]
                for _, o in runs
            ],
            dtype=np.int32,
        )
        hidden = tuple(
            _bits([o.value(f"metadata.l{y.index}_y", number) for _, o in runs], y.outputs)
            for y in network.layers
            if y.hidden
        )
        inference = branch.model.inference(scores, hidden)
        words = words_of(branch.model, fields, features=branch.features)
        difference = first_difference(branch.model, inference, words)
        if difference is not None:
            raise VerifyError(f"the card: {graph.name}: {branch.task}: {difference}")


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value & _SIGN else value


def _bits(values: Sequence[int], width: int) -> Bits:
    return np.array([[value >> i & 1 for i in range(width)] for value in values], dtype=np.bool_)
