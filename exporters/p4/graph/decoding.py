# SPDX-License-Identifier: Apache-2.0
"""Reads a graph back: keys and sums from ``n3ic.p4``, leaves from the files of entries.

The code shares nothing with the writer, so that a mistake there shows here. Numbers have a bounded
count of digits, so that a hostile program cannot make int() slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from n3ic.errors import ExportError, ModelError, VerifyError
from n3ic.exporters.p4.decoding import DecodedEntry, loaded, tutorial_entries
from n3ic.exporters.p4.graph.trees import forest_tables
from n3ic.exporters.p4.shared.decoding import digest_of_numbers, signature_of, signed
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Choose, Constant, Graph
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import DecodedGraph, compared
from n3ic.targets.decoding import Decoded

_PROGRAM = "n3ic.p4"
_KEY = re.compile(r"^ +meta\.k(\d{1,5}) = (.*);$", re.MULTILINE)
_PART = re.compile(
    r"\(\(\(bit<(\d{1,5})>\) (?:meta\.x|\(meta\.x >> (\d{1,5})\)|meta\.x\[(\d{1,5}):(\d{1,5})\])\)"
    r" & (\d{1,5})w0x([0-9a-f]{1,512})\)"
)
_JOINED = "(P | P)"
_TABLE = re.compile(
    r"^ +table t(\d{1,5}) \{\n +key = \{ meta\.k(\d{1,5}): ternary; \}\n"
    r" +actions = \{ t(\d{1,5})_leaf; no_entry; \}\n",
    re.MULTILINE,
)
_ACTION = re.compile(r"^ +action t(\d{1,5})_leaf\((.*)\) \{$", re.MULTILINE)
_PARAMETER = re.compile(r"bit<(\d{1,2})> leaf(\d{1,5})")
_KEPT = re.compile(
    r"^ +meta\.t(\d{1,5})_s(\d{1,5}) = \(bit<\d{1,2}>\) leaf(\d{1,5});$", re.MULTILINE
)
_SUM = r"meta\.(t\d{1,5}_s\d{1,5})"
_ADD = re.compile(rf"^ +{_SUM} = {_SUM} \+ {_SUM};$", re.MULTILINE)
_TOTAL = re.compile(
    rf"^ +meta\.score(\d{{1,5}}) = (?:\(\(bit<32>\) {_SUM}\) \+ )?offset(\d{{1,5}});$",
    re.MULTILINE,
)
_ASSIGNMENT = re.compile(r"\bmeta\.(?:k\d+|t\d+_s\d+|score\d+)\s*=")
_OFFSETS = re.compile(r"^ +action add_offsets\((.*)\) \{$", re.MULTILINE)
_ENTRY_TABLE = re.compile(r"t(\d{1,5})")
_KEYED = {"table", "match", "priority", "action_name", "action_params"}
_DEFAULT = {"table", "default_action", "action_name", "action_params"}


@dataclass(frozen=True)
class KeyedTable:
    """A table of a program.

    Attributes:
        key: number of its key.
        bits: the input bits of its key, the lowest first.
        columns: for each parameter of its action, its width and the score that it belongs to.
    """

    key: int
    bits: tuple[int, ...]
    columns: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ProgramKeys:
    """The properties of the tables in a program, apart from their entries.

    Attributes:
        tables: its tables in order.
        scores: for each class, the tables that are added to its score.
        signature: suffix of the actions that set the model's number.
    """

    tables: tuple[KeyedTable, ...]
    scores: tuple[frozenset[int], ...]
    signature: str


def program_keys(source: str) -> ProgramKeys:
    """Decode the keys of a program's tables, and how it adds their leaves.

    Raises:
        VerifyError: a key is not made of input bits, a table is not looked up by a key or does not
            keep its own leaves, or a leaf is added twice or not at all.
    """
    keys = _once(((int(k), text) for k, text in _KEY.findall(source)), "key")
    bits = {k: _bits(k, text) for k, text in keys.items()}
    actions = _once(((int(t), text) for t, text in _ACTION.findall(source)), "action of table")
    columns = {t: _columns(t, text) for t, text in actions.items()}
    looked_up = _TABLE.findall(source)
    if any(own != action for own, _, action in looked_up):
        raise _wrong("a table runs the action of another one")
    tables = _once(((int(t), int(k)) for t, k, _ in looked_up), "table")
    if [*tables] != [*range(len(tables))] or tables.keys() != columns.keys():
        raise _wrong("tables are not numbered in order, with an action each")
    if not {*tables.values()} <= bits.keys():
        raise _wrong("a table is looked up by a key that is not made")
    kept = sorted(tuple(map(int, numbers)) for numbers in _KEPT.findall(source))
    fields = sorted((t, s) for t, own in columns.items() for _, s in own)
    if kept != [(t, s, s) for t, s in fields]:
        raise _wrong("an action does not keep the leaves of its own table")
    statements = sum(len(form.findall(source)) for form in (_KEY, _KEPT, _ADD, _TOTAL))
    if len(_ASSIGNMENT.findall(source)) != statements:
        raise _wrong("a key, a leaf or a score is set by a statement of another form")
    return ProgramKeys(
        tuple(KeyedTable(k, bits[k], columns[t]) for t, k in tables.items()),
        _scores(source, {f"t{t}_s{s}" for t, s in fields}),
        signature_of(source),
    )


def _wrong(text: str) -> VerifyError:
    return VerifyError(f"{_PROGRAM}: {text}")


def _once(pairs: Any, what: str) -> dict[int, Any]:
    """The pairs as a mapping, in order."""
    out: dict[int, Any] = {}
    for number, value in pairs:
        if number in out:
            raise _wrong(f"{what} {number} is made twice")
        out[number] = value
    return out


def _bits(key: int, text: str) -> tuple[int, ...]:
    """The input bits of a key, whose parts must fill it once."""
    at: dict[int, int] = {}
    widths = set()
    for width, shift, high, low, mask_width, digits in _PART.findall(text):
        widths |= {int(width), int(mask_width)}
        mask = int(digits, 16)
        for place in (i for i in range(mask.bit_length()) if mask >> i & 1):
            if place in at:
                raise _wrong(f"bit {place} of key {key} is made twice")
            at[place] = place + int(shift or low or 0)
            if high and at[place] > int(high):
                raise _wrong(f"bit {place} of key {key} lies beyond its slice")
    shape = _PART.sub("P", text)
    while _JOINED in shape:
        shape = shape.replace(_JOINED, "P")
    if shape != "P" or widths != {len(at)} or {*at} != {*range(len(at))}:
        raise _wrong(f"key {key} is not made of input bits")
    bits = tuple(at[place] for place in range(len(at)))
    if len({*bits}) != len(bits):
        raise _wrong(f"key {key} has an input bit twice")
    return bits


def _columns(table: int, text: str) -> tuple[tuple[int, int], ...]:
    parameters = [_PARAMETER.fullmatch(part) for part in text.split(", ")]
    columns = tuple((int(p[1]), int(p[2])) for p in parameters if p is not None)
    if len(columns) != len(parameters) or len({s for _, s in columns}) != len(columns):
        raise _wrong(f"the action of table {table} does not take leaves of scores")
    return columns


def _scores(source: str, fields: set[str]) -> tuple[frozenset[int], ...]:
    """The tables whose leaves are added to each score."""
    sums = {field: frozenset({field}) for field in fields}
    for into, left, right in _ADD.findall(source):
        if into != left or not {left, right} <= sums.keys() or sums[left] & sums[right]:
            raise _wrong(f"{into} = {left} + {right} adds a leaf twice, or one that is not there")
        sums[into] = sums[left] | sums[right]
    totals = _once(((int(s), (f, int(o))) for s, f, o in _TOTAL.findall(source)), "score")
    names = [text.split(", ") for text in _OFFSETS.findall(source)]
    if names != [[f"bit<32> offset{c}" for c in range(len(totals))]] or [*totals] != [
        *range(len(totals))
    ]:
        raise _wrong("scores and offsets are not numbered in order")
    out = []
    for c, (field, offset) in totals.items():
        own = {each for each in fields if each.endswith(f"_s{c}")}
        if offset != c or (sums.get(field, frozenset()) if field else frozenset()) != own:
            raise _wrong(f"score {c} is not the sum of its leaves")
        out.append(frozenset(int(each[1:].partition("_")[0]) for each in own))
    return tuple(out)


def from_runtime(text: str, name: str, program: ProgramKeys) -> list[DecodedEntry]:
    """Read the entries of a runtime file of the p4lang tutorials.

    Raises:
        VerifyError: the file is not a runtime file for the program.
    """
    entries = []
    for entry in tutorial_entries(text, name):
        try:
            entries.append(_runtime_entry(entry, name, program))
        except (TypeError, KeyError, AttributeError, ValueError, IndexError) as error:
            raise VerifyError(f"{name}: not an entry of this export: {error!r}") from error
    return entries


def _runtime_entry(entry: Any, name: str, program: ProgramKeys) -> DecodedEntry:
    table, data = entry["table"], entry["action_params"]
    place = _ENTRY_TABLE.fullmatch(table)
    if place is None:
        parameters = {"offsets": [f"offset{c}" for c in range(len(program.scores))]}.get(table)
        known = set(entry) == _DEFAULT and entry["default_action"] is True
        values: list[Any] = []
    else:
        keyed = program.tables[int(place[1])]
        parameters = [f"leaf{s}" for _, s in keyed.columns]
        ((field, values),) = entry["match"].items()
        known = set(entry) == _KEYED and field == f"meta.k{keyed.key}" and len(values) == 2
        known = known and type(entry["priority"]) is int and entry["priority"] == 1
    if not known or (parameters is not None and [*data] != parameters):
        raise VerifyError(f"{name}: not an entry of this export: {str(entry)[:200]}")
    numbers = [*values, *data.values()]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise VerifyError(f"{name}: {table} has a value that is not a number from 0 on")
    return DecodedEntry(table, entry["action_name"], tuple(data.values()), *values)


def decode_entries(
    artefact: str,
    entries: Sequence[DecodedEntry],
    program: ProgramKeys,
    model: Classifier,
    shunt_port: int | None = None,
) -> Decoded:
    """Decode the graph that a file of entries loads into a program; compare it with the model's.

    Args:
        artefact: name of the file, for errors.
        entries: entries of the file, in order.
        program: the properties of the program's tables.
        model: the model.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: an entry is missing, unknown or duplicated; the graph is another one; or an
            answer could carry the model's number before all entries are loaded.
    """
    contents = loaded(artefact, entries, shunt_port)
    if contents.signature != program.signature:
        raise VerifyError(f"{artefact}: does not end with the model's number for this program")
    offsets: tuple[int, ...] | None = None
    leaves: dict[int, list[DecodedEntry]] = {t: [] for t in range(len(program.tables))}
    for entry in contents.entries:
        place = _ENTRY_TABLE.fullmatch(entry.table)
        if place is not None and int(place[1]) in leaves and entry.mask is not None:
            if entry.action != f"{entry.table}_leaf":
                raise VerifyError(f"{artefact}: {entry.table} has an entry with {entry.action}")
            leaves[int(place[1])].append(entry)
        elif (entry.table, entry.action, offsets) == ("offsets", "add_offsets", None):
            offsets = entry.data
        else:
            raise VerifyError(f"{artefact}: no such entry: {entry.table} with {entry.action}")
    if offsets is None or len(offsets) != len(program.scores):
        raise VerifyError(f"{artefact}: the offsets are not set once, for all scores")
    try:
        graph = _graph(artefact, leaves, offsets, program, model.input)
        own = forest_tables(graph_of(model)).graph
    except (ModelError, ExportError) as error:
        raise VerifyError(f"{artefact}: {error}") from error
    digest = digest_of_numbers(contents.numbers, model)
    decoded = DecodedGraph(artefact, graph, None, contents.shunt or 0, digest)
    return compared(model, decoded, own)


def _graph(
    artefact: str,
    leaves: Mapping[int, Sequence[DecodedEntry]],
    offsets: Sequence[int],
    program: ProgramKeys,
    spec: InputSpec,
) -> Graph:
    """The graph of all tables."""
    builder = GraphBuilder(spec)
    scores = []
    for c, start in enumerate(offsets):
        values = []
        for t in sorted(program.scores[c]):
            table = program.tables[t]
            column = [s for _, s in table.columns].index(c)
            excess = 1 << (table.columns[column][0] - 1)
            start += excess
            rows = [(e.key or 0, e.mask or 0, _data(artefact, e, table)[column] - excess)
                    for e in leaves[t]]  # fmt: skip
            values.append(_value(f"{artefact}: t{t}", builder, table.bits, rows))
        scores.append(builder.offset(builder.total(values), signed(start)))
    return builder.build(scores)


def _data(artefact: str, entry: DecodedEntry, table: KeyedTable) -> tuple[int, ...]:
    if len(entry.data) != len(table.columns) or any(
        value >> width for value, (width, _) in zip(entry.data, table.columns, strict=False)
    ):
        raise VerifyError(f"{artefact}: {entry.table} has leaves of another size")
    return entry.data


def _value(
    where: str, builder: GraphBuilder, bits: Sequence[int], rows: Sequence[tuple[int, int, int]]
) -> int:
    """The tree whose leaves are ternary entries, in order; a look-up if it asks a single field.

    A table that adds to several scores may ask more than the tree of one of them.
    """
    root = _tree(where, builder, bits, rows, (0, 0))
    asked = _asked(builder, root)
    spec = builder.input
    for at, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
        if field.kind == "thermometer" and asked <= {*range(start, start + field.width)}:
            bins = range(start, start + field.width + 1)
            return builder.lookup(at, [_leaf(builder, root, reached) for reached in bins])
    return root


def _asked(builder: GraphBuilder, root: int) -> set[int]:
    """The input bits of the choices of a tree."""
    bits: set[int] = set()
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        step = builder.steps[at := waiting.pop()]
        if isinstance(step, Choose) and at not in seen:
            seen.add(at)
            bits.add(step.bit)
            waiting += [step.zero, step.one]
    return bits


def _leaf(builder: GraphBuilder, root: int, end: int) -> int:
    """The leaf of a tree where the input bits before ``end`` are set."""
    step = builder.steps[root]
    while isinstance(step, Choose):
        step = builder.steps[step.one if step.bit < end else step.zero]
    assert isinstance(step, Constant)  # noqa: S101 - entries are numbers
    return step.value


def _tree(
    where: str,
    builder: GraphBuilder,
    bits: Sequence[int],
    rows: Sequence[tuple[int, int, int]],
    way: tuple[int, int],
) -> int:
    """The tree below a way, whose value and mask all its entries have in common.

    The first bit that a tree asks is 0 in its first entries and 1 in all others.
    """
    value, mask = way
    if len(rows) == 1 and rows[0][:2] == way:
        return builder.constant(rows[0][2])
    for j, bit in enumerate(bits):
        one = 1 << j
        if mask & one or not all(row[1] & one for row in rows):
            continue
        sides = [row[0] & one for row in rows]
        if sides == sorted(sides) and {*sides} == {0, one}:
            split = sides.index(one)
            parts = (
                _tree(where, builder, bits, part, (value | into, mask | one))
                for part, into in ((rows[:split], 0), (rows[split:], one))
            )
            return builder.choose(bit, *parts)
    raise VerifyError(f"{where}: the entries behind {value:#x}&&&{mask:#x} are not those of a tree")
