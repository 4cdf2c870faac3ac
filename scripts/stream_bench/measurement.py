# SPDX-License-Identifier: Apache-2.0
"""Measures the three ways side by side: transfers, models, and training.

Messages come over loopback from a separate process. The ways take turns, message by message or
epoch by epoch, so that a busy machine disturbs them equally.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3ic.errors import N3icError
from n3ic.systems.stream.messages.assembly import AssemblyLimits, PartialMessage
from n3ic.systems.stream.messages.batches import BatchOutcome, BatchWork
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.models import MessageModel
from n3ic.systems.stream.messages.pipeline import MessagePipeline
from n3ic.systems.stream.messages.protocol import HEADER_BYTES
from n3ic.systems.stream.messages.receiver import open_receiver
from n3ic.systems.stream.messages.training import weights_digest
from n3ic.systems.stream.messages.transfers import TRANSFERS
from n3ic.training.loop import deterministic
from scripts.stream_bench.digits import DigitImages
from scripts.stream_bench.loopback import LoopbackSender, SendOrder

_SLOTS = 4096
_IN_FLIGHT = 2  # batches
_TIMEOUT_S = 60.0
Device = Callable[[], TransferDevice]


@dataclass(frozen=True)
class WayFigures:
    """Times of one way for messages of one kind, in ms; pairs are the least and the median.

    Attributes:
        way: the way.
        messages: how many messages were measured.
        lost: how many were lost; the times leave them out.
        equal: whether all messages arrived unchanged on the device; None if a model ran instead.
        transfer: from the first packet to all bytes on the device.
        tail: from the last packet to all bytes on the device, median.
        early: share of the bytes that was on the device when the last packet arrived, median.
        host_cpu: CPU time of the receiving thread for a message's transfer, median.
        total: from the first packet to the result.
        inference: time that the model takes, median.
        pipelined: time per message if the next ones are received meanwhile; 0 if not measured.
    """

    way: str
    messages: int
    lost: int
    equal: bool | None
    transfer: tuple[float, float]
    tail: float
    early: float
    host_cpu: float
    total: tuple[float, float]
    inference: float
    pipelined: float

    @property
    def overlap(self) -> float:
        """Share of a message's time that is hidden, as the next one is received meanwhile."""
        return max(0.0, 1 - self.pipelined / self.total[1]) if self.pipelined else 0.0


@dataclass(frozen=True)
class TrainedEpoch:
    """One epoch on a stream.

    Attributes:
        way: how packets reached the device.
        batch: messages of a step.
        messages: messages that were trained on.
        lost: messages that were lost.
        per_second: messages a second, from the first packet to the last step.
        accuracy: share of the test images that are right.
        weights: SHA-256 of the weights.
    """

    way: str
    batch: int
    messages: int
    lost: int
    per_second: float
    accuracy: float
    weights: str


class _Lane:
    """One way, with its own socket and buffers."""

    def __init__(
        self,
        stack: ExitStack,
        device: TransferDevice,
        way: str,
        work: BatchWork,
        size: int,
        part: int,
        batch: int = 1,
    ) -> None:
        self.way = way
        sock = stack.enter_context(open_receiver("127.0.0.1"))
        self.port = int(sock.getsockname()[1])
        buffers = PacketBuffers.allocate(_SLOTS, part + HEADER_BYTES)
        limits = AssemblyLimits(size, per_sender=batch * _IN_FLIGHT, timeout_s=_TIMEOUT_S)
        self.pipeline = stack.enter_context(
            MessagePipeline(
                *(sock, buffers, device, TRANSFERS[way], work, limits),
                batch=batch,
                batches=_IN_FLIGHT,
            )
        )
        self.outcomes: list[BatchOutcome] = []
        self.cpu: list[int] = []
        self.lost = 0
        self.pipelined_ns = 0.0

    @property
    def ended(self) -> int:
        counts = self.pipeline.counts
        lost = counts.expired + counts.no_room + counts.device_memory
        return counts.computed + lost

    @property
    def settled(self) -> int:
        """Number of packets that are no longer on their way."""
        return self.pipeline.received + self.pipeline.counts.kernel_refused


def _exchange(
    sender: LoopbackSender, lanes: Sequence[_Lane], lane: _Lane, order: SendOrder
) -> list[BatchOutcome]:
    """Have messages sent to a lane; return the batches that were computed."""
    outcomes: list[BatchOutcome] = []
    expected, seen, end = lane.ended + len(order.rows), -1, 0.0
    sender.order(order)
    sent = False
    while not sent or lane.ended < expected:
        outcomes += lane.pipeline.step(0.02)
        settled = sum(each.settled for each in lanes)
        sender.report_counts(settled, sum(each.ended for each in lanes))
        sent = sent or sender.begun() is not None
        if seen < settled:
            seen, end = settled, time.monotonic() + _TIMEOUT_S
        elif time.monotonic() > end:
            break  # of some messages, no packet arrived
    return outcomes


