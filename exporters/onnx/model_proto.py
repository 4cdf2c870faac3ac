# SPDX-License-Identifier: Apache-2.0
"""Builds, cuts, batches and serialises ONNX graphs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError, needed
from n3ic.model.classifier import SHUNT, Classifier
from n3ic.model.network import BinaryModel
from n3ic.targets.device import Fit, Problem
from n3ic.targets.shape_search import nearest_shape

IR_VERSION = 8  # the version of ONNX 1.12, which introduced opset 17
QONNX_DOMAIN = "qonnx.custom_op.general"


def require(module: str) -> Any:
    """Import an optional module.

    Raises:
        MissingDependencyError: the module is not installed.
    """
    from importlib import import_module

    with needed("this"):
        return import_module(module)


class ProtoBuilder:
    """Collects nodes and constants, and the type and width of every tensor.

    Args:
        batch: size of the batch dimension, or its name if the size is open.
    """

    def __init__(self, batch: int | str) -> None:
        self._onnx = require("onnx")
        self._batch = batch
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._values: dict[str, Any] = {}
        self._annotations: dict[str, str] = {}

    def constant(self, name: str, value: NDArray[Any], kind: str = "") -> str:
        """Add a constant; ``kind`` is its QONNX data type."""
        self._constants.append(self._onnx.numpy_helper.from_array(value, name))
        if kind:
            self._annotations[name] = kind
        return name

    def tensor(
        self, name: str, width: int | tuple[int, ...] | None, dtype: type[Any], kind: str = ""
    ) -> str:
        """Declare a tensor of shape ``(batch, *width)``, or ``(batch,)`` if width is None."""
        helper = self._onnx.helper
        more = () if width is None else width if isinstance(width, tuple) else (width,)
        shape = [self._batch, *more]
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._values[name] = helper.make_tensor_value_info(name, element, shape)
        if kind:
            self._annotations[name] = kind
        return name

    def matrix(self, name: str, shape: tuple[int, int], kind: str = "") -> str:
        """Declare a float32 tensor without a batch dimension."""
        helper = self._onnx.helper
        self._values[name] = helper.make_tensor_value_info(name, 1, shape)  # float32
        if kind:
            self._annotations[name] = kind
        return name

    def node(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attrs: Any
    ) -> None:
        """Add a node, named after its first output."""
        self._nodes.append(
            self._onnx.helper.make_node(
                op, list(inputs), list(outputs), name=f"{op}_{outputs[0]}", domain=domain, **attrs
            )
        )

    def model(
        self,
        source: Classifier,
        inputs: Sequence[str],
        outputs: Sequence[str],
        opsets: dict[str, int],
    ) -> Any:
        """Build the ModelProto, with input spec and class names as metadata."""
        helper = self._onnx.helper
        known = {*inputs, *outputs}
        graph = helper.make_graph(
            self._nodes,
            "n3ic",
            [self._values[name] for name in inputs],
            [self._values[name] for name in outputs],
            initializer=self._constants,
            value_info=[v for name, v in self._values.items() if name not in known],
        )
        for name, kind in self._annotations.items():
            annotation = graph.quantization_annotation.add()
            annotation.tensor_name = name
            pair = annotation.quant_parameter_tensor_names.add()
            pair.key, pair.value = "finn_datatype", kind
        model = helper.make_model(
            graph,
            producer_name="n3ic",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid(*item) for item in opsets.items()],
        )
        helper.set_model_props(
            model,
            {
                "n3ic.classes": json.dumps(source.classes),
                "n3ic.digest": source.digest,
                "n3ic.input": json.dumps(source.input.to_dict(), sort_keys=True),
                "n3ic.name": source.name,
            }
            | ({} if source.family == BinaryModel.family else {"n3ic.family": source.family}),
        )
        return model


def add_verdict(b: ProtoBuilder, shunt: int, width: int | None, dtype: type[Any]) -> str:
    """Add the tensor ``verdict``: ``class``, or -1 if ``margin`` is below the threshold.

    Args:
        b: builder with the tensors ``class`` (int64) and ``margin``.
        shunt: the shunting threshold.
        width: width of the tensors, as for :meth:`ProtoBuilder.tensor`.
        dtype: type of the margin.
    """
    b.constant("shunt", np.array([shunt], dtype))
    b.constant("no_class", np.array([SHUNT], np.int64))
    b.tensor("shunted", width, np.bool_)
    b.tensor("verdict", width, np.int64)
    b.node("Less", ["margin", "shunt"], ["shunted"])
    b.node("Where", ["shunted", "no_class", "class"], ["verdict"])
    return "verdict"


def to_bytes(model: Any) -> bytes:
    """Serialise a graph; deterministic."""
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def read(path: Path) -> Any:
    """Load a graph that this tool wrote.

    Raises:
        VerifyError: the file is not a valid graph.
    """
    onnx = require("onnx")
    try:
        model = onnx.load_model_from_string(path.read_bytes())
        onnx.checker.check_model(model)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise VerifyError(f"{path.name} is not a valid graph: {short(error)}") from error
    except Exception as error:
        # protobuf's decoding error has no importable type, so its name is compared.
        if type(error).__name__ != "DecodeError":
            raise
        raise VerifyError(f"{path.name} is not an ONNX file: {short(error)}") from error
    return model


def node_text(node: Any) -> str:
    """Write a node as text. Of attributes that are lists or tensors, only the name counts."""
    attributes = [f"{a.name}={a.i}" for a in sorted(node.attribute, key=lambda a: a.name)]
    domain = [f"{node.domain}:"] if node.domain else []
    return " ".join([*domain, node.op_type, *node.input, "->", *node.output, *attributes])


def cut(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Copy the part of a graph between declared tensors to a new graph."""
    onnx = require("onnx")
    declared = {
        v.name: v for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)
    }
    missing = [name for name in (*inputs, *outputs) if name not in declared]
    if missing:
        raise VerifyError(f"the graph has no tensor {missing[0]!r}")
    needed, nodes = set(outputs), []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= {name for name in node.input if name not in inputs}
    part = onnx.ModelProto()
    part.CopyFrom(model)
    for name in ("node", "input", "output"):
        part.graph.ClearField(name)
    part.graph.node.extend(reversed(nodes))
    part.graph.input.extend(declared[name] for name in inputs)
    part.graph.output.extend(declared[name] for name in outputs)
    return part


