# SPDX-License-Identifier: Apache-2.0
"""A PyTorch module as a BinaryModel, or the reason why it is not a binary network.

The module itself runs, on a tensor that stands for all inputs at once: PyTorch hands every operator
that touches it to :class:`_Tables`, and all other operators run as ever. So layers of Brevitas,
autograd functions and the module's own ``forward`` need no exporter, and PyTorch's own arithmetic
makes the tables (see :mod:`signal`) that thresholds are read from.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from n3ic.errors import ModelError
from n3ic.families.binary.rounding import facts, in_doubt
from n3ic.families.binary.scores import Scores, output_layer
from n3ic.families.binary.signal import (
    Array,
    Signal,
    binary,
    elementwise,
    network_input,
    product,
)
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel

Inputs = int | InputSpec | Sequence[str] | Mapping[str, int | Sequence[int]]

ROWS = 4096  # random inputs that the module and its model are compared on; below that, all
_BATCH = 2  # rows that the module sees while it is read: a batch, and no width of a layer
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
_PROBABILITIES = frozenset(("_log_softmax", "_softmax", "log_softmax", "softmax"))
_READERS = _PROBABILITIES | {"argmax", "log_sigmoid_forward", "max", "sigmoid", "topk"}
_DECISIONS = frozenset(("ge", "gt", "le", "lt", "round"))  # of one probability
_COPIES = frozenset(("_to_copy", "clone"))
_MAKERS = frozenset(("new_full", "new_ones", "new_zeros"))
_SHAPING = frozenset((
    "_unsafe_view", "alias", "detach", "expand", "flatten", "reshape", "select", "slice",
    "squeeze", "unsqueeze", "view",
))
# fmt: on


def from_torch(
    module: nn.Module,
    inputs: Inputs,
    classes: Sequence[str] | None = None,
    *,
    values: tuple[float, float] = (-1, 1),
    name: str = "imported",
    rows: Bits | None = None,
) -> BinaryModel:
    """Fold a PyTorch module that somebody trained into the integer network that decides alike.

    The module maps ``(batch, bits)`` to ``(batch, classes)`` by layers with binary weights and
    signs between them: Brevitas layers, ``torch.sign``, ``torch.where(x >= 0, 1., -1.)``, an
    autograd function; batch norms, biases and scales fold. It is read in evaluation mode, and a
    copy runs on some inputs: the model has its class on each, save where rounding decides (see the
    provenance, ``rounding`` and ``compared``).

    Args:
        module: the module; it is copied.
        inputs: what the input bits are: how many raw ones; names of features of one bit each;
            features with their number of bits or the cuts of a thermometer; an
            :class:`~n3ic.model.inputs.InputSpec`.
        classes: class names; ``class0``, ``class1``, ... where None. The model may have them in
            another order (provenance ``class_order``).
        values: what the module's input is for bit 0 and for bit 1.
        name: the model's name.
        rows: input bits to compare it on, bool array of shape ``(rows, bits)``; where None, all
            inputs of up to 12 bits, 4,096 random ones otherwise.

    Returns:
        The model.

    Raises:
        ModelError: the module is not a binary network; the error names the layer and what to
            change.
    """
    spec = _spec(inputs)
    low, high = (float(v) for v in values)
    if not (np.isfinite([low, high]).all() and low != high):
        raise ModelError(f"values: expected two different numbers, got {values!r}")
    own = _copied(module)
    source = network_input(spec.n_bits, low, high)
    if _dtype(own) == torch.float64:
        source = replace(source, tables=tuple(t.astype(np.float64) for t in source.tables))
    scores, is_read = _read(own, source)
    found = output_layer(scores)
    if not scores.before and found.layer.n_inputs != spec.n_bits:
        raise ModelError("the scores do not come from the input")
    names = _names(classes, found.layer.n_outputs)
    model = BinaryModel(
        input=spec,
        hidden=scores.before,
        output=found.layer,
        classes=tuple(names[i] for i in found.order),
        name=name,
        provenance={"source": "torch", **facts(scores, found, "module")},
    )
    bits = _rows(spec.n_bits) if rows is None else np.asarray(rows)
    if bits.ndim != 2 or bits.shape[1] != spec.n_bits or not len(bits):
        raise ModelError(f"rows: expected bits of shape (rows, {spec.n_bits}), got {bits.shape}")
    if not np.isin(bits, (0, 1)).all():
        raise ModelError(
            "rows: expected bits, 0 and 1, which values= gives the module's numbers of"
        )
    said = _compared(own, model, scores, found, bits.astype(np.bool_), (low, high), is_read)
    return model.changed(provenance={**model.provenance, "compared": said})


# --- what goes in ------------------------------------------------------------------------------


def _spec(inputs: Inputs) -> InputSpec:
    if isinstance(inputs, InputSpec):
        return inputs
    if isinstance(inputs, int) and not isinstance(inputs, bool):
        if inputs < 1:
            raise ModelError(f"inputs: expected at least one bit, got {inputs}")
        return InputSpec.raw(inputs)
    if isinstance(inputs, Mapping):
        return InputSpec(
            tuple(
                Field.binary(f, v) if isinstance(v, int) else Field.thermometer(f, v)
                for f, v in inputs.items()
            )
        )
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        return InputSpec(tuple(Field.binary(f, 1) for f in inputs))
    raise ModelError(
        "inputs: expected a number of bits, names of features, features with their cuts, or an "
        f"InputSpec, got {inputs!r}"[:200]
    )


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if classes is None:
        return tuple(f"class{i}" for i in range(count))
    if len(classes) != count:
        raise ModelError(f"the module has {count} classes, {len(classes)} names are given")
    return tuple(classes)


def _copied(module: nn.Module) -> nn.Module:
    """A copy on the CPU in evaluation mode, whose parameters are finite floats."""
    if not isinstance(module, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(module).__name__}")
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise ModelError("the module is of torch.jit; pass the Python module that it was made of")
    name = "the module"
    try:
        own = copy.deepcopy(module).cpu().eval()
        for name, held in (*own.named_parameters(), *own.named_buffers()):
            if held.is_floating_point() and held.dtype not in (torch.float32, torch.float64):
                raise ModelError(f"{name} is {held.dtype}: convert the module with module.float()")
            if not torch.isfinite(held.to_dense()).all():
                raise ModelError(f"{name} holds a value that is not finite (NaN or infinite)")
    except ModelError:
        raise
    except Exception as error:  # weights without values, weights that others make, locks, files
        raise ModelError(
            f"{name} cannot be copied to the CPU: {_short(error)}; give every weight a value "
            "of its own (run the module once, load its weights, remove_weight_norm)"
        ) from error
    return own


def _eager() -> AbstractContextManager[Any]:
    """Run what torch.compile made as it was written; its compiler is slow to load."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[no-untyped-call]


