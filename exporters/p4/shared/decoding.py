# SPDX-License-Identifier: Apache-2.0
"""Decodes the parts that both P4 targets share: popcount masks, and a network from its integers.

The code shares nothing with the writer, so that a mistake there shows here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.model.bits import Bits
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import DecodedLayer

NumberT = TypeVar("NumberT", int, NDArray[np.int64])
# Kind ("weights", "mask" or "limit"), layer, neuron.
Place = tuple[str, int, int]
_MASK = re.compile(
    r"^const bit<(\d{1,9})> L(\d{1,9})_MASK(\d{1,9}) = (\d{1,9})w0x([0-9a-f]+);$", re.MULTILINE
)
_SET_MODEL = re.compile(r'@name\("\.set_(model_again|model)_(\w{1,80})"\)')


def check_popcount_masks(source: str, counted: Sequence[tuple[int, int]]) -> None:
    """Check a program's popcount masks: stage ``s`` keeps the bits whose index lacks bit ``s``.

    Args:
        source: P4 source.
        counted: bits in which each layer counts, and the number of its stages.

    Raises:
        VerifyError: a mask is missing, duplicated, or has another value.
    """
    masks: dict[tuple[int, int], tuple[int, int]] = {}
    for declared, layer, stage, width, digits in _MASK.findall(source):
        if (int(layer), int(stage)) in masks or declared != width:
            raise VerifyError(f"n3ic.p4: L{layer}_MASK{stage} is not one constant of {width} bits")
        masks[int(layer), int(stage)] = int(width), int(digits, 16)
    for layer, (width, stages) in enumerate(counted):
        for stage in range(stages):
            mask = masks.pop((layer, stage + 1), None)
            positions = [bit for bit in range(width) if not bit >> stage & 1]
            if mask != (width, sum(1 << bit for bit in positions)):
                raise VerifyError(f"n3ic.p4: popcount mask {stage + 1} of layer {layer} is wrong")
    if masks:
        raise VerifyError(f"n3ic.p4: no layer has popcount masks of (layer, stage) {sorted(masks)}")


def decoded_layers(
    artefact: str, values: Mapping[Place, int], model: BinaryModel
) -> tuple[DecodedLayer, ...]:
    """Build the layers of a network from the integers of an artefact.

    Args:
        artefact: name of the artefact, for errors.
        values: integers by place; biases are 32 bits in two's complement.
        model: the model, which gives the shape.

    Raises:
        VerifyError: an integer is missing, has no place in the shape, or is too large.
    """
    unused = dict(values)

    def take(kind: str, layer: int, neuron: int, bits: int) -> int:
        value = unused.pop((kind, layer, neuron), None)
        if value is None:
            raise VerifyError(f"{artefact}: {kind} of layer {layer}, neuron {neuron} is missing")
        if not 0 <= value < 1 << bits:
            raise VerifyError(
                f"{artefact}: {kind} of layer {layer}, neuron {neuron} is wider than {bits} bits"
            )
        return value

    layers = []
    for index, (width, neurons) in enumerate(zip(model.shape, model.shape[1:], strict=False)):
        rows = [take("weights", index, j, width) for j in range(neurons)]
        masked = any(kind == "mask" and layer == index for kind, layer, _ in unused)
        masks = [take("mask", index, j, width) for j in range(neurons)] if masked else None
        limits = np.array([take("limit", index, j, 32) for j in range(neurons)], dtype=np.int64)
        if index == len(model.hidden):
            limits = signed(limits)
        mask = None if masks is None else _rows(masks, width)
        layers.append(DecodedLayer(_rows(rows, width), limits, mask))
    if unused:
        kind, layer, neuron = next(iter(unused))
        raise VerifyError(
            f"{artefact}: the network has no {kind} of layer {layer}, neuron {neuron}"
        )
    return tuple(layers)


def signature_of(source: str) -> str:
    """The suffix of the two actions of a v1model program that set the model's number.

    Raises:
        VerifyError: there are other such actions.
    """
    actions = _SET_MODEL.findall(source)
    signatures = {signature for _, signature in actions}
    if sorted(name for name, _ in actions) != ["model", "model_again"] or len(signatures) > 1:
        raise VerifyError("n3ic.p4: the model's number is not set by two matching actions")
    return str(signatures.pop())


def signed(number: NumberT) -> NumberT:
    """The number that 32 bits are in two's complement, of a number or of each of an array."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def digest_of_numbers(numbers: Sequence[int], model: Classifier) -> str:
    """Check the model's numbers that an artefact writes into answers.

    Returns:
        The model's digest if all numbers are its start; otherwise the first other number, as eight
        hexadecimal digits. The start 0 is written as 1, because 0 means that no network answered.
    """
    start = int(model.digest[:8], 16) or 1
    return next((f"{number:08x}" for number in numbers if number != start), model.digest)


def _rows(values: list[int], width: int) -> Bits:
    octets = [np.frombuffer(v.to_bytes(-(-width // 8), "little"), dtype=np.uint8) for v in values]
    return np.unpackbits(np.stack(octets), axis=1, count=width, bitorder="little").astype(np.bool_)
