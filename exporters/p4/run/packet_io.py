# SPDX-License-Identifier: Apache-2.0
"""Sends packets into one interface, and collects packets from others.

This is a separate program, because a raw socket belongs to the network namespace of the process
that opens it: ``python packet_io.py SECONDS SEND RECEIVE...``. Standard input holds packets, each
after its length in two bytes. Standard output holds one answer per packet in the same form: a byte
with the index of its interface in ``RECEIVE``, then the packet. An empty answer means that no
packet came within ``SECONDS``; the program then ends. It uses the standard library only.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

ETH_P_ALL = 0x0003
PACKET_OUTGOING = 4
TAG_BYTES = 8


def split(data: bytes) -> Iterator[bytes]:
    """Split length-prefixed packets."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("!H", data, at)
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def join(packets: list[bytes]) -> bytes:
    """Join packets with length prefixes; the inverse of :func:`split`."""
    return b"".join(struct.pack("!H", len(p)) + p for p in packets)


def exchange(
    send: str, receive: Sequence[str], packets: list[bytes], seconds: float
) -> list[bytes]:
    """Send packets one by one; a packet and its answer end in the same tag."""
    answers: list[bytes] = []
    with ExitStack() as stack:
        sender, *receivers = (
            stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            )
            for _ in (send, *receive)
        )
        sender.bind((send, 0))
        for receiver, name in zip(receivers, receive, strict=True):
            receiver.bind((name, ETH_P_ALL))
        for packet in packets:
            sender.send(packet)
            answers.append(_await(receivers, packet[-TAG_BYTES:], time.monotonic() + seconds))
            if not answers[-1]:
                break
    return answers


def _await(receivers: list[socket.socket], tag: bytes, deadline: float) -> bytes:
    while (seconds_left := deadline - time.monotonic()) > 0:
        for receiver in select.select(receivers, [], [], seconds_left)[0]:
            data, address = receiver.recvfrom(65535)
            # A raw socket also sees the packets that leave through its interface.
            if address[2] != PACKET_OUTGOING and data.endswith(tag):
                return bytes([receivers.index(receiver)]) + data
    return b""


def main(arguments: list[str]) -> None:
    """Run as a program; see the module's docstring."""
    seconds, send, *receive = arguments
    packets = list(split(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(join(exchange(send, receive, packets, float(seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
