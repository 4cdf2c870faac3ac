# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back: indices and sums from ``n3ic.p4``, entries from the files of entries.

The code shares nothing with the writer, so that a mistake there shows here. Numbers have a bounded
count of digits, so that a hostile program cannot make int() slow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.p4.decoding import DecodedEntry, loaded
from n3ic.exporters.p4.shared.decoding import digest_of_numbers, signature_of, signed
from n3ic.model.classifier import Classifier
from n3ic.targets.decoded_graphs import DecodedGraph, graph_of_tables

_PROGRAM = "n3ic.p4"
_INDEX = r"^ +{meta}\.t(\d{{1,5}})_index = (.*);$"
_BIT = (
    r"\((?:\(\(bit<(?P<w>\d{{1,3}})>\) (?:\({meta}\.x >> (?P<right>\d{{1,5}})\)"
    r"|{meta}\.x\[(?P<high>\d{{1,5}}):(?P<low>\d{{1,5}})\])\)"
    r"|\(\(\(bit<(?P<w2>\d{{1,3}})>\) {meta}\.x\) << (?P<left>\d{{1,5}})\)"
    r"|\(\(bit<(?P<w3>\d{{1,3}})>\) {meta}\.x\)) & (?P<w4>\d{{1,3}})w0x(?P<mask>[0-9a-f]{{1,2}})\)"
)
_ADD = (
    r"^ +{meta}\.(t\d{{1,5}}_s\d{{1,5}}) = {meta}\.(t\d{{1,5}}_s\d{{1,5}}) \+ "
    r"{meta}\.(t\d{{1,5}}_s\d{{1,5}});$"
)
_TOTAL = (
    r"^ +{meta}\.score(\d{{1,5}}) = "
    r"(?:\(\(bit<32>\) {meta}\.(t\d{{1,5}}_s\d{{1,5}})\) \+ )?(\w{{1,20}});$"
)
_ACTION = re.compile(r"^ +action t(\d{1,5})_entry\((.*)\) \{$", re.MULTILINE)
_PARAMETER = re.compile(r"bit<\d> entry(\d{1,5})")
_OFFSETS = re.compile(r"^ +action add_offsets\((.*)\) \{$", re.MULTILINE)
_KEPT = re.compile(
    r"^ +meta\.t(\d{1,5})_s(\d{1,5}) = \(bit<\d{1,2}>\) entry(\d{1,5});$", re.MULTILINE
)
_KEYED = re.compile(
    r"^ +table t(\d{1,5}) \{\n +key = \{ meta\.t(\d{1,5})_index: exact; \}$", re.MULTILINE
)
_TABLE = re.compile(r"t(\d{1,5})")


@dataclass(frozen=True)
class Wiring:
    """How a program addresses its tables and adds their entries.

    Attributes:
        bits: for each table, the input bits of its index, the least significant first.
        added: for each class, the fields ``tT_sS`` whose sum is its score, without the offset.
        offsets: for each class, the offset as the program names or writes it.
    """

    bits: tuple[tuple[int, ...], ...]
    added: Mapping[int, frozenset[str]]
    offsets: Mapping[int, str]


def wiring_of(source: str, meta: str) -> Wiring:
    """Decode how a program addresses its tables and adds their entries.

    Args:
        source: P4 source.
        meta: name of the metadata in the source.

    Raises:
        VerifyError: an index is not made of input bits, a table is missing, or an entry is added
            twice.
    """
    indices = {}
    for table, terms in _matches(_INDEX, meta, source):
        if int(table) in indices:
            raise VerifyError(f"{_PROGRAM}: the index of table {table} is made twice")
        indices[int(table)] = _index(terms, meta, int(table))
    if sorted(indices) != list(range(len(indices))) or not indices:
        raise VerifyError(f"{_PROGRAM}: {len(indices)} indices do not belong to consecutive tables")
    sources: dict[str, frozenset[str]] = {}
    for into, left, right in _matches(_ADD, meta, source):
        one, other = sources.get(left, frozenset({left})), sources.get(right, frozenset({right}))
        if into != left or one & other:
            raise VerifyError(f"{_PROGRAM}: {into} = {left} + {right} adds an entry twice")
        sources[into] = one | other
    added, offsets = {}, {}
    for score, total, offset in _matches(_TOTAL, meta, source):
        if int(score) in offsets:
            raise VerifyError(f"{_PROGRAM}: score {score} is computed twice")
        added[int(score)] = sources.get(total, frozenset({total})) if total else frozenset()
        offsets[int(score)] = offset
    return Wiring(tuple(indices[t] for t in range(len(indices))), added, offsets)


