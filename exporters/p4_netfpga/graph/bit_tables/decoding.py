# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back from the constants of ``n3ic.p4``; shares no code with the writer."""

# Numbers have a bounded count of digits, so that a hostile program cannot make int() slow.

from __future__ import annotations

import re

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.p4.graph.bit_tables.decoding import biases, wiring_of
from n3ic.exporters.p4.shared.decoding import digest_of_numbers
from n3ic.exporters.p4_netfpga.decoding import model_numbers, shunting_of
from n3ic.model.classifier import Classifier
from n3ic.targets.decoded_graphs import DecodedGraph, graph_of_tables

_NAME = "n3ic.p4"
_WORDS = re.compile(
    r"^ +user_metadata\.t(\d{1,5})_v(\d{1,5}) = \((\d{1,5})w0x([0-9a-f]{1,4096}) & "
    r"\(~(?P<mask>\(.*?\))\)\) \| \((\d{1,5})w0x([0-9a-f]{1,4096}) & (?P=mask)\);$",
    re.MULTILINE,
)
_SELECT = re.compile(
    r"^ +user_metadata\.(t\d{1,5}_v\d{1,5}) = \(user_metadata\.(?P<v>\w+) & "
    r"\(~(?P<mask>\(.*?\))\)\) \| \(\(user_metadata\.(?P=v) >> (\d{1,5})\) & (?P=mask)\);$",
    re.MULTILINE,
)
_MASK = re.compile(
    r"\((\d{1,5})w0 - \(\(bit<(\d{1,5})>\) \(\(user_metadata\.t(\d{1,5})_index >> (\d)\) & "
    r"\dw1\)\)\)"
)
_TAKE = re.compile(
    r"^ +user_metadata\.t(\d{1,5})_s(\d{1,5}) = \(bit<\d{1,2}>\) "
    r"\(\(bit<(\d)>\) user_metadata\.t(\d{1,5})_v(\d{1,5})\);$",
    re.MULTILINE,
)
_OFFSET = re.compile(r"32w0x[0-9a-f]{8}")


def decode_program(
    source: str, model: Classifier, sums: int, shunt_port: int | None = None
) -> DecodedGraph:
    """Decode the look-up tables in a program's constants.

    Args:
        source: P4 source.
        model: the model, which gives input and classes and the model's number.
        sums: number of sums.
        shunt_port: port for shunted packets; None if they leave like all others.

    Raises:
        VerifyError: a constant is missing, duplicated, or selected by another table's index.
    """
    wiring = wiring_of(source, "user_metadata")
    words: dict[tuple[int, int], tuple[int, int, int]] = {}
    selected: dict[str, list[tuple[str, ...]]] = {}
    for table, s, width, low, mask, other, high in _WORDS.findall(source):
        parts = _MASK.fullmatch(mask)
        if (int(table), int(s)) in words or width != other or parts is None:
            raise VerifyError(f"{_NAME}: the entries of table {table}, sum {s} are not two halves")
        words[int(table), int(s)] = int(width), int(low, 16), int(high, 16)
        selected[f"t{table}_v{s}"] = [(*parts.groups(), "")]
    widths = {}
    for table, s, width, of, other in _TAKE.findall(source):
        if (table, s) != (of, other):
            raise VerifyError(f"{_NAME}: table {table} takes the entry of table {of}")
        widths[int(table), int(s)] = int(width)
    if widths.keys() != words.keys() or len(_TAKE.findall(source)) != len(widths):
        raise VerifyError(f"{_NAME}: entries are not taken once each")
    if any(table >= len(wiring.bits) or s >= sums for table, s in words):
        raise VerifyError(f"{_NAME}: entries of a table or sum that is not there")
    for into, name, mask, shift in _SELECT.findall(source):
        parts = _MASK.fullmatch(mask)
        if into != name or parts is None:
            raise VerifyError(f"{_NAME}: {into} is not selected by a bit of an index")
        selected.setdefault(into, []).append((*parts.groups(), shift))
    entries = [np.zeros((1 << len(bits), sums), dtype=np.int64) for bits in wiring.bits]
    for (table, s), (size, low, high) in words.items():
        width, length = widths[table, s], len(wiring.bits[table])
        # The highest bit of the index selects one of two halves, and each lower bit halves again.
        expected = [
            (str(size), str(size), str(table), str(j), "" if j == length - 1 else str(width << j))
            for j in reversed(range(length))
        ]
        selections = selected.pop(f"t{table}_v{s}", [])
        if selections != expected or size != width << (length - 1) or (low | high) >> size:
            raise VerifyError(
                f"{_NAME}: the entries of table {table} are not selected by its index"
            )
        word = high << size | low
        for i in range(1 << length):
            entries[table][i, s] = (word >> (i * width)) % (1 << width)
    if selected:
        raise VerifyError(f"{_NAME}: {next(iter(selected))} has no entries")
    offsets = {
        text: int(text.removeprefix("32w"), 16)
        for text in wiring.offsets.values()
        if _OFFSET.fullmatch(text)
    }
    fields = {f"t{table}_s{s}" for table, s in words}
    bias = biases(_NAME, wiring, offsets, fields, model, sums)
    graph = graph_of_tables(_NAME, model.input, list(zip(wiring.bits, entries, strict=True)), bias)
    shunt = shunting_of(source, shunt_port)
    digest = digest_of_numbers(model_numbers(source), model)
    return DecodedGraph(_NAME, graph, None, shunt or 0, digest)
