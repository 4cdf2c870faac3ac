# SPDX-License-Identifier: Apache-2.0
"""Reads a graph of operations back from the nodes and constants of an ONNX graph.

The code shares nothing with the writer. It follows the nodes from the bits to the scores, a column
of a tensor at a time: a column is the value of an operation, or a part of one, such as a distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError, VerifyError
from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.decode import cuts_of, shunt_of
from n3ic.exporters.onnx.graph.tables_decode import holds_tables, tables_in
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Arithmetic, FixedPoint, Logarithms
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Round,
    Scale,
    Times,
)
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoded_graphs import DecodedGraph

_Column = tuple[Any, ...]
"""What a column holds: a word, and what it says of.

``value``: an operation; ``bit``: an input bit; ``bin``: a field's set bits, plus a number;
``less``, ``larger``, ``difference``, ``distance``, ``far``, ``within``, ``more``: the parts of the
log-add of two operations; ``exact``: the product of two, plus a number.
"""
_Array = NDArray[Any]
_INT32, _INT64, _BOOL = 6, 7, 9
_DECISION = (
    "ArgMax scores -> class axis=1 keepdims=0 select_last_index=0",
    "TopK scores k -> top top_classes axis=1 largest=1 sorted=1",
    "Gather top first -> best axis=1",
    "Gather top second -> next axis=1",
    "Sub best next -> margin",
)
_FIXED = {"k": [2], "first": [0], "second": [1]}
_FIXED_OF_FEATURES = {"lowest": [0], "base": [2]}


def decode(path: Path, model: Classifier) -> DecodedGraph:
    """Decode the operations, the cuts and the threshold of a graph that n3ic wrote.

    Args:
        path: path of the ONNX file.
        model: gives the input, and what logarithms stand for.

    Raises:
        VerifyError: the file is not such a graph; the error names the node or constant.
    """
    proto = model_proto.read(path)
    to_array = model_proto.require("onnx").numpy_helper.to_array
    tensors = {t.name: np.asarray(to_array(t)) for t in proto.graph.initializer}
    features = bool(proto.graph.input) and proto.graph.input[0].name == "features"
    for name, values in (_FIXED | (_FIXED_OF_FEATURES if features else {})).items():
        if name not in tensors or tensors[name].ravel().tolist() != values:
            raise VerifyError(f"{path.name}: constant {name!r} is not {values}")
    texts = [model_proto.node_text(node) for node in proto.graph.node]
    if missing := [text for text in _DECISION if text not in texts]:
        raise VerifyError(f"{path.name}: no node {missing[0]!r}")
    graph = (
        tables_in(path.name, texts, tensors, model.input)
        if holds_tables(tensors)
        else _Reader(path.name, tensors, model).graph(proto.graph.node)
    )
    digests = [pair.value for pair in proto.metadata_props if pair.key == "n3ic.digest"]
    if len(digests) != 1:
        raise VerifyError(f"{path.name}: expected the name of one model")
    cuts = cuts_of(tensors, model.input) if features else None
    return DecodedGraph(path.name, graph, cuts, shunt_of(proto, tensors), digests[0])


class _Reader:
    """One pass over the nodes between the bits and the scores."""

    def __init__(self, file: str, tensors: dict[str, _Array], model: Classifier) -> None:
        self.file = file
        self.tensors = tensors
        self.spec: InputSpec = model.input
        self.own = graph_of(model).arithmetic
        self.steps: list[Operation] = []
        self.known: dict[Operation, int] = {}
        self.columns: dict[str, list[_Column]] = {
            "bits": [("bit", i) for i in range(self.spec.n_bits)]
        }
        self.arithmetic: set[Arithmetic] = set()
        self.where = ""

    def graph(self, nodes: Sequence[Any]) -> Graph:
        needed, own = {"scores"}, []
        for node in reversed(nodes):
            if needed & {*node.output} and "bits" not in node.output:
                needed |= {*node.input}
                own.append(node)
        for node in reversed(own):
            self.where = f"{self.file}, node {model_proto.node_text(node)[:80]!r}"
            self._visit(node)
        self.where = self.file
        if len(self.arithmetic) > 1:
            raise self._wrong("log-adds or roundings of several kinds")
        scores = [self._value(column) for column in self.columns.get("scores", ())]
        try:
            arithmetic = next(iter(self.arithmetic), self.own)
            return Graph(self.spec, tuple(self.steps), tuple(scores), arithmetic)
        except ModelError as error:
            raise self._wrong(str(error)) from error

    def _wrong(self, text: str = "is not as n3ic writes it") -> VerifyError:
        return VerifyError(f"{self.where}: {text}")

    def _made(self, step: Operation) -> _Column:
        if step not in self.known:
            self.known[step] = len(self.steps)
            self.steps.append(step)
        return ("value", self.known[step])

    def _value(self, column: _Column) -> int:
        """The operation of a column."""
        if column[0] != "value":
            raise self._wrong(f"reads a {column[0]}")
        return int(column[1])

    def _visit(self, node: Any) -> None:
        attributes = {a.name: a.i for a in node.attribute}
        if node.domain:
            raise self._wrong()
        op, names = node.op_type, list(node.input)
        if op == "Cast" and len(names) == 1:
            made = self._cast(names[0], attributes)
        elif op == "Concat" and attributes == {"axis": 1}:
            made = [column for name in names for column in self._read(name)]
        elif op == "MatMul" and names == ["bits", "bits_of_fields"]:
            made = self._bins()
        elif op == "Gather" and len(names) == 2:
            made = self._gather(names[0], names[1], attributes.get("axis", 0))
        elif op == "Where" and len(names) == 3:
            made = self._each(self._chosen, names)
        elif op in _OPERATORS and len(names) in (1, 2) and not attributes:
            made = self._each(getattr(self, _OPERATORS[op]), names)
        else:
            raise self._wrong()
        self.columns[node.output[0]] = made

    def _read(self, name: str) -> list[_Column]:
        """The columns of a tensor; those of a constant are its numbers."""
        if name in self.columns:
            return self.columns[name]
        tensor = self.tensors.get(name)
        if tensor is None or tensor.dtype != np.int64 or tensor.ndim != 1:
            raise self._wrong(f"{name!r} is not a row of integers")
        return [("number", int(number)) for number in tensor]

    def _each(self, of: Callable[..., _Column], names: Sequence[str]) -> list[_Column]:
        """Compute column by column; a single column stands for as many as the others have."""
        read = [self._read(name) for name in names]
        count = max(map(len, read))
        if any(len(columns) not in (1, count) for columns in read):
            raise self._wrong("its inputs differ in width")
        wide = [columns * count if len(columns) == 1 else columns for columns in read]
        return [of(*columns) for columns in zip(*wide, strict=True)]

    def _cast(self, name: str, attributes: dict[str, int]) -> list[_Column]:
        columns = self._read(name)
        to = {"bit": _BOOL, "bin": _INT64, "value": _INT32}
        if any(attributes != {"to": to.get(kind)} for kind, *_ in columns):
            raise self._wrong()
        return columns

    def _bins(self) -> list[_Column]:
        """The set bits of each field."""
        own = np.zeros((self.spec.n_bits, len(self.spec.fields)))
        for i, start in enumerate(self.spec.offsets):
            own[start : start + self.spec.fields[i].width, i] = 1
        if not np.array_equal(self.tensors.get("bits_of_fields", ()), own):
            raise self._wrong("counts other bits than those of each field")
        return [("bin", i, 0) for i in range(len(self.spec.fields))]

    def _gather(self, source: str, at: str, axis: int) -> list[_Column]:
        if axis == 1:
            columns, places = self._read(source), self._read(at)
            if any(kind != "number" or not 0 <= k < len(columns) for kind, k, *_ in places):
                raise self._wrong("reads a column that does not exist")
            return [columns[k] for _, k in places]
        if axis:
            raise self._wrong()
        if source not in self.tensors:
            raise self._wrong(f"{source!r} is no table")
        table = [number for _, number in self._read(source)]
        return [
            self._more(table, *rest) if kind == "within" else self._lookup(table, kind, *rest)
            for kind, *rest in self._read(at)
        ]

    def _lookup(self, table: list[int], kind: str, *rest: int) -> _Column:
        if kind != "bin":
            raise self._wrong(f"looks up a {kind}")
        field, start = rest
        end = start + self.spec.fields[field].width + 1
        return self._made(Lookup(field, tuple(table[start:end])))

    def _more(self, table: list[int], a: int, b: int, reach: int) -> _Column:
        """What a log-add adds to the larger operand."""
        if reach != len(table) - 1 or table[-1] or not isinstance(self.own, Logarithms):
            raise self._wrong("is no look-up of a log-add")
        try:
            # The graph does not hold the fraction.
            self.arithmetic.add(Logarithms(self.own.fraction, tuple(table[:-1])))
        except ModelError as error:
            raise self._wrong(str(error)) from error
        return ("more", a, b)

    def _chosen(self, test: _Column, yes: _Column, no: _Column) -> _Column:
        if test[0] == "bit":
            return self._made(Choose(test[1], self._value(no), self._value(yes)))
        if test[0] == "less" and [self._value(no), self._value(yes)] == list(test[1:]):
            return ("larger", *test[1:])
        if test[0] == "far" and yes == ("number", test[3]) and no == ("distance", *test[1:3]):
            return ("within", *test[1:])
        raise self._wrong()

    def _less(self, a: _Column, b: _Column) -> _Column:
        if a[0] == "number" and b[0] == "distance":
            return ("far", *b[1:], a[1])
        return ("less", self._value(a), self._value(b))

    def _difference(self, a: _Column, b: _Column) -> _Column:
        return ("difference", self._value(a), self._value(b))

    def _distance(self, a: _Column) -> _Column:
        if a[0] != "difference":
            raise self._wrong()
        return ("distance", *a[1:])

    def _sum(self, a: _Column, b: _Column) -> _Column:
        if a[0] == "larger" and b == ("more", *a[1:]):
            return self._made(LogAdd(a[1], a[2]))
        if b[0] != "number":
            return self._made(Add(self._value(a), self._value(b)))
        if a[0] in ("bin", "exact"):
            return (*a[:-1], a[-1] + b[1])
        step = self.steps[self._value(a)]
        if isinstance(step, Constant):
            return self._made(Constant(step.value + b[1]))
        return self._made(Offset(self._value(a), b[1]))

    def _product(self, a: _Column, b: _Column) -> _Column:
        if b[0] != "number":
            return ("exact", self._value(a), self._value(b), 0)
        if a == ("bin", 0, 0) and b[1] == 0:  # a column of zeros
            return self._made(Constant(0))
        return self._made(Scale(self._value(a), b[1]))

    def _quotient(self, a: _Column, b: _Column) -> _Column:
        """A product or a sum of products to which half a step was added, in steps."""
        more = self.steps[a[1]] if a[0] == "value" else None
        half = a[3] if a[0] == "exact" else more.by if isinstance(more, Offset) else 0
        if b[0] != "number" or b[1] & (b[1] - 1) or 2 * half != b[1]:
            raise self._wrong("does not round to a step")
        try:
            self.arithmetic.add(FixedPoint(b[1].bit_length() - 1))
        except ModelError as error:
            raise self._wrong(str(error)) from error
        return self._made(Round(more.a) if isinstance(more, Offset) else Times(a[1], a[2]))


_OPERATORS = {
    "Less": "_less",
    "Sub": "_difference",
    "Abs": "_distance",
    "Add": "_sum",
    "Mul": "_product",
    "Div": "_quotient",
}
