# SPDX-License-Identifier: Apache-2.0
"""Imports an ONNX or QONNX graph as a BinaryModel, or says why it is not a binary network.

Graphs of ONNX-ML trees become a TreesModel; see :mod:`.tree_ensembles`.

The graph is walked once. Every tensor is a table over popcounts (see
:mod:`n3ic.families.binary.popcount_table`), so weights behind batch norms, scales and signs fold
exactly. Files are not trusted: sizes are bounded, external data is refused, and only the listed
operators are evaluated.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import ModelError, VerifyError
from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.decode import shunt_of
from n3ic.exporters.onnx.operators import (
    ELEMENTWISE,
    RESHAPING,
    Value,
    batch_norm,
    bipolar,
    multi_threshold,
    quant,
    reference,
)
from n3ic.exporters.onnx.tree_ensembles import has_trees, read_trees
from n3ic.families.binary.float_ambiguity import facts, rounds, tried
from n3ic.families.binary.popcount_table import (
    MAX_CELLS,
    OTHER_ACTIVATION,
    Array,
    ConstantInputError,
    PopcountTable,
    binary,
    channel_row,
    elementwise,
    network_input,
    product,
    xnor_popcount,
)
from n3ic.families.binary.scores import output_layer
from n3ic.families.trees.network import TreesModel
from n3ic.model.inputs import MAX_INPUT_BITS, InputSpec
from n3ic.model.network import BinaryModel

MAX_FILE_BYTES = 256 << 20
MAX_NODES = 10_000
MAX_HELD = 1 << 28  # maximum number of cells of the tensors that later nodes still read
_CUSTOM = (model_proto.QONNX_DOMAIN, "finn.custom_op.general", "onnx.brevitas")
_SHAPING = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_INPUT_STAGE = {"Gather", "Less", "Greater", "GreaterOrEqual", "Cast", "Div", "Mod", "Where"}


def read(path: str | Path) -> BinaryModel | TreesModel:
    """Read a graph as a BinaryModel, or a graph of trees as a TreesModel.

    The input counts as +-1 unless the graph shows that it is 0 or 1: by metadata, a ``BINARY``
    annotation, an ``XnorPopcountMatMul``, or arithmetic such as ``2 x - 1`` directly after it.

    Raises:
        ModelError: the file is damaged, hostile or too large, or the graph is not a binary network;
            the error names the node and the reason.
        MissingDependencyError: onnx is not installed.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise ModelError(f"{file}: no such file")
        if file.stat().st_size > MAX_FILE_BYTES:
            raise ModelError(f"{file}: larger than {MAX_FILE_BYTES >> 20} MiB")
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror or error}") from error
    try:
        return parse(data)
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from error


def parse(data: bytes) -> BinaryModel | TreesModel:
    """Parse a graph's bytes to a model; see :func:`read`."""
    model = _load(data)
    digest = hashlib.sha256(data).hexdigest()
    try:
        if has_trees(model):
            return read_trees(model, data)
        try:
            return _Walk(model).result(digest)
        except ConstantInputError:  # such as x >= 0, which separates -1 from 1 but not 0 from 1
            return _Walk(model, zero_one=False).result(digest)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise ModelError(f"not a graph that can be read: {model_proto.short(error)}") from error


