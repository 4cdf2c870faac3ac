# SPDX-License-Identifier: Apache-2.0
"""Defines the types of a P4 program, and lays out its variables in a frame.

A frame is a list with one value for each field of each variable, and each packet has its own. A
value is an int, or None if it was never written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Frame = list[Any]


@dataclass(frozen=True)
class Bit:
    """``bit<width>``."""

    width: int

    def __str__(self) -> str:
        return f"bit<{self.width}>"


@dataclass(frozen=True)
class RecordType:
    """A header or a struct."""

    kind: str
    name: str
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Extern:
    """``packet_in`` or ``packet_out``."""

    name: str

    def __str__(self) -> str:
        return self.name


Type = Bit | RecordType | Extern


def bits_of(kind: Type) -> int:
    """Width of a type in bits."""
    if isinstance(kind, Bit):
        return kind.width
    return sum(bits_of(t) for _, t in kind.fields) if isinstance(kind, RecordType) else 0


@dataclass(frozen=True)
class ValueSlot:
    """The slot of one value.

    Attributes:
        slot: index in a frame.
        type: type of the value.
        name: full name, for errors.
        valid: slot of the validity bit of its header; None if it is not a header's field.
        plain: whether it is initialised, so that reading it needs no check.
    """

    slot: int
    type: Bit
    name: str
    valid: int | None
    plain: bool


@dataclass(frozen=True)
class RecordSlots:
    """The slots of a header or a struct; ``valid`` is the slot of a header's validity bit."""

    type: RecordType
    name: str
    valid: int | None
    children: dict[str, Storage]


@dataclass(frozen=True)
class PacketPort:
    """A ``packet_in`` or ``packet_out`` parameter."""

    type: Extern
    name: str


Storage = ValueSlot | RecordSlots | PacketPort


@dataclass
class FrameLayout:
    """Allocates slots while a program is compiled.

    Slots 0 and 1 hold the packet being parsed and the one being built. Slot 2 holds the metadata
    that a resubmitted packet keeps.
    """

    initial: Frame = field(default_factory=lambda: [None, None, None])
    leaves: dict[str, int] = field(default_factory=dict)

    def allocate(
        self, kind: Type, name: str, start: int | None, valid: int | None = None
    ) -> Storage:
        """Allocate slots for a variable; ``start`` is its initial value, None if undefined."""
        if isinstance(kind, Extern):
            return PacketPort(kind, name)
        if isinstance(kind, Bit):
            return ValueSlot(self._slot(name, start), kind, name, valid, start is not None)
        own = self._slot(f"{name}.$valid", False) if kind.kind == "header" else None
        children = {
            # Fields of a header start as 0: reads are checked by its validity bit.
            f: self.allocate(t, f"{name}.{f}", start if own is None else 0, own)
            for f, t in kind.fields
        }
        return RecordSlots(kind, name, own, children)

    def _slot(self, name: str, value: Any) -> int:
        self.initial.append(value)
        slot = len(self.initial) - 1
        self.leaves.setdefault(name, slot)
        return slot
