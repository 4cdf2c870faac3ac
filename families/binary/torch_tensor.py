# SPDX-License-Identifier: Apache-2.0
"""A PyTorch tensor that stands for all inputs at once, and the operators that PyTorch calls on it.

PyTorch hands every operator that touches a :class:`TableTensor` to the reading that made it. The
reading answers with another such tensor, whose table (see :mod:`signal`) PyTorch's own kernels
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn

from n3ic.errors import ModelError
from n3ic.families.binary.popcount_table import Array, PopcountTable, elementwise

BATCH = 2  # rows that the module sees while it is read: a batch, and no width of a layer


@dataclass(frozen=True, eq=False)
class CalledLayer:
    """A layer as it was called: operator, input, weights, bias, and the tensor behind it."""

    name: str
    source: PopcountTable
    weights: Array
    bias: Array | None
    result: PopcountTable

    def is_called(
        self, name: str, source: PopcountTable, weights: Array, bias: Array | None
    ) -> bool:
        """Whether a call computes what this one did, in the same floats."""
        own_tables, tables = self.source.tables, source.tables
        return (
            (self.name, self.source.fan_in is source.fan_in) == (name, True)
            and len(own_tables) == len(tables)
            and all(np.array_equal(a, b) for a, b in zip(own_tables, tables, strict=True))
            and np.array_equal(self.weights, weights)
            and (self.bias is None) == (bias is None)
            and (self.bias is None or bias is None or np.array_equal(self.bias, bias))
        )


class Reading:
    """What is known while a module is read.

    Attributes:
        run: function that gives an operator's result.
        scores: the module's scores, once a softmax or the like has read them.
        layers: the layers that were called.
    """

    def __init__(self, run: Callable[[Call], Any]) -> None:
        self.run = run
        self.scores: PopcountTable | None = None
        self.layers: list[CalledLayer] = []
        self._layers: list[tuple[str, bool]] = [("the module", False)]

    def entry_hook(self, path: str, part: nn.Module) -> Callable[..., None]:
        """A hook that notes a layer; one of PyTorch's own needs no name of its operators."""
        layer_name = f"{path} ({type(part).__name__})" if path else "the module"
        own = type(part).__module__.startswith("torch.nn.")
        return lambda *_: self._layers.append((layer_name, own))

    def left(self, *_: Any) -> None:
        """A hook that forgets the innermost layer."""
        self._layers.pop()

    def where(self) -> str:
        """The innermost layer, by its path and its class, such as ``net.3 (ReLU)``."""
        return self._layers[-1][0]

    def at(self, operator: str) -> str:
        """The innermost layer, with the operator if the layer's own name does not tell it."""
        layer_name, own = self._layers[-1]
        return layer_name if own else f"{layer_name}, {operator}"


class TableTensor(Tensor):
    """A tensor that stands for all inputs at once; see :class:`~.popcount_table.PopcountTable`.

    Attributes:
        signals: its signal, in a list of one. Views share the list, so a write into one of them
            changes all.
        reading: the reading that made it.
        behind: whether it comes after a reader of the scores, such as a softmax. Its signal is
            still that of the scores; only a single sigmoid has its own.
        tells: whether it tells the class, by the place of its highest number or as its number.
    """

    signals: list[PopcountTable]
    reading: Reading
    behind: bool
    tells: bool

    @staticmethod
    def __new__(
        cls,
        signal: PopcountTable | list[PopcountTable],
        shape: Sequence[int],
        reading: Reading,
        behind: torch.dtype | None = None,
        tells: bool = True,
    ) -> Self:
        """Make a tensor; ``behind`` is its type if it comes after the scores."""
        signals = signal if isinstance(signal, list) else [signal]
        dtype = behind or torch.from_numpy(np.empty(0, signals[0].tables[0].dtype)).dtype
        tensor: Self = Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=dtype)
        tensor.signals, tensor.reading, tensor.behind, tensor.tells = (
            signals,
            reading,
            behind is not None,
            tells,
        )
        return tensor

    @property
    def signal(self) -> PopcountTable:
        """The signal that it stands for."""
        return self.signals[0]

    @property  # type: ignore[override]
    def data(self) -> Self:
        """The tensor itself: PyTorch's own ``data`` would be a tensor without a signal."""
        return self

    @data.setter
    def data(self, other: Self) -> None:
        self.signals[0] = other.signal

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<a tensor of shape {tuple(self.shape)} for all inputs at once>"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one operator that touches such a tensor."""
        reading = table_tensors((args, kwargs or {}))[0].reading
        return reading.run(Call(func, args, kwargs or {}, reading))


