# SPDX-License-Identifier: Apache-2.0
"""Builds the int64 ONNX graph of integer operations, grouped by kind and depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.exporter import OPSET, decision, in_order, input_stage, outputs_of
from n3ic.model.classifier import Classifier
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
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
    operands,
)

WRITTEN = (Constant, Lookup, Choose, Add, Offset, LogAdd, Times, Scale, Round)
"""The operations that become nodes."""
INT32, INT64, BOOL = 6, 7, 9  # TensorProto data types
_Leaf = Lookup | Constant


def build(model: Classifier, graph: Graph, *, features: bool) -> Any:
    """Build the ONNX graph of a model, as a ModelProto.

    Args:
        model: the model.
        graph: its operations.
        features: whether the graph takes integer features and encodes them itself; otherwise it
            takes input bits.
    """
    b = model_proto.ProtoBuilder("batch")
    b.tensor("bits", model.input.n_bits, np.float32)
    if features:
        input_stage(b, model.input)
    depth: list[int] = []
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    # Few constants take a table as look-ups do; the leaves of trees are many.
    leaf = Lookup if Choose in graph.kinds else _Leaf
    # Operations of one depth do not depend on each other, so one operator computes a whole group.
    for i, step in enumerate(graph.steps):
        depth.append(1 + max((depth[k] for k in operands(step)), default=-1))
        kind = "Leaf" if isinstance(step, leaf) else type(step).__name__
        groups[depth[i], kind].append(i)
    stage = _Stage(b, graph)
    stage.inputs()
    for (level, kind), members in sorted(groups.items()):
        stage.write(f"{kind.lower()}_{level}", kind, members)
    stage.columns("scores_wide", [stage.place[i] for i in graph.scores])
    b.tensor("scores", len(graph.scores), np.int32)
    b.node("Cast", ["scores_wide"], ["scores"], to=INT32)
    decision(b, model.shunt)
    source = "features" if features else "bits"
    return in_order(b.model(model, [source], outputs_of(model), {"": OPSET}))


def operators_text(graph: Graph) -> str:
    """Name the operators that compute each kind of operations, in words."""
    names = {
        Choose: "`Where` for choices",
        Add: "`Add` for sums",
        LogAdd: "`Where`, `Sub`, `Abs` and a `Gather` of the table for log-adds",
        Times: "`Mul` and `Div` for rounded products",
        Round: "`Mul` and `Div` for rounded sums",
    }
    return ", ".join(text for kind, text in names.items() if kind in graph.kinds) or "none"


class _Stage:
    """Adds groups of operations; the tensor ``values`` has one column per known value."""

    def __init__(self, b: model_proto.ProtoBuilder, graph: Graph) -> None:
        self.b = b
        self.graph = graph
        self.steps = graph.steps
        self.place: dict[int, int] = {}  # column of each value
        self.values = ""
        self.count = 0

    def inputs(self) -> None:
        """Add the tensors that read the input: the set bits of each field, the bits themselves."""
        spec = self.graph.input
        member = np.zeros((spec.n_bits, len(spec.fields)), np.float32)
        for i, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
            member[start : start + field.width, i] = 1
        self.b.constant("bits_of_fields", member)
        self.b.tensor("bins_float", len(spec.fields), np.float32)
        self.b.node("MatMul", ["bits", "bits_of_fields"], ["bins_float"])
        self._node("Cast", "bins", ["bins_float"], len(spec.fields), to=INT64)
        if Choose in self.graph.kinds:
            self.b.tensor("chosen_by", spec.n_bits, np.bool_)
            self.b.node("Cast", ["bits"], ["chosen_by"], to=BOOL)

    def columns(self, name: str, places: Sequence[int]) -> str:
        """Gather columns of ``values``."""
        self.b.constant(f"{name}_at", np.array(places, np.int64))
        return self._node("Gather", name, [self.values, f"{name}_at"], len(places), axis=1)

    def write(self, name: str, kind: str, members: Sequence[int]) -> None:
        """Add a group of operations, and append its results to ``values``."""
        steps, n = [self.steps[i] for i in members], len(members)
        if kind == "Leaf":
            self._leaves(name, steps)
        elif kind == "Constant":
            self._constants(name, [step.value for step in steps if isinstance(step, Constant)])
        else:
            read = [operands(step) for step in steps]
            a = self.columns(f"{name}_a", [self.place[r[0]] for r in read])
            if isinstance(steps[0], Choose):
                other = self.columns(f"{name}_one", [self.place[r[1]] for r in read])
                self._choose(name, steps, a, other)
            elif isinstance(steps[0], Offset | Scale):
                by = [step.by for step in steps if isinstance(step, Offset | Scale)]
                self._scalar(f"{name}_by", by)
                op = "Add" if kind == "Offset" else "Mul"
                self._node(op, name, [a, f"{name}_by"], n)
            elif isinstance(steps[0], Round):
                self._round(name, a, n)
            else:
                other = self.columns(f"{name}_b", [self.place[r[1]] for r in read])
                self._both(name, steps[0], a, other, n)
        self.place.update({i: self.count + k for k, i in enumerate(members)})
        self.count += n
        if self.values:
            joined = f"values_{name}"
            self._node("Concat", joined, [self.values, name], self.count, axis=1)
            self.values = joined
        else:
            self.values = name

    def _constants(self, name: str, values: Sequence[int]) -> None:
        """Add columns of one value each: a column of zeros, to which the values are added."""
        self.b.constant(f"{name}_of", np.array(values, np.int64))
        self.b.constant(f"{name}_first", np.array([0], np.int64))
        self._scalar(f"{name}_nothing", [0])
        self._node("Gather", f"{name}_bin", ["bins", f"{name}_first"], 1, axis=1)
        self._node("Mul", f"{name}_zero", [f"{name}_bin", f"{name}_nothing"], 1)
        self._node("Add", name, [f"{name}_zero", f"{name}_of"], len(values))

    def _choose(self, name: str, steps: Sequence[Operation], zero: str, one: str) -> None:
        bits = [step.bit for step in steps if isinstance(step, Choose)]
        self.b.constant(f"{name}_bits", np.array(bits, np.int64))
        self.b.tensor(f"{name}_if", len(bits), np.bool_)
        self.b.node("Gather", ["chosen_by", f"{name}_bits"], [f"{name}_if"], axis=1)
        self._node("Where", name, [f"{name}_if", one, zero], len(bits))

    def _leaves(self, name: str, steps: Sequence[Operation]) -> None:
        """Gather from all tables, concatenated, in one operation."""
        fields: list[int] = []
        starts: list[int] = []
        tables: list[int] = []
        for step in steps:
            fields.append(step.field if isinstance(step, Lookup) else 0)
            starts.append(len(tables))
            width = self.graph.input.fields[fields[-1]].width
            if isinstance(step, Lookup):
                tables += step.table
            elif isinstance(step, Constant):
                tables += [step.value] * (width + 1)  # the same entry for every bin of field 0
        self.b.constant(f"{name}_fields", np.array(fields, np.int64))
        self.b.constant(f"{name}_starts", np.array(starts, np.int64))
        self.b.constant(f"{name}_tables", np.array(tables, np.int64))
        n = len(steps)
        self._node("Gather", f"{name}_bins", ["bins", f"{name}_fields"], n, axis=1)
        self._node("Add", f"{name}_entries", [f"{name}_bins", f"{name}_starts"], n)
        self._node("Gather", name, [f"{name}_tables", f"{name}_entries"], n, axis=0)

    def _both(self, name: str, step: Operation, a: str, b: str, n: int) -> None:
        if isinstance(step, Add):
            self._node("Add", name, [a, b], n)
        elif isinstance(step, Times):
            self._node("Mul", f"{name}_exact", [a, b], n)
            self._round(name, f"{name}_exact", n)
        elif isinstance(step, LogAdd):
            self._log_add(name, a, b, n)

    def _log_add(self, name: str, a: str, b: str, n: int) -> None:
        arithmetic = self.graph.arithmetic
        assert isinstance(arithmetic, Logarithms)  # noqa: S101 - a graph has it with log-adds
        reach = len(arithmetic.table)
        table = f"{name}_table"
        # The last entry, 0, serves all distances beyond the table.
        self.b.constant(table, np.append(arithmetic.entries, 0).astype(np.int64))
        self._scalar(f"{name}_reach", [reach])
        for flag in ("less", "far"):
            self.b.tensor(f"{name}_{flag}", n, np.bool_)
        # Not Max and Min: onnxruntime computes them wrongly for int64 beyond 32 bits.
        self.b.node("Less", [a, b], [f"{name}_less"])
        self._node("Where", f"{name}_larger", [f"{name}_less", b, a], n)
        self._node("Sub", f"{name}_difference", [a, b], n)
        self._node("Abs", f"{name}_distance", [f"{name}_difference"], n)
        self.b.node("Less", [f"{name}_reach", f"{name}_distance"], [f"{name}_far"])
        inside = [f"{name}_far", f"{name}_reach", f"{name}_distance"]
        self._node("Where", f"{name}_at", inside, n)
        self._node("Gather", f"{name}_more", [table, f"{name}_at"], n, axis=0)
        self._node("Add", name, [f"{name}_larger", f"{name}_more"], n)

    def _round(self, name: str, exact: str, n: int) -> None:
        """Round to the nearest step; ``Div`` rounds down because the dividend is never negative."""
        arithmetic = self.graph.arithmetic
        assert isinstance(arithmetic, FixedPoint)  # noqa: S101 - a graph has it with roundings
        self._scalar(f"{name}_half", [arithmetic.half])
        self._scalar(f"{name}_one", [arithmetic.one])
        self._node("Add", f"{name}_more", [exact, f"{name}_half"], n)
        self._node("Div", name, [f"{name}_more", f"{name}_one"], n)

    def _scalar(self, name: str, values: Sequence[int]) -> None:
        self.b.constant(name, np.array(values, np.int64))

    def _node(self, op: str, name: str, inputs: Sequence[str], width: int, **attrs: Any) -> str:
        self.b.tensor(name, width, np.int64)
        self.b.node(op, inputs, [name], **attrs)
        return name
