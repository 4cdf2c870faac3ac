# SPDX-License-Identifier: Apache-2.0
"""Sessions of the simulated front end: many, flooded, idle, attacked, and with lost answers."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.frontend import messages as m
from n3ic.exporters.netfpga.frontend import packets as p
from n3ic.exporters.netfpga.frontend.bench import KEY, PORT, FrontBench, front_program
from n3ic.exporters.netfpga.tools.simulator_process import SimulatorProgram
from tests.exporters.netfpga.frontend.tcp_reference import TcpReference, cookie, half_sip_hash
from tests.exporters.netfpga.frontend.test_front_tcp import (
    CARD,
    HOST,
    MODEL,
    RESEND,
    SESSIONS,
    Peer,
    Segment,
    answer,
    message,
    segment,
)

needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="needs Verilator")
LONG = 400_000  # clocks per tick: none passes in a test
GROUP = 64  # peers that ask at once: each answer holds a buffer of 128


class BuiltBench(FrontBench):
    """A bench whose program was built before, and that starts from reset."""

    def __init__(self, program: SimulatorProgram, resend: int, quiet: int = 600) -> None:
        super().__init__(Path(), quiet=quiet)
        words = list(program.command)
        words[5] = f"{resend:x}"
        self.program = replace(program, command=words)

    def _plug_in(self, _: ExitStack) -> SimulatorProgram:
        return self.program


def built(folder: Path, **options: int | str) -> SimulatorProgram:
    given = {"front-end": "tcp", "style": "unrolled", **options}
    for name in ("export", "work"):
        (folder / name).mkdir()
    EXPORTER.write(MODEL, EXPORTER.parse_options(given), folder / "export")
    return front_program(folder / "export", folder / "work", CARD.ip)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> SimulatorProgram:
    return built(tmp_path_factory.mktemp("few"), sessions=SESSIONS)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> SimulatorProgram:
    return built(tmp_path_factory.mktemp("many"), sessions=1024)


@pytest.fixture
def card(few: SimulatorProgram) -> Iterator[FrontBench]:
    """Few sessions, whose ticks are short."""
    with BuiltBench(few, RESEND) as bench:
        yield bench


@pytest.fixture
def still(few: SimulatorProgram) -> Iterator[FrontBench]:
    """The same, whose ticks are so long that no timer ends."""
    with BuiltBench(few, LONG, quiet=900) as bench:
        yield bench


@pytest.fixture
def many(thousand: SimulatorProgram) -> Iterator[FrontBench]:
    with BuiltBench(thousand, 20_000) as bench:
        yield bench


def test_the_hash_is_that_of_its_paper() -> None:
    """The first vectors of the reference implementation: bytes 0, 1, 2 ... under the key 0 to 7."""
    expected = (0x5B9F35A9, 0xB85A4727)
    hashes = tuple(half_sip_hash(bytes(range(8)), bytes(range(n))) for n in range(2))
    assert hashes == expected


def client(index: int) -> p.SocketAddress:
    return replace(HOST, ip=bytes((10, 23, 24 + index // 250, 1 + index % 250)), port=1024 + index)


class Crowd:
    """Many peers that open, ask once and close, all in step."""

    def __init__(self, bench: FrontBench, ends: list[p.SocketAddress]) -> None:
        self.bench, self.ends = bench, ends
        self.at = {end: [77 + 1000 * i, 0] for i, end in enumerate(ends)}
        self.noise: list[bytes] = []

    def step(self, frames: list[bytes]) -> dict[p.SocketAddress, list[Segment]]:
        """Send, with a share of the noise after each frame; what came back, by its receiver."""
        share, sent = len(self.noise) // max(1, len(frames)), []
        for frame in frames:
            sent += [frame, *self.noise[:share]]
            del self.noise[:share]
        segments: dict[p.SocketAddress, list[Segment]] = {end: [] for end in self.ends}
        for left in self.bench.run(sent).left:
            target = p.read_ipv4(left.data).target
            if target in segments:
                segments[target].append(segment(left.data, target))
        return segments

    def frame(self, end: p.SocketAddress, flags: int, data: bytes = b"") -> bytes:
        seq, ack = self.at[end]
        options = p.mss(1460) if flags & p.SYN else b""
        return p.tcp(end, CARD, flags, seq, ack, data, options=options)

    def open(self) -> None:
        for end, segments in self.step([self.frame(end, p.SYN) for end in self.ends]).items():
            (only,) = segments
            assert only.flags == p.SYN | p.ACK
            self.at[end] = [self.at[end][0] + 1, (only.seq + 1) % (1 << 32)]

    def ask(self, data: bytes) -> dict[p.SocketAddress, bytes]:
        """Send the same to each; acknowledge what comes, before the buffers are full."""
        answers: dict[p.SocketAddress, bytes] = {}
        for at in range(0, len(self.ends), GROUP):
            answers |= self._ask(self.ends[at : at + GROUP], data)
        return answers

    def _ask(self, ends: list[p.SocketAddress], data: bytes) -> dict[p.SocketAddress, bytes]:
        replies = self.step([self.frame(end, p.ACK, data) for end in ends])
        answers = {}
        for end in ends:
            segments = replies[end]
            answers[end] = b""
            self.at[end][0] += len(data)
            for one in segments:
                if one.seq == self.at[end][1] % (1 << 32):  # others were sent again
                    answers[end] += one.payload
                    self.at[end][1] += len(one.payload)
            assert segments and segments[-1].ack == self.at[end][0] % (1 << 32)
        self.step([self.frame(end, p.ACK) for end in ends])
        return answers

    def close(self) -> None:
        replies = self.step([self.frame(end, p.ACK | p.FIN) for end in self.ends])
        for end, segments in replies.items():
            assert any(s.flags & p.FIN for s in segments)
            self.at[end] = [self.at[end][0] + 1, self.at[end][1] + 1]
        assert not any(self.step([self.frame(end, p.ACK) for end in self.ends]).values())


@pytest.mark.slow
@needs_verilator
def test_a_thousand_sessions_at_once_keep_apart(many: FrontBench) -> None:
    """1,024 connections, each in the middle of a message; one more is not heard."""
    crowd = Crowd(many, [client(i) for i in range(1024)])
    data = message(1, 2)
    crowd.open()
    beginnings = crowd.ask(data[:29])
    late = Peer(many, 50_000)
    assert late.send(data).left == ()
    rest = crowd.ask(data[29:])
    assert {beginnings[end] + rest[end] for end in crowd.ends} == {answer(1, 2)}
    crowd.close()
    assert late.says(data) == answer(1, 2)
    counters = many.run().counters
    assert (counters["sessions"], counters["full"], counters["evicted"]) == (1025, 2, 0)


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("connections", [1_000, pytest.param(10_000, marks=pytest.mark.exhaustive)])
def test_short_connections_one_after_the_other(many: FrontBench, connections: int) -> None:
    data, wanted = message(2, 1), answer(2, 1)
    for begin in range(0, connections, 500):
        crowd = Crowd(many, [client(i) for i in range(begin, begin + 500)])
        crowd.open()
        assert set(crowd.ask(data).values()) == {wanted}
        crowd.close()
    counters = many.run().counters
    assert (counters["sessions"], counters["full"], counters["evicted"]) == (connections, 0, 0)
    assert (counters["resends"], counters["dropped"], counters["resets"]) == (0, 0, 0)


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("bench", ["card", "many"])
def test_a_flood_of_forged_segments_refuses_nobody(
    bench: str, request: pytest.FixtureRequest
) -> None:
    """50 SYNs and as many acknowledgements of forged hosts for each segment of an honest one."""
    card: FrontBench = request.getfixturevalue(bench)
    rng = np.random.default_rng(5)
    count = 3 if bench == "card" else 40
    for begin in range(0, 3 * count, count):
        crowd = Crowd(card, [client(begin + i) for i in range(count)])
        for action in (crowd.open, lambda c=crowd: c.ask(message(3, 2)), crowd.close):
            for _ in range(50 * count):
                forged = replace(
                    HOST, ip=bytes((172, *rng.bytes(3))), port=int(rng.integers(1, 1 << 16))
                )
                seq, ack = (int(x) for x in rng.integers(0, 1 << 32, 2))
                crowd.noise.append(p.tcp(forged, CARD, p.SYN, seq, options=p.mss(1460)))
                crowd.noise.append(p.tcp(forged, CARD, p.ACK, seq, ack % (1 << 27), b"x"))
            answers = action()
            assert answers is None or set(answers.values()) == {answer(3, 2)}
    counters = card.run().counters
    assert (counters["sessions"], counters["full"], counters["evicted"]) == (3 * count, 0, 0)
    assert counters["cookies"] > 50 * 3 * count


@pytest.mark.slow
@needs_verilator
def test_a_cookie_names_its_peer_and_ends(card: FrontBench) -> None:
    seq, end = 4711, replace(HOST, port=777)
    for mss, size in ((536, 512), (1000, 960), (1300, 1216), (1460, 1408)):
        end = replace(end, port=end.port + 1)
        opening = p.tcp(end, CARD, p.SYN, seq, options=p.mss(mss))
        (syn_ack,) = (segment(x.data, end) for x in card.run([opening, opening]).left[1:])
        assert syn_ack.seq == cookie(KEY, end, PORT, seq, mss)
        # an acknowledgement of any other number, host or size opens nothing
        wrong = [
            (end, seq + 1, syn_ack.seq + 2), (end, seq + 2, syn_ack.seq + 1),
            (end, seq + 1, (syn_ack.seq ^ 1 << 25) + 1),
            (end, seq + 1, syn_ack.seq + 1 + (1 << 31)),
            (replace(end, port=9), seq + 1, syn_ack.seq + 1),
        ]  # fmt: skip
        for who, s, a in wrong:
            (left,) = card.run([p.tcp(who, CARD, p.ACK, s, a)]).left
            assert segment(left.data, who).flags == p.RST
        data, wanted = message(4, 70), answer(4, 70)
        seen = card.run([p.tcp(end, CARD, p.ACK, seq + 1, syn_ack.seq + 1, data)]).left
        parts = [segment(x.data, end).payload for x in seen]
        assert b"".join(parts) == wanted
        assert {len(part) for part in parts[:-1]} == {size}
        card.run([p.tcp(end, CARD, p.RST, seq + 1 + len(data))])
    assert card.run().counters["sessions"] == 4
    card.run(clocks=64 * 5 * RESEND, quiet=64 * 5 * RESEND)
    ended = p.tcp(end, CARD, p.ACK, seq + 1, cookie(KEY, end, PORT, seq, 1460) + 1)
    (left,) = card.run([ended]).left
    assert segment(left.data, end).flags == p.RST
    assert Peer(card, 900).says(message(5, 1)) == answer(5, 1)  # of a later period


@pytest.mark.slow
@needs_verilator
def test_silent_sessions_leave_for_others_only(card: FrontBench) -> None:
    peers = [Peer(card, 100 + i) for i in range(SESSIONS)]
    assert {peer.says(message(6, 1)) for peer in peers} == {answer(6, 1)}
    wait = 20 * RESEND
    card.run(clocks=wait, quiet=wait)
    assert card.run().counters["evicted"] == 0
    assert peers[0].says(message(6, 1)) == answer(6, 1)  # all are silent, and nobody waits
    late = Peer(card, 200)  # its first acknowledgement is not heard, and makes a place
    assert late.says(message(7, 1)) == answer(7, 1)
    counters = card.run().counters
    assert (counters["full"], counters["evicted"]) == (1, 1)
    assert peers[0].says(message(6, 2)) == answer(6, 2)  # the one that was not silent
    flags = Counter(peer.segments(peer.send(b"x"))[0].flags for peer in peers[1:])
    assert flags == {p.RST: 1, p.ACK: 1}


@pytest.mark.slow
@needs_verilator
def test_forged_resets_and_syns_are_challenged(card: FrontBench) -> None:
    """RFC 5961: only the exact number ends a session; at most one answer per tick."""
    peer = Peer(card, 300)
    card.run(clocks=2 * RESEND, quiet=2 * RESEND)
    near, far = (p.tcp(peer.end, CARD, p.RST, peer.seq + n) for n in (9, 1 << 20))
    syn = p.tcp(peer.end, CARD, p.SYN, 99, options=p.mss(1460))
    assert card.run([far]).left == ()
    replies = peer.segments(card.run([near, near, near, syn]))
    assert [(s.flags, s.seq, s.ack) for s in replies] in ([(p.ACK, peer.ack, peer.seq)],) or (
        len(replies) == 2  # a tick passed between them
    )
    card.run(clocks=2 * RESEND, quiet=2 * RESEND)
    (challenge,) = peer.segments(card.run([syn]))
    assert (challenge.flags, challenge.seq, challenge.ack) == (p.ACK, peer.ack, peer.seq)
    assert peer.says(message(8, 3)) == answer(8, 3)
    assert card.run([p.tcp(peer.end, CARD, p.RST, peer.seq)]).left == ()
    assert peer.segments(peer.send(b"x"))[0].flags == p.RST


@pytest.mark.slow
@needs_verilator
def test_an_acknowledgement_of_unsent_data_is_answered(card: FrontBench) -> None:
    peer = Peer(card, 400)
    card.run(clocks=2 * RESEND, quiet=2 * RESEND)
    data = message(9, 1)
    early = p.tcp(peer.end, CARD, p.ACK, peer.seq, peer.ack + 500, data)
    (reply,) = peer.segments(card.run([early]))
    assert (reply.flags, reply.seq, reply.ack) == (p.ACK, peer.ack, peer.seq)  # nothing is taken
    assert peer.says(data) == answer(9, 1)


@pytest.mark.slow
@needs_verilator
def test_a_closed_window_is_probed_by_one_byte_for_as_long_as_it_is_answered(
    card: FrontBench,
) -> None:
    peer, data, wanted = Peer(card, 500), message(10, 5), answer(10, 5)
    asked = p.tcp(peer.end, CARD, p.ACK, peer.seq, peer.ack, data, window=0)
    replies = peer.segments(card.run([asked]))
    assert all(s.payload == b"" for s in replies)
    peer.seq += len(data)
    probes = 0
    for _ in range(16):  # beyond eleven tries
        seen = peer.segments(card.run(clocks=130 * RESEND, quiet=130 * RESEND))
        assert {(s.payload, s.seq) for s in seen} == {(wanted[:1], peer.ack)}
        probes += len(seen)
        full = p.tcp(peer.end, CARD, p.ACK, peer.seq, peer.ack, window=0)
        assert all(s.payload in (b"", wanted[:1]) for s in peer.segments(card.run([full])))
    assert probes >= 16
    opened = p.tcp(peer.end, CARD, p.ACK, peer.seq, peer.ack + 1, window=1000)
    (rest,) = peer.segments(card.run([opened]))
    assert (rest.seq, rest.payload) == (peer.ack, wanted)  # from the first byte on
    peer.ack += len(wanted)
    assert peer.send(b"").left == ()
    assert peer.says(data) == wanted


@pytest.mark.slow
@needs_verilator
def test_lost_results_are_sent_again_before_the_timer(still: FrontBench) -> None:
    """NewReno: the oldest after three duplicates, the next at a partial acknowledgement."""
    peer, data, wanted = Peer(still, 600, mss=536), message(11, 70), answer(11, 70)
    first = [s for s in peer.segments(peer.send(data)) if s.payload]
    peer.seq += len(data)
    assert [len(s.payload) for s in first] == [512, 512, len(wanted) - 1024]
    assert [peer.send(b"").left for _ in range(2)] == [(), ()]
    again = peer.segments(peer.send(b""))  # the third duplicate
    assert [(s.seq, s.payload) for s in again] == [(first[0].seq, first[0].payload)]
    assert [peer.send(b"").left for _ in range(4)] == [()] * 4  # once for a loss
    peer.ack += 512
    again = peer.segments(peer.send(b""))
    assert [(s.seq, s.payload) for s in again] == [(first[1].seq, first[1].payload)]
    peer.ack += len(wanted) - 512
    assert peer.send(b"").left == ()
    assert peer.says(message(12, 1)) == answer(12, 1)
    assert still.run().counters["resends"] == 0


def results_of(stream: bytes) -> bytes:
    """Results of the whole messages of a stream, and of the whole rows of the last one."""
    done, size = b"", m.HEADER.size
    digest = int(MODEL.digest[:8], 16)
    while len(stream) >= size:
        number, rows = (int.from_bytes(stream[a:b], "big") for a, b in ((4, 8), (12, 14)))
        body = stream[size : size + 20 * rows]
        whole = len(body) // 20
        words = np.frombuffer(body[: 20 * whole], np.uint8).reshape(whole, 20)[:, ::-1]
        words = np.ascontiguousarray(words).view("<u4")
        head = m.Message(m.RESULTS, number, digest, rows, m.result_bytes(3), b"").to_bytes()
        done += head + (m.results_body(MODEL, words) if whole else b"")
        stream = stream[size + 20 * rows :]
    return done


@pytest.mark.slow
@needs_verilator
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_any_segments_are_answered_as_by_the_reference(still: FrontBench, seed: int) -> None:
    """Segments near what sessions expect, one at a time, beside a model of TCP in Python."""
    rng = np.random.default_rng(seed)
    reference = TcpReference(KEY, PORT, results_of)
    stream = b"".join(message(int(n), int(rng.integers(1, 9))) for n in range(400))
    ends = [replace(HOST, port=7000 + i) for i in range(SESSIONS)]
    kinds: Counter[int] = Counter()
    for turn in range(700):
        end = ends[int(rng.integers(SESSIONS))]
        own = reference.connections.get(end)
        start = 1 << 20
        seq, ack = (start, 0) if own is None else (own.rcv_nxt, own.snd_nxt)
        usual = [p.ACK, p.ACK | p.PSH, p.FIN | p.ACK, p.RST, int(rng.integers(64))]
        flags = int(rng.choice(usual, p=[0.8, 0.05, 0.04, 0.01, 0.1]))
        data = b""
        if own is None:
            if rng.random() < 0.6:
                flags = int(rng.choice([p.SYN, p.ACK]))
            if flags & p.ACK:
                mss = int(rng.choice([536, 960, 1216, 1460]))
                seq, ack = start + 1, cookie(KEY, end, PORT, start, mss) + 1
        elif rng.random() < 0.6:
            data = stream[len(own.received) :][: int(rng.integers(1, 500))]
        else:
            ack = own.snd_una
        near = [0, 1, -1, 512, -512, 1 << 20, 1 << 31]
        shift = rng.choice(near, 2, p=[0.82, *[0.03] * 6])
        seq, ack = (int(x + y) for x, y in zip((seq, ack), shift, strict=True))
        if own is not None and rng.random() < 0.5:
            ack = own.snd_nxt
        options = p.mss(1460) if flags & p.SYN else b""
        frame = p.tcp(end, CARD, flags, seq, ack, data, options=options, window=60_000)
        expected = reference.segment(end, flags, seq, ack, data, 60_000, 1460)
        seen = [segment(x.data, end) for x in still.run([frame]).left]
        replies = [(s.flags & ~p.PSH, s.seq, s.ack, s.payload) for s in seen]
        assert replies == expected, (turn, end.port, flags, own)
        kinds.update(answer[0] for answer in expected)
    assert all(kinds[k] > 3 for k in (p.SYN | p.ACK, p.ACK, p.RST, p.FIN | p.ACK)), kinds
