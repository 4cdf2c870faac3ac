# SPDX-License-Identifier: Apache-2.0
"""PyTorch modules as lists of layers, captured by ``torch.export``; importing this imports PyTorch.

A layer here is what the integers know: weighted sums with their batch norm and activation, pools,
sums of two values, signs and shapes. Whatever else a module computes is refused by its node.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from n3ic.errors import ClusterError

UNBOUNDED = (-math.inf, math.inf)
_CLOSE = 1e-3  # of the greatest score: what float32 and another order of sums change at most


class Function(ABC):
    """What a layer computes, on tensors of shape ``(items, *shape)``."""

    keeps_grid = False
    """Whether results are values of the input, or whole numbers: they need no rounding."""

    @abstractmethod
    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""


@dataclass(frozen=True, eq=False)
class Weighted(Function):
    """Weighted sums, whose weights are a tensor with the outputs first."""

    weight: Tensor
    bias: Tensor

    def with_weights(self, weight: Tensor, bias: Tensor) -> Weighted:
        """Return the same sums with other weights."""
        return replace(self, weight=weight, bias=bias)


@dataclass(frozen=True, eq=False)
class Linear(Weighted):
    """Sums over the last axis."""

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return functional.linear(tensors[0], self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Filtered(Weighted):
    """Sums over the windows of an image."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    groups: int = 1

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return functional.conv2d(
            tensors[0], self.weight, self.bias, self.stride, self.padding, groups=self.groups
        )


@dataclass(frozen=True, eq=False)
class Neighbours(Weighted):
    """Sums over the neighbours of each vertex; a weight for each edge, no bias.

    Attributes:
        edges: int64 of shape ``(2, edges)``: receiving and sending vertices.
        vertices: number of receiving and of sending vertices.
    """

    edges: Tensor
    vertices: tuple[int, int]

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        weights = self.weight.to(tensors[0].dtype)
        matrix = torch.sparse_coo_tensor(self.edges, weights, self.vertices)
        return torch.stack([torch.sparse.mm(matrix, item) for item in tensors[0]])


@dataclass(frozen=True)
class Pooled(Function):
    """The greatest value or the mean of each window of an image."""

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    largest: bool

    @property
    def keeps_grid(self) -> bool:  # type: ignore[override]
        """Whether the greatest value is taken."""
        return self.largest

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        pool = functional.max_pool2d if self.largest else functional.avg_pool2d
        pooled: Tensor = pool(tensors[0], self.window, self.stride, self.padding)
        return pooled


@dataclass(frozen=True)
class Summed(Function):
    """The sum of two values."""

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return tensors[0] + tensors[1]


@dataclass(frozen=True)
class Signed(Function):
    """-1, 0 or 1."""

    keeps_grid = True

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return torch.sign(tensors[0])


@dataclass(frozen=True)
class Shaped(Function):
    """The same values in another shape."""

    shape: tuple[int, ...]
    keeps_grid = True

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return tensors[0].reshape(-1, *self.shape)


@dataclass(frozen=True)
class Same(Function):
    """The same values, for an activation of their own."""

    keeps_grid = True

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        return tensors[0]


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a captured module.

    Attributes:
        name: its node of the graph, and the module that it belongs to.
        inputs: numbers of the values that it takes; 0 is the input, ``i + 1`` the result of layer
            ``i``.
        function: what it computes.
        bounds: values to which its results are cut, as by ReLU and ReLU6.
    """

    name: str
    inputs: tuple[int, ...]
    function: Function
    bounds: tuple[float, float] = UNBOUNDED

    def apply(self, *tensors: Tensor) -> Tensor:
        """Compute it in floating point."""
        result = self.function.apply(*tensors)
        return result if self.bounds == UNBOUNDED else result.clamp(*self.bounds)


@dataclass(frozen=True, eq=False)
class Captured:
    """A module as layers; the last one gives the scores.

    Attributes:
        layers: the layers.
        examples: the inputs with which it was captured, of shape ``(items, *shape)``.
    """

    layers: tuple[Layer, ...]
    examples: Tensor


def capture(module: nn.Module, examples: Tensor) -> Captured:
    """Capture a module in evaluation mode, and check the layers against it.

    Args:
        module: the module; it takes one tensor and gives one.
        examples: inputs, of which the first axis counts items; for a module that multiplies a
            matrix of edges by rows of features, the features of one graph.

    Raises:
        ClusterError: the module cannot be exported, or computes what a cluster does not; the error
            names the node of its graph and what to do.
    """
    training = module.training
    module.eval()
    try:
        try:
            exported = torch.export.export(module, (examples,))
        except Exception as error:  # it raises errors of many types
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise ClusterError(
                f"torch.export cannot capture {type(module).__name__}: {text[0]}: write its "
                "forward without branches on values of tensors"
            ) from error
        walk = _Walk(exported, examples)
        with torch.no_grad():
            for node in exported.graph.nodes:
                walk.visit(node)
            expected = module(examples)
    finally:
        module.train(training)
    items = examples if walk.batched else examples[None]
    captured = Captured(tuple(walk.layers), items)
    scores = outputs(captured)
    if not walk.batched:
        scores = scores[0]
    if scores.shape != expected.shape or not _close(scores, expected):
        raise ClusterError(
            f"{type(module).__name__}: its layers give other scores than the module: it writes "
            "to a tensor that others see; use operations that return their result (relu, not relu_)"
        )
    return captured


@torch.no_grad()
def outputs(captured: Captured) -> Tensor:
    """Compute the scores of the captured examples in floating point, of every item."""
    values = [captured.examples.double()]
    for layer in captured.layers:
        function = layer.function
        if isinstance(function, Weighted):
            doubled = function.with_weights(function.weight.double(), function.bias.double())
            layer = replace(layer, function=doubled)
        values.append(layer.apply(*(values[i] for i in layer.inputs)))
    return values[-1]


def _close(output: Tensor, expected: Tensor) -> bool:
    size = max(float(expected.abs().max()), 1e-6)
    return bool((output - expected).abs().max() <= _CLOSE * size)


def _pair(value: Any) -> tuple[int, int]:
    numbers = [value] * 2 if isinstance(value, int) else list(value)
    return (numbers[0], numbers[-1])


def _place(node: fx.Node) -> str:
    """The node's name, with the module that it belongs to."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"{node.name} ({path}: {kind.rpartition('.')[2]})" if path else node.name


