# SPDX-License-Identifier: Apache-2.0
"""Training on the stream: one epoch on messages as they arrive, batch after batch.

The sender determines the order of messages, so one seed gives the same network by every way.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3ic.errors import N3icError
from n3ic.systems.stream.messages.assembly import AssemblyLimits, PartialMessage
from n3ic.systems.stream.messages.batches import BatchOutcome
from n3ic.systems.stream.messages.buffers import PacketBuffers, Pages
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.loopback import LoopbackSender, SendOrder, loopback_sender
from n3ic.systems.stream.messages.pipeline import MessagePipeline
from n3ic.systems.stream.messages.protocol import HEADER_BYTES
from n3ic.systems.stream.messages.receiver import open_receiver
from n3ic.systems.stream.messages.tasks import LABEL_BYTES, StreamTask
from n3ic.systems.stream.messages.transfers import TransferMethod
from n3ic.training.loop import deterministic

BATCHES = (50, 80, 100)
_WINDOW = 512
_SLOTS = 2048
_IN_FLIGHT = 2  # batches
_LEARNING_RATE = 1e-2
_TIMEOUT_S = 30.0
_PAUSE_S = 0.001


@dataclass(frozen=True)
class TrainedStream:
    """One epoch on a stream.

    Attributes:
        way: how packets reached the device.
        batch: messages of a step.
        messages: messages that were trained on.
        lost: messages that were lost.
        seconds: seconds from the first packet to the last step.
        accuracy: share of the test rows that are right.
        weights: SHA-256 of the weights.
        host_cpu_us: CPU time of the receiving thread for transfers, in microseconds per message.
    """

    way: str
    batch: int
    messages: int
    lost: int
    seconds: float
    accuracy: float
    weights: str
    host_cpu_us: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self) | {"per_second": self.rate}


class StreamTrainer:
    """A network and its optimizer, which take one step per batch.

    Args:
        task: what is trained.
        device: where it is trained.

    Attributes:
        network: the network.
        steps: number of steps so far.
    """

    def __init__(self, task: StreamTask, device: TransferDevice) -> None:
        self._task = task
        self.network = device.place(task.network()).train()
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=_LEARNING_RATE)
        self.steps = 0

    def step(self, rows: Tensor, messages: Sequence[PartialMessage]) -> float:
        """Take a step on rows of bytes; return the loss."""
        label = rows[:, :LABEL_BYTES].view(torch.int32).flatten().long()
        if len(label) < 2:
            return 0.0  # batch norm needs two rows; only the end of a stream with losses has one
        loss = nn.functional.cross_entropy(
            self.network(self._task.inputs(rows[:, LABEL_BYTES:])), label
        )
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._task.after_step(self.network)
        self.steps += 1
        return float(loss.detach())


def digest_of(network: nn.Module) -> str:
    """SHA-256 of a network's weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def train_on_stream(
    task: StreamTask,
    make_device: Callable[[], TransferDevice],
    way: type[TransferMethod],
    batch: int,
    part: int,
    sender: LoopbackSender,
    *,
    pages: Pages = "huge",
    seed: int = 0,
) -> tuple[TrainedStream, nn.Module]:
    """Train for one epoch on messages that another process sends over loopback.

    Args:
        task: rows, network and test.
        make_device: opens the device.
        way: how packets come to the device.
        batch: messages of a step; those after the last whole batch are not sent.
        part: bytes of a message in a packet.
        sender: the sending process.
        pages: memory of the packet buffers.
        seed: seed of the order, the weights and the dropout.

    Returns:
        The figures and the network.

    Raises:
        DeviceMemoryError: The network or the messages do not fit the device.
        N3icError: No message arrived in time.
    """
    order = np.random.default_rng(seed).permutation(len(task.payloads))
    payloads = task.payloads[order[: len(order) // batch * batch]]
    count, size = payloads.shape
    limits = AssemblyLimits(size, per_sender=batch * _IN_FLIGHT, timeout_s=_TIMEOUT_S)
    with (
        deterministic(seed),
        closing(make_device()) as device,
        open_receiver("127.0.0.1") as sock,
    ):
        _warm(task, device, batch, size)
        torch.manual_seed(seed)
        trainer = StreamTrainer(task, device)
        buffers = PacketBuffers.allocate(_SLOTS, part + HEADER_BYTES, pages)
        with MessagePipeline(
            *(sock, buffers, device, way, trainer.step, limits), batch=batch, batches=_IN_FLIGHT
        ) as pipeline:
            counts = pipeline.counts
            sender.load(payloads)
            port = int(sock.getsockname()[1])
            sender.order(SendOrder(port, 1, range(count), part, batch * _IN_FLIGHT))
            outcomes: list[BatchOutcome] = []
            received, end = -1, 0.0
            while counts.assembly.ended < count:
                outcomes += pipeline.step(0.02)
                if received < pipeline.received:
                    received, end = pipeline.received, time.monotonic() + _TIMEOUT_S
                elif time.monotonic() > end:
                    break  # of some messages, no packet arrived
                lost = counts.assembly.ended - counts.assembly.complete
                ended = counts.computed + counts.device_memory + lost
                sender.report_counts(pipeline.received + counts.kernel_refused, ended)
            outcomes += pipeline.flush()
            sender.report_counts(pipeline.received + counts.kernel_refused, count)
            while sender.begun() is None:
                time.sleep(_PAUSE_S)
        if not outcomes:
            raise N3icError(f"no message of {size:,} bytes arrived within {_TIMEOUT_S:.0f} s")
        first = min(m.first_ns for out in outcomes for m in out.messages)
        figures = TrainedStream(
            way=way.name,
            batch=batch,
            messages=counts.computed,
            lost=count - counts.computed,
            seconds=(outcomes[-1].done_ns - first) / 1e9,
            accuracy=task.accuracy(trainer.network),
            weights=digest_of(trainer.network),
            host_cpu_us=round(counts.transfer_cpu_ns / max(1, counts.computed) / 1e3, 2),
        )
        return figures, trainer.network


def _warm(task: StreamTask, device: TransferDevice, batch: int, size: int) -> None:
    """Take a step with a throwaway network, so that libraries choose their kernels beforehand."""
    rows = device.tensor(batch, size)[:, :size]
    StreamTrainer(task, device).step(rows, [])


def bench_training(
    task: StreamTask,
    make_device: Callable[[], TransferDevice],
    ways: Sequence[type[TransferMethod]],
    batches: Sequence[int] = BATCHES,
    part: int = 128,
    repeats: int = 3,
    *,
    pages: Pages = "huge",
    seed: int = 0,
    report_progress: Callable[[float, str], None] = lambda share, text: None,
) -> list[list[TrainedStream]]:
    """Train for one epoch by each way, with batches of each size; the ways take turns.

    Args:
        task: what is trained.
        make_device: opens the device.
        ways: the ways.
        batches: messages of a step.
        part: bytes of a message in a packet.
        repeats: how often each is trained.
        pages: memory of the packet buffers.
        seed: seed of order, weights and dropout.
        report_progress: called with the progress.

    Returns:
        A list of all repeats for each size and way.
    """
    out = []
    with loopback_sender(_WINDOW) as sender:
        for i, batch in enumerate(batches):
            runs_of: dict[str, list[TrainedStream]] = {way.name: [] for way in ways}
            for repeat in range(repeats):
                report_progress((i + repeat / repeats) / len(batches), f"batches of {batch}")
                for way in ways:
                    figures, _ = train_on_stream(
                        task, make_device, way, batch, part, sender, pages=pages, seed=seed
                    )
                    runs_of[way.name].append(figures)
            out += [*runs_of.values()]
    return out
