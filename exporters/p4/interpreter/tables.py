"""Tables and actions of a running program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.expressions import Typed
from n3ic.exporters.p4.interpreter.steps import Step
from n3ic.exporters.p4.interpreter.types import Frame, Leaf

# An action with its data: slots with their values, then what to run.
Bound = tuple[tuple[tuple[int, int], ...], tuple[Step, ...]]


@dataclass(frozen=True, eq=False)
class CompiledAction:
    """An action of one control instance."""

    name: str
    parameters: tuple[Leaf, ...]
    body: tuple[Step, ...]

    def bind(self, values: Sequence[int]) -> Bound:
        """Slots with their values, and the body to run after they are set.

        Raises:
            P4Error: a value does not fit its parameter, or there are too few or too many.
        """
        if len(values) != len(self.parameters):
            raise P4Error(
                f"action {self.name} needs {len(self.parameters)} parameters, got {len(values)}"
            )
        for leaf, value in zip(self.parameters, values, strict=True):
            if not 0 <= value < 1 << leaf.type.width:
                raise P4Error(f"{value:#x} does not fit {leaf.type} of {leaf.name}")
        slots = tuple((p.slot, v) for p, v in zip(self.parameters, values, strict=True))
        return slots, self.body


Key = int | tuple[int, int]  # a value, or the least and the greatest of a range


@dataclass(eq=False)
class RuntimeTable:
    """A table of one control instance, with the entries that it holds now.

    Attributes:
        name: as the control plane calls it.
        keys: its keys.
        ranged: which of them match ranges.
        actions: by their names.
        default: what happens on a miss.
        entries: what happens on a hit, by the keys, in the order of their adding.
        priorities: of the entries of a table that matches ranges; the smallest one that matches
            counts.
    """

    name: str
    keys: tuple[Typed, ...]
    ranged: tuple[bool, ...]
    actions: Mapping[str, CompiledAction]
    default: Bound
    entries: dict[tuple[Key, ...], Bound] = field(default_factory=dict)
    priorities: dict[tuple[Key, ...], int] = field(default_factory=dict)

    def action(self, name: str) -> CompiledAction:
        """The action of that control-plane name.

        Raises:
            P4Error: the table has no such action.
        """
        if name not in self.actions:
            raise P4Error(f"table {self.name} has no action {name}")
        return self.actions[name]

    def set_default(self, action: str, values: Sequence[int]) -> None:
        """Make an action with its data what happens on a miss."""
        self.default = self.action(action).bind(values)

    def add(self, action: str, keys: Sequence[str], values: Sequence[int]) -> None:
        """Add an entry.

        Args:
            action: what it runs.
            keys: a number each, or ``LEAST->GREATEST`` where a range is matched.
            values: the action's data; where ranges are matched, the entry's priority behind them.
        """
        if len(keys) != len(self.keys) or not self.keys:
            raise P4Error(f"table {self.name} has {len(self.keys)} keys, got {len(keys)}")
        given = tuple(
            self._key(key, text, ranged)
            for key, text, ranged in zip(self.keys, keys, self.ranged, strict=True)
        )
        if given in self.entries:
            raise P4Error(f"table {self.name} has an entry for {list(given)}")
        if any(self.ranged):
            if not values:
                raise P4Error(f"table {self.name} matches ranges: an entry has a priority")
            *values, priority = values
            self.priorities[given] = priority
        self.entries[given] = self.action(action).bind(values)

    def _key(self, key: Typed, text: str, ranged: bool) -> Key:
        ends = [number(word) for word in text.split("->")]
        if len(ends) != 1 + ranged or ends != sorted(ends):
            expected = "LEAST->GREATEST" if ranged else "a number"
            raise P4Error(f"key {text[:40]} of table {self.name}: expected {expected}")
        for value in ends:
            if not 0 <= value < 1 << key.sized:
                raise P4Error(f"key {value:#x} of table {self.name} does not fit bit<{key.width}>")
        return (ends[0], ends[1]) if ranged else ends[0]

    def modify(self, action: str, handle: int, values: Sequence[int]) -> None:
        """Change what an entry does; its handle counts the entries in the order of their adding."""
        if not 0 <= handle < len(self.entries):
            raise P4Error(f"table {self.name} has {len(self.entries)} entries, none of {handle}")
        keys = list(self.entries)[handle]
        self.entries[keys] = self.action(action).bind(values)

    def apply(self, frame: Frame) -> None:
        """Look the entry up and run its action."""
        chosen = self.default
        if self.entries:
            seen = tuple(k.run(frame) for k in self.keys)
            matched = self._in_range(seen) if self.priorities else seen
            chosen = self.entries.get(matched, chosen)
        for slot, value in chosen[0]:
            frame[slot] = value
        for step in chosen[1]:
            step(frame)

    def _in_range(self, seen: tuple[int, ...]) -> tuple[Key, ...]:
        """The keys of the first entry, by priority, that matches."""
        matching = (keys for keys in self.entries if all(map(_holds, keys, seen)))
        return min(matching, key=lambda keys: self.priorities[keys], default=())


def _holds(key: Key, value: int) -> bool:
    return key[0] <= value <= key[1] if isinstance(key, tuple) else key == value


def number(text: str) -> int:
    """A number or a MAC address of a command.

    Raises:
        P4Error: it is neither.
    """
    if re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        return int(text.replace(":", ""), 16)
    try:
        return int(text, 0)
    except ValueError as error:
        raise P4Error(f"{text[:40]!r} is no number") from error
