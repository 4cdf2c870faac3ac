# SPDX-License-Identifier: Apache-2.0
"""What the front end's TCP answers to a segment, written from the RFCs and not from its Verilog.

Time does not pass in it: nothing is sent again after a time, and no connection is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from n3ic.exporters.netfpga.frontend import packets as p

RANGE = 1 << 32
# Least MSS of the peer, and bytes of results in a segment.
SIZES = ((1408, 1408), (1216, 1216), (960, 960), (536, 512))
Answer = tuple[int, int, int, bytes]  # flags, sequence and acknowledgement number, payload


def half_sip_hash(key: bytes, text: bytes) -> int:
    """HalfSipHash-2-4 with 32 bits of output (Aumasson and Bernstein)."""

    def rotated(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) % RANGE

    def scrambled(v: list[int], rounds: int) -> None:
        for _ in range(rounds):
            v[0] = (v[0] + v[1]) % RANGE
            v[1] = rotated(v[1], 5) ^ v[0]
            v[0] = rotated(v[0], 16)
            v[2] = (v[2] + v[3]) % RANGE
            v[3] = rotated(v[3], 8) ^ v[2]
            v[0] = (v[0] + v[3]) % RANGE
            v[3] = rotated(v[3], 7) ^ v[0]
            v[2] = (v[2] + v[1]) % RANGE
            v[1] = rotated(v[1], 13) ^ v[2]
            v[2] = rotated(v[2], 16)

    low, high = int.from_bytes(key[:4], "little"), int.from_bytes(key[4:], "little")
    v = [low, high, 0x6C796765 ^ low, 0x74656462 ^ high]
    text = text + bytes(-(len(text) + 1) % 4) + bytes((len(text) % 256,))
    for at in range(0, len(text), 4):
        word = int.from_bytes(text[at : at + 4], "little")
        v[3] ^= word
        scrambled(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    scrambled(v, 4)
    return v[1] ^ v[3]


def mss_class(mss: int) -> int:
    """Which of four sizes of results fits the peer's MSS; 0 is the least."""
    return 3 - next(i for i, (least, _) in enumerate(SIZES) if mss >= least)


def cookie(key: int, peer: p.SocketAddress, port: int, seq: int, mss: int, period: int = 0) -> int:
    """The sequence number that answers a SYN."""
    size = mss_class(mss)
    words = (
        int.from_bytes(peer.ip, "big"), peer.port << 16 | port, seq % RANGE, period << 2 | size,
    )  # fmt: skip
    text = b"".join(w.to_bytes(4, "little") for w in words)
    mixed = half_sip_hash(key.to_bytes(8, "little"), text)
    return period % 32 << 27 | size << 25 | mixed % (1 << 25)


@dataclass
class Connection:
    """One connection; numbers modulo 2^32."""

    rcv_nxt: int
    snd_una: int
    snd_nxt: int
    size: int  # bytes of results in a segment
    window: int
    received: bytes = b""
    unacknowledged: list[tuple[int, bytes]] = field(default_factory=list)  # number, data
    is_challenged: bool = False
    peer_ended: bool = False
    ended: bool = False
    duplicates: int = 0
    recover: int | None = None