class _Walk:
    """Layers and constants of a graph, node by node."""

    def __init__(self, exported: Any, examples: Tensor) -> None:
        self.layers: list[Layer] = []
        self._constants: dict[fx.Node, Any] = {}
        self._numbers: dict[fx.Node, int] = {}
        self._sources = {
            **exported.graph_signature.inputs_to_parameters,
            **exported.graph_signature.inputs_to_buffers,
            **exported.graph_signature.inputs_to_lifted_tensor_constants,
        }
        self._tensors: Mapping[str, Any] = {**exported.state_dict, **exported.constants}
        self._items = len(examples)
        self.batched = not any(
            _target(node) in _PRODUCTS and _edge_product(node) for node in exported.graph.nodes
        )

    def visit(self, node: fx.Node) -> None:
        """Add a node."""
        if node.op == "placeholder":
            source = self._sources.get(node.name)
            if source is not None:
                self._constants[node] = self._tensors[source]
            elif self._numbers:
                raise ClusterError(f"{node.name}: expected a module of one input")
            else:
                self._numbers[node] = 0
        elif node.op == "output":
            results: Any = node.args[0]
            single = isinstance(results, tuple) and len(results) == 1
            if not single or results[0] not in self._numbers:
                raise ClusterError("output: expected a module that gives one tensor of scores")
            if self._numbers[results[0]] != len(self.layers):
                raise ClusterError("output: expected the result of the module's last operation")
        elif all(n in self._constants for n in node.all_input_nodes):
            self._constants[node] = node.target(  # type: ignore[operator]
                *fx.map_arg(node.args, self._constants.__getitem__),
                **fx.map_arg(node.kwargs, self._constants.__getitem__),
            )
        else:
            self._operation(node)

    def _operation(self, node: fx.Node) -> None:
        name = _target(node)
        build = _BUILDERS.get(name)
        if build is None:
            hint = _HINTS.get(name, f"replace it, or compute it outside; known are {_KNOWN}")
            raise self.refusal(node, f"a cluster does not compute {name}: {hint}")
        build(self, node, self.arguments(node))
        if str(node.target).split(".")[1].endswith("_"):
            # Later readers of what was written in place read the result.
            self._numbers[node.all_input_nodes[0]] = self._numbers[node]

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """Arguments by name; constants are tensors, values are nodes."""
        schema = node.target._schema.arguments  # type: ignore[union-attr]
        named = {a.name: a.default_value for a in schema if a.has_default_value()}
        named |= dict(zip((a.name for a in schema), node.args, strict=False))
        named |= node.kwargs
        return {
            key: self._constants.get(value, value) if isinstance(value, fx.Node) else value
            for key, value in named.items()
        }

    def refusal(self, node: fx.Node, text: str) -> ClusterError:
        """Make the error that names a node."""
        return ClusterError(f"{_place(node)}: {text}")

    def number(self, node: fx.Node, value: Any) -> int:
        """Number of a value that a node takes."""
        if isinstance(value, fx.Node) and value in self._numbers:
            return self._numbers[value]
        raise self.refusal(node, "expected a value computed from the input, got a constant")

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Shape of an item of a node's result."""
        whole = tuple(node.meta["val"].shape)
        if not self.batched:
            return whole
        if whole[:1] != (self._items,):
            raise self.refusal(
                node, f"its first axis counts {whole[:1]}, expected the {self._items} items"
            )
        return whole[1:]

    def add(self, node: fx.Node, function: Function, *values: Any) -> None:
        """Add a layer, whose result is the node's."""
        self.shape(node)
        inputs = tuple(self.number(node, value) for value in values)
        self.layers.append(Layer(_place(node), inputs, function))
        self._numbers[node] = len(self.layers)

    def join(self, node: fx.Node, value: Any, layer: Layer) -> None:
        """Replace the layer that gives a value by one that also does what a node does."""
        self.layers[self._numbers[value] - 1] = layer
        self._numbers[node] = self._numbers[value]

    def alone(self, node: fx.Node, value: Any) -> Layer | None:
        """The layer of a value that only this node takes."""
        number = self.number(node, value)
        if number == 0 or len(value.users) > 1:
            return None
        return self.layers[number - 1]


