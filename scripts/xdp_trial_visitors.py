#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers and visitors over UDP for scripts/xdp_trial.py: QUIC by aioquic, and what looks like NTP.

``ntp`` is a stand-in: 48 bytes from a new port each time, to a server that echoes them.

Usage: xdp_trial_visitors.py serve CERTIFICATE KEY | (quic|ntp) HOST SERVER SECONDS
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import time
from typing import cast

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

QUIC_PORT, NTP_PORT = 4433, 123
PAGE = 40_000  # bytes of an answer


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.transport.sendto(data, address)


def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def send() -> None:
        await reader.read()
        writer.write(os.urandom(PAGE))
        writer.write_eof()

    _TASKS.append(asyncio.ensure_future(send()))


_TASKS: list[asyncio.Future[None]] = []


async def _serve(certificate: str, key: str) -> None:
    configuration = QuicConfiguration(is_client=False)
    configuration.load_cert_chain(certificate, key)
    await serve("::", QUIC_PORT, configuration=configuration, stream_handler=_answer)
    ports = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    ports.bind(("::", NTP_PORT))
    await asyncio.get_running_loop().create_datagram_endpoint(_Echo, sock=ports)
    await asyncio.sleep(3600)


async def _quic(host: str, server: str) -> None:
    """Load a page over a new connection."""
    configuration = QuicConfiguration(is_client=True, verify_mode=ssl.CERT_NONE)
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicConnectionProtocol(QuicConnection(configuration=configuration)),
        local_addr=(host, 0),
    )
    try:
        # As packets of IPv6 say it: aioquic compares the two.
        end = (server, QUIC_PORT, 0, 0) if ":" in server else (server, QUIC_PORT)
        protocol.connect(cast(tuple[str, int], end))
        await protocol.wait_connected()
        reader, writer = await protocol.create_stream()
        writer.write(b"GET /\r\n")
        writer.write_eof()
        if len(await reader.read()) != PAGE:
            raise OSError("expected a whole page")
        protocol.close()
        await protocol.wait_closed()
    finally:
        transport.close()


async def _ntp(host: str, server: str) -> None:
    """Ask for the time, from a new port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as port:
        port.bind((host, 0))
        port.settimeout(2)
        port.sendto(bytes([0x23]) + os.urandom(47), (server, NTP_PORT))
        port.recv(100)


def _visit(kind: str, host: str, server: str, seconds: int) -> None:
    until = time.time() + seconds
    while time.time() < until:
        try:
            asyncio.run(asyncio.wait_for((_quic if kind == "quic" else _ntp)(host, server), 8))
            print("GOT", flush=True)
        except (OSError, TimeoutError, ConnectionError):
            print(f"LOST {time.time()}", flush=True)
        time.sleep(0.7)


def main() -> None:
    """Serve, or visit until the time is over."""
    if sys.argv[1] == "serve":
        asyncio.run(_serve(*sys.argv[2:4]))
    else:
        _visit(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))


if __name__ == "__main__":
    main()
