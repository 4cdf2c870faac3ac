# SPDX-License-Identifier: Apache-2.0
"""Memory in which the processes of a host keep the numbers of all rows in flight.

A node writes its results where the next layer reads its input. A tile then only says which numbers
are there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from n3ic.model.bits import Words, word_count
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.systems.cluster.protocol import SHARED_ROWS, TILE_ROWS

SLOTS = 16
"""Tiles in flight."""
_MOST_BYTES = 1 << 26
_TILE_WEIGHTS = 1 << 33  # weights that a process counts in some 40 ms
_ALIGNED = 64


class TileMemory:
    """The numbers of the tiles of a ring.

    A tile's slot is free again when its scores are home: every node has read its numbers by then.

    Args:
        placement: placement of the model.
        buffer: memory of :func:`bytes_of` bytes.

    Attributes:
        rows: maximum rows of a tile.
    """

    def __init__(self, placement: ModelPlacement, buffer: mmap.mmap | bytearray) -> None:
        self.rows = rows_of(placement)
        self._arrays: dict[tuple[str, int, int], NDArray[Any]] = {}
        at = 0
        for key, width, kind in _arrays(placement):
            shape = (SLOTS, self.rows, width)
            count = SLOTS * self.rows * width
            flat = np.frombuffer(buffer, dtype=kind, count=count, offset=at)
            self._arrays[key] = flat.reshape(shape)
            at += -(-count * flat.itemsize // _ALIGNED) * _ALIGNED

    def bits(self, row: int, array: int) -> Words:
        """Return a layer's packed input: uint32 array of shape ``(rows, words)``."""
        bits: Words = self._arrays["bits", array, 0][row % SLOTS]
        return bits

    def sums(self, row: int, array: int, offset: int) -> NDArray[np.uint16]:
        """Return the popcounts of the part of a layer's inputs that begins at word ``offset``.

        Returns:
            uint16 array of shape ``(rows, neurons)``.

        Raises:
            KeyError: No part begins there.
        """
        sums: NDArray[np.uint16] = self._arrays["sums", array, offset][row % SLOTS]
        return sums

    def scores(self, row: int) -> NDArray[np.int32]:
        """Return the scores: int32 array of shape ``(rows, classes)``."""
        scores: NDArray[np.int32] = self._arrays["scores", 0, 0][row % SLOTS]
        return scores


def _arrays(
    placement: ModelPlacement,
) -> Iterator[tuple[tuple[str, int, int], int, DTypeLike]]:
    """Yield name, columns and dtype of each array."""
    for array, layer in enumerate(placement.layers):
        yield ("bits", array, 0), word_count(placement.shape[array]), np.uint32
        for share in layer.shares if layer.reducers else ():
            yield ("sums", array, share.start // 32), placement.shape[array + 1], np.uint16
    yield ("scores", 0, 0), placement.shape[-1], np.int32


def _row_bytes(placement: ModelPlacement) -> int:
    return sum(width * np.dtype(kind).itemsize for _, width, kind in _arrays(placement))


def rows_of(placement: ModelPlacement) -> int:
    """Return the most rows of a tile: enough that its messages cost little beside its weights."""
    weights = sum(a * b for a, b in pairwise(placement.shape))
    enough = max(TILE_ROWS, min(SHARED_ROWS, _TILE_WEIGHTS // weights))
    return max(1, min(enough, _MOST_BYTES // SLOTS // _row_bytes(placement)))


def bytes_of(placement: ModelPlacement) -> int:
    """Return the bytes of the memory of a ring."""
    count = sum(1 for _ in _arrays(placement))
    return SLOTS * rows_of(placement) * _row_bytes(placement) + count * _ALIGNED


@contextmanager
def shared_file(size: int) -> Iterator[str]:
    """Make memory that other processes of this user map by its path, within the block.

    It has no name in a file system, so nothing of it stays when its last process ends, however it
    ends.

    Args:
        size: bytes of the memory.

    Yields:
        The path, empty where the system has no such memory.
    """
    if not hasattr(os, "memfd_create"):
        yield ""
        return
    file = os.memfd_create("n3ic-cluster")
    try:
        os.ftruncate(file, size)
        yield f"/proc/{os.getpid()}/fd/{file}"
    finally:
        os.close(file)


def mapped(path: str, size: int) -> mmap.mmap | None:
    """Map the memory of :func:`shared_file`; return None if it is not there for this process."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        # Another host or container may have a file at that path; a foreign one is no shared memory.
        return mmap.mmap(file, size) if os.fstat(file).st_size == size else None
    finally:
        os.close(file)
