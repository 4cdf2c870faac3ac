"""Sends packets into one interface and collects what comes out of others.

Runs as a program of its own, because raw sockets belong to the network namespace of the process
that opens them: ``python wire.py SECONDS SEND RECEIVE...``. Standard input holds packets, each
behind its length in two bytes; standard output gives one answer a packet in the same form, first
the place of its interface among those of ``RECEIVE`` in a byte; a length of 0 for one that did not
come within ``SECONDS``, after which nothing more is sent. Needs the standard library alone.
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
    """Packets that stand behind their lengths."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("!H", data, at)
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def join(packets: list[bytes]) -> bytes:
    """Packets behind their lengths; the inverse of :func:`split`."""
    return b"".join(struct.pack("!H", len(p)) + p for p in packets)


def exchange(
    send: str, receive: Sequence[str], packets: list[bytes], seconds: float
) -> list[bytes]:
    """Send packets one by one; each ends in the tag that its answer ends in."""
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
    while (left := deadline - time.monotonic()) > 0:
        for receiver in select.select(receivers, [], [], left)[0]:
            data, address = receiver.recvfrom(65535)
            if address[2] != PACKET_OUTGOING and data.endswith(tag):
                return bytes([receivers.index(receiver)]) + data
    return b""


def main(arguments: list[str]) -> None:
    """Run as a program; see the module's text."""
    seconds, send, *receive = arguments
    packets = list(split(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(join(exchange(send, receive, packets, float(seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
