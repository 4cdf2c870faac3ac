# SPDX-License-Identifier: Apache-2.0
"""Converts a PyTorch module to a BinaryModel, or says why it is not a binary network.

The module itself runs, on a tensor that stands for all inputs at once. Layers of Brevitas, autograd
functions and the module's own ``forward`` need no exporter, and PyTorch's own arithmetic makes the
tables (see :mod:`.popcount_table`) that thresholds are read from. ``torch_tensor.py`` has the
tensor, ``torch_operators.py`` what operators do to it, ``torch_readers.py`` what may follow the
scores, and ``torch_compare.py`` the comparison of module and model.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor, nn

from n3ic.errors import ModelError
from n3ic.families.binary.float_ambiguity import facts, sample
from n3ic.families.binary.popcount_table import PopcountTable, network_input
from n3ic.families.binary.scores import output_layer
from n3ic.families.binary.torch_compare import (
    Original,
    compared,
    dtype_of,
    eager,
    mixed_types,
    short,
)
from n3ic.families.binary.torch_operators import run
from n3ic.families.binary.torch_tensor import BATCH, Reading, TableTensor
from n3ic.model.bits import Bits
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel

_NO_MODULE = {
    "OrderedDict": "a state_dict, which holds weights alone: module.load_state_dict() takes it",
    "type": "a class: pass a module of it, with its trained weights",
    "str": "a text: torch.load() reads a module's file, and n3ic import an ONNX file",
}
Inputs = int | InputSpec | Sequence[str] | Mapping[str, int | Sequence[int]]


def from_torch(
    module: nn.Module,
    inputs: Inputs,
    classes: Sequence[str] | None = None,
    *,
    values: tuple[float, float] = (-1, 1),
    name: str = "imported",
    rows: Bits | None = None,
) -> BinaryModel:
    """Fold a trained PyTorch module into an integer network that decides as the module does.

    The module maps ``(batch, bits)`` to ``(batch, classes)`` by layers with binary weights and
    signs between them: Brevitas layers, ``torch.sign``, ``torch.where(x >= 0, 1., -1.)``, an
    autograd function. Batch norms, biases and scales fold. A copy of the module runs in evaluation
    mode: the model has its class on each input, except where rounding decides (provenance,
    ``rounding`` and ``compared``).

    Args:
        module: the module.
        inputs: the input bits: a number of raw bits; names of features of one bit each; features
            mapped to their number of bits or to the cuts of a thermometer; or an InputSpec.
        classes: class names; None for ``class0``, ``class1``, ... The model may have them in
            another order (provenance, ``class_order``).
        values: the module's input values for bit 0 and for bit 1.
        name: the model's name.
        rows: input bits on which to compare model and module, bool array of shape
            ``(rows, bits)``; None for all inputs of up to 12 bits, otherwise 4,096 random ones.

    Raises:
        ModelError: the module is not a binary network; the error says what to change, and where.
    """
    spec, (low, high) = _spec(inputs), _levels(values)
    bits = sample(spec.n_bits) if rows is None else _checked(rows, spec.n_bits)
    own = _copied(module)
    scores, reads = _read(own, _source(spec.n_bits, low, high, dtype_of(own)))
    output = output_layer(scores)
    if not scores.before and output.layer.n_inputs != spec.n_bits:
        raise ModelError("the scores do not come from the input")
    names = _names(classes, output.layer.n_outputs)
    model = BinaryModel(
        input=spec,
        hidden=scores.before,
        output=output.layer,
        classes=tuple(names[i] for i in output.order),
        name=name,
        provenance={"source": "torch", **facts(scores, output, "module")},
    )
    comparison = compared(Original(own, (low, high), scores, reads), model, output, bits)
    return model.changed(provenance={**model.provenance, "compared": comparison})


def _spec(inputs: Inputs) -> InputSpec:
    if isinstance(inputs, InputSpec):
        return inputs
    if isinstance(inputs, Integral) and not isinstance(inputs, bool):
        if inputs < 1:
            raise ModelError(f"inputs: expected at least one bit, got {inputs}")
        return InputSpec.raw(int(inputs))
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


def _levels(values: tuple[float, float]) -> tuple[float, float]:
    """The module's input for bit 0 and for bit 1."""
    try:
        low, high = (float(v) for v in values)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite([low, high]).all() and low != high):
        raise ModelError(f"values: expected two different numbers, got {values!r:.60}")
    return low, high


