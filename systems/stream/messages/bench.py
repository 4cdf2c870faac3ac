# SPDX-License-Identifier: Apache-2.0
"""Measures the three ways side by side in one run: transfer, models, memory.

Messages come over loopback from a separate process. The ways take turns, message by message, so
that a busy machine disturbs them equally.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from n3ic.errors import UsageError
from n3ic.systems.stream.messages.assembly import AssemblyLimits, PartialMessage
from n3ic.systems.stream.messages.batches import BatchOutcome, BatchWork
from n3ic.systems.stream.messages.buffers import PAGE_KINDS, PacketBuffers, Pages
from n3ic.systems.stream.messages.devices import TransferDevice
from n3ic.systems.stream.messages.loopback import LoopbackSender, SendOrder, loopback_sender
from n3ic.systems.stream.messages.models import MessageModel, message_model
from n3ic.systems.stream.messages.pipeline import BURST, MessagePipeline
from n3ic.systems.stream.messages.protocol import HEADER_BYTES, check_part
from n3ic.systems.stream.messages.receiver import (
    PacketReceiver,
    open_receiver,
    refused_by_kernel,
)
from n3ic.systems.stream.messages.transfers import TransferMethod

SIZES = (10_000, 100_000, 500_000, 1_000_000, 4_000_000)
PARTS = (256, 512, 1024)
MODELS = ("vgg11", "tiny-yolo", "flow-mlp", "binary")
SLOTS = 4096
_SLOTS_FORWARD = 1 << 16
_WINDOW = 1024  # packets between sender and receiver; a socket's buffer holds more
_TIMEOUT_S = 30.0
PERCENTILES = (0, 50, 90, 99)  # a busy machine disturbs the minimum least
MEDIAN = 1  # its index there

Progress = Callable[[float, str], None]
"""A progress bar: takes the progress, from 0 to 1, and what is being done."""


@dataclass(frozen=True)
class TransferFigures:
    """Times of one way for messages of one kind: minimum, median, percentiles 90 and 99, in µs.

    Attributes:
        way: the way.
        model: the model behind it; empty for none.
        size: size of a message in bytes.
        part: bytes of the message in a packet.
        messages: how many messages were measured.
        lost: how many messages were lost; the times leave them out.
        equal: whether all messages arrived unchanged on the device; None if a model ran instead.
        first: from the sender's start to the first packet in the buffers.
        last: from the sender's start to the last packet in the buffers.
        transfer: from the first packet to all bytes on the device, figure 5 of the paper.
        tail: from the last packet to all bytes on the device.
        inference: time that the model takes.
        total: from the first packet to the result.
        early: share of the bytes that was on the device when the last packet arrived.
        host_cpu_us: CPU time of the receiving thread for a message's transfer.
        device_cpu_us: CPU time of the thread that stands in for the device; 0 on a GPU.
        pipelined_ms: time per message if the next ones are received meanwhile; 0 if not measured.
    """

    way: str
    model: str
    size: int
    part: int
    messages: int
    lost: int
    equal: bool | None
    first: tuple[float, ...]
    last: tuple[float, ...]
    transfer: tuple[float, ...]
    tail: tuple[float, ...]
    inference: tuple[float, ...]
    total: tuple[float, ...]
    early: float
    host_cpu_us: float
    device_cpu_us: float
    pipelined_ms: float = 0.0

    @property
    def overlap(self) -> float:
        """Share of a message's time that is hidden, as the next one is received meanwhile."""
        return (
            max(0.0, 1 - 1e3 * self.pipelined_ms / self.total[MEDIAN]) if self.pipelined_ms else 0.0
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self) | {"overlap": self.overlap}


@dataclass(frozen=True)
class ForwardFigures:
    """Figures of packets that are received into buffers and sent on from there.

    Attributes:
        pages: kind of the buffers' memory.
        huge_bytes: how many bytes of it the kernel gave in huge pages.
        part: payload of a packet in bytes.
        gbit_s: rate in Gbit/s.
        cpu_ns: CPU time per packet.
    """

    pages: str
    huge_bytes: int
    part: int
    gbit_s: float
    cpu_ns: float


def machine_load() -> str:
    """The current load of the machine and its number of processors, in words."""
    one, five, _ = os.getloadavg()
    return f"load {one:.1f} (1 min), {five:.1f} (5 min) on {os.cpu_count()} processors"


