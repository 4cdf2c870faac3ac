# SPDX-License-Identifier: Apache-2.0
"""Measures goodput and latency of a simulated front end, and the limit of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.frontend import packets
from n3ic.exporters.netfpga.frontend.bench import FrontBench, OfferedFrame
from n3ic.exporters.netfpga.frontend.messages import bit_rows, read_message, request, results_body
from n3ic.exporters.netfpga.frontend.verify import CARD, HOST
from n3ic.model.classifier import Classifier

WIRE_BYTES = 24  # per frame: preamble 8, frame check sequence 4, gap 12
FRAMES = 200


@dataclass(frozen=True)
class Rate:
    """Rates at one payload size, with frames back to back on the wire.

    Attributes:
        payload: bytes of a datagram's payload.
        rows: rows of a datagram.
        limit: payload rate that the wire allows, in Gb/s.
        goodput: payload rate that the card accepted, in Gb/s.
        answered: payload rate that the card sent back, in Gb/s.
        stalls: clocks in which the card made a beat wait.
        latency: clocks from first beat in to first beat out, for a lone datagram.
        clocks: clocks of the whole run.
    """

    payload: int
    rows: int
    limit: float
    goodput: float
    answered: float
    stalls: int
    latency: int
    clocks: int


def wire_clocks(frames: Sequence[bytes], gbps: float, mhz: float) -> list[int]:
    """First clock of each frame, for frames back to back on a wire."""
    per_clock = gbps * 1e3 / 8 / mhz
    bytes_before = np.cumsum([0, *(max(60, len(f)) + WIRE_BYTES for f in frames[:-1])])
    return [int(np.ceil(b / per_clock)) for b in bytes_before]


def measure(
    bench: FrontBench,
    model: Classifier,
    row_counts: Sequence[int],
    *,
    gbps: float = 100.0,
    mhz: float = 250.0,
    full: bool = True,
) -> list[Rate]:
    """Send datagrams with each number of rows, back to back at the wire's rate.

    Args:
        bench: running front end of the model.
        model: the model, whose rows are input bits.
        row_counts: numbers of rows per datagram to measure.
        gbps: rate of the wire, in Gb/s.
        mhz: clock of the card, in MHz.
        full: whether the card answers with scores.

    Raises:
        VerifyError: An answer is missing or differs from the model's.
    """
    rng = np.random.default_rng(1)
    rates = []
    for rows in row_counts:
        bits = rng.random((rows, model.input.n_bits)) < 0.5
        words = np.packbits(bits, axis=1, bitorder="little")
        words = np.pad(words, ((0, 0), (0, -words.shape[1] % 4))).view("<u4")
        data = request(1, 0, bit_rows(words, model.input.n_bits)).to_bytes()
        frame = packets.udp(HOST, CARD, data)
        alone = bench.run([frame])
        start = alone.clock
        clocks = wire_clocks([frame] * FRAMES, gbps, mhz)
        answer = bench.run([OfferedFrame(frame, start + c) for c in clocks])
        expected = results_body(model, words, full=full)
        bodies = {read_message(packets.read_ipv4(x.data).payload).body for x in answer.left}
        if len(answer.left) != FRAMES or bodies != {expected}:
            raise VerifyError(f"datagrams of {rows} rows: {len(answer.left)} of {FRAMES} answered")
        span = answer.taken[-1].first - answer.taken[0].first
        back = answer.left[-1].first - answer.left[0].first
        rate = 8 * mhz * (FRAMES - 1) / 1e3  # Gb/s for one byte per frame and clock
        rates.append(
            Rate(
                payload=len(data),
                rows=rows,
                limit=gbps * len(data) / (max(60, len(frame)) + WIRE_BYTES),
                goodput=rate * len(data) / span,
                answered=rate * (16 + len(expected)) / back,
                stalls=sum(t.stalls for t in answer.taken),
                latency=alone.left[0].first - alone.taken[0].first,
                clocks=answer.clock - start,
            )
        )
    return rates


def tcp_latency(bench: FrontBench, model: Classifier, rows: int) -> int:
    """Clocks from a TCP segment's first beat in to the first beat of its results out.

    Raises:
        VerifyError: No connection opens, or the answer differs from the model's.
    """
    words = np.zeros((rows, model.input.n_words), dtype=np.uint32)
    data = request(1, 0, bit_rows(words, model.input.n_bits)).to_bytes()
    syn = packets.tcp(HOST, CARD, packets.SYN, 1, options=packets.mss(1460))
    answers = bench.run([syn]).left
    if not answers:
        raise VerifyError("the front end opens no TCP connection")
    ack = int.from_bytes(packets.read_ipv4(answers[0].data).header[4:8], "big") + 1
    answer = bench.run([packets.tcp(HOST, CARD, packets.ACK, 2, ack, data)], clocks=4000)
    results = [x for x in answer.left if packets.read_ipv4(x.data).payload]
    payload = b"".join(packets.read_ipv4(x.data).payload for x in results)
    if not results or not payload.endswith(results_body(model, words)):
        raise VerifyError("the front end's results over TCP are not the model's")
    bench.run([packets.tcp(HOST, CARD, packets.RST, 2 + len(data))])
    return results[0].first - answer.taken[0].first
