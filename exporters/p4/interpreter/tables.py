# SPDX-License-Identifier: Apache-2.0
"""Tables and actions of a running program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expressions import CompiledExpression
from n3ic.exporters.p4.interpreter.steps import Step
from n3ic.exporters.p4.interpreter.types import Frame, ValueSlot


@dataclass(frozen=True, eq=False)
class BoundAction:
    """An action with bound data.

    Attributes:
        action: name of the action.
        data: one value per parameter.
        slots: pairs of a slot and the value to store there before the body runs.
        body: steps of the action.
    """

    action: str
    data: tuple[int, ...]
    slots: tuple[tuple[int, int], ...]
    body: tuple[Step, ...]

    def run(self, frame: Frame) -> None:
        """Run the action."""
        for slot, value in self.slots:
            frame[slot] = value
        for step in self.body:
            step(frame)


@dataclass(frozen=True, eq=False)
class CompiledAction:
    """An action of one control instance."""

    name: str
    parameters: tuple[ValueSlot, ...]
    body: tuple[Step, ...]

    def bind(self, values: Sequence[int]) -> BoundAction:
        """Bind the action to data.

        Raises:
            P4Error: the number of values differs from the number of parameters.
        """
        if len(values) != len(self.parameters):
            raise P4Error(
                f"action {self.name} needs {len(self.parameters)} parameters, got {len(values)}"
            )
        slots = tuple((p.slot, v) for p, v in zip(self.parameters, values, strict=True))
        return BoundAction(self.name, tuple(values), slots, self.body)


@dataclass(frozen=True)
class Masked:
    """A ternary key: it matches values whose bits at the set bits of the mask are those of its own.

    Attributes:
        value: the bits; 0 where the mask is 0.
        mask: 1 for each bit that is compared.
    """

    value: int
    mask: int


Key = int | tuple[int, int] | Masked  # a value, the ends of a range, or a ternary key
Keys = tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class TableEntry:
    """An entry of a table.

    Attributes:
        keys: keys that it matches.
        priority: of an entry with a range or a ternary key, the smallest first; None for others.
        does: the bound action.
    """

    keys: Keys
    priority: int | None
    does: BoundAction


@dataclass(eq=False)
class RuntimeTable:
    """A table of one control instance with its current entries.

    Attributes:
        name: control-plane name.
        keys: closures that read the keys.
        matches: for each key, ``exact``, ``range`` or ``ternary``.
        actions: actions by name.
        size: maximum number of entries.
        default: action on a miss.
        constant: whether the program gives the entries, which nobody changes.
        entries: entries in order; an entry's handle is its index.
    """

    name: str
    keys: tuple[CompiledExpression, ...]
    matches: tuple[str, ...]
    actions: Mapping[str, CompiledAction]
    size: int
    default: BoundAction
    constant: bool = False
    entries: list[TableEntry] = field(default_factory=list)
    _places: dict[tuple[Keys, int | None], int] = field(default_factory=dict)
    _masked: list[tuple[int, int, int]] = field(default_factory=list)  # value, mask and handle

    @property
    def prioritised(self) -> bool:
        """Whether several entries may match, so that each needs a priority."""
        return any(match != "exact" for match in self.matches)

    def set_default(self, action: str, data: Sequence[int]) -> None:
        """Set the action on a miss.

        Raises:
            P4Error: the program gives the table's entries.
        """
        self._check_changeable()
        self.default = self.actions[action].bind(data)

    def add(self, action: str, keys: Keys, data: Sequence[int], priority: int | None) -> None:
        """Append an entry.

        Raises:
            P4Error: the table is full, already has an entry with these keys and this priority, or
                has those of the program.
        """
        self._check_changeable()
        if (keys, priority) in self._places:
            raise P4Error(f"table {self.name} already has an entry for {list(keys)}")
        if len(self.entries) >= self.size:
            raise P4Error(f"table {self.name} is full: it has room for {self.size} entries")
        self._places[keys, priority] = len(self.entries)
        if keys and isinstance(keys[0], Masked):
            self._masked.append((keys[0].value, keys[0].mask, len(self.entries)))
        self.entries.append(TableEntry(keys, priority, self.actions[action].bind(data)))

    def clear(self) -> None:
        """Remove all entries; the next one has the handle 0.

        Raises:
            P4Error: the program gives the table's entries.
        """
        self._check_changeable()
        self.entries.clear()
        self._places.clear()
        self._masked.clear()

    def modify(self, action: str, handle: int, data: Sequence[int]) -> None:
        """Change what an entry does.

        Raises:
            P4Error: the table has no such entry, or those of the program.
        """
        self._check_changeable()
        old = self.entry(handle)
        self.entries[handle] = TableEntry(old.keys, old.priority, self.actions[action].bind(data))

    def _check_changeable(self) -> None:
        if self.constant:
            raise P4Error(f"table {self.name} has constant entries")

    def entry(self, handle: int) -> TableEntry:
        """Return the entry with a handle.

        Raises:
            P4Error: the table has no such entry.
        """
        if not 0 <= handle < len(self.entries):
            raise P4Error(f"table {self.name} has {len(self.entries)} entries, no entry {handle}")
        return self.entries[handle]

    def handle(self, keys: Keys, priority: int | None) -> int:
        """Return the handle of an existing entry."""
        return self._places[keys, priority]

    def apply(self, frame: Frame) -> None:
        """Look up the entry for a frame, and run its action."""
        # Without entries no key is read: a keyless table always takes its default.
        entry = self._lookup(tuple(k.run(frame) for k in self.keys)) if self.entries else None
        (self.default if entry is None else entry.does).run(frame)

    def _lookup(self, values: tuple[int, ...]) -> TableEntry | None:
        """Find the matching entry; among several, the one with the smallest priority."""
        if not self.prioritised:  # exact keys: a dictionary finds the entry without a search
            place = self._places.get((values, None))
            return None if place is None else self.entries[place]
        matching: Iterable[TableEntry]
        if self.matches == ("ternary",):  # of a tree, and there are many of them
            (one,) = values
            matching = [self.entries[i] for key, mask, i in self._masked if one & mask == key]
        else:
            matching = (entry for entry in self.entries if all(map(_holds, entry.keys, values)))
        return min(matching, key=lambda entry: entry.priority or 0, default=None)


def _holds(key: Key, value: int) -> bool:
    if isinstance(key, Masked):
        return value & key.mask == key.value
    return key[0] <= value <= key[1] if isinstance(key, tuple) else key == value