def _dtype(module: nn.Module) -> torch.dtype:
    """The floats that a module computes with."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


# --- reading -----------------------------------------------------------------------------------


def _read(module: nn.Module, source: Signal) -> tuple[Signal, bool]:
    """The tensor of the module's scores, and whether the module itself reads them."""
    reading = _Reading()
    hooks = [
        hook
        for path, part in module.named_modules()
        for hook in (
            part.register_forward_pre_hook(reading.entered(path, part)),
            part.register_forward_hook(reading.left),
        )
    ]
    try:
        with torch.no_grad(), _eager():
            result = module(_Tables(source, (_BATCH, source.channels), reading))
    except ModelError:
        raise
    except Exception as error:  # a module of anybody raises errors of any type
        raise ModelError(f"{reading.where()}: {_short(error)}") from error
    finally:
        for hook in hooks:
            hook.remove()
    result = getattr(result, "value", result)  # of Brevitas' quantized tensor
    if not isinstance(result, _Tables):
        kind = (
            "a tensor that its input does not change"
            if isinstance(result, Tensor)
            else (type(result).__name__)
        )
        raise ModelError(f"the module returns {kind}; expected a tensor of scores")
    if result.behind and not result.tells:
        raise ModelError(
            "the module returns what does not tell the class, such as the highest score or the "
            "probabilities of some classes; return all scores, or the index of the highest"
        )
    return reading.scores or result.signal, reading.scores is not None


class _Reading:
    """What is known while a module is read: its innermost layer, and its scores once read."""

    def __init__(self) -> None:
        self._layers = ["the module"]
        self.scores: Signal | None = None

    def entered(self, path: str, part: nn.Module) -> Callable[..., None]:
        """A hook that notes a layer."""
        said = f"layer {path!r} ({type(part).__name__})" if path else "the module"
        return lambda *_: self._layers.append(said)

    def left(self, *_: Any) -> None:
        """A hook that forgets the innermost layer."""
        self._layers.pop()

    def where(self) -> str:
        """The innermost layer, in words."""
        return self._layers[-1]