@dataclass(frozen=True, eq=False)
class Call:
    """A call of one operator of PyTorch; some of its arguments are :class:`TableTensor`.

    Attributes:
        func: the operator.
        args: its arguments.
        kwargs: its keyword arguments.
        reading: the reading that it is part of.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reading: Reading

    @property
    def name(self) -> str:
        """The operator's name, without its overload and without the ``_`` of in-place operators."""
        name: str = self.func.overloadpacket.__name__
        if name in ("max", "min") and self.func._overloadname == "other":
            return name + "imum"  # of two tensors: another operator than the highest of one
        return name.removesuffix("_") if not name.startswith("__") else name

    @property
    def by(self) -> str:
        """The layer and the operator, for errors."""
        return self.reading.at(self.name)

    @property
    def tensors(self) -> list[TableTensor]:
        """The arguments that stand for all inputs."""
        return table_tensors((self.args, self.kwargs))

    def error(self, problem: str) -> ModelError:
        """An error that names the layer and the operator."""
        return ModelError(f"{self.by}: {problem}")

    def elementwise(self) -> TableTensor:
        """Return the result of an operator that treats every number alone."""
        return on_tables(self, self.func, self.args, self.kwargs)


def on_tables(
    call: Call, function: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TableTensor:
    """Run a function on the tables of its arguments: batches with one row for each popcount."""
    tensors = table_tensors((args, kwargs))
    first = tensors[0]
    if any(t.shape != first.shape for t in tensors):
        raise call.error("joins tensors of different shapes")

    def run(*tables: Array) -> Array:
        double = any(t.dtype == np.float64 for t in tables)
        # An operator may write into its argument, so it gets a copy.
        batches = iter([torch.from_numpy(np.array(t, order="C")) for t in tables])

        def filled(tensor: Tensor) -> Tensor:
            if isinstance(tensor, TableTensor):
                return next(batches)
            row = channel_row(call, tensor, first.shape, first.signal.channels)
            return row.double() if double and row.is_floating_point() else row

        full, keywords = mapped((args, kwargs), filled)
        return as_array(call, function(*full, **(_in_double(keywords) if double else keywords)))

    signal = elementwise(run, [t.signal for t in tensors], call.by)
    return TableTensor(cast(PopcountTable, signal), first.shape, call.reading)


def _in_double(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments for the table with most digits, which a narrower type would round."""
    dtype = kwargs.get("dtype")
    rounds = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    return {**kwargs, "dtype": torch.float64} if rounds else kwargs


def channel_row(call: Call, constant: Tensor, shape: torch.Size, channels: int) -> Tensor:
    """A constant as one value per channel, or one for all, for a tensor of some shape.

    Raises:
        ModelError: it differs from row to row, or does not fit the channels.
    """
    if constant.ndim > 1 and constant.shape[0] == BATCH:
        if not (constant == constant[:1]).all():
            raise call.error("a constant differs from row to row")
        constant = constant[0]
    elif constant.ndim == len(shape) and constant.shape[0] == 1:
        constant = constant[0]
    fits = torch.broadcast_shapes(constant.shape, shape[1:]) == shape[1:]
    if constant.numel() not in (1, channels) or not (fits or "batch_norm" in call.name):
        raise call.error(f"a constant of shape {tuple(constant.shape)} for {channels} channels")
    return constant.reshape(() if constant.numel() == 1 and channels != 1 else -1)


def as_array(call: Call, tensor: Tensor) -> Array:
    """A tensor's numbers.

    Raises:
        ModelError: numpy lacks their type.
    """
    if tensor.dtype == torch.bfloat16:
        raise call.error(
            "computes in torch.bfloat16; let the module compute in torch.float32, without autocast"
        )
    return np.asarray(tensor.detach().numpy())


def table_tensors(value: Any) -> list[TableTensor]:
    """List all table tensors within tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        return [leaf for part in value for leaf in table_tensors(part)]
    if isinstance(value, dict):
        return table_tensors([*value.values()])
    return [value] if isinstance(value, TableTensor) else []


def mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to every tensor within tuples, lists and dicts."""
    if isinstance(value, tuple | list):
        parts = [mapped(part, function) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {k: mapped(part, function) for k, part in value.items()}
    return function(value) if isinstance(value, Tensor) else value