def _load(data: bytes) -> Any:
    onnx = model_proto.require("onnx")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:
        # protobuf's decoding error has no importable type, so its name is compared.
        if type(error).__name__ not in ("DecodeError", "ValueError"):
            raise
        raise ModelError("not an ONNX file") from error
    g = model.graph
    if not g.node or not g.input or not g.output:
        raise ModelError("the graph lacks nodes, inputs or outputs")
    if len(g.node) > MAX_NODES:
        raise ModelError(f"{len(g.node)} nodes, at most {MAX_NODES} are supported")
    if model.functions or g.sparse_initializer:
        raise ModelError("functions and sparse weights are not supported")
    tensors = [
        *g.initializer,
        *(a.t for node in g.node for a in node.attribute if a.type == a.TENSOR),
    ]
    for part in (*g.node, *model.opset_import):
        part.domain = "" if part.domain == "ai.onnx" else part.domain  # both name one domain
    named = {o.domain for o in model.opset_import}  # qonnx.converters omits its own
    for domain in sorted({n.domain for n in g.node} & {*_CUSTOM} - named):
        model.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    if any(a.type in (a.GRAPH, a.GRAPHS) for node in g.node for a in node.attribute):
        raise ModelError("graphs within nodes are not supported")
    for tensor in tensors:
        if tensor.external_data or tensor.data_location == tensor.EXTERNAL:
            raise ModelError(
                f"weights {tensor.name[:80]!r} are in another file; put them into this one, by "
                "external_data=False of torch.onnx.export, or onnx.save(onnx.load(path), new)"
            )
        if not 0 < math.prod(tensor.dims) <= MAX_CELLS or len(tensor.dims) > 8:
            raise ModelError(f"weights {tensor.name[:80]!r} have the shape {list(tensor.dims)}")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ModelError(f"not a valid graph: {model_proto.short(error)}") from error
    return model


