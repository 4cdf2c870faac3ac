# SPDX-License-Identifier: Apache-2.0
"""Reads look-up tables back from the nodes and constants of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.model.graph.operations import Graph
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import graph_of_tables

# All nodes from the bits to the sums, as text: operator, inputs, output, attributes.
_NODES = {
    "Cast bits -> whole to=6",
    "Gather whole read -> addressing axis=1",
    "Mul addressing place -> weighted",
    "Reshape weighted by_table -> places",
    "ReduceSum places over_bits -> indices keepdims=0",
    "Add indices start -> rows",
    "Gather entries rows -> narrow axis=0",
    "Cast narrow -> addressed to=6",
    "ReduceSum addressed over_tables -> total keepdims=0",
}
_ONE_SUM = {"Add total bias -> sums", "Mul sums classes -> scores"}
_MORE_SUMS = {"Add total bias -> scores"}


def holds_tables(tensors: Mapping[str, NDArray[Any]]) -> bool:
    """Whether constants are those of look-up tables."""
    return {"read", "place", "entries"} <= {*tensors}


def tables_in(
    name: str, node_texts: Sequence[str], tensors: Mapping[str, NDArray[Any]], spec: InputSpec
) -> Graph:
    """Decode the look-up tables of an ONNX graph that n3ic wrote.

    Args:
        name: the file's name, for errors.
        node_texts: its nodes as text.
        tensors: its constants.
        spec: the model's input.

    Raises:
        VerifyError: it is not such a graph; the error names the node or constant.
    """
    bias = _integers(tensors, "bias", name)
    expected = _NODES | (_ONE_SUM if len(bias) == 1 else _MORE_SUMS)
    fixed_outputs = {name for text in expected for name in text.split(" -> ")[1].split()[:1]}
    # Each of these tensors has exactly one node, because ONNX refuses a tensor with two.
    stray = {
        text for text in node_texts if text.split(" -> ")[1].split()[0] in fixed_outputs
    } ^ expected
    if stray:
        raise VerifyError(f"{name}: node {sorted(stray)[0]!r} is not as n3ic writes it")
    for constant, values in (("over_bits", [2]), ("over_tables", [1]), ("classes", [0, 1])):
        used = constant != "classes" or len(bias) == 1
        if used and _integers(tensors, constant, name).tolist() != values:
            raise VerifyError(f"{name}: constant {constant!r} is not {values}")
    bits, entries = _tables(tensors, name)
    if any(each.shape[1] != len(bias) for each in entries):
        raise VerifyError(f"{name}: {len(bias)} biases do not match the sums of the entries")
    return graph_of_tables(name, spec, [*zip(bits, entries, strict=True)], bias)


def _tables(
    tensors: Mapping[str, NDArray[Any]], name: str
) -> tuple[tuple[tuple[int, ...], ...], tuple[NDArray[np.int64], ...]]:
    """Read the input bits and the entries of each table."""
    shape = _integers(tensors, "by_table", name)
    read, place = (_integers(tensors, each, name) for each in ("read", "place"))
    start = _integers(tensors, "start", name)
    entries = np.asarray(tensors.get("entries", np.zeros(0)))
    count = len(start)
    if shape.tolist()[:2] != [0, count] or len(shape) != 3:
        raise VerifyError(f"{name}: constant 'by_table' is not a shape of {count} tables")
    longest = int(shape[2])
    if not count * longest == len(read) == len(place) > 0 or entries.ndim != 2:
        raise VerifyError(f"{name}: the constants are not those of {count} tables")
    if entries.dtype != np.int8:
        raise VerifyError(f"{name}: constant 'entries' is not int8")
    bits, parts, at = [], [], 0
    for t in range(count):
        row = slice(t * longest, (t + 1) * longest)
        size = int(np.count_nonzero(place[row]))
        powers = [1 << j if j < size else 0 for j in range(longest)]
        if place[row].tolist() != powers or int(start[t]) != at or at + (1 << size) > len(entries):
            raise VerifyError(f"{name}: the index of table {t} is not a sum of powers of two")
        bits.append(tuple(read[row].tolist()[:size]))
        parts.append(entries[at : at + (1 << size)].astype(np.int64))
        at += 1 << size
    if at != len(entries):
        raise VerifyError(f"{name}: {len(entries) - at} entries belong to no table")
    return tuple(bits), tuple(parts)


def _integers(tensors: Mapping[str, NDArray[Any]], name: str, file: str) -> NDArray[np.int64]:
    """Read a constant that is a row of integers."""
    values = tensors.get(name)
    if values is None or values.dtype.kind != "i" or values.ndim != 1:
        raise VerifyError(f"{file}: constant {name!r} is not a row of integers")
    return values.astype(np.int64)
