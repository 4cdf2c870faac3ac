# SPDX-License-Identifier: Apache-2.0
"""What each operator of PyTorch does to a tensor for all inputs at once, or why it is refused."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from n3ic.families.binary.popcount_table import OTHER_ACTIVATION, binary, product
from n3ic.families.binary.torch_readers import READERS, SHAPING, after_scores, read_scores
from n3ic.families.binary.torch_tensor import (
    BATCH,
    Call,
    CalledLayer,
    TableTensor,
    as_array,
    channel_row,
    on_tables,
)

_aten = torch.ops.aten

# fmt: off
_ELEMENTWISE = frozenset((
    "_prelu_kernel", "_to_copy", "abs", "add", "bitwise_and", "bitwise_not", "bitwise_or", "ceil",
    "clamp", "clamp_max", "clamp_min", "clone", "contiguous", "copysign", "div", "dropout", "elu",
    "eq", "fill", "floor", "full_like", "ge", "gt", "hardsigmoid", "hardtanh", "heaviside", "le",
    "leaky_relu", "lift_fresh", "logical_and", "logical_not", "logical_or", "lt", "masked_fill",
    "maximum", "minimum", "mul", "ne", "neg", "ones_like", "positive", "pow", "reciprocal", "relu",
    "relu6", "round", "rsub", "sgn", "sign", "signbit", "sub", "tanh", "to", "trunc", "where",
    "zero", "zeros_like",
))
# fmt: on
_MAKERS = frozenset(("new_full", "new_ones", "new_zeros"))

_NO_OPERATOR = (
    "{} is not an operator of a binary network, which consists of layers of binary weights with "
    "batch norms, scales, biases and signs between them"
)
# fmt: off
_REASONS = {
    "convolutions are not read; write the layer as torch.nn.Linear":
        ("_convolution", "conv1d", "conv2d", "convolution"),
    "write the layer as torch.nn.Linear":
        ("bmm", "dot", "mv"),
    "the module branches on its input or reads its numbers; use torch.where instead":
        ("_local_scalar_dense", "all", "any", "equal", "is_nonzero", "item", "nonzero"),
    "it takes values that are not set, as of a dropout that is active in evaluation; use "
    "torch.nn.Dropout, or give it training=self.training":
        ("bernoulli", "empty_like", "native_dropout", "rand_like", "randn_like"),
    "it joins or splits the channels of a layer; a BinaryModel is a chain of layers":
        ("cat", "index", "index_select", "split", "stack", "unbind"),
    "it swaps channels and rows":
        ("permute", "t", "transpose"),
    OTHER_ACTIVATION:
        ("celu", "gelu", "hardshrink", "hardswish", "mish", "rrelu", "rrelu_with_noise", "silu",
         "softplus", "softshrink", "threshold"),
    "it computes over the channels of a row, which no threshold does; use BatchNorm1d":
        ("mean", "native_group_norm", "native_layer_norm", "sum", "var_mean"),
}
# fmt: on
_HINTS = {name: reason for reason, names in _REASONS.items() for name in names}


def run(call: Call) -> Any:
    """Return an operator's result; if it writes in place, its first argument with a new signal.

    Raises:
        ModelError: a binary network has no such operator; the error says what to change.
    """
    result = _result(call)
    if not call.func._schema.is_mutable:
        return result
    first = call.args[0] if call.args else None
    if not isinstance(first, TableTensor) or call.kwargs.get("out") is not None:
        raise call.error("writes into a tensor that was not made from the input; use torch.where")
    first.signals[0] = result.signal
    return first


def _result(call: Call) -> Any:
    name, x = call.name, call.tensors[0]
    if any(t.behind for t in call.tensors):
        return after_scores(call)
    if name in READERS:
        return read_scores(call)
    if name in ("addmm", "linear", "matmul", "mm"):
        return _product(call)
    if name.endswith("batch_norm") or name.startswith("_native_batch_norm"):
        return _batch_norm(call)
    if name == "index_put":
        return _masked(call)
    if name in SHAPING:
        return _shaped(call, x)
    if name in _MAKERS:
        return call.func(torch.empty(x.shape), *call.args[1:], **call.kwargs)
    if name in _ELEMENTWISE:
        return call.elementwise()
    raise call.error(_HINTS.get(name, _NO_OPERATOR.format(name)))


def _product(call: Call) -> TableTensor:
    """A layer: its inputs as bits, counted where they agree with its weights."""
    x, w, bias = _factors(call)
    if (
        not isinstance(x, TableTensor)
        or isinstance(w, TableTensor)
        or isinstance(bias, TableTensor)
    ):
        raise call.error("its weights depend on the input")
    bits = binary(x.signal, call.by)
    weights = as_array(call, w)
    if weights.ndim != 2 or len(weights) != x.signal.channels:
        raise call.error(f"takes {len(weights)} inputs, and {x.signal.channels} come")
    shape = torch.Size((BATCH, weights.shape[1]))
    added = None if bias is None else as_array(call, channel_row(call, bias, shape, shape[1]))
    layers = call.reading.layers
    for layer in layers:  # a layer that is called twice is one layer, joined with itself
        if layer.is_called(call.name, x.signal, weights, added):
            return TableTensor(layer.result, shape, call.reading)
    signal = product(bits, weights, call.by, bias=added, precise=True)
    layers.append(CalledLayer(call.name, x.signal, weights, added, signal))
    return TableTensor(signal, shape, call.reading)


def _factors(call: Call) -> tuple[Any, Any, Any]:
    """The input of a layer, its weights of shape ``(inputs, neurons)``, and its bias or None."""
    if call.name == "addmm":
        bias, x, w = call.args
        if any(call.kwargs.get(k, 1) != 1 for k in ("alpha", "beta")):
            raise call.error("alpha and beta must be 1")
        return x, w, bias
    x, w, *bias = call.args
    return x, w.t() if call.name == "linear" else w, bias[0] if bias else None


def _batch_norm(call: Call) -> Any:
    """A batch norm on the tables: PyTorch rounds as it does on a batch.

    A gain below 0 makes a table fall, and a gain of 0 makes it constant; both are seen where the
    table becomes bits.
    """

    def normed(x: Tensor, *parameters: Any) -> Tensor:
        result = call.func(x, *parameters, **call.kwargs)
        first: Tensor = result if isinstance(result, Tensor) else result[0]
        return first

    training = next((a for a in call.args[5:6] if isinstance(a, bool)), False)
    if training or any(a is None for a in call.args[3:5]):
        raise call.error(
            "takes mean and variance from the batch; train it with track_running_stats=True"
        )
    if (call.args[4] < 0).any():
        raise call.error("a running variance is negative")
    output = on_tables(call, normed, call.args, {})
    if call.name == "batch_norm":  # in inference mode it is one operator
        return output
    nothing = torch.empty(0)  # statistics of the batch, which nothing reads
    return (output, nothing, nothing, *([nothing] if "legit" in call.name else []))


def _masked(call: Call) -> TableTensor:
    """``x[mask] = value``."""
    target, indices, value = call.args[:3]
    (mask,) = indices if len(indices) == 1 else (None,)
    alone = isinstance(value, Tensor) and not isinstance(value, TableTensor) and value.numel() == 1
    if mask is None or mask.dtype != torch.bool or not alone or not isinstance(target, TableTensor):
        raise call.error("writes at indices; use torch.where(x >= 0, 1., -1.)")
    return on_tables(call, _aten.where.self, (mask, value.reshape(()), target), {})


def _shaped(call: Call, x: TableTensor) -> TableTensor:
    """A view of the same numbers; rows and channels stay."""
    if any(isinstance(a, torch.dtype) for a in (*call.args, *call.kwargs.values())):
        raise call.error("reads the bits of a float; compare it, such as by x >= 0")
    plain = call.func(torch.empty(x.shape, device="meta"), *call.args[1:], **call.kwargs)
    shape, channels = tuple(plain.shape), x.signal.channels
    usual = [(BATCH, channels), (BATCH, channels, 1), (BATCH, 1, channels)]
    if shape not in (usual if channels != 1 else [*usual, (BATCH,)]):
        raise call.error(
            f"a tensor of {channels} channels becomes one of the shape "
            f"(batch, {', '.join(map(str, shape[1:]))}); a layer's output stays as it is, and "
            "convolutions are not read: write each layer as torch.nn.Linear"
        )
    return TableTensor(x.signals, shape, call.reading)
