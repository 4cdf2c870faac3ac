# SPDX-License-Identifier: Apache-2.0
"""Makes closures that change a frame: stores, extraction and emission of headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expressions import Closure
from n3ic.exporters.p4.interpreter.types import Frame, RecordSlots, ValueSlot, bits_of

Step = Callable[[Frame], None]

READER, WRITER = 0, 1  # slots of the packet being parsed and of the packet being built
KEPT = 2  # slot with the metadata slots that a resubmitted packet keeps


class PacketTooShort(Exception):  # noqa: N818 - a signal of the parser, named as in core.p4
    """A header extends beyond the end of the packet."""


@dataclass
class Reader:
    """A packet as an integer, and the number of its bits that are not yet parsed."""

    value: int
    left: int


@dataclass
class Writer:
    """The headers emitted so far."""

    parts: list[bytes] = field(default_factory=list)


def validity(node: RecordSlots) -> int:
    """The slot of a header's validity bit."""
    if node.valid is None:
        raise P4Error(f"{node.name} is not a header")
    return node.valid


def store(leaf: ValueSlot, run: Closure, line: int) -> Step:
    """Assign to a variable; a header's field can be assigned only while the header is valid."""
    slot, valid, name = leaf.slot, leaf.valid, leaf.name
    if valid is None:

        def store_value(frame: Frame) -> None:
            frame[slot] = run(frame)

        return store_value

    def store_field(frame: Frame) -> None:
        if not frame[valid]:
            raise P4Error(f"{name} is written, but its header is not valid", line)
        frame[slot] = run(frame)

    return store_field


def set_valid(node: RecordSlots) -> Step:
    """Make ``setValid`` of a header."""
    own = validity(node)
    slots = [c.slot for c in node.children.values() if isinstance(c, ValueSlot)]

    def change(frame: Frame) -> None:
        if not frame[own]:
            for slot in slots:  # P4 leaves the fields of a newly valid header undefined
                frame[slot] = None
        frame[own] = True

    return change


def field_places(node: RecordSlots) -> tuple[list[tuple[int, int, int, str]], int]:
    """List slot, position, mask and name of each field of a header; return its width too."""
    width = bits_of(node.type)
    places, position = [], width  # the first field has the most significant bits
    for child in node.children.values():
        assert isinstance(child, ValueSlot)  # noqa: S101 - fields of headers are bit<N>
        size = bits_of(child.type)
        position -= size
        places.append((child.slot, position, (1 << size) - 1, child.name))
    return places, width


def extract(node: RecordSlots) -> Step:
    """Extract a header from the packet, or leave the parser if the packet is too short."""
    places, width = field_places(node)
    own = validity(node)

    def extract(frame: Frame) -> None:
        source: Reader = frame[READER]
        if source.left < width:
            raise PacketTooShort
        source.left -= width
        value = source.value >> source.left
        for slot, position, mask, _ in places:
            frame[slot] = (value >> position) & mask
        frame[own] = True

    return extract


def emit(node: RecordSlots) -> Step:
    """Append a header to the packet if it is valid."""
    places, width = field_places(node)
    own = validity(node)

    def emit(frame: Frame) -> None:
        if not frame[own]:
            return
        value = 0
        for slot, position, _, name in places:
            if frame[slot] is None:
                raise P4Error(f"{name} is emitted before it is written")
            value |= frame[slot] << position
        frame[WRITER].parts.append(value.to_bytes(width // 8, "big"))

    return emit
