# SPDX-License-Identifier: Apache-2.0
"""Builds the graph of look-up tables: two ``Gather`` and two ``ReduceSum``, in integers.

The first ``Gather`` takes the bits of all indices, and the first sum adds their powers of two up to
the indices. The second ``Gather`` takes one entry of each table, and the second sum adds these up
to the scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.exporter import OPSET, decision, in_order, input_stage, outputs_of
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTables

INT32 = 6  # TensorProto data type


def build_tables(model: Classifier, own: BitTables, *, features: bool) -> Any:
    """Build the ONNX graph of a model, as a ModelProto.

    Args:
        model: the model.
        own: the tables that its graph adds up.
        features: whether the graph takes integer features and encodes them itself; otherwise it
            takes input bits.
    """
    b = model_proto.ProtoBuilder("batch")
    b.tensor("bits", model.input.n_bits, np.float32)
    if features:
        input_stage(b, model.input)
    tables = own.tables
    count, sums = len(tables), len(own.bias)
    longest = max(len(t.bits) for t in tables)
    # A shorter index also reads bit 0, and multiplies it by 0.
    read = np.zeros((count, longest), np.int64)
    place = np.zeros((count, longest), np.int32)
    for t, table in enumerate(tables):
        read[t, : len(table.bits)] = table.bits
        place[t, : len(table.bits)] = 1 << np.arange(len(table.bits))
    ends = np.cumsum([len(t.entries) for t in tables])
    b.constant("read", read.reshape(-1))
    b.constant("place", place.reshape(-1))
    b.constant("by_table", np.array([0, count, longest], np.int64))  # 0 keeps the number of rows
    b.constant("start", (ends - [len(t.entries) for t in tables]).astype(np.int32))
    b.constant("entries", np.concatenate([t.entries for t in tables]).astype(np.int8))
    b.constant("bias", own.bias.astype(np.int32))
    b.constant("over_bits", np.array([2], np.int64))
    b.constant("over_tables", np.array([1], np.int64))
    b.tensor("whole", model.input.n_bits, np.int32)
    for name in ("addressing", "weighted"):
        b.tensor(name, count * longest, np.int32)
    b.tensor("places", (count, longest), np.int32)
    for name in ("indices", "rows"):
        b.tensor(name, count, np.int32)
    b.tensor("narrow", (count, sums), np.int8)
    b.tensor("addressed", (count, sums), np.int32)
    b.tensor("total", sums, np.int32)
    b.tensor("scores", len(model.classes), np.int32)
    b.node("Cast", ["bits"], ["whole"], to=INT32)
    b.node("Gather", ["whole", "read"], ["addressing"], axis=1)
    b.node("Mul", ["addressing", "place"], ["weighted"])
    b.node("Reshape", ["weighted", "by_table"], ["places"])
    b.node("ReduceSum", ["places", "over_bits"], ["indices"], keepdims=0)
    b.node("Add", ["indices", "start"], ["rows"])
    b.node("Gather", ["entries", "rows"], ["narrow"], axis=0)
    b.node("Cast", ["narrow"], ["addressed"], to=INT32)
    b.node("ReduceSum", ["addressed", "over_tables"], ["total"], keepdims=0)
    if sums == 1:
        b.constant("classes", np.array([0, 1], np.int32))  # two classes: the scores are 0 and s
        b.tensor("sums", 1, np.int32)
        b.node("Add", ["total", "bias"], ["sums"])
        b.node("Mul", ["sums", "classes"], ["scores"])
    else:
        b.node("Add", ["total", "bias"], ["scores"])
    decision(b, model.shunt)
    source = "features" if features else "bits"
    return in_order(b.model(model, [source], outputs_of(model), {"": OPSET}))