def measure_ways(
    sender: LoopbackSender,
    make_device: Device,
    ways: Sequence[str],
    payloads: NDArray[np.uint8],
    part: int,
    repeats: int,
    model: MessageModel | None = None,
) -> list[WayFigures]:
    """Measure each way for messages of one kind.

    Args:
        sender: the sending process.
        make_device: opens the device.
        ways: names of the ways.
        payloads: messages, uint8 of shape ``(messages, bytes)``; at least two.
        part: bytes of a message in a packet.
        repeats: messages of each way; one more is sent first and not counted.
        model: the model; None compares what arrives with what was sent.
    """
    sender.load(payloads)
    expected = torch.from_numpy(payloads)
    with ExitStack() as stack:
        device = stack.enter_context(closing(make_device()))
        work = model.on(device) if model else partial(_is_whole, expected, len(ways))
        lanes = [_Lane(stack, device, way, work, payloads.shape[1], part) for way in ways]
        number = 1
        for repeat in range(repeats + 1):
            for lane in lanes:
                row = repeat % len(payloads)
                before = lane.pipeline.counts.transfer_cpu_ns
                order = SendOrder(lane.port, number, range(row, row + 1), part)
                outcomes = _exchange(sender, lanes, lane, order)
                number += 1
                if repeat:  # the first one warms caches
                    lane.lost += not outcomes
                    lane.outcomes += outcomes
                    lane.cpu.append(lane.pipeline.counts.transfer_cpu_ns - before)
        for lane in lanes if model else ():
            order = SendOrder(lane.port, number, range(len(payloads)), part, 2)
            ends = [outcome.done_ns for outcome in _exchange(sender, lanes, lane, order)]
            number += len(payloads)
            if len(ends) > 1:
                lane.pipelined_ns = (ends[-1] - ends[0]) / (len(ends) - 1)
        return [_figures(lane, compared=model is None) for lane in lanes]


def _is_whole(
    expected: Tensor, ways: int, rows: Tensor, messages: Sequence[PartialMessage]
) -> bool:
    """Whether a row is what was sent; messages are numbered in the order of rows."""
    cycle = (messages[0].number - 1) // ways
    return torch.equal(rows[0].cpu(), expected[cycle % len(expected)])


def _figures(lane: _Lane, *, compared: bool) -> WayFigures:
    outcomes = lane.outcomes

    def times(of: Callable[[BatchOutcome], int]) -> tuple[float, float]:
        values = [of(outcome) / 1e6 for outcome in outcomes] or [0.0]
        return round(min(values), 3), round(float(np.median(values)), 3)

    return WayFigures(
        way=lane.way,
        messages=len(outcomes),
        lost=lane.lost,
        equal=all(outcome.result for outcome in outcomes) if compared else None,
        transfer=times(lambda out: out.ready_ns - out.messages[0].first_ns),
        tail=times(lambda out: out.ready_ns - out.messages[0].last_ns)[1],
        early=float(np.median([out.early for out in outcomes] or [0])),
        host_cpu=round(float(np.median(lane.cpu or [0])) / 1e6, 4),
        total=times(lambda out: out.done_ns - out.messages[0].first_ns),
        inference=times(lambda out: out.done_ns - out.ready_ns)[1],
        pipelined=round(lane.pipelined_ns / 1e6, 3),
    )


def model_inputs(model: MessageModel, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Messages of a model, uint8 of shape ``(count, bytes)``: normal floats, or random words."""
    size = model.message_bytes
    if model.dtype == torch.float32:
        values = rng.standard_normal((count, size // 4), dtype=np.float32)
        return np.ascontiguousarray(values).view(np.uint8).reshape(count, size)
    return rng.integers(0, 256, (count, size), dtype=np.uint8)


def train_epoch(
    sender: LoopbackSender,
    make_device: Device,
    way: str,
    images: DigitImages,
    batch: int,
    part: int,
    seed: int = 0,
) -> TrainedEpoch:
    """Train for one epoch on messages that another process sends.

    The sender determines their order, so one seed gives the same network by every way.

    Args:
        sender: the sending process.
        make_device: opens the device.
        way: name of the way.
        images: the messages and the network.
        batch: messages of a step; those after the last whole batch are not sent.
        part: bytes of a message in a packet.
        seed: seed of the order, the weights and the dropout.

    Raises:
        DeviceMemoryError: The network or the messages do not fit the device.
        N3icError: No message arrived in time.
    """
    order = np.random.default_rng(seed).permutation(len(images.payloads))
    payloads = images.payloads[order[: len(order) // batch * batch]]
    count, size = payloads.shape
    with deterministic(seed), ExitStack() as stack:
        device = stack.enter_context(closing(make_device()))
        warm = images.trainer()  # libraries choose their kernels before the clock starts
        warm.on(device)(device.tensor(batch, size)[:, :size], [])
        torch.manual_seed(seed)
        trainer = images.trainer()
        lane = _Lane(stack, device, way, trainer.on(device), size, part, batch)
        sender.load(payloads)
        rows = range(count)
        outcomes = _exchange(
            sender, [lane], lane, SendOrder(lane.port, 1, rows, part, batch * _IN_FLIGHT)
        )
        outcomes += lane.pipeline.flush()
        if not outcomes:
            raise N3icError(f"no message of {size:,} bytes arrived within {_TIMEOUT_S:.0f} s")
        first = min(m.first_ns for out in outcomes for m in out.messages)
        trained = lane.pipeline.counts.computed
        return TrainedEpoch(
            way,
            batch,
            trained,
            count - trained,
            1e9 * trained / (outcomes[-1].done_ns - first),
            images.accuracy(trainer.network),
            weights_digest(trainer.network),
        )
