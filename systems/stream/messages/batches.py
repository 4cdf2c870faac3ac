# SPDX-License-Identifier: Apache-2.0
"""From packets to a model: assembles messages, transfers them to the device, and computes them."""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3ic.systems.stream.messages.assembly import (
    AssemblyLimits,
    MessageAssembly,
    PartialMessage,
)
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import TransferDevice, TransferMark
from n3ic.systems.stream.messages.rows import BatchRows
from n3ic.systems.stream.messages.transfers import TransferMethod

BatchWork = Callable[[Tensor, list[PartialMessage]], Any]
"""The computation on a batch; it gets uint8 rows on the device, and their messages."""


@dataclass(frozen=True, eq=False)
class BatchOutcome:
    """A batch that was computed; times are those of :func:`time.monotonic_ns`.

    Attributes:
        messages: its messages, in the order of its rows.
        ready_ns: when all messages were on the device.
        done_ns: when their computation ended.
        early: share of their bytes that was on the device when the last packet arrived.
        computed: False if the device's memory did not suffice.
        result: what the work returned; None if it was not computed.
    """

    messages: list[PartialMessage]
    ready_ns: int
    done_ns: int
    early: float
    computed: bool
    result: Any


def _own_pages(entries: int) -> NDArray[np.int64]:
    """A ring of packets on pages of its own: a device registers whole pages, and only once."""
    memory = mmap.mmap(-1, 4 * 8 * entries)
    return np.frombuffer(memory, dtype=np.int64).reshape(entries, 4)


@dataclass(eq=False)
class _Burst:
    """Packets in use, and the bytes of each row that they hold."""

    packets: int
    mark: TransferMark | None
    bytes_of: dict[int, int] = field(default_factory=dict)