class _Tables(Tensor):
    """A tensor that stands for all inputs at once; see :class:`~signal.Signal`.

    Views of it share its signal, so what writes into one writes into all. A tensor ``behind`` what
    reads the scores, such as a softmax, has their signal still; one sigmoid has its own. It
    ``tells`` the class if a class has the highest of its numbers, or is its number.
    """

    held: list[Signal]
    reading: _Reading
    behind: bool
    tells: bool

    @staticmethod
    def __new__(
        cls,
        signal: Signal | list[Signal],
        shape: Sequence[int],
        reading: _Reading,
        behind: torch.dtype | None = None,
        tells: bool = True,
    ) -> Self:
        held = signal if isinstance(signal, list) else [signal]
        dtype = behind or torch.from_numpy(np.empty(0, held[0].tables[0].dtype)).dtype
        made: Self = Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=dtype)
        made.held, made.reading, made.behind, made.tells = held, reading, behind is not None, tells
        return made

    @property
    def signal(self) -> Signal:
        """What it stands for."""
        return self.held[0]

    @property
    def data(self) -> Self:
        """The tensor itself: its own ``data`` has no signal."""
        return self

    @data.setter
    def data(self, other: Self) -> None:
        self.held[0] = other.signal

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<a tensor of shape {tuple(self.shape)} for all inputs at once>"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operator that touches such a tensor."""
        flat = [a for a in _flat((args, kwargs or {})) if isinstance(a, _Tables)]
        return _Operator(func, args, kwargs or {}, flat[0].reading).result()


