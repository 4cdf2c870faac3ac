# SPDX-License-Identifier: Apache-2.0
"""Binary layers: packed weights, optional connection masks, thresholds and biases."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError
from n3ic.model.bits import (
    Bits,
    Words,
    checked_words,
    pack,
    pad_mask,
    popcounts,
    unpack,
    word_count,
)
from n3ic.model.file import Tensors

MAX_NEURONS = 1 << 16


def _frozen(array: ArrayLike, dtype: type[np.generic]) -> NDArray[Any]:
    out = np.array(array, dtype=dtype, order="C")
    out.setflags(write=False)  # cached words and digests depend on it
    return out


@dataclass(frozen=True, eq=False)
class Connections:
    """The weights of a layer and which of them count.

    Attributes:
        weights: bool array of shape ``(outputs, inputs)``; True is +1, False is -1.
        mask: bool array of the same shape, or None if every connection counts. Weights of absent
            connections are stored as 1, so equal networks have equal bytes.
    """

    weights: Bits
    mask: Bits | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        weights = np.asarray(self.weights)
        if weights.ndim != 2 or 0 in weights.shape:
            raise ModelError(f"weights have shape (outputs, inputs), got {weights.shape}")
        if max(weights.shape) > MAX_NEURONS:
            raise ModelError(f"a layer has at most {MAX_NEURONS} inputs and outputs")
        if not np.isin(weights, (0, 1)).all():
            raise ModelError("weights are bits: 0 or 1")
        bits = weights.astype(np.bool_)  # bit 1 is weight +1, bit 0 is -1
        if self.mask is not None:
            mask = np.asarray(self.mask)
            if mask.shape != weights.shape or not np.isin(mask, (0, 1)).all():
                raise ModelError(f"a mask has bits of the weights' shape, got {mask.shape}")
            object.__setattr__(self, "mask", _frozen(mask, np.bool_))
            bits = bits | ~mask.astype(np.bool_)
        object.__setattr__(self, "weights", _frozen(bits, np.bool_))

    @property
    def n_inputs(self) -> int:
        """Number of input bits, K."""
        return int(self.weights.shape[1])

    @property
    def n_outputs(self) -> int:
        """Number of neurons."""
        return int(self.weights.shape[0])

    @property
    def n_words(self) -> int:
        """Number of 32-bit words of one neuron's weights."""
        return word_count(self.n_inputs)

    @cached_property
    def fan_in(self) -> NDArray[np.int32]:
        """Connections of each neuron: int32 array of shape ``(outputs,)``."""
        if self.mask is None:
            return _frozen(np.full(self.n_outputs, self.n_inputs), np.int32)
        return _frozen(self.mask.sum(axis=1), np.int32)

    @cached_property
    def weight_words(self) -> Words:
        """Packed weights, padded with 1: uint32 array of shape ``(outputs, n_words)``."""
        return _frozen(pack(self.weights, pad=True), np.uint32)

    @cached_property
    def mask_words(self) -> Words:
        """Packed mask, padded with 0; without a mask, all bits but the padding are 1."""
        if self.mask is None:
            return _frozen(np.tile(pad_mask(self.n_inputs), (self.n_outputs, 1)), np.uint32)
        return _frozen(pack(self.mask), np.uint32)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The layer as arrays for a file, by name."""
        out: dict[str, NDArray[Any]] = {"weights": self.weight_words}
        if self.mask is not None:
            out["mask"] = self.mask_words
        return out

    def popcounts(self, inputs: Words) -> NDArray[np.int32]:
        """``popcount(XNOR(w, x) & mask)`` of every neuron on every row.

        Args:
            inputs: uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            int32 array of shape ``(rows, outputs)``.

        Raises:
            ModelError: the inputs are not packed inputs of this layer.
        """
        inputs = checked_words(inputs, self.n_inputs, "packed inputs")
        return popcounts(inputs, self.weight_words, None if self.mask is None else self.mask_words)


@dataclass(frozen=True, eq=False)
class HiddenLayer(Connections):
    """A layer whose neurons fire at a threshold.

    Attributes:
        thresholds: int32 array of shape ``(outputs,)``, each in ``0..fan_in + 1``; 0 always
            fires and ``fan_in + 1`` never does.
    """

    thresholds: NDArray[np.int32] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        thresholds = np.asarray(self.thresholds)
        if thresholds.shape != (self.n_outputs,) or thresholds.dtype.kind not in "iu":
            raise ModelError(f"{self.n_outputs} integer thresholds expected")
        # Thresholds beyond act like these bounds, but would give equal networks other bytes.
        wrong = np.flatnonzero((thresholds < 0) | (thresholds > self.fan_in + 1))
        if wrong.size:
            j = int(wrong[0])
            raise ModelError(
                f"neuron {j}: threshold {thresholds[j]} is not in 0..{self.fan_in[j] + 1}"
            )
        object.__setattr__(self, "thresholds", _frozen(thresholds, np.int32))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The layer as arrays for a file, by name."""
        return super().tensors() | {"thresholds": self.thresholds}

    @classmethod
    def from_tensors(cls, tensors: Tensors, prefix: str, shape: tuple[int, int]) -> HiddenLayer:
        """Read what :meth:`tensors` wrote under names that begin with ``prefix``.

        Args:
            tensors: the file's tensors.
            prefix: such as ``layer.0.``.
            shape: ``(outputs, inputs)``.

        Raises:
            ModelError: a tensor is missing, or has another type, shape or padding.
        """
        weights, mask = _read_connections(tensors, prefix, shape)
        thresholds = tensors.take(f"{prefix}thresholds", np.int32, shape[:1])
        return cls(weights, mask=mask, thresholds=thresholds)

    def fire(self, inputs: Words) -> Words:
        """Packed output bits of packed input bits, pad bits 0."""
        return pack(self.popcounts(inputs) >= self.thresholds)


