# SPDX-License-Identifier: Apache-2.0
"""Packet buffers: slots of one size in one block of memory, allocated before any packet comes.

A device needs only their base address, stride and lengths. Memory of another program, such as
DPDK's, has the same three (:meth:`PacketBuffers.at`).
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError

HUGE_PAGE = 1 << 21
_LINE = 64  # bytes of a cache line; no two packets share one


@dataclass(frozen=True, eq=False)
class PacketBuffers:
    """Slots for packets.

    Attributes:
        data: uint8 array of shape ``(slots, stride)``.
        lengths: bytes of the packet in each slot, int64 array of shape ``(slots,)``.
        owner: the object that keeps the memory alive.
        word: bytes of a device's word; packets begin at multiples of it.
        only_read: whether the memory is mapped for reading only.
    """

    data: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    owner: Any = None
    word: Literal[2, 4] = 4
    only_read: bool = False

    @property
    def flat(self) -> NDArray[np.uint8]:
        """All bytes, shape ``(slots * stride,)``."""
        return self.data.reshape(-1)

    @property
    def address(self) -> int:
        """Address of the first slot."""
        return int(self.data.ctypes.data)

    @property
    def stride(self) -> int:
        """Bytes from one slot to the next."""
        return int(self.data.strides[0])

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self.data)

    @classmethod
    def allocate(cls, slots: int, packet_bytes: int) -> PacketBuffers:
        """Allocate slots and touch every page, so that no packet waits for a page fault.

        The pages are huge if the kernel has free ones.

        Args:
            slots: number of slots.
            packet_bytes: bytes of the largest packet, header included.

        Raises:
            UsageError: This system is not Linux.
        """
        stride = -(-packet_bytes // _LINE) * _LINE
        owner, flat = _mapped(slots * stride)
        return cls(flat.reshape(slots, stride), np.zeros(slots, dtype=np.int64), owner)

    @classmethod
    def at(cls, address: int, stride: int, slots: int, owner: Any = None) -> PacketBuffers:
        """Use slots that another program allocated; they must stay mapped while they are used."""
        memory = (ctypes.c_uint8 * (stride * slots)).from_address(address)
        data = np.ctypeslib.as_array(memory).reshape(slots, stride)
        return cls(data, np.zeros(slots, dtype=np.int64), (memory, owner))

    @classmethod
    def of_frames(cls, memory: NDArray[np.uint8]) -> PacketBuffers:
        """Use memory that is only read, and in which payloads of Ethernet frames lie anywhere.

        An address after an Ethernet header of 14 bytes is only a multiple of 2.
        """
        all_of_it = cls.at(memory.ctypes.data, len(memory), 1, memory)
        return replace(all_of_it, word=2, only_read=True)


def _mapped(size: int) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """Map zeroed anonymous pages that begin where a huge page begins."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        raise UsageError("packet buffers need Linux")
    whole = -(-size // HUGE_PAGE) * HUGE_PAGE
    owner = mmap.mmap(-1, whole + HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    flat = np.frombuffer(owner, dtype=np.uint8)
    # A huge page begins at a multiple of its size, but an anonymous mapping may begin at any page.
    skipped = -int(flat.ctypes.data) % HUGE_PAGE
    with suppress(OSError):  # a kernel without huge pages gives ordinary ones
        owner.madvise(mmap.MADV_HUGEPAGE)
    flat = flat[skipped : skipped + size]
    flat[:] = 0
    return owner, flat
