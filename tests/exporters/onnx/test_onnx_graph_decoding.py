# SPDX-License-Identifier: Apache-2.0
"""Graphs of operations are read back from ONNX: any other constant or operator is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.onnx.graph.build import build
from n3ic.exporters.onnx.graph.decode import _Reader, decode
from n3ic.model.classifier import Classifier
from n3ic.model.family import family, graph_of
from n3ic.model.graph.arithmetic import FixedPoint
from n3ic.model.graph.operations import Constant, Offset, Round, Times
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.directory import export
from tests.support.random_graphs import ARITHMETICS, graph_family, graph_model

onnx = pytest.importorskip("onnx")

MODELS: dict[str, Callable[[], Classifier]] = {
    "forest": partial(graph_model, 1, operations=6, depth=4, classes=2),
    **{name: partial(graph_model, 5, name, operations=60) for name in ARITHMETICS},
    "sum-product network": lambda: family("sum-product-network").random(np.random.default_rng(2)),
    "trees": lambda: family("decision-trees").random(np.random.default_rng(2)),
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def difference(path: Path, proto: object, model: Classifier) -> str:
    path.write_bytes(proto.SerializeToString())  # type: ignore[attr-defined]
    try:
        compared(model, decode(path, model))
    except VerifyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_is_read_back(tmp_path: Path, name: str) -> None:
    model = MODELS[name]().with_shunt(1)
    proto = build(model, graph_of(model), features=True)
    assert difference(tmp_path / "model.onnx", proto, model) == ""


@pytest.mark.first_case
@pytest.mark.parametrize("name", MODELS)
def test_every_changed_constant_is_found(tmp_path: Path, name: str) -> None:
    """Of each constant, every number up to some 5, by 1."""
    model, path = MODELS[name]().with_shunt(1), tmp_path / "model.onnx"
    proto = build(model, graph_of(model), features=True)
    assert difference(path, proto, model) == ""
    missed, count = [], 0
    for at, tensor in enumerate(proto.graph.initializer):
        values = onnx.numpy_helper.to_array(tensor)
        for k in range(0, values.size, 1 + values.size // 5):
            changed = values.copy()
            number = changed.reshape(-1)[k]
            changed.reshape(-1)[k] = not number if values.dtype == np.bool_ else number + 1
            proto.graph.initializer[at].CopyFrom(onnx.numpy_helper.from_array(changed, tensor.name))
            count += 1
            if not difference(path, proto, model):
                missed.append((tensor.name, k))
        proto.graph.initializer[at].CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    assert count > 30
    assert missed == []


# Operands of these log-adds differ: the larger of two equal ones is either.
@pytest.mark.first_case
@pytest.mark.parametrize("name", MODELS)
def test_another_operator_is_found(tmp_path: Path, name: str) -> None:
    model, path = MODELS[name]().with_shunt(1), tmp_path / "model.onnx"
    proto = build(model, graph_of(model), features=False)
    other = {"Add": "Sub", "Sub": "Add", "Mul": "Add", "Less": "Greater", "Div": "Mul"}
    for node in proto.graph.node:
        kind = node.op_type
        if kind in other:
            node.op_type = other[kind]
            assert difference(path, proto, model), node.output[0]
            node.op_type = kind
        if kind == "Where":
            test, yes, no = node.input
            node.input[:] = [test, no, yes]
            assert difference(path, proto, model), node.output[0]
            node.input[:] = [test, yes, no]
    assert difference(path, proto, model) == ""


def test_another_attribute_or_domain_of_a_node_is_found(tmp_path: Path) -> None:
    model, path = MODELS["integers"](), tmp_path / "model.onnx"
    proto = build(model, graph_of(model), features=False)
    proto.opset_import.add(domain="other", version=1)
    assert difference(path, proto, model) == ""
    for node in proto.graph.node:
        node.domain = "other"
        assert difference(path, proto, model), node.output[0]
        node.domain = ""
        for attribute in node.attribute:
            attribute.i += 1
            assert difference(path, proto, model), (node.output[0], attribute.name)
            attribute.i -= 1


def reader_of(model: Classifier) -> _Reader:
    """A reader that knows two numbers, and each with more added."""
    reader = _Reader("file", {}, model)
    for step in (Constant(5), Constant(6), Offset(0, 8), Offset(1, 1), Offset(1, 0)):
        reader._made(step)
    return reader


@pytest.mark.parametrize(
    ("column", "one", "step", "fraction"),
    [
        (("exact", 0, 1, 8), 16, Times(0, 1), 4),
        (("exact", 1, 0, 1), 2, Times(1, 0), 1),
        (("value", 2), 16, Round(0), 4),
        (("value", 3), 2, Round(1), 1),
    ],
)
def test_a_product_or_a_sum_with_half_a_step_is_rounded(
    column: tuple[object, ...], one: int, step: object, fraction: int
) -> None:
    reader = reader_of(MODELS["trees"]())
    kind, place = reader._quotient(column, ("number", one))
    assert kind == "value" and reader.steps[place] == step
    assert reader.arithmetic == {FixedPoint(fraction)}


@pytest.mark.parametrize(
    ("column", "one"),
    [
        (("exact", 0, 1, 8), ("number", 15)),
        (("exact", 0, 1, 8), ("number", 8)),
        (("exact", 0, 1, 7), ("number", 16)),
        (("exact", 0, 1, 3), ("number", 6)),  # no power of two
        (("exact", 0, 1, 0), ("number", 1)),
        (("exact", 0, 1, -8), ("number", -16)),
        (("exact", 0, 1, 8), ("value", 16)),
        (("value", 0), ("number", 2)),  # of a number to which nothing is added
        (("value", 2), ("number", 2)),
        (("value", 3), ("number", 16)),
        (("bit", 0), ("number", 2)),
        (("difference", 0, 1), ("number", 2)),
    ],
)
def test_what_has_not_half_a_step_is_not_rounded(
    column: tuple[object, ...], one: tuple[object, ...]
) -> None:
    with pytest.raises(VerifyError, match="does not round to a step"):
        reader_of(MODELS["trees"]())._quotient(column, one)


@pytest.mark.parametrize("column", [("exact", 0, 1, 0), ("value", 4)])
def test_a_step_is_no_zero(column: tuple[object, ...]) -> None:
    with pytest.raises(VerifyError, match="-1 fraction bits"):
        reader_of(MODELS["trees"]())._quotient(column, ("number", 0))


def test_a_verified_export_is_read_back(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    verification = export(MODELS["trees"](), "onnx", tmp_path / "e").verification
    assert verification is not None and verification.ok and verification.decoded == ("model.onnx",)