@dataclass(frozen=True, eq=False)
class OutputLayer(Connections):
    """The last layer: a score per class.

    Attributes:
        bias: int32 array of shape ``(classes,)``, added to the popcounts.
    """

    bias: NDArray[np.int32] = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        bias = np.asarray(self.bias)
        if bias.shape != (self.n_outputs,) or bias.dtype.kind not in "iu":
            raise ModelError(f"{self.n_outputs} integer biases expected")
        # A score, popcount + bias, is then below 2^25 in size and fits 32 bits on every target.
        if np.abs(bias.astype(np.int64)).max() >= 1 << 24:
            raise ModelError("a bias is below 2^24 in size")
        object.__setattr__(self, "bias", _frozen(bias, np.int32))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The layer as arrays for a file, by name."""
        return super().tensors() | {"bias": self.bias}

    @classmethod
    def from_tensors(cls, tensors: Tensors, prefix: str, shape: tuple[int, int]) -> OutputLayer:
        """Read what :meth:`tensors` wrote; see :meth:`HiddenLayer.from_tensors`."""
        weights, mask = _read_connections(tensors, prefix, shape)
        return cls(weights, mask=mask, bias=tensors.take(f"{prefix}bias", np.int32, shape[:1]))

    def scores(self, inputs: Words) -> NDArray[np.int32]:
        """Scores of packed input bits: int32 array of shape ``(rows, classes)``."""
        return self.popcounts(inputs) + self.bias


def _read_connections(
    tensors: Tensors, prefix: str, shape: tuple[int, int]
) -> tuple[Bits, Bits | None]:
    outputs, inputs = shape
    packed = (outputs, word_count(inputs))
    words = tensors.take(f"{prefix}weights", np.uint32, packed)
    weights = unpack(words, inputs)
    # Any other padding would count in the popcounts, and give one network several files.
    if not np.array_equal(pack(weights, pad=True), words):
        raise ModelError(f"{prefix}weights: pad bits are not 1")
    if f"{prefix}mask" not in tensors:
        return weights, None
    mask_words = tensors.take(f"{prefix}mask", np.uint32, packed)
    mask = unpack(mask_words, inputs)
    if not np.array_equal(pack(mask), mask_words):
        raise ModelError(f"{prefix}mask: pad bits are not 0")
    return weights, mask