class MessageBatches:
    """Assembles messages and computes them in batches.

    The calling thread starts transfers, and a second thread computes. A packet's memory is reused
    only after the device has read it, and a row only after its batch is computed.

    Args:
        buffers: where packets lie.
        device: where the tensor lies.
        way: how packets get there.
        work: the computation; called in one thread, batch after batch.
        limits: the limits of the messages.
        packets: the most packets in use at a time.
        batch: messages of a batch.
        batches: the most batches in flight.

    Attributes:
        counts: received and refused packets, and their cost.
        tensor: the rows, uint8, shape ``(batches * batch, bytes)``, on the device.
    """

    def __init__(
        self,
        buffers: PacketBuffers,
        device: TransferDevice,
        way: type[TransferMethod],
        work: BatchWork,
        limits: AssemblyLimits,
        *,
        packets: int,
        batch: int = 1,
        batches: int = 2,
    ) -> None:
        self._device, self._work = device, work
        self._rows = BatchRows(batches, batch)
        self.tensor = device.tensor(batches * batch, limits.message_bytes)
        self._ring = _own_pages(packets)
        self._way = way(device, buffers, self._ring, self.tensor)
        self._assembly = MessageAssembly(limits, self._rows.take_row, self._rows.give_back)
        self.counts = self._assembly.counts
        self._entry = 0  # next entry of the ring
        self._used: deque[_Burst] = deque()
        self._in_use = 0
        # Complete messages by row, with the bytes on the device before their last packet arrived.
        self._messages: dict[int, tuple[PartialMessage, int]] = {}
        self._early: dict[int, int] = {}  # bytes on the device of incomplete rows
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="n3ic-compute")
        self._computing: deque[tuple[list[int], Future[BatchOutcome]]] = deque()

    def __enter__(self) -> Self:
        """Return these batches."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the threads; a computation that has begun is finished, waiting ones are dropped."""
        self._compute.shutdown(cancel_futures=True)
        for burst in self._used:
            if burst.mark is not None:
                burst.mark.result()

    @property
    def received(self) -> int:
        """Number of received packets, refused ones included."""
        return self.counts.packets

    @property
    def in_use(self) -> int:
        """Number of packets whose memory must not be reused yet."""
        return self._in_use

    @property
    def computing(self) -> int:
        """Number of batches that are being computed."""
        return len(self._computing)

    @property
    def free_rows(self) -> int:
        """Number of messages that may begin now."""
        return self._rows.free

    @property
    def idle(self) -> bool:
        """Whether no message is incomplete and no batch is being computed."""
        return not (len(self._assembly) or self._computing)

    def place(
        self,
        headers: NDArray[np.void],
        lengths: NDArray[np.int64],
        senders: NDArray[np.uint64],
        starts: NDArray[np.int64],
        now_ns: int,
    ) -> None:
        """Assemble packets, start their transfers, and start to compute batches that are complete.

        The packets are in use until :meth:`release` finds that the device has read them. Arrays
        have the shape ``(packets,)``.

        Args:
            headers: headers of dtype :data:`~n3ic.systems.stream.messages.protocol.HEADER`.
            lengths: bytes of each packet, header included.
            senders: the sender of each packet, ``port << 32 | address``.
            starts: the first byte of each packet in the buffers.
            now_ns: current time of :func:`time.monotonic_ns`.
        """
        placed = self._assembly.add(headers, lengths, senders, now_ns)
        count = len(placed.index)
        burst = _Burst(len(headers), None)
        if count:
            entries = np.arange(self._entry, self._entry + count) % len(self._ring)
            columns = (starts[placed.index], placed.rows, placed.offsets, placed.lengths)
            self._ring[entries] = np.stack(columns, axis=1)
            self.release()
            early = {m.row: self._early_bytes(m.row) for m in placed.complete}
            cost = time.thread_time_ns()
            burst.mark = self._way.accept(self._entry, count)
            self.counts.transfer_cpu_ns += time.thread_time_ns() - cost
            self._entry = (self._entry + count) % len(self._ring)
            if burst.mark is not None:
                for row in {*placed.rows.tolist()} - early.keys():
                    burst.bytes_of[row] = int(placed.lengths[placed.rows == row].sum())
        self._in_use += burst.packets
        self._used.append(burst)
        for message in placed.complete:
            self._messages[message.row] = message, early[message.row]
            rows = self._rows.complete(message.row)
            if rows is not None:
                self._start(rows)

    def release(self, *, block: bool = False) -> None:
        """Free the packets that the device has read, oldest first; they are no longer in use.

        Args:
            block: wait for the oldest transfer.
        """
        if block and self._used and self._used[0].mark is not None:
            self._used[0].mark.result()
        while self._used and (self._used[0].mark is None or self._used[0].mark.done()):
            burst = self._used.popleft()
            if burst.mark is not None:
                burst.mark.result()  # raises any error of the transfer
            self._in_use -= burst.packets
            for row, count in burst.bytes_of.items():
                self._early[row] = self._early.get(row, 0) + count

    def expire(self, now_ns: int) -> None:
        """End the messages whose time is over."""
        for message in self._assembly.expire(now_ns):
            self._early_bytes(message.row)

    def computed(self, wait_s: float = 0.0) -> list[BatchOutcome]:
        """Return the batches that have been computed, in order, and free their rows.

        Args:
            wait_s: seconds to wait for the first one, if any is being computed.
        """
        if self._computing and wait_s:
            wait([self._computing[0][1]], wait_s)
        out = []
        while self._computing and self._computing[0][1].done():
            rows, job = self._computing.popleft()
            outcome = job.result()
            out.append(outcome)
            # Count a batch after freeing its rows: its sender then sends the next one.
            self._rows.release(rows[0])
            if outcome.computed:
                self.counts.computed += len(rows)
            else:
                self.counts.device_memory += len(rows)
        return out

    def flush(self) -> list[BatchOutcome]:
        """Compute the complete messages of batches that are not full, and wait for all batches."""
        for rows in self._rows.flush():
            self._start(rows)
        out = []
        while self._computing:
            self._computing[0][1].result()
            out += self.computed()
        return out

    def _early_bytes(self, row: int) -> int:
        """Return how many bytes of a row are on the device, and reset the count."""
        for burst in self._used:
            burst.bytes_of.pop(row, None)
        return self._early.pop(row, 0)

    def _start(self, rows: list[int]) -> None:
        """Finish the transfer of a batch, and start its computation."""
        cost = time.thread_time_ns()
        mark = self._way.finish(rows)
        self.counts.transfer_cpu_ns += time.thread_time_ns() - cost
        complete = [self._messages.pop(row) for row in rows]
        messages = [message for message, _ in complete]
        early = sum(count for _, count in complete) / sum(m.size for m in messages)
        job = self._compute.submit(self._run, rows, messages, mark, early)
        self._computing.append((rows, job))

    def _run(
        self, rows: list[int], messages: list[PartialMessage], mark: TransferMark, early: float
    ) -> BatchOutcome:
        """Compute a batch, in the second thread."""
        mark.result()
        ready = time.monotonic_ns()
        neighbours = rows == list(range(rows[0], rows[0] + len(rows)))
        result, computed = None, True
        try:
            with self._device.computing():
                part = slice(rows[0], rows[0] + len(rows)) if neighbours else rows
                # .data has its own version counter, so transfers into other rows do not bump it.
                result = self._work(self.tensor.data[part, : messages[0].size], messages)
        except (torch.cuda.OutOfMemoryError, MemoryError):
            computed = False
        return BatchOutcome(messages, ready, time.monotonic_ns(), early, computed, result)