class _Walk:
    """One pass over a graph, from its input to its scores."""

    def __init__(self, model: Any, *, zero_one: bool = True) -> None:
        self._zero_one = zero_one
        self._onnx = model_proto.require("onnx")
        self._model = model
        self._props = {p.key: p.value for p in model.metadata_props}
        self._values: dict[str, Value] = {}
        self._beyond: set[str] = set()  # tensors after the arg max
        self._scores: PopcountTable | None = None
        self._opsets = {o.domain: o.version for o in model.opset_import}
        self._readers = Counter(name for node in model.graph.node for name in set(node.input))
        self._readers.update(("scores", *(v.name for v in model.graph.output)))
        for tensor in model.graph.initializer:
            self._values[tensor.name] = self._array(tensor)
        self._cells = sum(_cells(value) for value in self._values.values())

    def result(self, digest: str) -> BinaryModel:
        """Return the model; ``digest`` goes into its provenance."""
        if "n3ic.family" in self._props:
            raise ModelError(
                f"n3ic wrote this graph from a model of family {self._text('n3ic.family', '')}, "
                "but imports only binary networks: use model.n3ic in the export's directory"
            )
        spec, start = self._input()
        for node in self._nodes_behind(start):
            self._visit(node)
        scores = self._find_scores()
        final = output_layer(scores)
        if not scores.before and final.layer.n_inputs != spec.n_bits:
            raise ModelError("the scores do not come from the input")
        classes = self._classes(final.layer.n_outputs)
        model = BinaryModel(
            input=spec,
            hidden=scores.before,
            output=final.layer,
            classes=tuple(classes[i] for i in final.order),
            name=self._text("n3ic.name", "imported"),
            provenance={"source": "onnx", "onnx_sha256": digest, **facts(scores, final, "graph")},
            shunt=self._shunt(final.exact),
        )
        if not rounds(scores, final):
            return model
        notes = (model.provenance.get("rounding", "exact sums decide"), tried(model, scores, final))
        return model.changed(provenance={**model.provenance, "rounding": "; ".join(notes)})

    def _shunt(self, exact: bool) -> int:
        """Read the shunting threshold of a graph that n3ic wrote."""
        if "n3ic.digest" not in self._props:
            return 0
        constants = {t.name: self._array(t) for t in self._model.graph.initializer}
        try:
            shunt = shunt_of(self._model, constants)
        except VerifyError as error:
            raise ModelError(str(error)) from error
        if shunt and not exact:
            raise ModelError("the threshold applies to other scores than a BinaryModel's")
        return shunt

    # --- the input -------------------------------------------------------------------------

    def _input(self) -> tuple[InputSpec, str]:
        g = self._model.graph
        inputs = [v for v in g.input if v.name not in self._values]
        if len(inputs) != 1:
            raise ModelError(f"a binary network has one input, this graph has {len(inputs)}")
        name = inputs[0].name
        declared = self._spec()
        if declared is not None and name == "features":
            self._check_input_stage(declared)
            name = "bits"
            width = declared.n_bits
        else:
            width = self._width(inputs[0])
        if declared is not None and declared.n_bits != width:
            raise ModelError(f"the input spec has {declared.n_bits} bits, the graph takes {width}")
        zero_one = self._zero_one and self._is_zero_one(name, declared is not None)
        self._values[name] = network_input(width, 0.0 if zero_one else -1.0, 1.0)
        return declared or InputSpec.raw(width), name

    def _nodes_behind(self, start: str) -> list[Any]:
        """Drop the nodes that compute ``start`` from the graph's own input."""
        nodes = list(self._model.graph.node)
        needed, drop = {start}, set()
        for i in range(len(nodes) - 1, -1, -1):
            if needed & set(nodes[i].output):
                drop.add(i)
                needed |= set(nodes[i].input)
        return [node for i, node in enumerate(nodes) if i not in drop]

    def _width(self, value: Any) -> int:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if len(dims) < 2 or any(d < 1 for d in dims[1:]):
            raise ModelError(f"input {value.name!r}: expected the shape (batch, bits), got {dims}")
        width = 1
        for d in dims[1:]:
            width *= d
        if width > MAX_INPUT_BITS:
            raise ModelError(f"input {value.name!r}: {width} bits, at most {MAX_INPUT_BITS}")
        return width

    def _is_zero_one(self, name: str, declared: bool) -> bool:
        for annotation in self._model.graph.quantization_annotation:
            if annotation.tensor_name == name:
                kinds = {p.key: p.value for p in annotation.quant_parameter_tensor_names}
                if kinds.get("finn_datatype") in ("BINARY", "BIPOLAR"):
                    return bool(kinds["finn_datatype"] == "BINARY")
        if declared:
            return True
        for node in self._model.graph.node:
            if name in node.input:
                if node.op_type in (*_SHAPING, "Identity", "Cast", "Neg"):
                    name = node.output[0]
                    continue
                return node.op_type not in ("MatMul", "Gemm", "Sign", "BipolarQuant")
        return False

    def _spec(self) -> InputSpec | None:
        text = self._props.get("n3ic.input")
        if text is None:
            return None
        try:
            return InputSpec.from_dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ModelError("the input spec in the metadata is damaged") from error

    def _check_input_stage(self, spec: InputSpec) -> None:
        """Compare the graph's input stage with the spec at the edges of every field."""
        part = model_proto.cut(self._model, ["features"], ["bits"])
        strange = {node.op_type for node in part.graph.node} - _INPUT_STAGE
        if strange:
            raise ModelError(f"the input stage uses {sorted(strange)[0]}")
        rows = _edges(spec)
        reference = model_proto.require("onnx.reference").ReferenceEvaluator(part)
        matrix = np.stack([rows[f] for f in spec.features], axis=1)
        (bits,) = reference.run(["bits"], {"features": matrix})
        if not np.array_equal(np.asarray(bits) != 0, spec.encode(rows)):
            raise ModelError("the graph's input stage does not compute what its input spec says")

    # --- one node --------------------------------------------------------------------------

    def _visit(self, node: Any) -> None:
        names = [name for name in node.input if name]
        if any(name in self._beyond for name in names):
            self._beyond.update(node.output)
            return
        by = f"node {(node.name or node.output[0])[:80]!r} ({node.op_type[:40]})"
        if node.domain not in (_CUSTOM if node.op_type in _QONNX else ("",)):
            raise ModelError(f"{by}: unknown domain {node.domain[:80]!r}")
        missing = [name for name in names if name not in self._values]
        if missing:
            raise ModelError(f"{by}: no node computes its input {missing[0][:80]!r}")
        values = [self._values[name] for name in names]
        attributes = {a.name: self._onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type in _SCORE_READERS and values and isinstance(values[0], PopcountTable):
            self._read_scores(node.op_type, values[0], attributes, by)
            self._beyond.update(node.output)
            return
        constants = not any(isinstance(value, PopcountTable) for value in values)
        operator = _OPERATORS.get(node.op_type)
        if operator is not None and not (constants and node.op_type in RESHAPING):
            result = operator(self, values, attributes, by)
        elif node.op_type in ELEMENTWISE or (constants and node.op_type in RESHAPING):
            result = elementwise(
                lambda *arrays: reference(node, arrays, self._opsets, by), values, by
            )
        else:
            none = f"{node.op_type} is not an operator of a binary network"
            raise ModelError(f"{by}: {OTHER_ACTIVATION if node.op_type in _ACTIVATIONS else none}")
        self._keep(node, result, by)

    def _keep(self, node: Any, result: Value, by: str) -> None:
        """Store a node's result, and drop tensors that no later node reads."""
        self._values[node.output[0]] = result
        self._cells += _cells(result)
        if self._cells > MAX_HELD:
            raise ModelError(f"{by}: the graph holds too many large tensors at once")
        self._readers.subtract(set(node.input))
        for name in {*node.input, node.output[0]}:
            if name in self._values and self._readers[name] <= 0:
                self._cells -= _cells(self._values.pop(name))

    def _read_scores(
        self, op: str, scores: PopcountTable, attributes: dict[str, Any], by: str
    ) -> None:
        default = {"ArgMax": 0}.get(op, -1)
        if attributes.get("axis", default) not in (-1, 1):
            raise ModelError(f"{by}: not over the classes (axis {attributes.get('axis', default)})")
        if attributes.get("select_last_index", 0):
            raise ModelError(f"{by}: a tie goes to the last class; a BinaryModel takes the first")
        if not attributes.get("largest", 1):
            raise ModelError(f"{by}: the smallest score wins; a BinaryModel takes the highest")
        if self._scores is None:
            self._scores = scores

    def _find_scores(self) -> PopcountTable:
        outputs = [v.name for v in self._model.graph.output]
        named = self._values.get("scores") if "scores" in outputs else None
        candidates = [named, self._scores, *(self._values.get(name) for name in outputs)]
        for value in candidates:
            if isinstance(value, PopcountTable):
                return value
        raise ModelError("no output depends on the input through supported layers")

    # --- operators -------------------------------------------------------------------------

    def _matmul(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        x, w = values
        return product(binary(_signal(x, by), by), _matrix(w, by), by)

    def _gemm(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        if attributes.get("transA", 0) or any(
            attributes.get(k, 1.0) != 1.0 for k in ("alpha", "beta")
        ):
            raise ModelError(f"{by}: alpha, beta and transA must be 1, 1 and 0")
        w = _matrix(values[1], by)
        weights = w.T if attributes.get("transB", 0) else w
        # Gemm may add its bias in any order; MatMul and Add round the sum first.
        bias = channel_row(_constant(values[2], by), weights.shape[1], by) if values[2:] else None
        return product(binary(_signal(values[0], by), by), weights, by, bias=bias)

    def _xnor(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        x, w = values
        return xnor_popcount(binary(_signal(x, by), by, (0.0, 1.0)), _matrix(w, by), by)

    def _multi_threshold(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        x, thresholds = values
        return multi_threshold(
            _signal(x, by),
            _constant(thresholds, by),
            float(attributes.get("out_scale", 1.0)),
            float(attributes.get("out_bias", 0.0)),
            by,
        )

    def _bipolar(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        return elementwise(bipolar, [values[0], _constant(values[1], by)], by)

    def _quant(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        if (mode := attributes.get("rounding_mode", b"ROUND")) != b"ROUND":
            raise ModelError(f"{by}: rounds by {mode!r}, expected ROUND"[:200])
        if len(values) != 4:
            raise ModelError(f"{by}: {len(values)} inputs, expected values, scale, zero and width")
        x, scale, zero, width = values
        kinds = {
            "signed": bool(attributes.get("signed", 1)),
            "narrow": bool(attributes.get("narrow", 0)),
        }
        constant = _constant(width, by)
        return elementwise(
            lambda a, s, z: quant(a, s, z, constant, **kinds, by=by),
            [x, _constant(scale, by), _constant(zero, by)],
            by,
        )

    def _batch_norm(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        if attributes.get("training_mode", 0):
            raise ModelError(f"{by}: in training mode")
        x, *parameters = values
        scale, bias, mean, variance = (_constant(p, by) for p in parameters)
        epsilon = float(attributes.get("epsilon", 1e-5))
        return batch_norm(_signal(x, by), scale, bias, mean, variance, epsilon, by)

    def _flatten(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        if attributes.get("axis", 1) not in (1, -1):
            raise ModelError(f"{by}: flattens the batch")
        return values[0]

    def _reshape(self, values: list[Value], attributes: dict[str, Any], by: str) -> Value:
        x, shape = _signal(values[0], by), _constant(values[1], by).reshape(-1).tolist()
        if len(shape) != 2 or shape[1] not in (-1, x.channels):
            raise ModelError(f"{by}: a layer's output stays (batch, neurons), not {shape[:8]}")
        return x

    # --- constants and metadata ------------------------------------------------------------

    def _array(self, tensor: Any) -> Array:
        array: Array = self._onnx.numpy_helper.to_array(tensor)
        if array.dtype.kind not in "fiub":
            raise ModelError(f"weights {tensor.name[:80]!r} are of type {array.dtype}")
        return array

    def _text(self, key: str, default: str) -> str:
        text = self._props.get(key, default)
        return text[:256] if text else default

    def _classes(self, count: int) -> tuple[str, ...]:
        text = self._props.get("n3ic.classes")
        if text is None:
            return tuple(f"class{i}" for i in range(count))
        try:
            names = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ModelError("the class names in the metadata are damaged") from error
        if not isinstance(names, list) or len(names) != count:
            raise ModelError(f"the metadata does not name {count} classes")
        return tuple(names)


def _edges(spec: InputSpec) -> dict[str, Array]:
    """Integer features at, below and above every value that an input spec compares with."""
    marks: dict[str, set[int]] = {name: {-1, 0, 1, 2**40} for name in spec.features}
    for field in spec.fields:
        known = {
            field.clamp,
            *field.cuts,
            *(1 << k for k in range(field.width if not field.cuts else 0)),
        }
        marks[field.feature] |= {m + d for m in known for d in (-1, 0, 1)}
    longest = max(len(m) for m in marks.values())
    return {
        name: np.resize(np.array(sorted(values), np.int64), longest)
        for name, values in marks.items()
    }


def _signal(value: Value, by: str) -> PopcountTable:
    if not isinstance(value, PopcountTable):
        raise ModelError(f"{by}: its first input is a constant")
    return value


def _constant(value: Any, by: str) -> Array:
    if isinstance(value, PopcountTable):
        raise ModelError(f"{by}: needs a constant where the graph computes one")
    return np.asarray(value)


def _matrix(value: Value, by: str) -> Array:
    if isinstance(value, PopcountTable):
        raise ModelError(f"{by}: its weights are computed, not constant")
    matrix = np.asarray(value)
    if matrix.ndim != 2:
        raise ModelError(f"{by}: weights of shape {matrix.shape}, expected (inputs, neurons)")
    return matrix


def _cells(value: Value) -> int:
    return sum(t.size for t in value.tables) if isinstance(value, PopcountTable) else value.size


_Operator = Callable[[_Walk, list[Value], dict[str, Any], str], Value]
_QONNX = ("XnorPopcountMatMul", "MultiThreshold", "BipolarQuant", "IntQuant", "Quant")
_ACTIVATIONS = frozenset((
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Selu",
    "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
))  # fmt: skip
_SCORE_READERS = ("ArgMax", "TopK", "Softmax", "LogSoftmax", "Hardmax")
_OPERATORS: dict[str, _Operator] = {
    "BatchNormalization": _Walk._batch_norm,
    "BipolarQuant": _Walk._bipolar,
    "Flatten": _Walk._flatten,
    "Gemm": _Walk._gemm,
    "IntQuant": _Walk._quant,
    "MatMul": _Walk._matmul,
    "MultiThreshold": _Walk._multi_threshold,
    "Quant": _Walk._quant,
    "Reshape": _Walk._reshape,
    "XnorPopcountMatMul": _Walk._xnor,
}
