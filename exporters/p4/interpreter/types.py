"""Types and storage of a P4 program: every field of every variable has a slot in a frame.

A frame is a list with one value a slot, made anew for each packet. A value is an int, and None
where nothing was ever written.
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
class Leaf:
    """The slot of one value.

    Attributes:
        slot: its index in a frame.
        type: its type.
        name: its full name, for errors.
        valid: slot of the validity of the header that it is a field of, or None.
        plain: whether it has a value from the start, so that reading needs no check.
    """

    slot: int
    type: Bit
    name: str
    valid: int | None
    plain: bool


@dataclass(frozen=True)
class Node:
    """The slots of a header or a struct; ``valid`` is a header's validity slot."""

    type: RecordType
    name: str
    valid: int | None
    children: dict[str, Storage]


@dataclass(frozen=True)
class PacketPort:
    """A ``packet_in`` or ``packet_out`` parameter."""

    type: Extern
    name: str


Storage = Leaf | Node | PacketPort


@dataclass
class FrameLayout:
    """Allots slots while a program is compiled.

    Slots 0 and 1 hold the packet that is read and the one that is written, slot 2 what is kept of
    the metadata where the packet is submitted again.
    """

    initial: Frame = field(default_factory=lambda: [None, None, None])
    leaves: dict[str, int] = field(default_factory=dict)

    def allocate(
        self, kind: Type, name: str, start: int | None, valid: int | None = None
    ) -> Storage:
        """Slots for a variable; ``start`` is every value at first, None for none at all."""
        if isinstance(kind, Extern):
            return PacketPort(kind, name)
        if isinstance(kind, Bit):
            return Leaf(self._slot(name, start), kind, name, valid, start is not None)
        own = self._slot(f"{name}.$valid", False) if kind.kind == "header" else None
        children = {
            f: self.allocate(t, f"{name}.{f}", start if own is None else 0, own)
            for f, t in kind.fields
        }
        return Node(kind, name, own, children)

    def _slot(self, name: str, value: Any) -> int:
        self.initial.append(value)
        slot = len(self.initial) - 1
        self.leaves.setdefault(name, slot)
        return slot
