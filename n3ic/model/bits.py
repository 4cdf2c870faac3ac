# SPDX-License-Identifier: Apache-2.0
"""Bit vectors and their packed words.

Bit ``i`` of a vector is bit ``i % 32`` of 32-bit word ``i // 32``, least significant first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ModelError

WORD_BITS = 32

Bits = NDArray[np.bool_]
Words = NDArray[np.uint32]


def word_count(bits: int) -> int:
    """Number of 32-bit words that hold ``bits`` bits."""
    return -(-bits // WORD_BITS)  # rounded up, in integers


def bytes_for(largest: int) -> int:
    """Bytes of an unsigned integer that holds values up to ``largest``: 1, 2 or 4."""
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4


def pack(bits: ArrayLike, pad: bool = False) -> Words:
    """Pack bits into 32-bit words along the last axis.

    Args:
        bits: bool or 0/1 array of shape ``(..., n)``.
        pad: whether the bits above ``n`` in the last word are set; inputs pad with 0 and
            weights with 1, so that ``XNOR`` of the two adds nothing to a popcount.

    Returns:
        uint32 array of shape ``(..., ceil(n / 32))``.
    """
    array = np.asarray(bits, dtype=np.bool_)
    n = array.shape[-1]
    words = word_count(n)
    padded = np.full((*array.shape[:-1], words * WORD_BITS), pad)
    padded[..., :n] = array
    octets = np.packbits(padded, axis=-1, bitorder="little")
    # Four little-endian octets are one word, on big-endian machines, too.
    return np.ascontiguousarray(octets).view("<u4").astype(np.uint32, copy=False)


def unpack(words: ArrayLike, n: int) -> Bits:
    """Unpack 32-bit words into ``n`` bits along the last axis; the inverse of :func:`pack`.

    Args:
        words: uint32 array of shape ``(..., ceil(n / 32))``.
        n: number of bits to take.

    Returns:
        bool array of shape ``(..., n)``.

    Raises:
        ValueError: the last axis does not hold ``ceil(n / 32)`` words.
    """
    array = np.ascontiguousarray(words, dtype="<u4")
    if array.shape[-1] != word_count(n):
        raise ValueError(f"{n} bits need {word_count(n)} words, got {array.shape[-1]}")
    octets = array.view(np.uint8)
    return np.unpackbits(octets, axis=-1, count=n, bitorder="little").view(np.bool_)


def pad_mask(n: int) -> Words:
    """Words whose bits are 1 where a vector of ``n`` bits has bits, and 0 in the padding."""
    return pack(np.ones(n, dtype=np.bool_))


_CHUNK_CELLS = 1 << 22  # cells of the (rows, neurons, words) block that numpy holds at once


def popcounts(inputs: Words, weights: Words, mask: Words | None) -> NDArray[np.int32]:
    """``popcount(XNOR(weights, inputs) & mask)`` of every neuron on every row.

    Args:
        inputs: uint32 array of shape ``(rows, n_words)``, pad bits 0.
        weights: uint32 array of shape ``(neurons, n_words)``, pad bits 1.
        mask: uint32 array of the weights' shape; None if every bit counts.

    Returns:
        int32 array of shape ``(rows, neurons)``.
    """
    out = np.empty((len(inputs), len(weights)), dtype=np.int32)
    step = max(1, _CHUNK_CELLS // weights.size)
    for start in range(0, len(inputs), step):
        # Pads are 0 in inputs and 1 in weights, so XNOR gives 0 there.
        block = ~(inputs[start : start + step, None, :] ^ weights)
        if mask is not None:
            block &= mask
        out[start : start + step] = np.bitwise_count(block).sum(axis=2, dtype=np.int32)
    return out


def checked_words(words: ArrayLike, n: int, name: str) -> Words:
    """Check the shape, the type and the padding of packed bits.

    Args:
        words: uint32 array of shape ``(rows, ceil(n / 32))``, pad bits 0.
        n: number of bits.
        name: their name in the error.

    Returns:
        The words, contiguous.

    Raises:
        ModelError: the words have another shape or type, or a pad bit is 1.
    """
    array = np.asarray(words)
    if array.ndim != 2 or array.shape[1] != word_count(n):
        raise ModelError(f"{name} have shape (rows, {word_count(n)}), got {array.shape}")
    if array.dtype != np.uint32:
        raise ModelError(f"{name} are uint32, got {array.dtype}")
    # A pad bit of 1 would agree with the padding of the weights and count in every popcount.
    if len(array) and (array[:, -1] & ~pad_mask(n)[-1]).any():
        raise ModelError(f"pad bits of {name} must be 0")
    return np.ascontiguousarray(array)
