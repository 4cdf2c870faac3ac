# SPDX-License-Identifier: Apache-2.0
"""Reads commands of ``simple_switch_CLI`` by that program's own rules.

The reader knows the commands that n3ic writes, and the tables, actions and meters of one program.
It refuses each line that ``simple_switch_CLI`` refuses, misreads or crashes on. The rules follow
bmv2's help texts, its ``docs/runtime_CLI.md`` and the behaviour of bmv2 1.15.5:

- A command is one line; words are separated by blanks. An empty line repeats the line before it.
- A table, action or meter is named in full, or by a suffix of its name that begins at a dot and
  that no other name ends in.
- ``table_set_default TABLE ACTION [DATA...]``.
- ``table_add TABLE ACTION KEYS... => [DATA...]``, followed by a decimal priority if the table
  has a range or a ternary key. Without ``=>`` the last word is lost.
- ``table_clear TABLE`` removes all entries, and keeps the default action. It renumbers: the next
  entry has the handle 0.
- ``table_modify TABLE ACTION HANDLE [DATA...]``, with or without ``=>`` before the data. If nothing
  follows the handle, it fails with an IndexError, so empty data is written as ``=>``.
- ``meter_set_rates METER INDEX RATE:BURST RATE:BURST``: the committed rate and the peak rate, in
  units per microsecond.
- Handles, indices, priorities and bursts are decimal. Keys and data are decimal, or hexadecimal
  after ``0x``; with 32, 48 and 128 bits also IPv4, MAC and IPv6 addresses. A negative value becomes
  0. A value above its width is not refused if it fits the last byte.
- A key that matches a range is ``LEAST->GREATEST``, and a ternary key ``VALUE&&&MASK``, of which
  bits outside the mask become 0. Any other key is one value. Among entries that match, that of the
  smallest priority wins.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.meters import Rate, RuntimeMeter
from n3ic.exporters.p4.interpreter.tables import CompiledAction, Key, Masked, RuntimeTable

_KEY_FORMS = {
    "exact": ("a number", ""),
    "range": ("LEAST->GREATEST", "->"),
    "ternary": ("VALUE&&&MASK", "&&&"),
}
_INT32 = 1 << 31  # priorities and indices are signed 32-bit numbers in the Thrift interface


@dataclass(frozen=True)
class SetDefault:
    """``table_set_default``: sets the action on a miss."""

    table: str
    action: str
    data: tuple[int, ...]


@dataclass(frozen=True)
class TableAdd:
    """``table_add``: adds an entry; ``priority`` is None if all keys are exact."""

    table: str
    action: str
    keys: tuple[Key, ...]
    data: tuple[int, ...]
    priority: int | None


@dataclass(frozen=True)
class TableClear:
    """``table_clear``: removes all entries of a table."""

    table: str


@dataclass(frozen=True)
class TableModify:
    """``table_modify``: sets another action or other data for an entry."""

    table: str
    action: str
    handle: int
    data: tuple[int, ...]


@dataclass(frozen=True)
class SetRates:
    """``meter_set_rates``: sets the committed and the peak rate of a meter."""

    meter: str
    index: int
    rates: tuple[Rate, Rate]


Command = SetDefault | TableAdd | TableClear | TableModify | SetRates


class CommandReader:
    """Reads commands for one program; its results hold full names."""

    def __init__(
        self, tables: Mapping[str, RuntimeTable], meters: Mapping[str, RuntimeMeter]
    ) -> None:
        self._tables, self._meters = tables, meters
        self._table_names = _by_ending(tables)
        self._meter_names = _by_ending(meters)
        self._action_names = _by_ending({a for t in tables.values() for a in t.actions})

    def read(self, text: str) -> list[Command]:
        """Read the commands of a file.

        Raises:
            P4Error: a line is not a command that n3ic writes, does not suit the program, or is one
                that ``simple_switch_CLI`` refuses or misreads; the error names the line.
        """
        lines = text.split("\n")
        commands: list[Command] = []
        for position, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
            try:
                commands.append(self._command(line))
            except P4Error as error:
                raise P4Error(f"entry {position}: {error}") from error
        return commands

    def _command(self, line: str) -> Command:
        if not line.isascii():
            raise P4Error(f"expected ASCII, got {line[:80]!r}")
        match line.split():
            case []:
                raise P4Error(
                    "an empty line, which makes simple_switch_CLI repeat the line before it"
                )
            case ["table_set_default", table, action, *data]:
                full_table, full_action = self._action(table, action)
                return SetDefault(full_table.name, full_action.name, _data(full_action, data))
            case ["table_add", table, action, *rest]:
                return self._add(*self._action(table, action), rest)
            case ["table_clear", table]:
                return TableClear(_named(self._table_names, table, "table"))
            case ["table_modify", table, action, handle, *data]:
                full_table, full_action = self._action(table, action)
                if not data:
                    raise P4Error(
                        f"nothing follows the handle, which crashes simple_switch_CLI: write => if "
                        f"action {full_action.name} has no data"
                    )
                values = data[1:] if data[0] == "=>" else data
                place = _decimal(handle, "a handle", 1 << 63)
                return TableModify(
                    full_table.name, full_action.name, place, _data(full_action, values)
                )
            case ["meter_set_rates", meter, index, *rates]:
                name = _named(self._meter_names, meter, "meter")
                place = _decimal(index, "an index", _INT32)
                if place >= self._meters[name].size:
                    size = self._meters[name].size
                    raise P4Error(f"meter {name} has {size} meters, no meter {place}")
                return SetRates(name, place, _rates(rates))
        raise P4Error(f"not a table command that n3ic writes: {line[:80]!r}")

    def _action(self, table: str, action: str) -> tuple[RuntimeTable, CompiledAction]:
        full_table = self._tables[_named(self._table_names, table, "table")]
        name = _named(self._action_names, action, "action")
        if name not in full_table.actions:
            raise P4Error(f"table {full_table.name} has no action {action}")
        return full_table, full_table.actions[name]

    def _add(self, table: RuntimeTable, action: CompiledAction, words: Sequence[str]) -> TableAdd:
        priority, rest = None, list(words)
        if table.prioritised:
            if not rest or not rest[-1].isdecimal():
                kind = next(match for match in table.matches if match != "exact")
                raise P4Error(
                    f"table {table.name} has a {kind} key: a decimal priority must follow the "
                    "entry's data"
                )
            priority = _decimal(rest.pop(), "a priority", _INT32)
        if "=>" not in rest:
            raise P4Error("table_add takes KEYS => DATA; write => even if there is no data")
        middle = rest.index("=>")
        if middle != len(table.keys) or not table.keys:
            raise P4Error(f"table {table.name} has {len(table.keys)} keys, got {middle}")
        keys = tuple(
            _key(table.name, word, key.sized, match)
            for word, key, match in zip(rest, table.keys, table.matches, strict=False)
        )
        return TableAdd(table.name, action.name, keys, _data(action, rest[middle + 1 :]), priority)


def _by_ending(names: Iterable[str]) -> dict[str, list[str]]:
    """List the full names by each suffix that begins after a dot."""
    out: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split(".")
        for start in range(len(parts)):
            out[".".join(parts[start:])].append(name)
    return out


def _named(known: Mapping[str, Sequence[str]], name: str, what: str) -> str:
    matches = known.get(name, ())
    if not matches:
        raise P4Error(f"the program has no {what} {name}")
    if len(matches) > 1:
        raise P4Error(f"{what} {name} is ambiguous: {', '.join(sorted(matches))}")
    return matches[0]


def _data(action: CompiledAction, words: Sequence[str]) -> tuple[int, ...]:
    widths = [leaf.type.width for leaf in action.parameters]
    if len(words) != len(widths):
        raise P4Error(f"action {action.name} needs {len(widths)} parameters, got {len(words)}")
    return tuple(
        _value(word, width, f"parameter {leaf.name}")
        for word, width, leaf in zip(words, widths, action.parameters, strict=True)
    )


def _key(table: str, text: str, width: int, match: str) -> Key:
    expected, between = _KEY_FORMS[match]
    words = re.split("->|&&&", text)
    values = [_value(word, width, f"a key of table {table}") for word in words]
    if between.join(words) != text or len(words) != 1 + bool(between):
        raise P4Error(f"key {text[:40]} of table {table}: expected {expected}")
    if match == "ternary":
        return Masked(values[0] & values[1], values[1])
    if values != sorted(values):
        raise P4Error(f"key {text[:40]} of table {table}: expected {expected}")
    return (values[0], values[1]) if match == "range" else values[0]


def _value(text: str, width: int, what: str) -> int:
    try:
        value = _address(text, width)
        if value is None:
            value = int(text, 0)  # as simple_switch_CLI: base 0 reads 0x, and refuses 012
    except ValueError as error:
        raise P4Error(f"{text[:40]!r} is not a number of {width} bits: {what}") from error
    if not 0 <= value < 1 << width:
        raise P4Error(f"{value:#x} does not fit bit<{width}>: {what}"[:200])
    return value


def _address(text: str, width: int) -> int | None:
    """Parse an address in the notation of its width; return None for any other text."""
    if width == 32 and "." in text:
        return int(ipaddress.IPv4Address(text))
    if width == 48 and ":" in text:
        # The standard library parses IP addresses only.
        if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
            raise ValueError(text)
        return int(text.replace(":", ""), 16)
    if width == 128 and ":" in text:
        return int(ipaddress.IPv6Address(text))
    return None


def _decimal(text: str, what: str, end: int) -> int:
    if not text.isdecimal() or len(text) > 20 or int(text) >= end:  # length first: int() is slow
        raise P4Error(f"{text[:40]!r} is not a decimal number for {what}")
    return int(text)


def _rates(words: Sequence[str]) -> tuple[Rate, Rate]:
    try:
        rates = [_rate(word) for word in words]
    except ValueError as error:
        raise P4Error(f"expected RATE:BURST RATE:BURST, got {' '.join(words)[:80]!r}") from error
    if len(rates) != 2:
        raise P4Error(f"a meter has two rates, got {len(rates)}")
    return rates[0], rates[1]


def _rate(word: str) -> Rate:
    rate, burst = word.split(":")
    if not (math.isfinite(float(rate)) and float(rate) > 0):
        raise ValueError(word)
    return Fraction(rate), _decimal(burst, "a burst", 1 << 31)  # the text's exact value
