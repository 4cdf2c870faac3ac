# SPDX-License-Identifier: Apache-2.0
"""Decodes a program's map value to the bits, entries and biases of look-up tables.

The bits come from what each row of the first sum adds to each index, and entries and biases from
the members for scores.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.xdp.decode import NETWORK, read_value
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.model.classifier import Classifier
from n3ic.targets.decoded_graphs import DecodedGraph, compared, graph_of_tables
from n3ic.targets.decoding import Decoded

_WORD = 64


def decode_directory(directory: Path, model: Classifier) -> tuple[Decoded, ...]:
    """Decode the tables in ``answer/network.bin``, and compare them with the model's.

    Raises:
        VerifyError: the file cannot be read, has the wrong size, or holds other tables.
    """
    structure, value = read_value(directory, model)
    bits = _bits(value["rows0"], structure, model.input.n_bits)
    joined, start = _sums(value, structure, 1 if structure.classes == 2 else structure.classes)
    tables = []
    for read, entries in zip(bits, _parted(joined, structure), strict=True):
        # An index bit that no input sets is always 0.
        used = [place for place, bit in enumerate(read) if bit >= 0]
        fixed = sum(1 << place for place, bit in enumerate(read) if bit < 0)
        own = entries[(np.arange(len(entries)) & fixed) == 0]
        if used:
            tables.append((tuple(read[place] for place in used), own))
        else:
            start = start + own[0]
    graph = graph_of_tables(NETWORK, model.input, tables, start)
    shunt = int.from_bytes(value["shunt"], "little")
    digest = value["model"].hex()
    return (compared(model, DecodedGraph(NETWORK, graph, None, shunt, digest)),)


def _bits(data: bytes, structure: Structure, n_bits: int) -> list[tuple[int, ...]]:
    """Read the input bits that address each table, from the rows of four input bits each.

    Raises:
        VerifyError: a row is not the sum over its bits, or two bits set the same index bit.
    """
    words_read = np.frombuffer(data, dtype="<u8")
    words_of_bits: list[dict[int, int]] = []
    at = 0
    for low, words in zip(range(0, n_bits, 4), structure.touched, strict=True):
        count = min(4, n_bits - low)
        part = words_read[at : at + (len(words) << count)].reshape(1 << count, -1)
        single = part[[1 << b for b in range(count)]]
        patterns = (np.arange(len(part))[:, None] >> np.arange(count) & 1).astype(np.uint64)
        if not np.array_equal(part, patterns @ single):
            raise VerifyError(f"{NETWORK}: rows from input {low} on are not sums over them")
        words_of_bits += [dict(zip(words, row, strict=True)) for row in single.tolist()]
        at += part.size
    if words_read[at:].any():
        raise VerifyError(f"{NETWORK}: an input that does not exist addresses a table")
    owner: dict[int, int] = {}
    for bit, row in enumerate(words_of_bits):
        for word, value in row.items():
            for place in range(_WORD):
                if value >> place & 1 and owner.setdefault(word * _WORD + place, bit) != bit:
                    raise VerifyError(f"{NETWORK}: two inputs set the same bit of an index")
    out, word, used = [], 0, 0
    for joint in structure.tables:
        if used + sum(joint) > _WORD:
            word, used = word + 1, 0
        for size in joint:
            places = [word * _WORD + used + j for j in range(size)]
            out.append(tuple(owner.pop(place, -1) for place in places))
            used += size
    if owner:
        raise VerifyError(f"{NETWORK}: input {min(owner.values())} addresses no table")
    return out


def _parted(joined: NDArray[np.int64], structure: Structure) -> list[NDArray[np.int64]]:
    """Split the entries of look-ups into those of each table, of which the smallest is 0.

    Raises:
        VerifyError: an entry of a look-up is not the sum of one entry of each of its tables.
    """
    out, at = [], 0
    for joint in structure.tables:
        size = 1 << sum(joint)
        shape = *(1 << bits for bits in reversed(joint)), joined.shape[1]
        cube = joined[at : at + size].reshape(shape)
        total, axes = np.zeros_like(cube), range(len(joint))
        for axis in reversed(axes):  # the first table's index has the lowest bits
            part = cube.min(axis=tuple(a for a in axes if a != axis), keepdims=True)
            total = total + part
            out.append(part.reshape(shape[axis], joined.shape[1]))
        if not np.array_equal(total, cube):
            raise VerifyError(f"{NETWORK}: a look-up does not give a sum of its tables' entries")
        at += size
    return out


def _sums(
    value: dict[str, bytes], structure: Structure, sums: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stored entries, int64 of shape ``(entries, sums)``, and the sums' start values."""
    if structure.classes == 2:
        entries = np.frombuffer(value["rows1"], dtype=np.uint8)
        return entries.astype(np.int64)[:, None], np.frombuffer(value["start1"], dtype="<i8")
    plan = structure.layers[-1]
    kind, lanes = f"<u{plan.lane // 8}", _WORD * plan.words // plan.lane
    rows = np.frombuffer(value["rows1"], dtype=kind).astype(np.int64).reshape(-1, lanes)
    start = np.frombuffer(value["start1"], dtype=kind).astype(np.int64)
    if rows[:, sums:].any() or start[sums:].any():
        raise VerifyError(f"{NETWORK}: a class that does not exist has a score")
    return rows[:, :sums], start[:sums] - (1 << (plan.lane - 2))
