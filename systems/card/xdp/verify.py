# SPDX-License-Identifier: Apache-2.0
"""Run every network of a card in its program in the kernel, with tenants at random."""

from __future__ import annotations

import platform
from collections import Counter
from pathlib import Path

import numpy as np

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.xdp.libbpf import BpfError, TestRun, VerifierError
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.export import CardCheck
from n3ic.systems.card.frames import RequestFrame, hostile, joined, mark, traffic
from n3ic.systems.card.xdp.image import XdpCardImage, tenant_value
from n3ic.systems.card.xdp.program import DROP, PASS, REDIRECT, TX, CardProgram, one_cpu
from n3ic.targets.figures import Figure

_OPEN = 1 << 40  # bytes per second, so that nothing is throttled
_ANY = "lo"
_SHORTEST = 14  # minimum bytes of a frame for a test run


def verify_card(image: XdpCardImage, directory: Path, packets: int) -> CardCheck:
    """Compare bytes, scores and actions of all graphs; see the base class."""
    card = image.card
    try:
        with CardProgram(directory) as program, one_cpu() as cpu:
            for index in range(len(card.tenants)):
                program.set_tenant(index, tenant_value(_OPEN, _OPEN))
            for port in image.ports:
                program.set_port(port, _ANY)  # a run without an interface sends nothing there
            return _run(image, program, cpu, packets)
    except VerifierError as error:
        raise VerifyError(str(error)) from error
    except BpfError as error:
        raise MissingDependencyError(str(error)) from error


def _run(image: XdpCardImage, program: CardProgram, cpu: int, packets: int) -> CardCheck:
    card = image.card
    rng = np.random.default_rng(5)
    requests = traffic(card, packets)
    sent = 0
    for each in requests:
        if rng.random() < 0.2:
            other = hostile(card, each, rng)
            if len(other) >= _SHORTEST:
                sent += 1
                test_run = program.send(other)
                if test_run.result not in (PASS, DROP) or test_run.data != other:
                    raise VerifyError("the card: a frame that is no request was answered")
        sent += 1
        test_run = program.send(each.frame)
        check_frame(card, each, test_run)
        scores = program.scores(cpu, [len(s) for s in each.scores], image.structure.classes)
        if scores != each.scores:
            name = card.graphs[each.graph].name
            raise VerifyError(f"the card: {name}: scores {scores}, expected {each.scores}")
    counts = Counter(each.graph for each in requests)
    source = f"verifier of Linux {platform.release()}"
    figures = tuple(
        Figure(name, value, "instruction", "measured", source)
        for name, value in (
            ("instructions", program.program.instructions),
            ("verified", program.program.verified),
        )
    )
    names = {g.name: counts[i] for i, g in enumerate(card.graphs)}
    executor = f"BPF_PROG_TEST_RUN on Linux {platform.release()}"
    inferences = sum(len(each.scores) for each in requests)
    return CardCheck(executor, sent, inferences, names, figures, "scores")


def check_frame(card: SoftwareCard, request: RequestFrame, test_run: TestRun) -> None:
    """Compare the frame that left with the expected one.

    Raises:
        VerifyError: The action or the bytes differ.
    """
    action, frame = leaving(card, request)
    if test_run.result != action or test_run.data != frame:
        at = slice(card.result_at, card.offset)
        raise VerifyError(
            f"the card: {card.graphs[request.graph].name}: action {test_run.result} and "
            f"{test_run.data[at].hex(' ')}, expected {action} and {frame[at].hex(' ')}"
        )


def leaving(card: SoftwareCard, request: RequestFrame) -> tuple[int, bytes]:
    """Return the expected action for a frame, and its expected bytes."""
    graph = card.graphs[request.graph]
    results = joined(graph.join, request.results)
    first = results[0]
    rule = next((r for r in graph.rules if r.is_about(first.verdict, first.margin)), None)
    if rule is not None and rule.action == "drop":
        return DROP, request.frame
    text = b"".join(r.text for r in results)
    frame = bytearray(request.frame)
    frame[card.result_at : card.offset] = text.ljust(card.offset - card.result_at, b"\0")
    if card.carrier == "udp-port":
        # The payload has changed, and a UDP checksum of 0 means none (RFC 768).
        frame[40:42] = bytes(2)
    if rule is not None and rule.action == "forward" and rule.value:
        return REDIRECT, bytes(frame)
    frame[:12] = frame[6:12] + frame[:6]
    if card.carrier == "udp-port":
        frame[26:34] = frame[30:34] + frame[26:30]
        frame[34:38] = frame[36:38] + frame[34:36]
    if rule is not None and rule.action == "mark":
        mark(frame, rule.value)
    return TX, bytes(frame)
