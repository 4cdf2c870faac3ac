# SPDX-License-Identifier: Apache-2.0
"""From a socket to a model: receives packets while earlier messages are computed."""

from __future__ import annotations

import socket
import time

import numpy as np

from n3ic.systems.stream.messages.assembly import AssemblyLimits
from n3ic.systems.stream.messages.batches import BatchOutcome, BatchWork, MessageBatches
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.protocol import headers_of
from n3ic.systems.stream.messages.receiver import PacketReceiver, refused_by_kernel
from n3ic.systems.stream.messages.transfers import TransferMethod

BURST = 256  # packets per system call
_COMPUTING_WAIT_S = 0.0005  # short, as the sender may wait for the batch being computed


class MessagePipeline(MessageBatches):
    """Receives messages into slots, and computes them in batches.

    Args:
        sock: a socket of :func:`~n3ic.systems.stream.messages.receiver.open_receiver`.
        buffers: packet slots.
        device: where the tensor lies.
        way: how packets get there.
        work: the computation; called in one thread, batch after batch.
        limits: the limits of the messages.
        batch: messages of a batch.
        batches: the most batches in flight.
    """

    def __init__(
        self,
        sock: socket.socket,
        buffers: PacketBuffers,
        device: TransferDevice,
        way: type[TransferMethod],
        work: BatchWork,
        limits: AssemblyLimits,
        *,
        batch: int = 1,
        batches: int = 2,
    ) -> None:
        super().__init__(
            *(buffers, device, way, work, limits),
            packets=buffers.slots,
            batch=batch,
            batches=batches,
        )
        self._sock, self._buffers = sock, buffers
        self._receiver = PacketReceiver(sock, buffers)
        self._refused_before = refused_by_kernel(sock)
        self._next = 0  # slot of the next packet

    def step(self, wait_s: float = 0.05) -> list[BatchOutcome]:
        """Receive once, start what can be started, and return the batches that were computed.

        Args:
            wait_s: seconds to wait for a packet.
        """
        begin, moved = time.thread_time_ns(), self.counts.transfer_cpu_ns
        self.release()
        room = min(BURST, self._buffers.slots - self._in_use, self._buffers.slots - self._next)
        if room:
            wait_s = min(wait_s, _COMPUTING_WAIT_S) if self._computing else wait_s
            count = self._receiver.receive(self._next, room, wait_s)
            if count:
                self._place_slots(count)
        else:  # all slots wait for the device; once the socket's buffer is full, the kernel counts
            self.release(block=True)
        self.expire(time.monotonic_ns())
        self.counts.kernel_refused = refused_by_kernel(self._sock) - self._refused_before
        outcomes = self.computed()
        cost = time.thread_time_ns() - begin - (self.counts.transfer_cpu_ns - moved)
        self.counts.receive_cpu_ns += cost
        return outcomes

    def _place_slots(self, count: int) -> None:
        """Place the packets in the next ``count`` slots."""
        first = self._next
        slots = slice(first, first + count)
        self.place(
            headers_of(self._buffers.data[slots]),
            self._buffers.lengths[slots],
            self._receiver.senders(first, count),
            np.arange(first, first + count) * self._buffers.stride,
            time.monotonic_ns(),
        )
        self._next = (first + count) % self._buffers.slots