def _matches(pattern: str, meta: str, source: str) -> list[tuple[str, ...]]:
    return re.findall(pattern.format(meta=meta), source, re.MULTILINE)


def _index(terms: str, meta: str, table: int) -> tuple[int, ...]:
    """Read the input bits of an index from its terms."""
    parts = terms.split(" | ")
    bits = []
    for j, part in enumerate(parts):
        match = re.fullmatch(_BIT.format(meta=meta), part)
        if match is None:
            raise VerifyError(f"{_PROGRAM}: the index of table {table} is not made of input bits")
        widths = {match[name] for name in ("w", "w2", "w3", "w4")} - {None}
        bit = j + int(match["right"] or match["low"] or 0) - int(match["left"] or 0)
        if match["high"] and int(match["high"]) < bit:
            raise VerifyError(f"{_PROGRAM}: bit {j} of the index of table {table} has no input bit")
        if widths != {str(len(parts))} or int(match["mask"], 16) != 1 << j or bit < 0:
            raise VerifyError(f"{_PROGRAM}: bit {j} of the index of table {table} is not in place")
        bits.append(bit)
    return tuple(bits)


@dataclass(frozen=True)
class ProgramWiring:
    """The properties of the tables in a v1model program, apart from their entries.

    Attributes:
        wiring: indices and sums.
        columns: for each table, the sum of each parameter of its action.
        offsets: names of the parameters of the action that adds the offsets.
        signature: suffix of the actions that set the model's number.
    """

    wiring: Wiring
    columns: Mapping[int, tuple[int, ...]]
    offsets: tuple[str, ...]
    signature: str


def program_wiring(source: str, meta: str) -> ProgramWiring:
    """Decode a v1model program.

    Raises:
        VerifyError: as for :func:`wiring_of`; or a table has the key or action of another table.
    """
    wiring = wiring_of(source, meta)
    columns = {
        int(table): tuple(map(int, _PARAMETER.findall(text)))
        for table, text in _ACTION.findall(source)
    }
    kept = sorted(tuple(map(int, numbers)) for numbers in _KEPT.findall(source))
    tables = range(len(wiring.bits))
    expected = sorted((t, s, s) for t, each in columns.items() for s in each)
    if sorted(columns) != list(tables) or kept != expected:
        raise VerifyError(f"{_PROGRAM}: an action does not keep the entries of its own table")
    if _KEYED.findall(source) != [(str(t), str(t)) for t in tables]:
        raise VerifyError(f"{_PROGRAM}: a table is not looked up by its own index")
    offsets = [names.split(", ") for names in _OFFSETS.findall(source)]
    if len(offsets) != 1:
        raise VerifyError(f"{_PROGRAM}: {len(offsets)} actions add the offsets")
    named = tuple(text.removeprefix("bit<32> ") for text in offsets[0])
    return ProgramWiring(wiring, columns, named, signature_of(source))


