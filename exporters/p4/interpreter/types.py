"""Types and storage of a P4 program: every field of every variable has a slot in a frame.

A frame is a list with one value a slot, made anew for each packet. A value is an int for
``bit<N>``, a bool for ``bool``, and None where nothing was ever written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from n3ic.exporters.p4.interpreter.errors import P4Error

Frame = list[Any]


@dataclass(frozen=True)
class Bit:
    """``bit<width>``."""

    width: int

    def __str__(self) -> str:
        return f"bit<{self.width}>"


@dataclass(frozen=True)
class Bool:
    """``bool``."""

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class Integer:
    """The type of a literal without a width: an integer of any size."""

    def __str__(self) -> str:
        return "int"


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


Type = Bit | Bool | Integer | RecordType | Extern


def bits_of(kind: Type) -> int:
    """Width of a type in bits; a bool is 1."""
    if isinstance(kind, Bit):
        return kind.width
    if isinstance(kind, RecordType):
        return sum(bits_of(t) for _, t in kind.fields)
    return 1


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
    type: Type
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
class Port:
    """A ``packet_in`` or ``packet_out`` parameter."""

    type: Extern
    name: str


Storage = Leaf | Node | Port


@dataclass
class Layout:
    """Allots slots while a program is compiled.

    Slots 0 and 1 hold the packet that is read and the one that is written.
    """

    initial: Frame = field(default_factory=lambda: [None, None])
    leaves: dict[str, int] = field(default_factory=dict)

    def allocate(self, kind: Type, name: str, start: Any, valid: int | None = None) -> Storage:
        """Slots for a variable; ``start`` is every value at first, None for none at all."""
        if isinstance(kind, Extern):
            return Port(kind, name)
        if isinstance(kind, RecordType):
            own = None
            if kind.kind == "header":
                own = self._slot(f"{name}.$valid", False)
            children = {
                f: self.allocate(t, f"{name}.{f}", 0 if own is not None else start, own)
                for f, t in kind.fields
            }
            return Node(kind, name, own, children)
        if isinstance(kind, Integer):
            raise P4Error(f"{name}: a variable has a width")
        value = bool(start) if isinstance(kind, Bool) and start is not None else start
        return Leaf(self._slot(name, value), kind, name, valid, start is not None)

    def _slot(self, name: str, value: Any) -> int:
        self.initial.append(value)
        slot = len(self.initial) - 1
        self.leaves.setdefault(name, slot)
        return slot
