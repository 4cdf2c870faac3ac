# SPDX-License-Identifier: Apache-2.0
"""Run every network of a card through its library, with tenants interleaved at random."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from n3ic.errors import VerifyError
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.export import CardCheck
from n3ic.systems.card.frames import RequestFrame, hostile, joined, traffic
from n3ic.systems.card.host.library import CallStatus, CardAnswer, CardLibrary, CardLimits, OpenCard
from n3ic.systems.card.tasks.kind import FRAME_HEAD
from n3ic.targets.figures import Figure

_THREADS = (0, 3)  # sequential, and concurrent
_SECOND = 10**9


def shape_of(card: SoftwareCard) -> CardLimits:
    """Return the sizes for which the library is compiled."""
    return CardLimits(
        max(len(g.branches) for g in card.graphs),
        max(sum(len(b.model.classes) for b in g.branches) for g in card.graphs),
        FRAME_HEAD + card.header if card.packet_tasks else 0,
    )


def verify_card(card: SoftwareCard, directory: Path, packets: int) -> CardCheck:
    """Compare scores, joins, actions and order of all graphs' answers; see the base class."""
    library = CardLibrary(directory, shape_of(card))
    requests = traffic(card, packets)
    sent = 0
    began = time.perf_counter()
    for threads in _THREADS:
        sent += _send(card, library.open(threads), requests)
    seconds = time.perf_counter() - began
    counts = [0] * len(card.graphs)
    for each in requests:
        counts[each.graph] += len(_THREADS)
    inferences = sum(n * len(g.branches) for n, g in zip(counts, card.graphs, strict=True))
    figure = Figure(
        "throughput", sent / seconds, "packet/s", "measured", "called from Python, one by one"
    )
    names = {g.name: n for g, n in zip(card.graphs, counts, strict=True)}
    threads_text = f"{library.compiler}, {max(_THREADS)} threads and none"
    return CardCheck(threads_text, sent, inferences, names, (figure,), "scores")


def _send(card: SoftwareCard, running: OpenCard, requests: Sequence[RequestFrame]) -> int:
    """Send all frames with other frames between them; return the number sent."""
    rng = np.random.default_rng(5)
    queues: list[list[int]] = [[] for _ in card.tenants]
    sent = 0
    for number, each in enumerate(requests):
        tenant = card.graphs[each.graph].tenant
        if rng.random() < 0.2:
            sent += 1
            # A cookie that no frame has, so that an answer to this one would be noticed.
            status = running.submit(hostile(card, each, rng), sent * _SECOND, len(requests))
            if status == CallStatus.OK:
                raise VerifyError(
                    f"the card: accepted a frame that is no request, before frame {number}"
                )
        sent += 1
        # Only a full queue refuses a frame, so all others must be admitted.
        status = running.submit(each.frame, sent * _SECOND, number)
        if status == CallStatus.FULL:
            _collect(card, running, requests, queues)
            status = running.submit(each.frame, sent * _SECOND, number)
        if status:
            raise VerifyError(f"the card: frame {number} is refused: {status.name.lower()}")
        queues[tenant].append(number)
    _collect(card, running, requests, queues)
    return sent


def _collect(
    card: SoftwareCard,
    running: OpenCard,
    requests: Sequence[RequestFrame],
    queues: Sequence[list[int]],
) -> None:
    running.wait()
    for tenant, queue in enumerate(queues):
        for number in queue:
            answer = running.next(tenant)
            if answer is None or answer.cookie != number:
                raise VerifyError(f"the card: frame {number} is lost or out of order")
            check_answer(card, requests[number], answer)
        queue.clear()
        if running.next(tenant) is not None:
            raise VerifyError(f"the card: tenant {tenant} has more answers than requests")


def check_answer(card: SoftwareCard, request: RequestFrame, answer: CardAnswer) -> None:
    """Compare an answer with the networks.

    Raises:
        VerifyError: a score, a result or an action differs.
    """
    graph = card.graphs[request.graph]
    scores = tuple(score for branch in request.scores for score in branch)
    expected = joined(graph.join, request.results)
    rule = next(
        (r for r in graph.rules if r.is_about(expected[0].verdict, expected[0].margin)), None
    )
    action = (rule.action, rule.value) if rule else ("forward", 0)
    for what, expected_value, actual in (
        ("graph", request.graph, answer.graph),
        ("scores", scores, answer.scores[: len(scores)]),
        ("results", expected, answer.results),
        ("action", action, (answer.action, answer.value)),
        ("head", request.head, answer.head),
    ):
        if expected_value != actual:
            raise VerifyError(
                f"the card: {graph.name}: {what} {actual!r}, expected {expected_value!r}"
            )
