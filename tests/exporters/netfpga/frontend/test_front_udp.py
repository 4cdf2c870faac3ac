# SPDX-License-Identifier: Apache-2.0
"""Frames of all kinds into the simulated front end: what it answers, and what it does not."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import MAC, PORT, FrontBench, OfferedFrame
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from tests.support.pings import echo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator"),
]
HOST = p.SocketAddress(bytes.fromhex("02aabbccdd01"), bytes((10, 23, 23, 1)), 40_000)
CARD = p.SocketAddress(MAC, bytes((10, 23, 23, 2)), PORT)
BITS = 41  # rows of six bytes, the first of them nearly empty
FORMS = {
    "512-unrolled": {"style": "unrolled", "data-width": "512", "executors": 2},
    "64-sequential": {"style": "sequential", "data-width": "64", "bypass": False},
}


def model_of(form: str) -> BinaryModel:
    made = random_model((BITS, 8, 4, 3), np.random.default_rng(13), extremes=False)
    return made.with_shunt(1) if form == "512-unrolled" else made


def words_of(rng: np.random.Generator, rows: int) -> np.ndarray:
    words = rng.integers(0, 2**32, size=(rows, 2), dtype=np.uint32)
    words[:, 1] &= (1 << (BITS - 32)) - 1
    return words


@pytest.fixture(scope="module", params=FORMS)
def card(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FrontBench, BinaryModel]]:
    model = model_of(request.param)
    out = tmp_path_factory.mktemp("front")
    EXPORTER.write(model, EXPORTER.parse_options({"front-end": "udp", **FORMS[request.param]}), out)
    with FrontBench(out, quiet=600) as bench:
        yield bench, model


def asked(
    model: BinaryModel, words: np.ndarray, number: int = 7, end: p.SocketAddress = HOST
) -> bytes:
    rows = m.bit_rows(words, BITS)
    return p.udp(end, CARD, m.request(number, int(model.digest[:8], 16), rows).to_bytes())


def arp(source: p.SocketAddress, target_ip: bytes) -> bytes:
    """An ARP request."""
    head = struct.pack(">HHBBH", 1, p.IPV4, 6, 4, 1)
    body = head + source.mac + source.ip + bytes(6) + target_ip
    return (b"\xff" * 6 + source.mac + struct.pack(">H", p.ARP) + body).ljust(p.LEAST_FRAME, b"\0")


def answer(frame: bytes, end: p.SocketAddress = HOST) -> m.Message:
    packet = p.read_ipv4(frame)
    assert packet.source == CARD
    assert packet.target == end
    return m.read_message(packet.payload)


def answers_still(bench: FrontBench, model: BinaryModel, rng: np.random.Generator) -> None:
    words = words_of(rng, 5)
    left = bench.run([asked(model, words, 99)]).left
    assert [answer(x.data).body for x in left] == [m.results_body(model, words)]


def test_results_are_the_models(card: tuple[FrontBench, BinaryModel]) -> None:
    bench, model = card
    rng = np.random.default_rng(1)
    sent, frames = [], []
    for i, rows in enumerate((1, 2, 3, 5, 8, 13, 21, 34, 55, 60, 1, 71)):
        end = replace(HOST, port=1000 + i, ip=bytes((10, 23, 23, 100 + i)))
        sent.append((end, i << 24 | i, words_of(rng, rows)))
        frames.append(asked(model, sent[-1][2], sent[-1][1], end))
    seen = bench.run(frames)
    assert len(seen.left) == len(sent)
    verdicts = []
    for left, (end, number, words) in zip(seen.left, sent, strict=True):
        reply = answer(left.data, end)
        assert (reply.kind, reply.number) == (m.RESULTS, number)
        assert reply.model == int(model.digest[:8], 16)
        assert reply.rows == len(words)
        assert reply.body == m.results_body(model, words)
        verdicts += m.read_results(reply, 3).verdicts.tolist()
    assert len(set(verdicts)) > 2  # shunted ones among them where the model shunts


def test_an_input_row_is_read_in_the_bit_order_of_the_packets(
    card: tuple[FrontBench, BinaryModel],
) -> None:
    bench, model = card
    words = np.zeros((BITS, 2), dtype=np.uint32)
    for bit in range(BITS):
        words[bit, bit // 32] = 1 << bit % 32
    assert m.bit_rows(words, BITS)[0].tolist() == [0, 0, 0, 0, 0, 1]
    (left,) = bench.run([asked(model, words)]).left
    assert answer(left.data).body == m.results_body(model, words)


def test_arp_and_ping(card: tuple[FrontBench, BinaryModel]) -> None:
    bench, _ = card
    (left,) = bench.run([arp(HOST, CARD.ip)]).left
    body = b"\0\1\x08\0\6\4\0\2" + CARD.mac + CARD.ip + HOST.mac + HOST.ip
    assert left.data == (HOST.mac + CARD.mac + b"\x08\x06" + body).ljust(60, b"\0")
    for size in (0, 1, 17, 18, 19, 50, 56, 57, 64, 121, 500, 1471, 1472):
        payload = np.random.default_rng(size).bytes(size)
        (left,) = bench.run([echo(HOST, CARD, payload, number=size)]).left
        packet = p.read_ipv4(left.data)
        assert packet.header[:2] == b"\0\0"
        assert packet.header[4:] == b"\x4e\x33" + size.to_bytes(2, "big")
        assert packet.payload == payload


def faults(model: BinaryModel) -> list[tuple[int, bytes]]:
    """Payloads of datagrams that are answered by an error, and its code."""
    good = m.request(
        3, int(model.digest[:8], 16), m.bit_rows(words_of(np.random.default_rng(2), 2), BITS)
    )
    data = good.to_bytes()
    return [
        (1, b""), (1, b"hello"), (1, data[:15]), (2, b"hello, is there anybody out there?"),
        (3, data[:2] + b"\2" + data[3:]), (4, replace(good, model=good.model ^ 1).to_bytes()),
        (5, replace(good, size=7, body=bytes(14)).to_bytes()),
        (6, replace(good, rows=0, body=b"").to_bytes()),
        (6, replace(good, rows=73, body=bytes(6 * 73)).to_bytes()),
        (7, data[:-1]), (7, data + b"\0"), (7, replace(good, rows=60).to_bytes()),
    ]  # fmt: skip


def test_errors_are_answered(card: tuple[FrontBench, BinaryModel]) -> None:
    bench, model = card
    rng = np.random.default_rng(3)
    for code, payload in faults(model):
        if code == 4 and bench.directory.joinpath("mem").is_dir():
            continue  # models are written into this executor: its results name the one that it has
        (left,) = bench.run([p.udp(HOST, CARD, payload)]).left
        reply = answer(left.data)
        assert reply.kind == m.FAULT
        assert reply.fault == (code, (1500 - 28 - 16) // m.result_bytes(3))
        assert reply.size == 6
        assert reply.number == (0 if code in (1, 2) else 3)
        assert reply.model == int(model.digest[:8], 16)
        answers_still(bench, model, rng)


def hostile(model: BinaryModel) -> list[bytes]:
    """Frames that are answered by nothing."""
    rng = np.random.default_rng(4)
    good = asked(model, words_of(rng, 3))
    ping = echo(HOST, CARD, bytes(40))
    message = good[42:]

    def with_ip(frame: bytes, at: int, value: bytes) -> bytes:
        """With other bytes in the IPv4 header, whose checksum is made to hold."""
        changed = frame[:at] + value + frame[at + len(value) :]
        head = changed[14:24] + b"\0\0" + changed[26:34]
        return changed[:24] + p.checksum(head).to_bytes(2, "big") + changed[26:]

    def flipped(frame: bytes, at: int) -> bytes:
        return frame[:at] + bytes((frame[at] ^ 0x10,)) + frame[at + 1 :]

    frames = [
        flipped(good, 0),  # another's MAC
        flipped(good, 24), flipped(good, 40), flipped(good, 50), flipped(good, len(good) - 1),
        flipped(ping, 36), flipped(ping, 60),
        with_ip(good, 16, b"\x05\xdd"),  # longer than a packet may be
        with_ip(good, 16, b"\xff\xff"), with_ip(good, 16, b"\0\0"), with_ip(good, 16, b"\0\x1b"),
        with_ip(good, 16, (len(good) - 14 + 1).to_bytes(2, "big")),  # longer than its frame
        with_ip(good, 16, (len(good) - 14 - 1).to_bytes(2, "big")),  # than its datagram
        with_ip(good, 20, b"\x20\0"), with_ip(good, 20, b"\0\1"),  # fragments
        with_ip(good, 14, b"\x46"), with_ip(good, 14, b"\x65"), with_ip(good, 14, b"\x44"),
        with_ip(good, 23, b"\x2f"),
        with_ip(good, 30, bytes((10, 23, 23, 3))),  # another's address
        with_ip(good, 26, CARD.ip),  # land: from itself
        p.udp(replace(CARD, port=CARD.port), CARD, message),
        p.udp(replace(HOST, ip=bytes(4)), CARD, message),
        p.udp(replace(HOST, ip=b"\xff" * 4), CARD, message),
        p.udp(replace(HOST, ip=bytes((127, 0, 0, 1))), CARD, message),
        p.udp(replace(HOST, ip=bytes((224, 0, 0, 1))), CARD, message),
        p.udp(replace(HOST, mac=b"\xff" * 6), CARD, message),
        p.udp(replace(HOST, port=0), CARD, message), p.udp(HOST, replace(CARD, port=9), message),
        # an answer is never answered, so that two cards cannot talk to each other for ever
        p.udp(HOST, CARD, message[:3] + b"\1" + message[4:]),
        p.udp(HOST, CARD, message[:3] + b"\2" + message[4:]),
        arp(HOST, HOST.ip), arp(HOST, CARD.ip)[:21] + b"\2" + arp(HOST, CARD.ip)[22:],
        bytes(60), b"\xff" * 60, b"\xff" * 1514, good[:30], good[:56], ping[:41],
        *(good[:n] for n in (60, 63, 64, 65, 72, len(good) - 1)),
    ]  # fmt: skip
    frames += [rng.bytes(int(n)) for n in rng.integers(1, 2000, 60)]
    for _ in range(60):  # for the card, but for one byte or for its end
        at = int(rng.integers(14, len(good)))
        frames.append(good[:at] + bytes((good[at] ^ int(rng.integers(1, 256)),)) + good[at + 1 :])
    udp_unsummed = [f for f in frames if f[40:42] == b"\0\0"]  # 0 means that there is none
    return [f for f in frames if f not in udp_unsummed]


def test_nothing_hostile_is_answered_or_stops_it(card: tuple[FrontBench, BinaryModel]) -> None:
    bench, model = card
    rng = np.random.default_rng(6)
    before = bench.run().counters
    frames = hostile(model)
    for frame in frames[:45]:
        assert bench.run([frame]).left == (), frame.hex()
    answers_still(bench, model, rng)
    seen = bench.run([*frames, OfferedFrame(asked(model, words_of(rng, 9)), damaged=True)])
    assert seen.left == ()
    answers_still(bench, model, rng)
    for name in ("other", "header", "fragment", "source", "damaged"):
        assert seen.counters[name] > before[name], name
    words = [words_of(rng, 4) for _ in frames]
    mixed = [x for f, w in zip(frames, words, strict=True) for x in (f, asked(model, w))]
    bodies = [answer(x.data).body for x in bench.run(mixed).left]
    assert bodies == [m.results_body(model, w) for w in words]


def test_padding_and_a_datagram_without_checksum(card: tuple[FrontBench, BinaryModel]) -> None:
    bench, model = card
    words = words_of(np.random.default_rng(8), 2)
    data = m.request(1, 0, m.bit_rows(words, BITS)).to_bytes()
    frames = [p.udp(HOST, CARD, data, summed=False), p.udp(HOST, CARD, data) + b"\xa5" * 400]
    for left in bench.run(frames).left:
        assert answer(left.data).body == m.results_body(model, words)
    assert len(bench.run(frames).left) == 2


def test_a_far_end_that_takes_nothing(card: tuple[FrontBench, BinaryModel]) -> None:
    """The queues fill, frames wait at the input, and nothing is lost."""
    bench, model = card
    rng = np.random.default_rng(9)
    words = [words_of(rng, 60) for _ in range(60)]
    bench._say("h 30000")  # the receiver takes nothing for so many clocks
    seen = bench.run([asked(model, w, i) for i, w in enumerate(words)])
    assert sum(t.stalls for t in seen.taken) > 1000
    replies = [answer(x.data) for x in seen.left]
    assert [f.number for f in replies] == list(range(60))
    assert [f.body for f in replies] == [m.results_body(model, w) for w in words]
