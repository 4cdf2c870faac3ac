# SPDX-License-Identifier: Apache-2.0
"""What a TLS ClientHello says in clear text: the server's name, the protocol, and its JA4."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import dpkt

CLIENT_HELLO, _HANDSHAKE, _HEAD = 1, 22, 4
_SERVER_NAME, _GROUPS_OF_JA4, _ALPN, _VERSIONS = 0, 13, 16, 43
_SHORT = {0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3", 0x0002: "s2"}


@dataclass(frozen=True)
class Hello:
    """A ClientHello.

    Attributes:
        server_name: the name that the client asks for (SNI); empty without one.
        protocol: the first protocol that it offers (ALPN); empty without one.
        ja4: its JA4 fingerprint, which identifies the TLS client, not the flow.
    """

    server_name: str
    protocol: str
    ja4: str


def joined(pieces: Mapping[int, bytes]) -> bytes:
    """Join pieces, keyed by offset, from offset 0 up to the first gap; pieces may overlap."""
    out = b""
    for offset, data in sorted(pieces.items()):
        if offset > len(out):
            break
        out += data[len(out) - offset :]
    return out


def records_to_hello(stream: bytes) -> bytes | None:
    """Extract the handshake bytes of the TLS records received so far.

    Returns:
        The handshake bytes, or None if the stream is not a TLS handshake.
    """
    out, at = b"", 0
    while at + 5 <= len(stream):
        kind, version, size = struct.unpack_from(">BHH", stream, at)
        if kind != _HANDSHAKE or version >> 8 != 3 or size > 1 << 14:
            return out or None
        out += stream[at + 5 : at + 5 + size]
        at += 5 + size
    return out


def read_hello(handshake: bytes, *, quic: bool = False) -> Hello | None:
    """Read a ClientHello from handshake bytes.

    Args:
        handshake: the handshake bytes received so far, from the first.
        quic: whether they came over QUIC, which the JA4 fingerprint records.

    Returns:
        The hello, or None if the bytes hold no complete and valid ClientHello.
    """
    if len(handshake) < _HEAD or handshake[0] != CLIENT_HELLO:
        return None
    size = int.from_bytes(handshake[1:_HEAD], "big")
    if len(handshake) < _HEAD + size:
        return None
    try:
        hello = dpkt.ssl.TLSClientHello(handshake[_HEAD : _HEAD + size])
        extensions = [(kind, bytes(data)) for kind, data in getattr(hello, "extensions", ())]
        ciphers = [suite.code for suite in hello.ciphersuites]
        return _hello(hello.version, ciphers, extensions, quic)
    except (dpkt.Error, struct.error, IndexError, ValueError):
        return None  # damaged: the flow stays without a name


def _hello(
    version: int, ciphers: list[int], extensions: list[tuple[int, bytes]], quic: bool
) -> Hello:
    ciphers = [code for code in ciphers if not _grease(code)]
    extensions = [(kind, data) for kind, data in extensions if not _grease(kind)]
    extension_of = dict(extensions)
    name = _server_name(extension_of.get(_SERVER_NAME, b""))
    protocol = _protocol(extension_of.get(_ALPN, b""))
    offered = [v for v in _numbers(extension_of.get(_VERSIONS, b""), 1) if not _grease(v)]
    signatures = [n for n in _numbers(extension_of.get(_GROUPS_OF_JA4, b""), 2) if not _grease(n)]
    head = (
        f"{'q' if quic else 't'}{_SHORT.get(max(offered, default=version), '00')}"
        f"{'d' if _SERVER_NAME in extension_of else 'i'}"
        f"{min(len(ciphers), 99):02d}{min(len(extensions), 99):02d}{_ends(protocol)}"
    )
    kinds = sorted(kind for kind, _ in extensions if kind not in (_SERVER_NAME, _ALPN))
    tail = _hexes(kinds) + ("_" + _hexes(signatures) if signatures else "")
    return Hello(
        name,
        protocol.decode("ascii", "replace"),
        f"{head}_{_digest(_hexes(sorted(ciphers)))}_{_digest(tail if kinds else '')}",
    )


def _grease(number: int) -> bool:
    """Whether a number is one of the reserved values that clients mix in (RFC 8701)."""
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 255


def _server_name(data: bytes) -> str:
    """The host name of the extension (RFC 6066), in lower case; empty if it is damaged."""
    if len(data) < 5 or data[2] != 0:
        return ""
    name = data[5 : 5 + int.from_bytes(data[3:5], "big")]
    text = name.decode("ascii", "replace").lower().rstrip(".")
    allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
    return text if all(c in allowed for c in text) and len(text) <= 253 else ""


def _protocol(data: bytes) -> bytes:
    return data[3 : 3 + data[2]] if len(data) > 3 else b""


def _numbers(data: bytes, size: int) -> list[int]:
    """The 16-bit numbers that follow a length field of ``size`` bytes."""
    body = data[size : size + int.from_bytes(data[:size], "big")]
    return [n for (n,) in struct.iter_unpack(">H", body[: len(body) & ~1])]


def _ends(protocol: bytes) -> str:
    if not protocol:
        return "00"
    ends = protocol[:1] + protocol[-1:]
    if ends.isalnum():
        return ends.decode("ascii")
    return protocol.hex()[0] + protocol.hex()[-1]


def _hexes(numbers: list[int]) -> str:
    return ",".join(f"{n:04x}" for n in numbers)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else "0" * 12