@dataclass(frozen=True, eq=False)
class _Operator:
    """An operator of PyTorch with its arguments, some of them :class:`_Tables`."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reading: _Reading

    @property
    def name(self) -> str:
        """Its name without overload, and without the mark of those that write in place."""
        name: str = self.func.overloadpacket.__name__
        if name in ("max", "min") and self.func._overloadname == "other":
            return name + "imum"
        return name.removesuffix("_") if not name.startswith("__") else name

    @property
    def by(self) -> str:
        """Description for errors."""
        return f"{self.reading.where()}, {self.name}"

    def result(self) -> Any:
        """What it gives; where it writes in place, its first argument with another signal."""
        first = self.args[0] if self.args else None
        result = self._result()
        if self.func._schema.is_mutable:
            if not isinstance(first, _Tables) or self.kwargs.get("out") is not None:
                raise ModelError(
                    f"{self.by}: writes into a tensor that it did not make of its input; use "
                    "torch.where"
                )
            first.held[0] = result.signal
            return first
        return result

    def _result(self) -> Any:
        name = self.name
        tables = [a for a in _flat((self.args, self.kwargs)) if isinstance(a, _Tables)]
        if any(t.behind for t in tables):
            return self._behind(tables)
        if name in _READERS:
            return self._scores(tables[0])
        if name in ("mm", "linear", "matmul"):
            x, w, *bias = self.args
            return self._product(x, w.t() if name == "linear" else w, *bias)
        if name == "addmm":
            bias, x, w = self.args
            if any(self.kwargs.get(k, 1) != 1 for k in ("alpha", "beta")):
                raise ModelError(f"{self.by}: alpha and beta must be 1")
            return self._product(x, w, bias)
        if name.endswith("batch_norm") or name.startswith("_native_batch_norm"):
            return self._batch_norm()
        if name == "index_put":
            return self._masked()
        if name in _SHAPING:
            return self._shaped(tables[0])
        if name in _MAKERS:
            return self.func(torch.empty(tables[0].shape), *self.args[1:], **self.kwargs)
        if name in _ELEMENTWISE:
            return self._elementwise(self.func, self.args, self.kwargs)
        raise ModelError(f"{self.by}: {_HINTS.get(name, _NO_OPERATOR.format(name))}")

    def _behind(self, tables: list[_Tables]) -> Any:
        """What follows the scores, such as the index of the highest; it may not turn them."""
        x, own = tables[0], tables[0].signal is not self.reading.scores
        if own and self.name in _DECISIONS:  # of one sigmoid
            self.reading.scores = None
            return self._elementwise(self.func, self.args, self.kwargs)
        scaled = self.name == "mul" and self._positive() and not own
        usual = self.name in _COPIES | _READERS | _SHAPING or (self.name == "exp" and not own)
        if len(tables) > 1 or not (usual or scaled):
            raise ModelError(
                f"{self.by}: works on what a softmax, a sigmoid or a maximum gave; the scores are "
                "the last that a module may compute with, and one sigmoid may be compared"
            )
        if self.name in _READERS:
            self._over_classes(x)
        plain = _mapped((self.args, self.kwargs), lambda t: torch.zeros(t.shape, dtype=t.dtype))
        result = self.func(*plain[0], **plain[1])
        signal = x.signal
        if own and self.name == "_to_copy":
            signal = self._elementwise(self.func, self.args, self.kwargs).signal
        return _mapped_all(
            result, lambda t: _Tables(signal, t.shape, self.reading, t.dtype, self._tells(x, t))
        )

    def _positive(self) -> bool:
        factors = [a for a in self.args if not isinstance(a, _Tables)]
        return all(torch.as_tensor(f).numel() == 1 and bool(f > 0) for f in factors)

    def _tells(self, x: _Tables, result: Tensor) -> bool:
        """Whether a result tells the class as its argument does."""
        whole = not result.is_floating_point()
        if self.name in ("max", "topk"):
            return x.tells and whole  # the indices, and not the values
        if self.name == "argmax":
            return x.tells
        if result.numel() == x.numel():
            return x.tells and (not whole or not x.is_floating_point())
        second = self.name == "select" and self.args[1:] in ((1, 1), (1, -1), (-1, 1), (-1, -1))
        first = (*self.args[1:3],) in ((1, 0), (-1, 0))
        of_two = second and x.shape[1:] == (2,) and x.signal.channels == 2
        return x.tells and (of_two if x.is_floating_point() else first)

    def _over_classes(self, x: _Tables) -> None:
        """Check that a reader of scores compares those of one row, and looks for the highest."""
        name = self.name.removeprefix("_")
        alone = x.signal.channels == 1 and not x.behind
        if alone and name not in ("sigmoid", "log_sigmoid_forward"):
            raise ModelError(
                f"{self.by}: one score is always the highest; return it alone, or two scores"
            )
        at = {"topk": 2, "max": 1, "argmax": 1, "softmax": 1, "log_softmax": 1}.get(name)
        over = self.args[at] if at is not None and len(self.args) > at else -1
        everything = name in ("max", "argmax") and len(self.args) == 1
        if everything or over not in (1, -1) or x.ndim > 2:
            raise ModelError(f"{self.by}: not over the classes; give it dim=1")
        if name == "topk" and len(self.args) > 3 and not self.args[3]:
            raise ModelError(f"{self.by}: the smallest score wins; a BinaryModel takes the highest")

    def _scores(self, x: _Tables) -> Any:
        self._over_classes(x)
        if self.name in ("sigmoid", "log_sigmoid_forward") and x.signal.channels > 1:
            return self._elementwise(self.func, self.args, self.kwargs)
        if self.reading.scores is not None:
            raise ModelError(f"{self.by}: the scores are read twice; return them alone")
        self.reading.scores = x.signal
        if self.name == "sigmoid":
            made = self._elementwise(self.func, self.args, self.kwargs)
            return _Tables(made.signal, x.shape, self.reading, made.dtype)
        return self._behind([x])

    def _product(self, x: Any, w: Any, bias: Any = None) -> _Tables:
        if not isinstance(x, _Tables) or isinstance(w, _Tables) or isinstance(bias, _Tables):
            raise ModelError(f"{self.by}: its weights depend on the input")
        bits = binary(x.signal, f"{self.by}")
        weights = self._array(w)
        if weights.ndim != 2 or len(weights) != x.signal.channels:
            raise ModelError(
                f"{self.by}: takes {len(weights)} inputs, and {x.signal.channels} come"
            )
        signal = product(bits, weights, self.by, precise=True)
        made = _Tables(signal, (_BATCH, signal.channels), self.reading)
        return made if bias is None else self._elementwise(_aten.add.Tensor, (made, bias), {})

    def _batch_norm(self) -> Any:
        def values(x: Tensor, *rest: Any) -> Tensor:
            result = self.func(x, *rest, **self.kwargs)
            normed: Tensor = result if isinstance(result, Tensor) else result[0]
            return normed

        training = next((a for a in self.args[5:6] if isinstance(a, bool)), False)
        if training or any(a is None for a in self.args[3:5]):
            raise ModelError(
                f"{self.by}: takes mean and variance from the batch; train it with "
                "track_running_stats=True"
            )
        variance = self.args[4]
        if (variance < 0).any():
            raise ModelError(f"{self.by}: a running variance is negative")
        normed = self._elementwise(values, self.args, {})
        if self.name == "batch_norm":  # in inference mode it is one operator
            return normed
        nothing = torch.empty(0)
        return (normed, nothing, nothing, *([nothing] if "legit" in self.name else []))

    def _masked(self) -> _Tables:
        """``x[mask] = value``."""
        target, indices, value = self.args[:3]
        (mask,) = indices if len(indices) == 1 else (None,)
        alone = isinstance(value, Tensor) and not isinstance(value, _Tables) and value.numel() == 1
        if mask is None or mask.dtype != torch.bool or not alone or not isinstance(target, _Tables):
            raise ModelError(f"{self.by}: writes at indices; use torch.where(x >= 0, 1., -1.)")
        return self._elementwise(_aten.where.self, (mask, value.reshape(()), target), {})

    def _shaped(self, x: _Tables) -> _Tables:
        """A view of the same numbers; rows and channels stay."""
        if any(isinstance(a, torch.dtype) for a in (*self.args, *self.kwargs.values())):
            raise ModelError(f"{self.by}: reads the bits of a float; compare it, such as by x >= 0")
        plain = self.func(
            torch.empty(x.shape, device="meta"),
            *self.args[1:],
            **self.kwargs,
        )
        shape, channels = tuple(plain.shape), x.signal.channels
        if shape not in ((_BATCH, channels), (_BATCH, channels, 1), (_BATCH, 1, channels)) and (
            shape != (_BATCH,) or channels != 1
        ):
            raise ModelError(
                f"{self.by}: a tensor of {channels} channels becomes one of the shape "
                f"(batch, {', '.join(map(str, shape[1:]))}); a layer's output stays as it is"
            )
        return _Tables(x.held, shape, self.reading)

    def _array(self, tensor: Tensor) -> Array:
        if tensor.dtype == torch.bfloat16:
            raise ModelError(
                f"{self.by}: computes in torch.bfloat16; let the module compute in torch.float32, "
                "without autocast"
            )
        return np.asarray(tensor.detach().numpy())

    def _elementwise(
        self, function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Tables:
        """Run an operator on the tables, which are batches with a row a popcount."""
        tables = [a for a in _flat((args, kwargs)) if isinstance(a, _Tables)]
        shape = tables[0].shape
        if any(t.shape != shape for t in tables):
            raise ModelError(f"{self.by}: joins tensors of different shapes")

        def run(*rows: Array) -> Array:
            double = any(r.dtype == np.float64 for r in rows)
            left = iter(rows)

            def filled(t: Tensor) -> Tensor:
                if isinstance(t, _Tables):
                    return torch.from_numpy(np.ascontiguousarray(next(left)))
                t = self._row(t, tables[0])
                return t.double() if double and t.is_floating_point() else t

            full, named = _mapped_all((args, kwargs), filled)
            if double and isinstance(named.get("dtype"), torch.dtype):
                named = {k: v for k, v in named.items() if k != "dtype"} | (
                    {"dtype": torch.float64}
                    if named["dtype"].is_floating_point
                    else {"dtype": named["dtype"]}
                )
            return self._array(function(*full, **named))

        signals = [t.signal for t in tables]
        # An operator that writes in place gets rows of its own.
        found = elementwise(lambda *r: run(*(np.array(x) for x in r)), signals, self.by)
        return _Tables(cast(Signal, found), shape, self.reading)

    def _row(self, constant: Tensor, like: _Tables) -> Tensor:
        """A constant as one value a channel, or one for all."""
        channels = like.signal.channels
        if constant.ndim > 1 and constant.shape[0] == _BATCH:
            if not (constant == constant[:1]).all():
                raise ModelError(f"{self.by}: a constant differs from row to row")
            constant = constant[0]
        elif constant.ndim == like.ndim and constant.shape[0] == 1:
            constant = constant[0]
        fits = torch.broadcast_shapes(constant.shape, like.shape[1:]) == like.shape[1:]
        if constant.numel() not in (1, channels) or not (fits or "batch_norm" in self.name):
            raise ModelError(
                f"{self.by}: a constant of shape {tuple(constant.shape)} for {channels} channels"
            )
        return constant.reshape(() if constant.numel() == 1 and channels != 1 else -1)


_NO_OPERATOR = (
    "{} is no operator of a binary network, which is layers of binary weights with batch norms, "
    "scales, biases and signs between them"
)
_CONVOLUTION = "convolutions are not read; write the layer as torch.nn.Linear"
_BRANCHES = "the module branches on its input or reads its numbers; use torch.where instead"
_ACTIVE = (
    "it takes values that are not set, as of a dropout that is active in evaluation; use "
    "torch.nn.Dropout, or give it training=self.training"
)
_JOINS = "it joins or splits the channels of a layer; a BinaryModel is a chain of layers"
_HINTS = {
    **dict.fromkeys(("convolution", "_convolution", "conv1d", "conv2d"), _CONVOLUTION),
    **dict.fromkeys(
        ("_local_scalar_dense", "all", "any", "equal", "is_nonzero", "item", "nonzero"), _BRANCHES
    ),
    **dict.fromkeys(("bmm", "dot", "mv"), "write the layer as torch.nn.Linear"),
    **dict.fromkeys(
        ("bernoulli", "empty_like", "native_dropout", "rand_like", "randn_like"), _ACTIVE
    ),
    **dict.fromkeys(("cat", "stack", "index", "index_select", "split", "unbind"), _JOINS),
    **dict.fromkeys(("t", "transpose", "permute"), "its channels and rows change places"),
    **dict.fromkeys(
        ("native_layer_norm", "mean", "sum", "var_mean", "native_group_norm"),
        "it computes over the channels of a row, which no threshold does; use BatchNorm1d",
    ),
}


def _flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in _flat(part)]
    return _flat([*value.values()]) if isinstance(value, dict) else [value]


def _mapped_all(value: Any, function: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, tuple | list):
        parts = [_mapped_all(part, function) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {k: _mapped_all(part, function) for k, part in value.items()}
    return function(value) if isinstance(value, Tensor) else value


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    return _mapped_all(value, lambda t: function(t) if isinstance(t, _Tables) else t)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- comparing ---------------------------------------------------------------------------------


class _Seen(TorchDispatchMode):
    """Keeps what a module's first reader of scores reads, such as a softmax."""

    def __init__(self, rows: int, channels: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shapes = ((rows, channels), (rows,))
        self.scores: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the argument of a reader, and run it."""
        reads = func.overloadpacket.__name__ in _READERS
        if self.scores is None and reads and tuple(args[0].shape) in self._shapes:
            self.scores = args[0].detach().clone()
        return func(*args, **(kwargs or {}))


def _rows(width: int) -> Bits:
    """All inputs of few bits, random ones of many, of all densities."""
    if width <= 12:
        codes = np.arange(1 << width, dtype=np.int64)[:, None]
        return np.asarray((codes >> np.arange(width)) & 1, dtype=np.bool_)
    rng = np.random.default_rng(0)
    return np.asarray(rng.random((ROWS, width)) < rng.random((ROWS, 1)))


def _compared(
    module: nn.Module,
    model: BinaryModel,
    scores: Signal,
    found: Scores,
    bits: Bits,
    values: tuple[float, float],
    is_read: bool,
) -> str:
    """Compare the classes of module and model, and say on how many inputs they are equal."""
    classes = np.concatenate(
        [
            _classes(module, bits[i : i + ROWS], values, scores.channels, is_read)
            for i in range(0, len(bits), ROWS)
        ]
    )
    ours = np.asarray(found.order)[model.infer(pack(bits)).classes]
    doubtful = in_doubt(model, scores, found, bits)
    wrong = classes != ours
    if (defect := np.flatnonzero(wrong & ~doubtful)).size:
        raise ModelError(
            f"input {''.join(str(int(b)) for b in bits[defect[0]][:64])}: the module's class is "
            f"{classes[defect[0]]}, its integer network's {ours[defect[0]]}; is the module's "
            "result the same each time, and each row's its own?"
        )
    said = f"class equal on {np.sum(~wrong):,} of {len(bits):,} inputs"
    return f"{said}; rounding may decide on {doubtful.sum():,}" if doubtful.any() else said


def _classes(
    module: nn.Module, bits: Bits, values: tuple[float, float], channels: int, is_read: bool
) -> Array:
    seen = _Seen(len(bits), channels)
    rows = torch.from_numpy(np.where(bits, values[1], values[0])).to(_dtype(module))
    try:
        with torch.no_grad(), seen, _eager():
            result = module(rows)
        found = seen.scores if seen.scores is not None and is_read else result
        scores = getattr(found, "value", found).detach().reshape(len(bits), -1).numpy()
    except Exception as error:  # a module of anybody raises errors of any type
        raise ModelError(f"the module cannot compute {len(bits)} rows: {_short(error)}") from error
    single = scores.shape[1] == 1
    return np.asarray(scores[:, 0] > 0 if single else scores.argmax(axis=1)).astype(np.int64)
