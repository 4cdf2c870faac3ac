# SPDX-License-Identifier: Apache-2.0
"""The three ways that take packets' payloads from the host's buffers to the device's tensor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3ic.errors import UsageError
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import TransferDevice, TransferMark, gather
from n3ic.systems.stream.messages.protocol import HEADER_BYTES


class TransferMethod(ABC):
    """A way to the device.

    Args:
        device: the device.
        buffers: where packets lie.
        ring: start, row, offset and bytes of packets, int64 of shape ``(entries, 4)``.
        tensor: rows on the device, uint8, shape ``(rows, bytes)``.

    Attributes:
        name: name of the way.
        paper: its name in the paper.
    """

    name: ClassVar[str]
    paper: ClassVar[str]

    def __init__(
        self,
        device: TransferDevice,
        buffers: PacketBuffers,
        ring: NDArray[np.int64],
        tensor: Tensor,
    ) -> None:
        self._device, self._buffers, self._ring, self._tensor = device, buffers, ring, tensor

    @abstractmethod
    def accept(self, first: int, count: int) -> TransferMark | None:
        """Start the transfer of the packets in entries of the ring.

        Returns:
            A mark after which their slots may be reused; None if they may be reused at once.
        """

    def finish(self, rows: list[int]) -> TransferMark:
        """Finish rows, all of whose packets have come; return a mark of their arrival."""
        return self._device.mark()


class CopyTransfer(TransferMethod):
    """A copy to the device for each packet, as it comes."""

    name = "copy"
    paper = "A#1"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._device.register(self._buffers.flat, only_read=self._buffers.only_read)
        self._memory = torch.from_numpy(self._buffers.flat)

    def accept(self, first: int, count: int) -> TransferMark:
        """Start a copy for each packet."""
        entries = self._ring[np.arange(first, first + count) % len(self._ring)]
        with self._device.transfers():
            for start, row, offset, part in entries.tolist():
                begin = start + HEADER_BYTES
                self._tensor[row, offset : offset + part].copy_(
                    self._memory[begin : begin + part], non_blocking=True
                )
        return self._device.mark()


class GatherTransfer(TransferMethod):
    """A gather of the packets by the CPU as they come, and one copy of each batch."""

    name = "gather"
    paper = "A#2"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._host = torch.zeros(
            self._tensor.shape, dtype=torch.uint8, pin_memory=self._tensor.is_cuda
        )

    def accept(self, first: int, count: int) -> None:
        """Gather the payloads, which frees the slots at once."""
        gather(self._buffers, self._ring, first, count, self._host.numpy())

    def finish(self, rows: list[int]) -> TransferMark:
        """Copy the rows, in one copy if they are neighbours."""

        def copy() -> None:
            neighbours = rows == list(range(rows[0], rows[0] + len(rows)))
            parts = [slice(rows[0], rows[0] + len(rows))] if neighbours else rows
            for part in parts:
                self._tensor[part].copy_(self._host[part], non_blocking=True)

        return self._device.submit(copy)


class PullTransfer(TransferMethod):
    """A pull by the device, which reads the packets in place, as they come."""

    name = "pull"
    paper = "NetML"

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._device.register(self._buffers.flat, only_read=self._buffers.only_read)
        self._device.register(self._ring)

    def accept(self, first: int, count: int) -> TransferMark:
        """Start a pull for all packets."""
        return self._device.pull(self._buffers, self._ring, first, count, self._tensor)


TRANSFERS: dict[str, type[TransferMethod]] = {
    way.name: way for way in (CopyTransfer, GatherTransfer, PullTransfer)
}


def transfer_named(name: str) -> type[TransferMethod]:
    """Find a way by its name.

    Raises:
        UsageError: No way has that name.
    """
    if name not in TRANSFERS:
        raise UsageError(f"expected a way of {', '.join(TRANSFERS)}, got {name!r}")
    return TRANSFERS[name]