def _checked(rows: Bits, width: int) -> Bits:
    """The rows to compare module and model on, as bits."""
    bits = np.asarray(rows)
    if bits.ndim != 2 or bits.shape[1] != width or not len(bits):
        raise ModelError(f"rows: expected bits of shape (rows, {width}), got {bits.shape}")
    if not np.isin(bits, (0, 1)).all():
        raise ModelError(
            "rows: expected bits, 0 and 1; values= gives the module's numbers for them"
        )
    return bits.astype(np.bool_)


def _names(classes: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if classes is None:
        return tuple(f"class{i}" for i in range(count))
    if not isinstance(classes, Sequence | np.ndarray):
        raise ModelError(f"classes: expected a list of {count} names, got {classes!r:.60}")
    if len(classes) != count:
        raise ModelError(f"the module has {count} classes, {len(classes)} names are given")
    return tuple(map(str, classes))


def _copied(module: nn.Module) -> nn.Module:
    """A copy on the CPU in evaluation mode, whose parameters are finite floats."""
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise ModelError(f"expected a torch.nn.Module, got {_NO_MODULE.get(kind, kind)}")
    module = getattr(module, "_orig_mod", module)  # the module that torch.compile wrapped
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise ModelError("the module is from torch.jit; pass the Python module behind it")
    name = "the module"
    try:
        own = copy.deepcopy(module).cpu().eval()
        for name, tensor in (*own.named_parameters(), *own.named_buffers()):
            if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
                raise ModelError(
                    f"{name} is {tensor.dtype}: convert the module with module.float()"
                )
            if not torch.isfinite(tensor.to_dense()).all():
                raise ModelError(f"{name} holds a value that is not finite (NaN or infinite)")
    except ModelError:
        raise
    except Exception as error:  # meta tensors, computed weights, locks, files
        raise ModelError(
            f"{name} cannot be copied to the CPU: {short(error)}; give every weight a value "
            "of its own (run the module once, load its weights, remove_weight_norm)"
        ) from error
    return own


def _source(width: int, low: float, high: float, dtype: torch.dtype) -> PopcountTable:
    """The module's input in the floats that it computes with."""
    source = network_input(width, low, high)
    if dtype != torch.float64:
        return source
    return replace(source, tables=tuple(t.astype(np.float64) for t in source.tables))


def _read(module: nn.Module, source: PopcountTable) -> tuple[PopcountTable, bool]:
    """The tensor of the module's scores, and whether the module itself reads them."""
    reading = Reading(run)
    hooks = [
        hook
        for path, part in module.named_modules()
        for hook in (
            part.register_forward_pre_hook(reading.entry_hook(path, part)),
            part.register_forward_hook(reading.left),
        )
    ]
    try:
        with torch.no_grad(), eager():
            result = module(TableTensor(source, (BATCH, source.channels), reading))
    except ModelError:
        raise
    except Exception as error:  # a foreign module may raise any error
        raise ModelError(f"{reading.where()}: {short(error)}{mixed_types(module)}") from error
    finally:
        for hook in hooks:
            hook.remove()
    returned = _returned(getattr(result, "value", result))  # value of Brevitas' quantized tensor
    return reading.scores or returned, reading.scores is not None


def _returned(result: object) -> PopcountTable:
    """The signal of a module's result, if the result tells the class."""
    if not isinstance(result, TableTensor):
        constant = isinstance(result, Tensor)
        kind = "a tensor that its input does not change" if constant else type(result).__name__
        raise ModelError(f"the module returns {kind}; expected a tensor of scores")
    if result.behind and not result.tells:
        raise ModelError(
            "the module's result does not tell the class: it may be the highest score, or the "
            "probabilities of some classes; return all scores, or the index of the highest"
        )
    return result.signal
