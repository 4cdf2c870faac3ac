# SPDX-License-Identifier: Apache-2.0
"""The ClientHello of a QUIC connection, from its Initial packets (RFC 9000, 9001, 9369).

Initial packets carry the connection identifier that their keys derive from, so any observer can
decrypt them.
"""

from __future__ import annotations

from aioquic.buffer import Buffer, BufferReadError
from aioquic.quic.crypto import CryptoError, CryptoPair
from aioquic.quic.packet import QuicHeader, QuicPacketType, pull_quic_header

from n3ic.studies.label.hello import joined

_PADDING, _PING, _ACK, _ACK_ECN, _CRYPTO = 0, 1, 2, 3, 6
_MAX_HELLO = 1 << 16


class QuicHello:
    """The handshake bytes of a client, reassembled from its Initial packets in any order."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}
        self._cid: bytes | None = None

    def add(self, datagram: bytes) -> bytes:
        """Add a datagram of the client.

        Returns:
            The handshake bytes received so far, from the start up to the first gap.

        Raises:
            ValueError: The datagram holds no Initial packet that this connection's keys decrypt.
        """
        at, opened = 0, 0
        while at < len(datagram) and datagram[at] & 0x80:  # long headers can follow each other
            buffer = Buffer(data=datagram[at:])
            try:
                header = pull_quic_header(buffer)
            except BufferReadError as error:
                raise ValueError("cut short") from error
            if header.packet_type == QuicPacketType.INITIAL:
                self._open(header, datagram[at : at + header.packet_length], buffer.tell())
                opened += 1
            at += header.packet_length
        if not opened:
            raise ValueError("no Initial packet")
        return joined(self._pieces)

    def _open(self, header: QuicHeader, packet: bytes, encrypted: int) -> None:
        # The client later uses the server's identifier, but the first one still yields the keys.
        self._cid = header.destination_cid if self._cid is None else self._cid
        crypto = CryptoPair()
        crypto.setup_initial(cid=self._cid, is_client=False, version=header.version or 1)
        try:
            _, plain, _ = crypto.decrypt_packet(packet, encrypted, 0)
        except CryptoError as error:
            raise ValueError("the keys do not open it") from error
        frames = Buffer(data=plain)
        try:
            while not frames.eof():
                self._frame(frames, frames.pull_uint_var())
        except BufferReadError as error:
            raise ValueError("a frame is cut short") from error

    def _frame(self, frames: Buffer, kind: int) -> None:
        if kind in (_PADDING, _PING):
            return
        if kind in (_ACK, _ACK_ECN):
            frames.pull_uint_var(), frames.pull_uint_var()
            ranges = frames.pull_uint_var()
            for _ in range(1 + 2 * ranges + 3 * (kind == _ACK_ECN)):
                frames.pull_uint_var()
            return
        if kind != _CRYPTO:
            raise ValueError(f"a frame of type {kind} in an Initial packet")
        offset, size = frames.pull_uint_var(), frames.pull_uint_var()
        data = frames.pull_bytes(size)
        if offset + size > _MAX_HELLO:
            raise ValueError("a hello of more than 64 KiB")
        self._pieces[offset] = max(self._pieces.get(offset, b""), data, key=len)
