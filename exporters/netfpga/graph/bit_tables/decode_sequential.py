# SPDX-License-Identifier: Apache-2.0
"""Reads back the indices, entries, biases and shunting threshold of a sequential executor.

The artefacts are ``n3ic_executor.v``, which wires the indices, both banks of the memory files, and
``update.hex``. This module shares no code with the writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.sequential.update import Update, read_update
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.targets.decoded_graphs import DecodedGraph, compared, graph_of_tables
from n3ic.targets.decoding import Decoded, read_artefact

EXECUTOR, CORE = "rtl/n3ic_executor.v", "rtl/n3ic_core.v"
_CASES = re.compile(r"case \(turn\)(.*?)endcase", re.DOTALL)
_INDEX = re.compile(r"(\d+'d(\d+)|default): index(\d+) <= \{([^}]*)\};")
_FIELD = re.compile(r"\] wr_(lane|kind|row|sum) = wr_addr\[(\d+):(\d+)\];")
_ENTRIES = re.compile(
    r'\.W\((\d+)\), \.ADDR_W\((\d+)\), \.BLOCK\([01]\), \.INIT\("(lane(\d+)_sum(\d+))\.mem"\)'
)
_BIASES = re.compile(r'\$readmemh\("(biases(\d+))\.mem", biases\d+\);')
_WIDTH = re.compile(r"output wire \[(\d+):0\] out_margin,")
_INDEX_WIDTH = re.compile(r"reg  \[(\d+):0\] index0;")

_Read = Callable[[str, int, int, int, int], int]
"""Reads a value of a memory, given its file, lane, kind, row and sum."""


def decode_sequential(directory: Path, model: Classifier) -> tuple[Decoded, ...]:
    """Compare the artefacts of a sequential core with its model.

    The indices are compared table by table, because other entries may be loaded; the entries and
    biases as a graph.

    Raises:
        VerifyError: a file is missing or malformed, or differs from the model.
    """
    text = _text(directory, EXECUTOR)
    wiring = _wiring(text)
    lanes = 1 + max(lane for lane, _ in wiring)
    own = bit_tables(graph_of(model))
    if own is None:
        raise VerifyError("the model adds up no look-up tables")
    expected = {(t % lanes, t // lanes): table.bits for t, table in enumerate(own.tables)}
    if {place: bits for place, bits in wiring.items() if bits} != expected:
        raise VerifyError(f"{EXECUTOR}: the indices are not the model's")
    memories = {(int(m[4]), int(m[5])): m for m in _ENTRIES.finditer(text)}
    biases = {int(s): name for name, s in _BIASES.findall(text)}
    sums = range(len(own.bias))
    if set(memories) != {(lane, s) for lane in range(lanes) for s in sums} or set(biases) != {
        *sums
    }:
        raise VerifyError(f"{EXECUTOR}: the memories are not those of {len(sums)} sums")
    score_w = _bits_of(_WIDTH, text, "margin")
    shunts = '"shunting.mem"' in _text(directory, CORE)
    if model.shunt and not shunts:
        raise VerifyError(f"{CORE}: no shunting threshold, the model's is {model.shunt}")
    fields = {name: (int(high), int(low)) for name, high, low in _FIELD.findall(text)}
    if set(fields) != {"lane", "kind", "row", "sum"}:
        raise VerifyError(f"{EXECUTOR}: the fields of a write's address are not found")
    index_w = _bits_of(_INDEX_WIDTH, text, "index")
    names: list[Decoded] = []
    readers: list[tuple[str, _Read]] = [
        (f"mem/*.{ending}, bank {bank}", _bank(directory, ending, bank))
        for ending in ("mem", "coe")
        for bank in (0, 1)
    ]
    try:
        update = read_update(directory / "mem" / "update.hex", CorePorts.load(directory, model))
    except UsageError as error:
        raise VerifyError(str(error)) from error
    readers.append(("mem/update.hex", _update(update, fields)))
    for name, read in readers:
        tables = []
        for t, bits in enumerate(expected.values()):
            lane, turn = t % lanes, t // lanes
            entries = np.zeros((1 << len(bits), len(sums)), dtype=np.int64)
            for s, i in product(sums, range(len(entries))):
                file = memories[lane, s]
                got = read(file[3], lane, 0, turn << index_w | i, s)
                entries[i, s] = _signed(got, int(file[1]))
            tables.append((bits, entries))
        bias = [_signed(read(biases[s], 0, 2, 0, s), score_w) for s in sums]
        shunt = read("shunting", 0, 3, 0, 1) if shunts else 0
        graph = graph_of_tables(name, model.input, tables, bias)
        names.append(compared(model, DecodedGraph(name, graph, None, shunt)))
    if update.model != model.digest:
        raise VerifyError(f"mem/update.hex: holds model {update.model}, not {model.digest}")
    end = 3 << fields["kind"][1]
    begin = end | 1 << fields["row"][1]
    if (update.writes[0], update.writes[-1]) != ((begin, 0), (end, int(model.digest[:8], 16))):
        raise VerifyError("mem/update.hex: does not clear the bank's id first and set it last")
    return tuple(names)


def _text(directory: Path, name: str) -> str:
    try:
        return read_artefact(directory / name).decode("ascii")
    except UnicodeDecodeError as error:
        raise VerifyError(f"{name}: not ASCII") from error


def _wiring(text: str) -> dict[tuple[int, int], tuple[int, ...]]:
    """Parse the input bits of each index, lowest first, by lane and turn; higher bits must be 0."""
    out: dict[tuple[int, int], tuple[int, ...]] = {}
    for cases in _CASES.findall(text):
        choices = _INDEX.findall(cases)
        for turn, (_, number, lane, wires) in enumerate(choices):
            if (number or str(turn)) != str(turn) or (not number) != (turn == len(choices) - 1):
                raise VerifyError(f"{EXECUTOR}: the turns of lane {lane} are not in order")
            bits = [wire.strip() for wire in wires.split(",")][::-1]
            used = [re.fullmatch(r"x\[(\d+)\]", wire) for wire in bits]
            count = sum(wire is not None for wire in used)
            if any(wire != "1'b0" for wire in bits[count:]):
                raise VerifyError(f"{EXECUTOR}: an index of lane {lane} is not wired to inputs")
            out[int(lane), turn] = tuple(int(wire[1]) for wire in used if wire)
    if not out:
        raise VerifyError(f"{EXECUTOR}: no index")
    return out


def _bits_of(declared: re.Pattern[str], text: str, name: str) -> int:
    match = declared.search(text)
    if not match:
        raise VerifyError(f"{EXECUTOR}: no {name}")
    return int(match[1]) + 1


def _signed(value: int, width: int) -> int:
    value %= 1 << width
    return value - (value >> (width - 1) << width)


def _bank(directory: Path, ending: str, bank: int) -> _Read:
    """Read the memories of one bank from files."""
    files: dict[str, list[int]] = {}

    def read(name: str, _lane: int, _kind: int, row: int, _sum: int) -> int:
        if name not in files:
            where = f"mem/{name}.{ending}"
            words = _text(directory, where).split("vector=")[-1].replace(",", " ").split()
            try:
                rows = [int(word.rstrip(";"), 16) for word in words]
            except ValueError as error:
                raise VerifyError(f"{where}: not rows in hexadecimal") from error
            half = len(rows) // 2
            files[name] = rows[bank * half : (bank + 1) * half]
        if row >= len(files[name]):
            raise VerifyError(f"mem/{name}.{ending}: no row {row} in bank {bank}")
        return files[name][row]

    return read


def _update(update: Update, fields: dict[str, tuple[int, int]]) -> _Read:
    """Read what the writes of ``update.hex`` leave in the memories."""
    words = dict(update.writes)

    def read(name: str, lane: int, kind: int, row: int, of: int) -> int:
        parts = {"lane": lane, "kind": kind, "row": row, "sum": of}
        address = sum(value << fields[field][1] for field, value in parts.items())
        if address not in words:
            raise VerifyError(f"mem/update.hex: nothing is written for row {row} of {name}")
        return words[address]

    return read
