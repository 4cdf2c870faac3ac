# SPDX-License-Identifier: Apache-2.0
"""Memory in which the processes of a host keep the numbers of all rows in flight.

A node writes its results where the next layer reads its input. A tile then only says which numbers
are there.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import word_count
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.systems.cluster.protocol import (
    SHARED_ROWS,
    TILE_ROWS,
    DataId,
    ProtocolError,
    TaskId,
    TaskPacket,
)

SLOTS = 16
"""Tiles in flight of a binary model."""
_MOST_BYTES = 1 << 26
_TILE_WEIGHTS = 1 << 33  # weights that a process counts in some 40 ms
_ALIGNED = 64


@dataclass(frozen=True)
class SharedArray:
    """What a layer or part reads of every row in flight.

    Attributes:
        task: the packets that tell of its numbers.
        array: number of the layer or part that reads it; 0 for scores.
        offset: the first input word of the part that was counted; 0 except for popcounts.
        width: numbers of a row.
        kind: their numpy dtype.
    """

    task: TaskId | DataId
    array: int
    offset: int
    width: int
    kind: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.width * np.dtype(self.kind).itemsize


@dataclass(frozen=True)
class TileLayout:
    """Where the numbers of the tiles of a ring lie.

    Attributes:
        arrays: what the layers or parts read.
        rows: maximum rows of a tile.
        slots: tiles in flight, a power of two.
    """

    arrays: tuple[SharedArray, ...]
    rows: int
    slots: int = SLOTS

    @classmethod
    def fitting(cls, arrays: Iterable[SharedArray], rows: int, slots: int = SLOTS) -> TileLayout:
        """Make the layout with at most so many rows that fits the memory of a ring."""
        every = tuple(arrays)
        room = _MOST_BYTES // slots // sum(array.row_bytes for array in every)
        return cls(every, max(1, min(rows, SHARED_ROWS, room)), slots)

    @property
    def bytes(self) -> int:
        """Bytes of the memory."""
        return sum(map(self._size, self.arrays))

    def views(self, buffer: mmap.mmap | bytearray) -> dict[tuple[str, int, int], NDArray[Any]]:
        """Each array in the memory, of shape ``(slots, rows, width)``."""
        views = {}
        at = 0
        for array in self.arrays:
            shape = (self.slots, self.rows, array.width)
            flat = np.frombuffer(buffer, array.kind, math.prod(shape), at)
            views[array.task.name, array.array, array.offset] = flat.reshape(shape)
            at += self._size(array)
        return views

    def _size(self, array: SharedArray) -> int:
        return -(-self.slots * self.rows * array.row_bytes // _ALIGNED) * _ALIGNED


class TileMemory:
    """The numbers of the tiles of a ring.

    A tile's slot is free again when its scores are home: every node has read its numbers by then.

    Args:
        layout: where they lie.
        buffer: memory of :attr:`TileLayout.bytes`.

    Attributes:
        rows: maximum rows of a tile.
        slots: tiles in flight.
    """

    def __init__(self, layout: TileLayout, buffer: mmap.mmap | bytearray) -> None:
        self.rows = layout.rows
        self.slots = layout.slots
        self._views = layout.views(buffer)

    @classmethod
    def mapped(cls, layout: TileLayout, path: str) -> TileMemory | None:
        """Map the memory of :func:`shared_file`; return None if this process does not see it."""
        buffer = _mapped(path, layout.bytes) if path else None
        return None if buffer is None else cls(layout, buffer)

    def numbers(
        self, row: int, task: TaskId | DataId, array: int = 0, offset: int = 0
    ) -> NDArray[Any]:
        """Return what a layer or part reads of the rows of a tag, or their scores.

        Args:
            row: the tag.
            task: the packets that tell of the numbers.
            array: number of the layer or part.
            offset: the first input word of the part that was counted, for popcounts.

        Returns:
            Array of shape ``(rows, width)``, into which the sender writes.

        Raises:
            KeyError: Nothing reads such numbers.
        """
        numbers: NDArray[Any] = self._views[task.name, array, offset][row % self.slots]
        return numbers


def shared_with(memory: TileMemory | None, packet: TaskPacket) -> TileMemory:
    """Return the memory that holds a packet's numbers.

    Raises:
        ProtocolError: The nodes share none, or it has fewer rows.
    """
    if memory is None or packet.rows > memory.rows:
        raise ProtocolError(f"tile {packet.row}: no memory for {packet.rows} rows")
    return memory


def place_in(
    memory: TileMemory | None, row: int, task: TaskId | DataId, array: int = 0, offset: int = 0
) -> NDArray[Any] | None:
    """Return where a sender writes numbers; None if packets carry them.

    Args:
        memory: memory that the nodes share, or None.
        row: as :meth:`TileMemory.numbers` takes it, like the others.
        task: the packets that tell of the numbers.
        array: number of the layer or part.
        offset: the first input word of the part that was counted, for popcounts.
    """
    return None if memory is None else memory.numbers(row, task, array, offset)


def scores_in(memory: TileMemory | None, packet: TaskPacket) -> NDArray[np.int32]:
    """Return the scores that a packet carries or tells of, of shape ``(rows, classes)``.

    Raises:
        ProtocolError: The nodes share no memory, or it has fewer rows.
    """
    if not packet.shared:
        return packet.scores
    scores: NDArray[np.int32] = shared_with(memory, packet).numbers(packet.row, DataId.SCORES)
    return scores[: packet.rows, packet.start : packet.end]


def _model_arrays(placement: ModelPlacement) -> Iterator[SharedArray]:
    for array, layer in enumerate(placement.layers):
        inputs, outputs = placement.shape[array : array + 2]
        yield SharedArray(TaskId.BITS, array, 0, word_count(inputs), "=u4")
        for share in layer.shares if layer.reducers else ():
            yield SharedArray(TaskId.SUMS, array, share.start // 32, outputs, "=u2")
    yield scores_array(placement.shape[-1])


def scores_array(width: int) -> SharedArray:
    """What comes home: scores of so many classes."""
    return SharedArray(DataId.SCORES, 0, 0, width, "=i4")


def model_layout(placement: ModelPlacement) -> TileLayout:
    """Return the memory of a binary model's tiles.

    A tile has enough rows that its messages cost little beside its weights.
    """
    weights = sum(a * b for a, b in pairwise(placement.shape))
    enough = max(TILE_ROWS, _TILE_WEIGHTS // weights)
    return TileLayout.fitting(_model_arrays(placement), enough)


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


def _mapped(path: str, size: int) -> mmap.mmap | None:
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
