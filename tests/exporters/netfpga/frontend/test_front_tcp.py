# SPDX-License-Identifier: Apache-2.0
"""TCP of the simulated front end, segment by segment, with odd flags and losses."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import MAC, PORT, BenchRun, FrontBench, OfferedFrame
from n3ic.model.random_models import random_model
from tests.support.pings import echo

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator"),
]
HOST = p.SocketAddress(bytes.fromhex("02aabbccdd01"), bytes((10, 23, 23, 1)), 40_000)
CARD = p.SocketAddress(MAC, bytes((10, 23, 23, 2)), PORT)
BITS = 160  # rows of 20 bytes, as long as their results
SESSIONS = 3
RESEND = 2_000  # clocks
FORMS = {
    "512": {"data-width": "512", "sessions": SESSIONS},
    "64": {"data-width": "64", "sessions": SESSIONS, "bypass": False},
}
MODEL = random_model((BITS, 8, 3), np.random.default_rng(7), extremes=False)


# test_front_udp.py has both widths, of the same path of frames.
@pytest.fixture(scope="module", params=["512", pytest.param("64", marks=pytest.mark.exhaustive)])
def card(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FrontBench]:
    out = tmp_path_factory.mktemp("front")
    options = {"front-end": "tcp", "style": "unrolled", **FORMS[request.param]}
    EXPORTER.write(MODEL, EXPORTER.parse_options(options), out)
    with FrontBench(out, resend=RESEND, quiet=600) as bench:
        yield bench


def words_of(seed: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**32, size=(rows, BITS // 32), dtype=np.uint32)


def message(seed: int, rows: int) -> bytes:
    return m.request(seed, 0, m.bit_rows(words_of(seed, rows), BITS)).to_bytes()


def answer(seed: int, rows: int) -> bytes:
    body = m.results_body(MODEL, words_of(seed, rows))
    size = m.result_bytes(3)
    return m.Message(m.RESULTS, seed, int(MODEL.digest[:8], 16), rows, size, body).to_bytes()


@dataclass
class Segment:
    flags: int
    seq: int
    ack: int
    window: int
    options: bytes
    payload: bytes


def segment(frame: bytes, end: p.SocketAddress = HOST) -> Segment:
    packet = p.read_ipv4(frame)
    assert (packet.protocol, packet.target) == (p.TCP, end)
    head = packet.header
    return Segment(
        head[13], int.from_bytes(head[4:8], "big"), int.from_bytes(head[8:12], "big"),
        int.from_bytes(head[14:16], "big"), head[20:], packet.payload,
    )  # fmt: skip


class Peer:
    """The other end, which says what it is told to."""

    def __init__(self, bench: FrontBench, port: int, mss: int = 1460) -> None:
        self.bench, self.end, self.seq = bench, replace(HOST, port=port), port << 12
        opening = p.tcp(self.end, CARD, p.SYN, self.seq, options=p.mss(mss))
        (syn_ack,) = self.segments(bench.run([opening]))
        assert (syn_ack.flags, syn_ack.ack) == (p.SYN | p.ACK, self.seq + 1)
        assert syn_ack.options[:2] == b"\2\4"
        self.mss = int.from_bytes(syn_ack.options[2:], "big")
        self.seq, self.ack = self.seq + 1, (syn_ack.seq + 1) % (1 << 32)
        self.window = syn_ack.window
        assert self.send(b"").left == ()

    def frame(self, payload: bytes, flags: int = p.ACK, ahead: int = 0) -> bytes:
        return p.tcp(self.end, CARD, flags, self.seq + ahead, self.ack, payload)

    def send(self, payload: bytes, flags: int = p.ACK) -> BenchRun:
        return self.bench.run([self.frame(payload, flags)])

    def segments(self, seen: BenchRun) -> list[Segment]:
        return [segment(x.data, self.end) for x in seen.left]

    def says(self, payload: bytes, flags: int = p.ACK) -> bytes:
        """Send in order and acknowledge what comes back, which is returned."""
        replies = self.segments(self.send(payload, flags))
        self.seq += len(payload) + bool(flags & p.FIN)
        data = b""
        for one in replies:
            if one.payload:
                assert one.seq == self.ack
                self.ack = (self.ack + len(one.payload)) % (1 << 32)
                data += one.payload
        assert replies[-1].ack == self.seq % (1 << 32)
        if data:
            assert self.send(b"").left == ()
        return data

    def close(self) -> None:
        replies = self.segments(self.send(b"", p.FIN | p.ACK))
        assert replies[-1].flags & p.FIN
        assert replies[-1].ack == (self.seq + 1) % (1 << 32)
        self.seq, self.ack = self.seq + 1, (self.ack + 1) % (1 << 32)
        assert self.send(b"").left == ()
        (reset,) = self.segments(self.send(b"too late"))
        assert reset.flags == p.RST


def test_messages_in_one_segment_and_across_them(card: FrontBench) -> None:
    peer = Peer(card, 1000)
    assert peer.mss == 1460
    assert peer.says(message(1, 1)) == answer(1, 1)
    several = [(2, 3), (3, 1), (4, 20)]
    data = b"".join(message(s, n) for s, n in several)
    assert peer.says(data) == b"".join(answer(s, n) for s, n in several)
    answers = b""
    for cut in (1, 2, 15, 16, 17, 35, 36, 37, 63, 64, 65, 100, len(data) - 1):
        answers = peer.says(data[:cut]) + peer.says(data[cut:])
        assert answers == b"".join(answer(s, n) for s, n in several)
    answers = b"".join(peer.says(data[i : i + 1]) for i in range(len(data[:150])))
    assert answers + peer.says(data[150:]) == b"".join(answer(s, n) for s, n in several)
    peer.close()


def test_sessions_keep_apart(card: FrontBench) -> None:
    """Halves of messages, of all sessions in turn, each continued where it was left."""
    peers = [Peer(card, 2000 + i) for i in range(SESSIONS)]
    data = [message(10 + i, 5) for i in range(SESSIONS)]
    answers = [b""] * SESSIONS
    for at in range(0, len(data[0]), 13):
        for i, peer in enumerate(peers):
            answers[i] += peer.says(data[i][at : at + 13])
    assert answers == [answer(10 + i, 5) for i in range(SESSIONS)]
    # one more is not heard, and has room once another is gone
    late = Peer(card, 2999)
    assert late.send(message(20, 2)).left == ()
    peers[0].close()
    for peer in (late, *peers[1:]):
        assert peer.says(message(20, 2)) == answer(20, 2)
        peer.close()


def test_out_of_order_and_again(card: FrontBench) -> None:
    peer = Peer(card, 3000)
    data = message(30, 12)
    (reply,) = peer.segments(card.run([peer.frame(data[100:], ahead=100)]))
    assert (reply.flags, reply.payload, reply.ack) == (p.ACK, b"", peer.seq)
    assert peer.says(data[:100]) != b""
    late = peer.frame(data[:100], ahead=-100)  # a duplicate
    (reply,) = peer.segments(card.run([late]))
    assert (reply.payload, reply.ack) == (b"", peer.seq)
    rest = peer.says(data[100:])
    assert rest.endswith(answer(30, 12)[-20:])
    peer.close()


def test_a_damaged_segment_changes_nothing(card: FrontBench) -> None:
    """Though its rows were in the executor already: results, rest and numbers are undone."""
    peer = Peer(card, 4000)
    data = message(40, 30)
    first = peer.says(data[:77])
    good = peer.frame(data[77:])
    for bad in (
        good[:-1] + bytes((good[-1] ^ 1,)), good[:80] + bytes((good[80] ^ 4,)) + good[81:],
        good[:47] + b"\x11" + good[48:],
    ):  # fmt: skip
        assert card.run([bad]).left == ()
    assert card.run([OfferedFrame(good, damaged=True)]).left == ()
    assert card.run([good[:-20]]).left == ()
    assert first + peer.says(data[77:]) == answer(40, 30)
    peer.close()


def test_results_are_sent_until_they_are_acknowledged(card: FrontBench) -> None:
    peer = Peer(card, 5000)
    data = message(50, 70)
    assert len(data) <= peer.mss
    wanted = answer(50, 70)
    seen = card.run([peer.frame(data)], clocks=9 * RESEND, quiet=9 * RESEND)
    peer.seq += len(data)
    rounds = [s for s in peer.segments(seen) if s.payload]
    assert [s.seq for s in rounds[:2]] == [peer.ack, (peer.ack + 1408) % (1 << 32)]
    assert len(rounds) >= 4  # two segments, at least twice
    assert [s.payload for s in rounds[2:4]] == [s.payload for s in rounds[:2]]
    assert rounds[0].payload + rounds[1].payload == wanted
    peer.ack += 1408  # the first one has come
    seen = card.run([peer.frame(b"")], clocks=9 * RESEND, quiet=9 * RESEND)
    assert {s.seq for s in peer.segments(seen)} == {peer.ack % (1 << 32)}
    peer.ack += len(wanted) - 1408
    assert card.run([peer.frame(b"")], clocks=9 * RESEND, quiet=9 * RESEND).left == ()
    peer.close()


def test_the_window_of_the_other_end_holds_results_back(card: FrontBench) -> None:
    peer = Peer(card, 6000, mss=600)
    data, wanted = message(60, 60), answer(60, 60)
    closed = p.tcp(peer.end, CARD, p.ACK, peer.seq, peer.ack, data, window=700)
    segments = [s for s in peer.segments(card.run([closed])) if s.payload]
    peer.seq += len(data)
    assert [len(s.payload) for s in segments] == [512]  # and it takes 600 bytes at most
    peer.ack += 512
    rest = b"".join(s.payload for s in peer.segments(card.run([peer.frame(b"")])))
    assert segments[0].payload + rest == wanted
    peer.ack += len(rest)
    assert peer.send(b"").left == ()
    peer.close()


def test_the_cards_window_tells_of_its_room(card: FrontBench) -> None:
    """Results that nobody acknowledges fill it; what comes beyond is not taken, and not lost."""
    peer = Peer(card, 7000)
    data = message(70, 72)
    taken, window = 0, peer.window
    assert window >= 4 * 1460
    for _ in range(24):
        replies = peer.segments(card.run([peer.frame(data)]))
        window = replies[-1].window
        if replies[-1].ack == peer.seq % (1 << 32):
            break
        taken += 1
        peer.seq += len(data)
    assert 3 <= taken < 24
    assert window == 0
    (probe,) = peer.segments(card.run([peer.frame(b"", ahead=-1)]))  # as the kernel asks
    assert (probe.payload, probe.ack, probe.window) == (b"", peer.seq % (1 << 32), 0)
    peer.ack += taken * len(answer(70, 72))
    replies = peer.segments(card.run([peer.frame(b"")]))
    assert replies[-1].window >= 4 * 1460  # told, once there is room again
    assert peer.says(data) == answer(70, 72)
    peer.close()


def test_what_is_no_message_ends_the_connection(card: FrontBench) -> None:
    peer = Peer(card, 8000)
    data = message(80, 2)
    replies = peer.segments(peer.send(data + data[:3] + b"\7" + data[4:]))
    text = b"".join(s.payload for s in replies)
    assert text[: len(answer(80, 2))] == answer(80, 2)
    fault = m.read_message(text[len(answer(80, 2)) :])
    assert (fault.kind, fault.fault[0], fault.number) == (m.FAULT, 3, 80)
    assert replies[-1].flags & p.FIN
    peer.seq += 2 * len(data)
    peer.ack += len(text) + 1
    assert peer.send(b"").left == ()
    (last,) = peer.segments(peer.send(data))  # taken, and of no use any more
    assert (last.payload, last.ack) == (b"", peer.seq + len(data))
    peer.seq += len(data)
    replies = peer.segments(peer.send(b"", p.FIN | p.ACK))
    assert all(not s.payload for s in replies)
    assert peer.segments(peer.send(b"x"))[0].flags == p.RST


def strange(end: p.SocketAddress) -> list[bytes]:
    """Segments of nobody and with flags that do not go together; some are answered by a reset."""
    rng = np.random.default_rng(9)
    flags = [f for f in range(64) if f != p.SYN]
    frames = [p.tcp(end, CARD, f, int(rng.integers(0, 1 << 32)), 77, rng.bytes(f)) for f in flags]
    frames += [
        p.tcp(end, CARD, p.SYN, 1), p.tcp(end, CARD, p.SYN, 1, options=p.mss(0)),
        p.tcp(end, CARD, p.SYN, 1, options=p.mss(100)),  # less than the card's least segment
        p.tcp(end, replace(CARD, port=9), p.SYN, 1, options=p.mss(1460)),
        p.tcp(replace(CARD, port=PORT), CARD, p.SYN, 1, options=p.mss(1460)),  # land
        p.tcp(replace(end, port=0), CARD, p.SYN, 1),
    ]  # fmt: skip
    short = p.tcp(end, CARD, p.ACK, 1)
    for words in (0, 4, 6, 15):  # headers that say another length
        frames.append(short[:46] + bytes((words << 4,)) + short[47:])
    return frames


def test_strange_segments_open_and_stop_nothing(card: FrontBench) -> None:
    peer = Peer(card, 9000)
    frames = [*strange(replace(HOST, port=9001)), *strange(peer.end)]
    own = peer.end.port.to_bytes(2, "big")
    frames = [f for f in frames if not f[47] & p.RST or f[34:36] != own]
    seen = card.run(frames)
    for left in seen.left:
        packet = p.read_ipv4(left.data)
        assert packet.header[13] in (p.RST, p.RST | p.ACK, p.ACK, p.SYN | p.ACK)
        assert packet.payload == b""
    card.run(clocks=450 * RESEND, quiet=450 * RESEND)  # half-open connections are forgotten
    assert peer.says(message(90, 4)) == answer(90, 4)
    peer.close()
    # so that a flood of them ends by itself
    flood = [
        p.tcp(replace(HOST, port=100 + i), CARD, p.SYN, i, options=p.mss(1460)) for i in range(20)
    ]
    card.run(flood)
    card.run(clocks=450 * RESEND, quiet=450 * RESEND)
    peer = Peer(card, 9002)
    assert peer.says(message(91, 4)) == answer(91, 4)
    peer.close()


def test_nothing_with_sound_checksums_wedges_it(card: FrontBench) -> None:
    """Segments and datagrams of anything, near what sessions expect: good ones still work after."""
    rng = np.random.default_rng(11)
    peers = [Peer(card, 9100 + i) for i in range(SESSIONS)]
    data = message(98, 9)
    frames = []
    for _ in range(600):
        peer = peers[int(rng.integers(SESSIONS))]
        near = rng.choice([0, 0, 1, -1, 1460, -1460, 1 << 20, 1 << 31], 2)
        flags = int(rng.choice([p.ACK, p.ACK, p.ACK | p.PSH, p.FIN | p.ACK, int(rng.integers(64))]))
        payload = bytearray(data[: int(rng.integers(len(data) + 1))])
        if payload and rng.random() < 0.3:
            payload[int(rng.integers(len(payload)))] ^= 1 << int(rng.integers(8))
        frames.append(
            p.tcp(
                peer.end,
                CARD,
                flags,
                peer.seq + int(near[0]),
                peer.ack + int(near[1]),
                bytes(payload),
                window=int(rng.choice([0, 1, 600, 65535])),
            )
        )
        frames.append(p.udp(HOST, CARD, bytes(payload)))
        if rng.random() < 0.7 and flags == p.ACK and not near[0]:
            peer.seq += len(payload)
    seen = card.run([OfferedFrame(f, damaged=bool(rng.random() < 0.1)) for f in frames])
    for left in seen.left:
        p.read_ipv4(left.data)  # sound, whatever was asked
    good = p.udp(HOST, CARD, data)
    (left,) = [x for x in card.run([good]).left if p.read_ipv4(x.data).protocol == p.UDP]
    assert p.read_ipv4(left.data).payload == answer(98, 9)
    card.run(clocks=1100 * RESEND, quiet=1100 * RESEND)  # all sessions are forgotten
    peer = Peer(card, 9200)
    assert peer.says(data) == answer(98, 9)
    peer.close()


def test_pings_and_datagrams_between_segments(card: FrontBench) -> None:
    peer = Peer(card, 9900)
    data = message(95, 7)
    frames = [
        peer.frame(data), p.udp(HOST, CARD, data), echo(HOST, CARD, bytes(99)),
        p.udp(HOST, CARD, data),
    ]  # fmt: skip
    seen = card.run(frames)
    kinds = [p.read_ipv4(x.data) for x in seen.left]
    assert [k.payload for k in kinds if k.protocol == p.UDP] == [answer(95, 7)] * 2
    assert [k.payload for k in kinds if k.protocol == p.ICMP] == [bytes(99)]
    assert b"".join(k.payload for k in kinds if k.protocol == p.TCP) == answer(95, 7)
    peer.seq += len(data)
    peer.ack += len(answer(95, 7))
    assert peer.send(b"").left == ()
    peer.close()
