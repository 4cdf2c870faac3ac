# SPDX-License-Identifier: Apache-2.0
"""SipHash in plain Python, and the flow hash of the generated C by it."""

import struct

_ALL = (1 << 64) - 1


def siphash(secret, message, rounds=1, last_rounds=3):
    """SipHash of Aumasson and Bernstein (2012), 64 bits.

    Args:
        secret: 16 bytes.
        message: any bytes.
        rounds: of each word of 8 bytes; 2 in the paper's SipHash-2-4.
        last_rounds: at the end.
    """
    halves = [int.from_bytes(secret[i : i + 8], "little") for i in (0, 8)]
    start = b"somepseudorandomlygeneratedbytes"
    v = [int.from_bytes(start[8 * i : 8 * i + 8], "big") ^ halves[i % 2] for i in range(4)]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        for _ in range(rounds):
            _mix(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(last_rounds):
        _mix(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def _mix(v):
    for i, j, by, then in ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32)):
        v[i] = (v[i] + v[j]) & _ALL
        v[j] = _turned(v[j], by) ^ v[i]
        v[i] = _turned(v[i], then)


def _turned(x, by):
    return (x << by | x >> (64 - by)) & _ALL


def message_of(source, destination, source_port, destination_port, protocol):
    """What of a flow's key is hashed: addresses as long as they are, ports, protocol."""
    ports = source_port.to_bytes(2, "little") + destination_port.to_bytes(2, "little")
    return source + destination + ports + bytes([protocol])


def udp_key(frame):
    """The canonical key of a UDP frame over IPv4: addresses, ports, protocol."""
    ends, ports = frame[26:34], struct.unpack(">HH", frame[34:38])
    # Addresses are compared as numbers of the processor.
    one, other = sorted([(ends[:4][::-1], ports[0]), (ends[4:][::-1], ports[1])])
    return one[0][::-1], other[0][::-1], one[1], other[1], frame[23]


def bucket_of(key, secret, buckets):
    """The bucket of a canonical key, and its tag there."""
    value = siphash(secret, message_of(*key))
    return (value >> 32) * buckets >> 32, value & 0xFFFFFFFF | 1


def apart(frames, secret, buckets):
    """Those of some UDP frames whose flows share no bucket with one before.

    A CPU gives up a packet, and counts it, where another holds its bucket for long, interrupted.
    """
    taken = set()
    for frame in frames:
        bucket, _ = bucket_of(udp_key(frame), secret, buckets)
        if bucket not in taken:
            taken.add(bucket)
            yield frame
