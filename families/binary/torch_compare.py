# SPDX-License-Identifier: Apache-2.0
"""Compares the classes of a PyTorch module with those of the integer network made from it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from n3ic.errors import ModelError
from n3ic.families.binary.float_ambiguity import ROWS, in_doubt
from n3ic.families.binary.popcount_table import Array, PopcountTable
from n3ic.families.binary.scores import Scores
from n3ic.families.binary.torch_readers import READERS
from n3ic.model.bits import Bits, pack
from n3ic.model.network import BinaryModel


@dataclass(frozen=True, eq=False)
class Original:
    """A module, and how its inputs and scores are to be read.

    Attributes:
        module: the module.
        values: its input for bit 0 and for bit 1.
        scores: the tensor of its scores.
        reads: whether it reads its scores itself, for example by a softmax.
    """

    module: nn.Module
    values: tuple[float, float]
    scores: PopcountTable
    reads: bool


class _FirstRead(TorchDispatchMode):
    """Keeps the tensor that the first reader of scores, such as a softmax, is given."""

    def __init__(self, rows: int, channels: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shapes = ((rows, channels), (rows,))
        self.scores: Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the argument of a reader, and run it."""
        reads = func.overloadpacket.__name__ in READERS
        if self.scores is None and reads and tuple(args[0].shape) in self._shapes:
            self.scores = args[0].detach().clone()
        return func(*args, **(kwargs or {}))


def compared(original: Original, model: BinaryModel, output: Scores, bits: Bits) -> str:
    """Say on how many inputs the classes of module and model are equal.

    Args:
        original: the module.
        model: the integer network.
        output: its output layer.
        bits: the inputs, bool array of shape ``(rows, bits)``.

    Raises:
        ModelError: the module does not run, or its class differs although no rounding decides.
    """
    module_classes = np.concatenate(
        [_classes(original, bits[i : i + ROWS]) for i in range(0, len(bits), ROWS)]
    )
    network_classes = np.asarray(output.order)[model.infer(pack(bits)).classes]
    doubtful = in_doubt(model, original.scores, output, bits)
    wrong = module_classes != network_classes
    if (defect := np.flatnonzero(wrong & ~doubtful)).size:
        row = defect[0]
        raise ModelError(
            f"input {''.join(str(int(b)) for b in bits[row][:64])}: the module's class is "
            f"{module_classes[row]}, its integer network's {network_classes[row]}; its result must "
            "be the same each time, and must not depend on other rows"
        )
    summary = f"class equal on {np.sum(~wrong):,} of {len(bits):,} inputs"
    return f"{summary}; rounding may decide on {doubtful.sum():,}" if doubtful.any() else summary


def _classes(original: Original, bits: Bits) -> Array:
    """The module's class of each input: its highest score, or whether its one score is above 0."""
    first = _FirstRead(len(bits), original.scores.channels)
    low, high = original.values
    rows = torch.from_numpy(np.where(bits, high, low)).to(dtype_of(original.module))
    try:
        with torch.no_grad(), first, eager():
            result = original.module(rows)
        output = first.scores if first.scores is not None and original.reads else result
        scores = getattr(output, "value", output).detach().reshape(len(bits), -1).numpy()
    except Exception as error:  # a foreign module may raise any error
        raise ModelError(
            f"the module cannot compute {len(bits)} rows: {short(error)}"
            f"{mixed_types(original.module)}"
        ) from error
    single = scores.shape[1] == 1
    return np.asarray(scores[:, 0] > 0 if single else scores.argmax(axis=1)).astype(np.int64)


def eager() -> AbstractContextManager[Any]:
    """Run modules without torch.compile, whose compiler is slow to load."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def dtype_of(module: nn.Module) -> torch.dtype:
    """The float type that a module computes with."""
    kinds = (p.dtype for p in module.parameters() if p.is_floating_point())
    return next(kinds, torch.float32)


def mixed_types(module: nn.Module) -> str:
    """What to do about a module that failed, if its parameters are doubles; else an empty text.

    The numbers that a module makes itself, such as those of a sign, are of type float32.
    """
    parameters = module.named_parameters()
    name = next((name for name, part in parameters if part.dtype == torch.float64), "")
    return f"; {name} is torch.float64: convert the module with module.float()" if name else ""


def short(error: BaseException) -> str:
    """An error's message as one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
