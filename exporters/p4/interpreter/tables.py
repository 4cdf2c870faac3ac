"""Tables and actions of a running program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expressions import Typed
from n3ic.exporters.p4.interpreter.steps import Step
from n3ic.exporters.p4.interpreter.types import Frame, Leaf


@dataclass(frozen=True, eq=False)
class Bound:
    """An action with its data.

    Attributes:
        action: its name.
        data: a value a parameter.
        slots: slots with their values, set before the body runs.
        body: what to run.
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
    parameters: tuple[Leaf, ...]
    body: tuple[Step, ...]

    def bind(self, values: Sequence[int]) -> Bound:
        """The action with its data.

        Raises:
            P4Error: there are too few values or too many.
        """
        if len(values) != len(self.parameters):
            raise P4Error(
                f"action {self.name} needs {len(self.parameters)} parameters, got {len(values)}"
            )
        slots = tuple((p.slot, v) for p, v in zip(self.parameters, values, strict=True))
        return Bound(self.name, tuple(values), slots, self.body)


Key = int | tuple[int, int]  # a value, or the least and the greatest of a range
Keys = tuple[Key, ...]


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of a table.

    Attributes:
        keys: what it matches.
        priority: of an entry of ranges, the smallest first; None of others.
        does: its action with its data.
    """

    keys: Keys
    priority: int | None
    does: Bound


@dataclass(eq=False)
class RuntimeTable:
    """A table of one control instance, with the entries that it holds now.

    Attributes:
        name: as the control plane calls it.
        keys: its keys.
        ranged: which of them match ranges.
        actions: by their names.
        size: entries that it has room for.
        default: what happens on a miss.
        entries: what happens on a hit; an entry's handle is its place.
    """

    name: str
    keys: tuple[Typed, ...]
    ranged: tuple[bool, ...]
    actions: Mapping[str, CompiledAction]
    size: int
    default: Bound
    entries: list[Entry] = field(default_factory=list)
    _places: dict[tuple[Keys, int | None], int] = field(default_factory=dict)

    def set_default(self, action: str, data: Sequence[int]) -> None:
        """Make an action with its data what happens on a miss."""
        self.default = self.actions[action].bind(data)

    def add(self, action: str, keys: Keys, data: Sequence[int], priority: int | None) -> None:
        """Add an entry.

        Raises:
            P4Error: the table is full, or has an entry of these keys and this priority.
        """
        if (keys, priority) in self._places:
            raise P4Error(f"table {self.name} has an entry for {list(keys)}")
        if len(self.entries) >= self.size:
            raise P4Error(f"table {self.name} is full: it has room for {self.size} entries")
        self._places[keys, priority] = len(self.entries)
        self.entries.append(Entry(keys, priority, self.actions[action].bind(data)))

    def modify(self, action: str, handle: int, data: Sequence[int]) -> None:
        """Change what an entry does.

        Raises:
            P4Error: the table has no such entry.
        """
        old = self.entry(handle)
        self.entries[handle] = Entry(old.keys, old.priority, self.actions[action].bind(data))

    def entry(self, handle: int) -> Entry:
        """The entry of a handle.

        Raises:
            P4Error: the table has no such entry.
        """
        if not 0 <= handle < len(self.entries):
            raise P4Error(f"table {self.name} has {len(self.entries)} entries, none of {handle}")
        return self.entries[handle]

    def handle(self, keys: Keys, priority: int | None) -> int:
        """The handle of the entry of these keys and this priority, which is there."""
        return self._places[keys, priority]

    def apply(self, frame: Frame) -> None:
        """Look the entry up and run its action."""
        found = self._lookup(tuple(k.run(frame) for k in self.keys)) if self.entries else None
        (self.default if found is None else found.does).run(frame)

    def _lookup(self, seen: tuple[int, ...]) -> Entry | None:
        """The entry that matches; of several that with the smallest priority."""
        if not any(self.ranged):
            place = self._places.get((seen, None))
            return None if place is None else self.entries[place]
        matching = (entry for entry in self.entries if all(map(_holds, entry.keys, seen)))
        return min(matching, key=lambda entry: entry.priority or 0, default=None)


def _holds(key: Key, value: int) -> bool:
    return key[0] <= value <= key[1] if isinstance(key, tuple) else key == value
