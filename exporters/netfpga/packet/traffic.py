# SPDX-License-Identifier: Apache-2.0
"""Makes frames of all kinds for a card, and the expected output.

It is the reference for the packet path's Verilog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from n3ic.exporters.netfpga.packet.wrapper import (
    BEAT,
    ETHERNET_BYTES,
    SHUNTED,
    UDP_PAYLOAD,
    PacketFormat,
)
from n3ic.model.inputs import UINT32_MAX, InputSpec

MACS = bytes.fromhex("020000000001020000000002")
# Numbers of bytes that follow the last byte that the card checks.
TAILS = (0, 1, 31, 32, 33, 64, 300, 1200)
LONG = 1486  # bytes after the Ethernet header of a long frame


@dataclass(frozen=True)
class Frame:
    """A frame of the traffic.

    Attributes:
        data: bytes of the frame.
        hole: index of a byte whose ``tkeep`` bit is 0; -1 for none.
        size: bytes of a beat.
    """

    data: bytes
    hole: int = -1
    size: int = BEAT

    def keep(self, beat: int) -> int:
        """``tkeep`` of a beat, by its index."""
        here = range(self.size * beat, min(len(self.data), self.size * (beat + 1)))
        return sum(1 << at % self.size for at in here if at != self.hole)

    def content(self, beat: int, data: bytes | None = None) -> bytes:
        """Bytes of a beat from the highest one down, of other ``data`` if given; unused are 0."""
        part = (self.data if data is None else data)[self.size * beat : self.size * (beat + 1)]
        return part.ljust(self.size, b"\0")[::-1]

    @property
    def beats(self) -> int:
        """Number of beats of the frame."""
        return -(-len(self.data) // self.size)


@dataclass(frozen=True)
class ExpectedResult:
    """The result that an inference writes into its frame.

    Attributes:
        model: first four bytes of the model's digest.
        label: class, or 65535 if the host decides.
        margin: difference between the two best scores.
    """

    model: int
    label: int
    margin: int


def is_request(frame: Frame, form: PacketFormat) -> bool:
    """Whether a card of this format classifies a frame."""
    data = frame.data
    if len(data) < form.need or frame.hole == form.need - 1:
        return False
    if not form.udp:
        return data[12:14] == form.value.to_bytes(2, "big")
    return (
        data[12:14] == b"\x08\x00"
        and data[14] == 0x45
        and int.from_bytes(data[20:22], "big") & 0xBFFF == 0  # no fragment: MF and offset 0
        and data[23] == 17
        and data[36:38] == form.value.to_bytes(2, "big")
    )


def expected_frame(frame: Frame, form: PacketFormat, answer: ExpectedResult | None) -> bytes:
    """Expected bytes of a frame after the card; ``answer`` is None if it is not a request."""
    out = bytearray(frame.data)
    if answer is not None and form.in_packet:
        result = answer.model.to_bytes(4, "big") + answer.label.to_bytes(2, "big")
        out[form.result_at : form.result_at + 10] = result + answer.margin.to_bytes(4, "big")
        if form.udp:
            out[40:42] = b"\0\0"
    return bytes(out)


def expected_tuser(word: int, form: PacketFormat, answer: ExpectedResult | None) -> int:
    """Expected ``tuser`` after the card for a frame that arrived with ``word`` in it.

    The bits above ``word`` hold the result of another core, which shunts every other frame.
    """
    if answer is None or not form.in_tuser:
        return word | SHUNTED << 32 | (0 if form.shunt_port else word & 1) << 80
    if form.shunt_port and answer.label == SHUNTED:
        word = word & ~(0xFF << 24) | form.shunt_port << 24
    return word | (1 << 48 | answer.margin << 16 | answer.label) << 32


def traffic(form: PacketFormat, inputs: Sequence[bytes], rng: np.random.Generator) -> list[Frame]:
    """Make request frames, one per input in order, mixed with other frames.

    First the two kinds alternate. In the middle come other frames, longer than the card's buffer of
    512 beats. The last requests come back to back.

    Args:
        form: packet format of the card.
        inputs: content of the request frames; arbitrary if inputs come from the side channel.
        rng: source of randomness.
    """
    others = _others(form, rng)
    frames = []
    for i, data in enumerate(inputs):
        burst = i >= 7 * len(inputs) // 12
        if i == len(inputs) // 2:
            fill = 14 * form.beat // BEAT
            frames += [Frame(MACS + b"\x08\x00" + rng.bytes(LONG)) for _ in range(fill)]
        elif i % 2 and not burst:
            frames.append(others[i // 2 % len(others)])
        tail = 0 if burst else TAILS[i % len(TAILS)]
        frames.append(Frame(_asking(form, data, rng) + rng.bytes(tail)))
    return [replace(frame, size=form.beat) for frame in frames]


def _asking(form: PacketFormat, data: bytes, rng: np.random.Generator) -> bytes:
    """Make a request frame of minimum length."""
    body = rng.bytes(max(form.need, UDP_PAYLOAD) - ETHERNET_BYTES)
    head = MACS + form.value.to_bytes(2, "big")
    if form.udp:
        fields = b"\x45\x00\x00\x00\x12\x34\x40\x00\x40\x11" + rng.bytes(10)
        head = MACS + b"\x08\x00" + fields + rng.bytes(2) + form.value.to_bytes(2, "big")
        body = rng.bytes(4) + body[UDP_PAYLOAD - ETHERNET_BYTES :]
    frame = bytearray((head + body)[: form.need])
    if form.input_bytes:
        frame[form.offset : form.offset + form.input_bytes] = data
    return bytes(frame)


def _others(form: PacketFormat, rng: np.random.Generator) -> list[Frame]:
    """Make frames that are not requests: other types, too short ones, and near misses."""
    whole = _asking(form, bytes(form.input_bytes), rng)

    def changed(at: int, value: bytes) -> Frame:
        return Frame(whole[:at] + value + whole[at + len(value) :] + rng.bytes(40))

    frames = [
        Frame(whole[: form.need - 1]),
        Frame(whole[: min(20, form.need - 1)]),
        Frame(whole[:1]),
        Frame(whole + rng.bytes(40), hole=form.need - 1),
        changed(12, b"\x81\x00"),  # a VLAN tag
        changed(12, b"\x86\xdd"),
        Frame(MACS + b"\x08\x06" + rng.bytes(46)),
    ]
    if form.udp:
        frames += [
            changed(14, b"\x46"),  # IPv4 options
            changed(20, b"\x20\x00"),  # the first fragment
            changed(20, b"\x00\x01"),  # a later fragment
            changed(23, b"\x06"),  # TCP
            changed(36, (form.value ^ 1).to_bytes(2, "big")),
            changed(36, (form.value ^ 0x100).to_bytes(2, "big")),
        ]
    else:
        frames += [
            changed(12, (form.value ^ 1).to_bytes(2, "big")),
            changed(12, (form.value ^ 0x100).to_bytes(2, "big")),
        ]
    return [frame for frame in frames if not is_request(frame, form)]


def edge_features(spec: InputSpec, count: int, rng: np.random.Generator) -> np.ndarray:
    """Make integer features at, below and above cuts and clamps.

    Returns:
        int64 array of shape ``(count, features)``.
    """
    columns = []
    for name in spec.features:
        edges = [0, 1, UINT32_MAX]
        for field in (f for f in spec.fields if f.feature == name):
            edges += [v + d for v in (*field.cuts, field.clamp) for d in (-1, 0, 1)]
        columns.append(rng.choice(np.clip(edges, 0, UINT32_MAX), count))
    return np.stack(columns, axis=1).astype(np.int64)