def decode_entries(
    artefact: str,
    entries: Sequence[DecodedEntry],
    program: ProgramWiring,
    model: Classifier,
    sums: int,
    shunt_port: int | None = None,
) -> DecodedGraph:
    """Decode the look-up tables that a file of entries loads into the program.

    Args:
        artefact: name of the file, for errors.
        entries: entries of the file, in order.
        program: the properties of the program's tables.
        model: the model, which gives input and classes and the model's number.
        sums: number of sums.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: an entry is missing, unknown or duplicated; or an answer could carry the
            model's number before all entries are loaded.
    """
    contents = loaded(artefact, entries, shunt_port)
    if contents.signature != program.signature:
        raise VerifyError(f"{artefact}: does not end with the model's number for this program")
    offsets: dict[str, int] = {}
    values: dict[tuple[int, int], tuple[int, ...]] = {}
    for entry in contents.entries:
        place = _TABLE.fullmatch(entry.table)
        if entry.key is None and (entry.table, entry.action) == ("offsets", "add_offsets"):
            if offsets or len(entry.data) != len(program.offsets):
                raise VerifyError(f"{artefact}: the offsets are set twice, or not all")
            offsets = dict(zip(program.offsets, entry.data, strict=True))
        elif entry.key is None or place is None or entry.action != f"{entry.table}_entry":
            raise VerifyError(f"{artefact}: no such entry: {entry.table} with {entry.action}")
        elif (int(place[1]), entry.key) in values:
            raise VerifyError(f"{artefact}: {entry.table} has two entries of index {entry.key}")
        else:
            values[int(place[1]), entry.key] = entry.data
    table_entries = _entries(artefact, program, values, sums)
    fields = {f"t{t}_s{s}" for t, each in program.columns.items() for s in each}
    bias = biases(artefact, program.wiring, offsets, fields, model, sums)
    tables = list(zip(program.wiring.bits, table_entries, strict=True))
    graph = graph_of_tables(artefact, model.input, tables, bias)
    digest = digest_of_numbers(contents.numbers, model)
    return DecodedGraph(artefact, graph, None, contents.shunt or 0, digest)


def _entries(
    artefact: str,
    program: ProgramWiring,
    values: Mapping[tuple[int, int], tuple[int, ...]],
    sums: int,
) -> list[NDArray[np.int64]]:
    """The entries of each table, with the excess that makes them positive; offsets take it back."""
    unused = dict(values)
    tables = []
    for t, bits in enumerate(program.wiring.bits):
        entries = np.zeros((1 << len(bits), sums), dtype=np.int64)
        for key in range(len(entries)):
            data = unused.pop((t, key), None)
            if data is None or len(data) != len(program.columns[t]):
                raise VerifyError(f"{artefact}: table t{t} lacks the entry of index {key}")
            for value, s in zip(data, program.columns[t], strict=True):
                if s >= sums:
                    raise VerifyError(f"{artefact}: table t{t} has entries of sum {s}")
                entries[key, s] = value
        tables.append(entries)
    if unused:
        t, key = next(iter(unused))
        raise VerifyError(f"{artefact}: table t{t} has no index {key}")
    return tables


def biases(
    artefact: str,
    wiring: Wiring,
    offsets: Mapping[str, int],
    fields: Collection[str],
    model: Classifier,
    sums: int,
) -> NDArray[np.int64]:
    """Compute the biases of the sums from their offsets.

    Args:
        artefact: name of the artefact, for errors.
        wiring: indices and sums.
        offsets: 32-bit offsets, by their names in the program.
        fields: the fields ``tT_sS`` of all entries.
        model: the model, which gives the number of classes.
        sums: number of sums.

    Raises:
        VerifyError: a score lacks an offset, or does not add exactly the entries of its own sum.
    """
    first = len(model.classes) - sums
    if first and (wiring.added.get(0), wiring.offsets.get(0)) != (frozenset(), "0"):
        raise VerifyError(f"{artefact}: the score of the first of two classes is not 0")
    own = {s: frozenset(f for f in fields if f.endswith(f"_s{s}")) for s in range(sums)}
    out = []
    for s in range(sums):
        score = first + s
        if wiring.added.get(score) != own[s] or wiring.offsets.get(score) not in offsets:
            raise VerifyError(f"{artefact}: score {score} is not the sum of its entries")
        out.append(signed(offsets[wiring.offsets[score]]))
    return np.array(out, dtype=np.int64)