def with_batch(model: Any, rows: int) -> Any:
    """Copy a graph of batch size 1, and give its tensors ``rows`` rows."""
    copy = require("onnx").ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
        if not value.name.startswith("quantized_"):  # weights have no batch
            value.type.tensor_type.shape.dim[0].dim_value = rows
    return copy


def rows_of(names: Sequence[str], values: Sequence[Any], rows: int) -> list[NDArray[Any]]:
    """Check that a runtime gave one value per row for every tensor, and return the tensors.

    Raises:
        VerifyError: a damaged graph gave no such tensor, or one of another shape.
    """
    for name, value in zip(names, values, strict=True):
        if np.shape(value)[:1] != (rows,):
            raise VerifyError(f"the graph gives no tensor {name!r} of {rows} rows")
    return [np.asarray(value) for value in values]


def expect_shapes(
    model: BinaryModel, rows: int, scores: NDArray[Any], hidden: Sequence[NDArray[Any]]
) -> None:
    """Check that scores and hidden values have one value per row and neuron.

    Raises:
        VerifyError: a damaged graph gave a tensor of another shape.
    """
    for layer, values in zip(model.layers, (*hidden, scores), strict=True):
        if values.shape != (rows, layer.n_outputs):
            raise VerifyError(
                f"the graph gives values of shape {values.shape}, expected "
                f"{(rows, layer.n_outputs)}"
            )


def size_check(model: BinaryModel, limit: int) -> Fit:
    """Check that the float weights fit one protobuf message, which holds at most 2 GiB."""
    shape = model.shape
    total = _weight_bytes(shape)
    if total < limit - (1 << 20):  # 1 MiB for nodes, names and metadata
        return Fit()
    layer = max(range(len(model.layers)), key=lambda i: model.layers[i].weights.size)
    problem = Problem(
        f"layer {layer}: the graph's weights take {total} bytes, an ONNX file holds {limit}",
        layer=layer,
        memory="file",
        missing_bytes=total - limit + (1 << 20),
        nearest=nearest_shape(shape, lambda near: _weight_bytes(near) < limit - (1 << 20)),
    )
    return Fit(problems=(problem,))


def _weight_bytes(shape: tuple[int, ...]) -> int:
    return 4 * sum(a * b for a, b in itertools.pairwise(shape))


def short(error: BaseException) -> str:
    """Shorten an error's text to one line of at most 200 characters."""
    return " ".join(str(error).split())[:200]