class TcpReference:
    """Connections by the peer's address; `answers` maps a stream's bytes to those of results."""

    def __init__(self, key: int, port: int, answers: Callable[[bytes], bytes]) -> None:
        self.key, self.port, self.answers = key, port, answers
        self.connections: dict[p.SocketAddress, Connection] = {}

    def segment(
        self, peer: p.SocketAddress, flags: int, seq: int, ack: int, data: bytes,
        window: int, mss: int,
    ) -> list[Answer]:  # fmt: skip
        """Answer a segment."""
        seq, ack = seq % RANGE, ack % RANGE
        flags &= p.FIN | p.SYN | p.RST | p.ACK
        own = self.connections.get(peer)
        plain = flags & p.ACK and not flags & (p.SYN | p.RST)
        if own is None and flags == p.SYN and mss >= 536:
            number = cookie(self.key, peer, self.port, seq, mss)
            return [(p.SYN | p.ACK, number, (seq + 1) % RANGE, b"")]
        if own is None and plain:
            own = self._opened(peer, seq, ack, window)
        if own is None:
            if flags & p.RST:
                return []
            end = (seq + len(data) + bool(flags & p.SYN) + bool(flags & p.FIN)) % RANGE
            return [(p.RST, ack, end, b"") if flags & p.ACK else (p.RST | p.ACK, 0, end, b"")]
        in_order = seq == own.rcv_nxt
        if flags & p.RST and in_order:
            del self.connections[peer]
            return []
        newly = (ack - own.snd_una) % RANGE
        in_flight = (own.snd_nxt - own.snd_una) % RANGE
        known = newly <= in_flight or (own.snd_una - ack) % RANGE < 1 << 16
        if flags & (p.RST | p.SYN) or (plain and not known):
            far = flags & p.RST and (seq - own.rcv_nxt) % RANGE >= 1 << 16
            if far or own.is_challenged:
                return []
            own.is_challenged = True
            return [(p.ACK, own.snd_nxt, own.rcv_nxt, b"")]
        if not plain:
            return []
        return self._established(peer, own, flags, seq, ack, data, window, newly, in_flight)

    def _opened(self, peer: p.SocketAddress, seq: int, ack: int, window: int) -> Connection | None:
        for least, size in SIZES:
            if (ack - 1) % RANGE == cookie(self.key, peer, self.port, seq - 1, least):
                self.connections[peer] = Connection(seq, ack, ack, size, window)
                return self.connections[peer]
        return None

    def _established(
        self, peer: p.SocketAddress, own: Connection, flags: int, seq: int, ack: int, data: bytes,
        window: int, newly: int, in_flight: int,
    ) -> list[Answer]:  # fmt: skip
        sent: list[Answer] = []
        in_order = seq == own.rcv_nxt
        takes = bool(data) and in_order and not own.peer_ended
        again = False
        silent = not data and not flags & p.FIN
        repeated = silent and in_order and ack == own.snd_una and window == own.window
        if 0 < newly <= in_flight:
            own.snd_una, own.duplicates = ack, 0
            own.unacknowledged = [
                k for k in own.unacknowledged
                if (k[0] + len(k[1]) - ack) % RANGE - RANGE // 2 < 0
                and (k[0] + len(k[1]) - ack) % RANGE
            ]  # fmt: skip
            if own.recover is not None:
                if (ack - own.recover) % RANGE < RANGE // 2:
                    own.recover = None
                else:
                    again = True
        elif repeated and own.unacknowledged and own.recover is None:
            own.duplicates += 1
            if own.duplicates == 3:
                own.duplicates, own.recover, again = 0, own.snd_nxt, True
        if in_order:
            own.window = window
        asks_for_ack = bool(data) or bool(flags & p.FIN) or (seq + 1) % RANGE == own.rcv_nxt
        if takes:
            own.rcv_nxt = (own.rcv_nxt + len(data)) % RANGE
        is_last = (seq + len(data)) % RANGE == own.rcv_nxt and (takes or not data)
        if flags & p.FIN and is_last and not own.peer_ended:
            own.peer_ended = True
            own.rcv_nxt = (own.rcv_nxt + 1) % RANGE
        if own.peer_ended and own.ended and own.snd_una == own.snd_nxt:
            del self.connections[peer]
            return []
        if again and own.unacknowledged:
            sent.append((p.ACK, own.unacknowledged[0][0], own.rcv_nxt, own.unacknowledged[0][1]))
        if takes:
            before = self.answers(own.received)
            own.received += data
            fresh = self.answers(own.received)[len(before) :]
            for at in range(0, len(fresh), own.size):
                part = fresh[at : at + own.size]
                own.unacknowledged.append((own.snd_nxt, part))
                sent.append((p.ACK, own.snd_nxt, own.rcv_nxt, part))
                own.snd_nxt = (own.snd_nxt + len(part)) % RANGE
        if own.peer_ended and not own.ended:
            own.ended = True
            sent.append((p.ACK | p.FIN, own.snd_nxt, own.rcv_nxt, b""))
            own.snd_nxt = (own.snd_nxt + 1) % RANGE
        if not sent and asks_for_ack:
            sent.append((p.ACK, own.snd_nxt, own.rcv_nxt, b""))
        return sent
