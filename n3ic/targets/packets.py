# SPDX-License-Identifier: Apache-2.0
"""Makes the packets that a generated program classifies, and reads the results back.

A request in header mode is Ethernet (type E), a zero result header, and the input header. In field
mode it is Ethernet and the headers that contain the field. In a response, Ethernet has type E, and
the filled result header follows it directly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.model.bits import Words
from n3ic.model.network import SHUNT

ETHERNET_BYTES = 14
INGRESS = 1  # port 1 of bmv2; nf0 of the NetFPGA, whose ports are one-hot
SHUNTED = 0xFFFF  # class field of a result that is left to the host
SCORE_BITS = 32  # two's complement; |popcount + bias| < 2^25
IPV4, IPV6 = 0x0800, 0x86DD
UDP = 17
FIELD_BITS = {"ipv6.src_dst": 256, "ipv6.dst": 128, "ipv4.src_dst": 64, "udp.payload": 2048}


@dataclass(frozen=True)
class PacketLayout:
    """Layout of inputs and results in packets.

    Attributes:
        input_bits: number of input bits.
        classes: number of classes.
        output: ``class``, ``scores`` or ``both``.
        field: a key of ``FIELD_BITS``; empty for the input header.
        ethertype: EtherType of packets with an n3ic header.
        udp_port: destination port in the field mode ``udp.payload``.
        shunts: whether a threshold decides which packets are left to the host.
        shunt_port: port for shunted packets; None for the port of all others.
    """

    input_bits: int
    classes: int
    output: str
    field: str
    ethertype: int
    udp_port: int
    shunts: bool = False
    shunt_port: int | None = None

    @property
    def has_class(self) -> bool:
        """Whether results hold the class and the margin."""
        return self.output != "scores"

    @property
    def has_scores(self) -> bool:
        """Whether results hold the scores."""
        return self.output != "class"

    @property
    def input_bytes(self) -> int:
        """Size of the input header in bytes."""
        return -(-self.input_bits // 8)

    @property
    def result_bytes(self) -> int:
        """Size of the result header in bytes: type, model, then class and margin, then scores."""
        return 6 + 6 * self.has_class + 4 * self.classes * self.has_scores

    @property
    def _held_bits(self) -> int:
        """Width of the field that holds the input, which may exceed the input's."""
        whole = 8 * self.input_bytes
        return whole if self.field in ("", "udp.payload") else FIELD_BITS[self.field]

    def request(self, x: int, payload: bytes = b"", *, fill: bool = False) -> bytes:
        """Make a request packet for input ``x``.

        Args:
            x: input bits as an integer.
            payload: bytes after the headers.
            fill: whether to set the field's padding bits to 1 instead of 0.
        """
        if fill:
            x |= (1 << self._held_bits) - (1 << self.input_bits)
        macs = bytes.fromhex("020000000001 020000000002")
        if not self.field:
            ethernet = macs + self.ethertype.to_bytes(2, "big")
            result = b"\x08\x00" + bytes(self.result_bytes - 2)
            return ethernet + result + x.to_bytes(self.input_bytes, "big") + payload
        if self.field.startswith("ipv6"):
            ethernet = macs + IPV6.to_bytes(2, "big")
            source = x >> 128 if self.field == "ipv6.src_dst" else 1
            start = bytes.fromhex("60000000") + len(payload).to_bytes(2, "big") + b"\x3b\x40"
            addresses = source.to_bytes(16, "big") + (x & ((1 << 128) - 1)).to_bytes(16, "big")
            return ethernet + start + addresses + payload
        ethernet = macs + IPV4.to_bytes(2, "big")
        if self.field == "ipv4.src_dst":
            return ethernet + _ipv4(len(payload), 253, x >> 32, x & 0xFFFFFFFF) + payload
        body = x.to_bytes(self.input_bytes, "big") + payload
        udp = b"\x30\x39" + self.udp_port.to_bytes(2, "big") + (8 + len(body)).to_bytes(2, "big")
        return ethernet + _ipv4(8 + len(body), UDP, 0x0A000001, 0x0A000002) + udp + bytes(2) + body

    def result(self, packet: bytes) -> PacketResult:
        """Read the result of a response packet.

        Raises:
            VerifyError: the packet holds no result.
        """
        end = ETHERNET_BYTES + self.result_bytes
        if len(packet) < end or packet[12:14] != self.ethertype.to_bytes(2, "big"):
            raise VerifyError("the packet came back without a result header")
        header = packet[ETHERNET_BYTES:end]
        at = 6
        class_id = margin = None
        scores = None
        if self.has_class:
            class_id = int.from_bytes(header[at : at + 2], "big")
            margin = int.from_bytes(header[at + 2 : at + 6], "big")
            at += 6
        if self.has_scores:
            scores = np.frombuffer(header[at:], dtype=">i4").astype(np.int32)
        return PacketResult(int.from_bytes(header[2:6], "big"), class_id, margin, scores)


@dataclass(frozen=True, eq=False)
class PacketResult:
    """Content of a result header; None for parts that the output option omits."""

    model: int
    class_id: int | None
    margin: int | None
    scores: NDArray[np.int32] | None

    @property
    def verdict(self) -> int | None:
        """The class, or ``SHUNT`` if the host decides."""
        return SHUNT if self.class_id == SHUNTED else self.class_id


def _ipv4(length: int, protocol: int, source: int, destination: int) -> bytes:
    header = bytearray(20)
    header[0], header[8], header[9] = 0x45, 64, protocol
    header[2:4] = (20 + length).to_bytes(2, "big")
    header[12:16] = source.to_bytes(4, "big")
    header[16:20] = destination.to_bytes(4, "big")
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (total ^ 0xFFFF).to_bytes(2, "big")
    return bytes(header)


def inputs_of(words: Words) -> list[int]:
    """Packed inputs as integers, with bit ``i`` of the input as bit ``i``."""
    return [int.from_bytes(row.tobytes(), "little") for row in words.astype("<u4")]
