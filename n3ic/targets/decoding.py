# SPDX-License-Identifier: Apache-2.0
"""Decoding: the content of an artefact, read by code that shares nothing with its writer.

Test vectors cannot decide every weight bit of a network; a comparison of the bits can.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.model.bits import Bits, Words
from n3ic.model.layers import Connections
from n3ic.model.network import BinaryModel


def read_artefact(path: Path) -> bytes:
    """The bytes of an artefact.

    Raises:
        VerifyError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise VerifyError(f"cannot read {path.name}: {error.strerror or error}") from error


@dataclass(frozen=True, eq=False)
class DecodedLayer:
    """A layer as an artefact holds it.

    Attributes:
        weights: bool array of shape ``(outputs, inputs)``; absent connections have any value.
        limits: thresholds of a hidden layer, biases of the output layer: int64 array of shape
            ``(outputs,)``; None if the artefact does not hold them.
        mask: the existing connections, bool array of the weights' shape; None for all.
    """

    weights: Bits
    limits: NDArray[np.int64] | None
    mask: Bits | None = None


@dataclass(frozen=True)
class DecodedField:
    """A field of the input stage as an artefact holds it, without its cuts.

    Attributes:
        feature: the feature's name.
        kind: ``binary`` or ``thermometer``.
        width: number of bits.
        clamp: largest integer value.
        scale: integer units in one source unit; None if the artefact does not hold it.
    """

    feature: str
    kind: str
    width: int
    clamp: int
    scale: float | None = None


@dataclass(frozen=True, eq=False)
class Decoded:
    """What one artefact of an export holds.

    Attributes:
        artefact: its path in the export directory.
        layers: every layer in order, the output layer last.
        cuts: cuts of every field of the input in order, empty for a binary field; None if
            the artefact holds no input stage.
        fields: the rest of every field; None if the artefact does not hold it as data.
        digest: SHA-256 of the model that the artefact names; None if it names none.
        shunt: the smallest margin that it decides; None if the artefact does not hold it.
    """

    artefact: str
    layers: tuple[DecodedLayer, ...]
    cuts: tuple[tuple[int, ...], ...] | None = None
    fields: tuple[DecodedField, ...] | None = None
    digest: str | None = None
    shunt: int | None = None

    @property
    def weight_bits(self) -> int:
        """Number of weight bits that were read back."""
        return sum(int(layer.weights.size) for layer in self.layers)


def decoding_difference(model: BinaryModel, decoded: Decoded) -> str:
    """Describe where an artefact differs from the model; empty if nowhere.

    Weights of absent connections have no effect, so they are not compared.
    """
    where = decoded.artefact
    if len(decoded.layers) != len(model.layers):
        return f"{where}: {len(decoded.layers)} layers, the model has {len(model.layers)}"
    limits = [*(layer.thresholds for layer in model.hidden), model.output.bias]
    words = ["threshold"] * len(model.hidden) + ["bias"]
    for i, (own_layer, decoded_layer) in enumerate(zip(model.layers, decoded.layers, strict=True)):
        difference = _layer_difference(own_layer, decoded_layer)
        if difference:
            return f"{where}, layer {i}, {difference}"
        if decoded_layer.limits is not None:
            wrong = np.flatnonzero(np.asarray(decoded_layer.limits) != limits[i])
            if len(wrong):
                j = int(wrong[0])
                return (
                    f"{where}, layer {i}, neuron {j}: {words[i]} {int(decoded_layer.limits[j])}, "
                    f"the model has {int(limits[i][j])}"
                )
    if decoded.cuts is not None:
        cuts = tuple(f.cuts for f in model.input.fields)
        if len(decoded.cuts) != len(cuts):
            return f"{where}: {len(decoded.cuts)} input fields, the model has {len(cuts)}"
        for field, own, other in zip(model.input.fields, cuts, decoded.cuts, strict=True):
            if tuple(own) != tuple(other):
                return f"{where}, input field {field.feature}: other cuts than the model's"
    if decoded.fields is not None:
        difference = _field_difference(model, decoded.fields)
        if difference:
            return f"{where}, {difference}"
    if decoded.shunt is not None and decoded.shunt != model.shunt:
        return f"{where}: shunts margins below {decoded.shunt}, the model below {model.shunt}"
    if decoded.digest is not None and decoded.digest != model.digest:
        return f"{where}: of model {decoded.digest}, the model is {model.digest}"
    return ""


def unpack_bitwise(words: Words, width: int, pad: int, where: str) -> Bits:
    """Unpack rows bit by bit: bool array of shape ``(rows, width)``.

    Args:
        words: uint32 array of shape ``(rows, ceil(width / 32))``.
        width: bits of a row.
        pad: value that the padding bits must have.
        where: name of the rows in the error.

    Raises:
        VerifyError: a bit above the last is not ``pad``; it would count in a popcount.
    """
    bits = np.empty((len(words), 32 * words.shape[1]), dtype=np.bool_)
    for i in range(bits.shape[1]):
        bits[:, i] = words[:, i // 32] >> np.uint32(i % 32) & np.uint32(1)
    wrong = np.argwhere(bits[:, width:] != pad)
    if len(wrong):
        raise VerifyError(f"{where}, neuron {int(wrong[0][0])}: a padding bit is not {pad}")
    return bits[:, :width]


def _field_difference(model: BinaryModel, fields: tuple[DecodedField, ...]) -> str:
    if len(fields) != len(model.input.fields):
        return f"{len(fields)} input fields, the model has {len(model.input.fields)}"
    for i, (own_field, decoded_field) in enumerate(zip(model.input.fields, fields, strict=True)):
        for name in ("feature", "kind", "width", "clamp", "scale"):
            want, actual = getattr(own_field, name), getattr(decoded_field, name)
            if actual is not None and actual != want:
                return (
                    f"input field {i} ({own_field.feature}): {name} {actual}, the model has {want}"
                )
    return ""


def _layer_difference(layer: Connections, decoded: DecodedLayer) -> str:
    if decoded.weights.shape != layer.weights.shape:
        return f"shape {decoded.weights.shape}, the model has {layer.weights.shape}"
    every = np.ones(layer.weights.shape, dtype=np.bool_)
    present = every if layer.mask is None else layer.mask
    decoded_mask = every if decoded.mask is None else decoded.mask
    wrong = np.argwhere(present != decoded_mask)
    if len(wrong):
        j, k = (int(v) for v in wrong[0])
        connection = "a connection" if decoded_mask[j, k] else "no connection"
        return f"neuron {j}, input {k}: {connection}, against the model's mask"
    wrong = np.argwhere((decoded.weights != layer.weights) & present)
    if len(wrong):
        j, k = (int(v) for v in wrong[0])
        return (
            f"neuron {j}, input {k}: weight {int(decoded.weights[j, k])}, "
            f"the model has {int(layer.weights[j, k])}"
        )
    return ""