def processor_mhz() -> float:
    """Nominal clock of the first processor in MHz; 0 if the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    speeds = (line.partition(":")[2] for line in lines if line.startswith("cpu MHz"))
    return float(next(speeds, "0"))


class _Lane:
    """One way, with its own socket and buffers."""

    def __init__(
        self,
        stack: ExitStack,
        device: TransferDevice,
        way: type[TransferMethod],
        work: BatchWork,
        size: int,
        part: int,
        pages: Pages,
    ) -> None:
        self.way, self.device = way, device
        sock = stack.enter_context(open_receiver("127.0.0.1"))
        self.port = int(sock.getsockname()[1])
        buffers = PacketBuffers.allocate(SLOTS, part + HEADER_BYTES, pages)
        limits = AssemblyLimits(size, timeout_s=_TIMEOUT_S)
        self.pipeline = stack.enter_context(
            MessagePipeline(sock, buffers, device, way, work, limits)
        )
        self.samples: list[tuple[int, BatchOutcome]] = []
        self.cpu: list[tuple[int, int]] = []
        self.lost = 0
        self.pipelined_ns = 0.0

    @property
    def ended(self) -> int:
        counts = self.pipeline.counts
        lost = counts.assembly.expired + counts.assembly.no_room + counts.device_memory
        return counts.computed + lost

    @property
    def settled(self) -> int:
        """Number of packets that are no longer on their way."""
        return self.pipeline.received + self.pipeline.counts.kernel_refused


def _exchange(
    sender: LoopbackSender, lanes: Sequence[_Lane], lane: _Lane, order: SendOrder
) -> list[tuple[int, BatchOutcome]]:
    """Have messages sent to a lane; return when each was started, and its outcome."""
    outcomes: dict[int, BatchOutcome] = {}
    last_ended, begun = lane.ended + len(order.rows), None
    end = time.monotonic() + 2 * _TIMEOUT_S
    sender.order(order)
    while (begun is None or lane.ended < last_ended) and time.monotonic() < end:
        for outcome in lane.pipeline.step(0.02):
            outcomes[outcome.messages[0].number] = outcome
        sender.report_counts(sum(x.settled for x in lanes), sum(x.ended for x in lanes))
        begun = sender.begun() if begun is None else begun
    while not lane.pipeline.idle and time.monotonic() < end:
        for outcome in lane.pipeline.step(0.02):
            outcomes[outcome.messages[0].number] = outcome
    numbers = range(order.first, order.first + len(order.rows))
    pairs = zip(begun or (), (outcomes.get(n) for n in numbers), strict=False)
    return [(start_ns, outcome) for start_ns, outcome in pairs if outcome is not None]


def _figures(lane: _Lane, model: str, size: int, part: int) -> TransferFigures:
    def percentiles(times: Iterator[int]) -> tuple[float, ...]:
        values = np.percentile([*times] or [0], PERCENTILES) / 1e3
        return tuple(round(float(x), 1) for x in values)

    pairs = [(sent, out, out.messages[0]) for sent, out in lane.samples]
    equal = None if model else all(out.result for _, out, _ in pairs)
    host, device = np.median(lane.cpu or [(0, 0)], axis=0) / 1e3
    return TransferFigures(
        way=lane.way.name,
        model=model,
        size=size,
        part=part,
        messages=len(pairs),
        lost=lane.lost,
        equal=equal,
        first=percentiles(m.first_ns - sent for sent, _, m in pairs),
        last=percentiles(m.last_ns - sent for sent, _, m in pairs),
        transfer=percentiles(out.ready_ns - m.first_ns for _, out, m in pairs),
        tail=percentiles(out.ready_ns - m.last_ns for _, out, m in pairs),
        inference=percentiles(out.done_ns - out.ready_ns for _, out, _ in pairs),
        total=percentiles(out.done_ns - m.first_ns for _, out, m in pairs),
        early=float(np.median([out.early for _, out, _ in pairs] or [0])),
        host_cpu_us=round(float(host), 1),
        device_cpu_us=round(float(device), 1),
        pipelined_ms=round(lane.pipelined_ns / 1e6, 3),
    )


def _measure(
    sender: LoopbackSender,
    make_device: Callable[[], TransferDevice],
    ways: Sequence[type[TransferMethod]],
    payloads: NDArray[np.uint8],
    part: int,
    pages: Pages,
    work_of: Callable[[TransferDevice], BatchWork],
    repeats: int,
    *,
    model: str = "",
    pipelined: int = 0,
) -> list[TransferFigures]:
    """Measure each way for messages of one kind; the ways take turns."""
    size = payloads.shape[1]
    sender.load(payloads)
    with ExitStack() as stack:
        device = stack.enter_context(closing(make_device()))
        work = work_of(device)
        lanes = [_Lane(stack, device, way, work, size, part, pages) for way in ways]
        number = 1
        for repeat in range(repeats + 1):
            for lane in lanes:
                row = repeat % len(payloads)
                order = SendOrder(lane.port, number, range(row, row + 1), part)
                before = lane.pipeline.counts.transfer_cpu_ns, device.busy_ns
                samples = _exchange(sender, lanes, lane, order)
                number += 1
                if repeat:  # the first one warms caches
                    after = lane.pipeline.counts.transfer_cpu_ns, device.busy_ns
                    lane.lost += not samples
                    lane.samples += samples
                    lane.cpu.append((after[0] - before[0], after[1] - before[1]))
        for lane in lanes if pipelined else ():
            rows = range(min(pipelined, len(payloads)))
            samples = _exchange(sender, lanes, lane, SendOrder(lane.port, number, rows, part, 2))
            number += len(rows)
            ends = [out.done_ns for _, out in samples]
            if len(ends) > 1:
                lane.pipelined_ns = (ends[-1] - ends[0]) / (len(ends) - 1)
        return [_figures(lane, model, size, part) for lane in lanes]


def bench_transfer(
    make_device: Callable[[], TransferDevice],
    ways: Sequence[type[TransferMethod]],
    sizes: Sequence[int] = SIZES,
    parts: Sequence[int] = PARTS,
    repeats: int = 10,
    *,
    pages: Pages = "huge",
    seed: int = 0,
    report_progress: Progress = lambda share, text: None,
) -> list[TransferFigures]:
    """Measure the transfer of messages to the device, and compare what arrives with what was sent.

    Args:
        make_device: opens the device.
        ways: the ways.
        sizes: sizes of messages in bytes.
        parts: bytes of a message in a packet.
        repeats: messages of each kind; one more is sent first and not counted.
        pages: memory of the packet buffers.
        seed: seed of the messages.
        report_progress: called with the progress.

    Raises:
        UsageError: A packet's size is refused.
        DeviceMemoryError: The messages do not fit the device.
    """
    _check_parts(parts)
    out: list[TransferFigures] = []
    rng = np.random.default_rng(seed)
    with loopback_sender(_WINDOW) as sender:
        for i, (size, part) in enumerate((s, p) for s in sizes for p in parts):
            report_progress(i / (len(sizes) * len(parts)), f"{size:,} bytes in packets of {part:,}")
            payloads = rng.integers(0, 256, (2, size), dtype=np.uint8)
            work = partial(_arrived_whole, torch.from_numpy(payloads), len(ways))
            out += _measure(
                *(sender, make_device, ways, payloads, part, pages, partial(_same, work), repeats)
            )
    return out


def _same(work: BatchWork, device: TransferDevice) -> BatchWork:
    return work


def _arrived_whole(
    expected: Tensor, ways: int, rows: Tensor, messages: list[PartialMessage]
) -> bool:
    """Whether a row is what was sent; :func:`_measure` numbers messages in the order of rows."""
    turn = (messages[0].number - 1) // ways
    return torch.equal(rows[0].cpu(), expected[turn % len(expected)])


def bench_models(
    make_device: Callable[[], TransferDevice],
    ways: Sequence[type[TransferMethod]],
    models: Sequence[str] = MODELS,
    parts: Sequence[int] = PARTS,
    repeats: int = 5,
    *,
    pages: Pages = "huge",
    seed: int = 0,
    report_progress: Progress = lambda share, text: None,
) -> tuple[list[TransferFigures], dict[str, float]]:
    """Measure the time from messages to results, one at a time and pipelined.

    The arguments are those of :func:`bench_transfer`, with names of models instead of sizes.

    Returns:
        The figures, and the median time of each model, in ms, on rows already on the device.
    """
    _check_parts(parts)
    out: list[TransferFigures] = []
    alone: dict[str, float] = {}
    rng = np.random.default_rng(seed)
    with loopback_sender(_WINDOW) as sender:
        for i, name in enumerate(models):
            model = message_model(name, seed)
            count = max(4, min(repeats, 16))
            payloads = _inputs(rng, count, model.message_bytes, model.dtype)
            for j, part in enumerate(parts):
                share = (i + j / len(parts)) / len(models)
                report_progress(share, f"{name} in packets of {part:,} bytes")
                work_of = partial(_placed, model, payloads[:1], repeats, alone)
                out += _measure(
                    *(sender, make_device, ways, payloads, part, pages, work_of, repeats),
                    model=name,
                    pipelined=count,
                )
    return out, alone


def _placed(
    model: MessageModel,
    row: NDArray[np.uint8],
    repeats: int,
    alone: dict[str, float],
    device: TransferDevice,
) -> BatchWork:
    """Place a model; the first time, also measure how long a row already on the device takes."""
    work = model.on(device)
    if model.name not in alone:
        rows = device.tensor(1, model.message_bytes)[:, : model.message_bytes]
        rows.copy_(torch.from_numpy(row))
        alone[model.name] = _median_ms(lambda: work(rows, []), repeats)
    return work


def _inputs(
    rng: np.random.Generator, count: int, size: int, dtype: torch.dtype
) -> NDArray[np.uint8]:
    """Messages of a model: normal floats, or random words."""
    if dtype == torch.float32:
        values = rng.standard_normal((count, size // 4), dtype=np.float32)
        return np.ascontiguousarray(values).view(np.uint8).reshape(count, size)
    return rng.integers(0, 256, (count, size), dtype=np.uint8)


def _median_ms(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        begin = time.monotonic_ns()
        work()
        times.append(time.monotonic_ns() - begin)
    return float(np.median(times[1:])) / 1e6


def _check_parts(parts: Sequence[int]) -> None:
    for part in parts:
        try:
            check_part(part)
        except ValueError as error:
            raise UsageError(f"{error}") from error


def bench_memory(
    make_device: Callable[[], TransferDevice],
    parts: Sequence[int] = (256, 512),
    packets: int = 30_000,
    repeats: int = 3,
    *,
    report_progress: Progress = lambda share, text: None,
) -> list[ForwardFigures]:
    """Forward packets through buffers in huge pages, ordinary pages and the library's memory.

    Pages are registered with the device, which has no effect on the CPU. The kinds of memory take
    turns, and the figures are medians. The kernel's UDP, which all of them share, takes most of the
    time.

    Args:
        make_device: opens the device.
        parts: payloads of packets in bytes.
        packets: packets of a measurement.
        repeats: number of measurements.
        report_progress: called with the progress.
    """
    _check_parts(parts)
    out = []
    with loopback_sender(_WINDOW) as sender, closing(make_device()) as device:
        for i, part in enumerate(parts):
            kinds = {p: PacketBuffers.allocate(_SLOTS_FORWARD, part + 32, p) for p in PAGE_KINDS}
            for buffers in kinds.values():
                device.register(buffers.data)
            rates: dict[str, list[tuple[float, float]]] = {pages: [] for pages in kinds}
            payloads = np.zeros((1, packets * part), dtype=np.uint8)
            for repeat in range(repeats):
                report_progress((i + repeat / repeats) / len(parts), f"forwarding {part:,} bytes")
                for pages, buffers in kinds.items():
                    with ExitStack() as stack:
                        rates[pages].append(_forward(stack, sender, buffers, payloads, part))
            for pages, buffers in kinds.items():
                rate, cpu = np.median(rates[pages], axis=0)
                out.append(ForwardFigures(pages, buffers.huge_bytes, part, rate * part * 8e-9, cpu))
    return out


def _forward(
    stack: ExitStack,
    sender: LoopbackSender,
    buffers: PacketBuffers,
    payloads: NDArray[np.uint8],
    part: int,
) -> tuple[float, float]:
    """Measure packets per second, and nanoseconds of CPU time per packet."""
    sink = stack.enter_context(open_receiver("127.0.0.1"))
    out = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    out.connect(sink.getsockname())
    sock = stack.enter_context(open_receiver("127.0.0.1"))
    receiver = PacketReceiver(sock, buffers)
    sender.load(payloads)
    sender.order(SendOrder(int(sock.getsockname()[1]), 1, range(1), part))
    received = slot = 0
    begin, cpu, packets = 0, 0, -(-payloads.shape[1] // part)
    end = time.monotonic() + _TIMEOUT_S
    while received + refused_by_kernel(sock) < packets and time.monotonic() < end:
        count = receiver.receive(slot, min(BURST, buffers.slots - slot), 0.02)
        if count:
            if not begin:
                begin, cpu = time.monotonic_ns(), time.thread_time_ns()
            receiver.forward(out, slot, count)
        slot = (slot + count) % buffers.slots
        received += count
        sender.report_counts(received + refused_by_kernel(sock), 0)
    took, used = time.monotonic_ns() - begin, time.thread_time_ns() - cpu
    while sender.begun() is None and time.monotonic() < end:
        time.sleep(0.001)
    return 1e9 * received / took, used / max(1, received)