def _target(node: fx.Node) -> str:
    """Name of a node's operation, without the mark of those that write in place."""
    return str(node.target).split(".")[1].rstrip("_") if node.op == "call_function" else ""


def _edge_product(node: fx.Node) -> bool:
    """Whether a matrix is multiplied by rows of features of one graph."""
    left, right = (n for n in node.all_input_nodes[:2]) if len(node.all_input_nodes) > 1 else (0, 0)
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        return False
    constant = left.op == "placeholder" and left.name.startswith(("b_", "p_", "c_"))
    return constant and right.meta["val"].dim() == 2


def _same(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    (value,) = (v for v in named.values() if isinstance(v, fx.Node))
    walk._numbers[node] = walk.number(node, value)


def _shape(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    (value,) = node.all_input_nodes
    walk.add(node, Shaped(walk.shape(node)), value)


def _bias(named: dict[str, Any], outputs: int, weight: Tensor) -> Tensor:
    bias = named.get("bias")
    return weight.new_zeros(outputs) if bias is None else bias.detach()


def _linear(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    weight = named["weight"].detach()
    walk.add(node, Linear(weight, _bias(named, len(weight), weight)), named["input"])


def _convolution(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    weight = named["weight"].detach()
    if _pair(named["dilation"]) != (1, 1):
        raise walk.refusal(node, "a cluster's filters have no dilation: expected dilation=1")
    padding = named["padding"]
    if padding == "valid":
        padding = 0
    elif padding == "same":
        if not all(size % 2 for size in weight.shape[2:]):
            raise walk.refusal(node, "padding='same' of an even filter: expected equal edges")
        padding = [size // 2 for size in weight.shape[2:]]
    function = Filtered(
        weight,
        _bias(named, len(weight), weight),
        _pair(named["stride"]),
        _pair(padding),
        named["groups"],
    )
    walk.add(node, function, named["input"])


def _product(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    left, right = list(named.values())[:2]
    if isinstance(right, Tensor):  # rows times a matrix of weights
        weight = right.detach().T
        walk.add(node, Linear(weight, weight.new_zeros(len(weight))), left)
        return
    if not isinstance(left, Tensor) or left.dim() != 2:
        raise walk.refusal(node, "a product of two computed values: expected a constant matrix")
    matrix = left.detach().to_sparse_coo().coalesce()
    weights = matrix.values()
    vertices = (matrix.shape[0], matrix.shape[1])
    function = Neighbours(weights, weights.new_zeros(1), matrix.indices(), vertices)
    walk.add(node, function, right)


def _batch_norm(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    value = named["input"]
    mean, variance = named["running_mean"], named["running_var"]
    if mean is None or variance is None:
        raise walk.refusal(node, "expected running statistics, as training keeps them")
    gain = torch.ones_like(mean) if named["weight"] is None else named["weight"].detach()
    offset = torch.zeros_like(mean) if named["bias"] is None else named["bias"].detach()
    norm = (mean, variance, named["eps"], gain, offset)
    layer = walk.alone(node, value)
    function = layer.function if layer is not None and layer.bounds == UNBOUNDED else None
    if layer is not None and isinstance(function, Linear | Filtered):
        fuse: Callable[..., Any] = (
            fuse_linear_bn_weights if isinstance(function, Linear) else fuse_conv_bn_weights
        )
        weight, bias = (t.detach() for t in fuse(function.weight, function.bias, *norm))
        walk.join(node, value, replace(layer, function=function.with_weights(weight, bias)))
        return
    scale = gain / torch.sqrt(variance + named["eps"])
    bias = offset - mean * scale
    if len(walk.shape(node)) == 3:  # an image: each channel is filtered by one number
        walk.add(node, Filtered(scale[:, None, None, None], bias, groups=len(scale)), value)
    else:
        walk.add(node, Linear(torch.diag(scale), bias), value)


def _bounded(low: float, high: float) -> Callable[[_Walk, fx.Node, dict[str, Any]], None]:
    def build(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
        lowest = named.get("min_val", named.get("min", low))
        highest = named.get("max_val", named.get("max", high))
        bounds = (
            -math.inf if lowest is None else float(lowest),
            math.inf if highest is None else float(highest),
        )
        value = node.all_input_nodes[0]
        layer = walk.alone(node, value)
        if layer is None or layer.bounds != UNBOUNDED or layer.function.keeps_grid:
            walk.add(node, Same(), value)
            walk.layers[-1] = replace(walk.layers[-1], bounds=bounds)
        else:
            walk.join(node, value, replace(layer, bounds=bounds))

    return build


def _pool(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    largest = _target(node) == "max_pool2d"
    window = _pair(named["kernel_size"])
    stride = _pair(named["stride"]) if named.get("stride") else window
    padding = _pair(named["padding"])
    if named["ceil_mode"]:
        raise walk.refusal(node, "windows beyond the image: expected ceil_mode=False")
    if largest and _pair(named["dilation"]) != (1, 1):
        raise walk.refusal(node, "a cluster's windows have no dilation: expected dilation=1")
    if not largest and (
        named["divisor_override"] or (any(padding) and not named["count_include_pad"])
    ):
        raise walk.refusal(node, "a mean of fewer places at the edges: expected count_include_pad")
    walk.add(node, Pooled(window, stride, padding, largest), named["self"])


def _adaptive(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    value, wanted = named["self"], _pair(named["output_size"])
    size = tuple(value.meta["val"].shape[-2:])
    if any(of % into for of, into in zip(size, wanted, strict=True)):
        raise walk.refusal(node, f"{size} does not divide into {wanted} equal windows")
    window = (size[0] // wanted[0], size[1] // wanted[1])
    if window == (1, 1):
        _same(walk, node, {"self": value})
    else:
        walk.add(node, Pooled(window, window, (0, 0), largest=False), value)


def _mean(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    value = named["self"]
    shape = value.meta["val"].shape
    axes = sorted(axis % len(shape) for axis in named["dim"])
    if len(shape) != 4 or axes != [2, 3]:
        raise walk.refusal(node, "a mean over other axes than rows and columns of images")
    window = (shape[2], shape[3])
    walk.add(node, Pooled(window, window, (0, 0), largest=False), value)
    if not named["keepdim"]:
        pooled = walk.layers[-1]
        walk.layers.append(Layer(pooled.name, (len(walk.layers),), Shaped((shape[1],))))
        walk._numbers[node] = len(walk.layers)


def _sum(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    if named.get("alpha", 1) != 1:
        raise walk.refusal(node, "a sum with a factor: expected alpha=1")
    left, right = named["self"], named["other"]
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node):
        raise walk.refusal(node, "a sum with a constant: add it to the bias of a layer")
    if left.meta["val"].shape != right.meta["val"].shape:
        raise walk.refusal(node, "a sum of two shapes: expected values of one shape")
    walk.add(node, Summed(), left, right)


def _sign(walk: _Walk, node: fx.Node, named: dict[str, Any]) -> None:
    walk.add(node, Signed(), named["self"])


_Build = Callable[[_Walk, fx.Node, dict[str, Any]], None]
_PRODUCTS: dict[str, _Build] = dict.fromkeys(("matmul", "mm", "_sparse_mm"), _product)
_BUILDERS: dict[str, _Build] = {
    "linear": _linear,
    "conv2d": _convolution,
    "batch_norm": _batch_norm,
    "relu": _bounded(0, math.inf),
    "relu6": _bounded(0, 6),
    "hardtanh": _bounded(-1, 1),
    "clamp": _bounded(-math.inf, math.inf),
    "max_pool2d": _pool,
    "avg_pool2d": _pool,
    "adaptive_avg_pool2d": _adaptive,
    "mean": _mean,
    "add": _sum,
    "sign": _sign,
    **_PRODUCTS,
    **dict.fromkeys(("flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten"), _shape),
    **dict.fromkeys(("dropout", "contiguous", "clone", "alias", "detach", "to"), _same),
}
_KNOWN = ", ".join(sorted(set(_BUILDERS) - {"alias", "clone", "detach", "to", "_sparse_mm", "mm"}))
_SCORES = "leave it out: the order of the scores before it is the same"
_HINTS = {"softmax": _SCORES, "log_softmax": _SCORES, "sigmoid": _SCORES}
