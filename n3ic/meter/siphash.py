# SPDX-License-Identifier: Apache-2.0
"""SipHash in plain Python; ``c/key.h`` has the same in C."""

from __future__ import annotations

_ALL = (1 << 64) - 1
_MIX = ((0, 1, 13, 32), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 32))


def siphash(secret: bytes, message: bytes, rounds: int = 1, last_rounds: int = 3) -> int:
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


def _mix(v: list[int]) -> None:
    for i, j, by, then in _MIX:
        v[i] = (v[i] + v[j]) & _ALL
        v[j] = _turned(v[j], by) ^ v[i]
        v[i] = _turned(v[i], then)


def _turned(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _ALL
