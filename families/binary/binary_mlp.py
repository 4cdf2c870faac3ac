# SPDX-License-Identifier: Apache-2.0
"""The binarized MLP in Brevitas, as Courbariaux and Bengio train it.

Real-valued latent weights in [-1, 1] are binarized by their sign in the forward pass, and the
gradient passes straight through. All values that reach a sign are integers or batch norms of
integers: Brevitas' weight scale is 1.0, since its default of 0.1 turns exact ties into noise.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from brevitas.nn import QuantIdentity, QuantLinear
    from brevitas.quant.binary import (
        SignedBinaryActPerTensorConst,
        SignedBinaryWeightPerTensorConst,
    )

from n3ic.training.loop import SignSte
from n3ic.training.recipe import Ste, Training


class _BinaryQuant(nn.Module):
    """Brevitas tensor quantizer: value, scale, zero point and bit width of a binarized tensor."""

    ste: Ste = "identity"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0), persistent=False)
        self.register_buffer("zero_point", torch.tensor(0.0), persistent=False)
        self.register_buffer("bit_width", torch.tensor(1.0), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Any, Any, Any]:
        y: Tensor = SignSte.apply(x, self.ste)  # type: ignore[no-untyped-call]
        return y, self.scale, self.zero_point, self.bit_width


class _ClipQuant(_BinaryQuant):
    ste: Ste = "clip"


class _ApproxQuant(_BinaryQuant):
    ste: Ste = "approx"


class _Weight(SignedBinaryWeightPerTensorConst):  # type: ignore[misc]
    scaling_const = 1.0
    tensor_quant = _BinaryQuant  # latent weights are clipped after the step


class _IdentityAct(SignedBinaryActPerTensorConst):  # type: ignore[misc]
    tensor_quant = _BinaryQuant


class _ClipAct(SignedBinaryActPerTensorConst):  # type: ignore[misc]
    tensor_quant = _ClipQuant


class _ApproxAct(SignedBinaryActPerTensorConst):  # type: ignore[misc]
    tensor_quant = _ApproxQuant


_ACTS: dict[str, Any] = {"identity": _IdentityAct, "clip": _ClipAct, "approx": _ApproxAct}


class RoundSte(torch.autograd.Function):
    """Round to the nearest integer; the gradient passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Round."""
        return torch.round(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Pass the gradient."""
        return gradient


class BinaryLinear(nn.Module):
    """Binary weights and an optional mask of the connections that exist.

    Attributes:
        linear: Brevitas' binary linear layer; its latent weights have shape (outputs, inputs).
        mask: 1 where a connection exists; same shape.
    """

    mask: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = QuantLinear(inputs, outputs, bias=False, weight_quant=_Weight)
        nn.init.uniform_(self.linear.weight, -0.5, 0.5)
        self.register_buffer("mask", torch.ones(outputs, inputs))
        self.sparse = False

    def forward(self, x: Tensor) -> Tensor:
        """Compute dot products: (rows, inputs) of +-1 to integers of shape (rows, outputs)."""
        if not self.sparse:
            out: Tensor = self.linear(x)
            return out
        weight = self.linear.quant_weight()
        value = weight.value if hasattr(weight, "value") else weight
        return nn.functional.linear(x, value * self.mask)

    @property
    def fan_in(self) -> Tensor:
        """Connections of each neuron, shape (outputs,)."""
        return self.mask.sum(dim=1)

    @torch.no_grad()
    def prune(self, keep: int) -> None:
        """Keep the ``keep`` connections of each neuron with the largest latent weights."""
        self.sparse = keep < self.mask.shape[1]
        if not self.sparse:
            return
        top = self.linear.weight.abs().topk(keep, dim=1).indices
        self.mask.zero_().scatter_(1, top, 1.0)


class BinaryMLP(nn.Module):
    """Binarized MLP: inputs of +-1 to class logits.

    Args:
        inputs: number of input bits.
        classes: number of classes.
        config: how to train; gives the hidden layers, the STE and batch norm.
    """

    def __init__(self, inputs: int, classes: int, config: Training) -> None:
        super().__init__()
        widths = (inputs, *config.hidden)
        self.layers = nn.ModuleList(BinaryLinear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(b) if config.batch_norm else nn.Identity() for b in widths[1:]
        )
        self.scales = [1.0 if config.batch_norm else 1 / math.sqrt(a) for a in widths[:-1]]
        act = _ACTS[config.ste]
        self.signs = nn.ModuleList(QuantIdentity(act_quant=act) for _ in widths[1:])
        self.dropout = nn.Dropout(config.dropout)
        self.output = BinaryLinear(widths[-1], classes)
        # logits are scale * (2 * popcount - K + 2 * bias): one positive scale for all classes
        self.log_scale = nn.Parameter(torch.tensor(-0.5 * math.log(widths[-1])))
        self.bias = nn.Parameter(torch.zeros(classes), requires_grad=config.output_bias)

    def integer_scores(self, x: Tensor) -> Tensor:
        """``2 * (popcount + bias) - K`` per class, before the common scale."""
        for layer, norm, scale, sign in zip(
            self.layers, self.norms, self.scales, self.signs, strict=True
        ):
            value = norm(layer(x) * scale if scale != 1.0 else layer(x))
            x = self.dropout(sign(value))
        dot: Tensor = self.output(x)
        rounded: Tensor = RoundSte.apply(self.bias)  # type: ignore[no-untyped-call]
        return dot + 2 * rounded

    def forward(self, x: Tensor) -> Tensor:
        """Logits: (rows, inputs) of +-1 to (rows, classes)."""
        return self.integer_scores(x) * self.log_scale.exp()

    @torch.no_grad()
    def clip_weights(self) -> None:
        """Clip the latent weights to [-1, 1]."""
        for layer in (*self.layers, self.output):
            layer.linear.weight.clamp_(-1, 1)

    def binary_layers(self) -> list[BinaryLinear]:
        """Every binary layer, the output layer last."""
        return [*self.layers, self.output]
