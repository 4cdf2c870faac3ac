# SPDX-License-Identifier: Apache-2.0
"""A receiver that runs a model on every message and prints a line for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, Protocol, Self

from torch import Tensor

from n3ic.systems.stream.messages.assembly import AssemblyLimits, MessageCounts
from n3ic.systems.stream.messages.batches import BatchOutcome, BatchWork
from n3ic.systems.stream.messages.buffers import PacketBuffers
from n3ic.systems.stream.messages.devices import TransferDevice, open_device
from n3ic.systems.stream.messages.models import message_model
from n3ic.systems.stream.messages.pipeline import MessagePipeline
from n3ic.systems.stream.messages.receiver import open_receiver
from n3ic.systems.stream.messages.transfers import transfer_named
from n3ic.util.signals import check

_DIGITS = 16
_CLASSES_AXES = 3  # an output with more axes does not hold classes


@dataclass(frozen=True)
class ReceiverOptions:
    """How messages are received.

    Attributes:
        address: own host and port; port 0 for any free one.
        way: name of the way to the device.
        messages: end after this many messages, lost ones included; 0 for never.
        timeout_s: the most seconds from a message's first packet to its last.
        rows: the most batches that are incomplete or being computed.
        batch: messages that are computed together; the last ones of a stream may be fewer.
        slots: number of packet buffers.
        packet_bytes: bytes of the largest packet, header included.
        seed: seed of random weights.
    """

    address: tuple[str, int] = ("127.0.0.1", 0)
    way: str = "pull"
    messages: int = 0
    timeout_s: float = 2.0
    rows: int = 8
    batch: int = 1
    slots: int = 4096
    packet_bytes: int = 2048
    seed: int = 0


class MessageWork(Protocol):
    """What is done with messages: a model, or the training of one."""

    @property
    def message_bytes(self) -> int:
        """Bytes of a message."""

    def on(self, device: TransferDevice) -> BatchWork:
        """Place it on a device; return a function of rows, uint8 ``(messages, bytes)``."""


class MessageReceiver:
    """Receives messages and runs a model on each. Enter it, then iterate over the outcomes.

    Args:
        model: a model or a :class:`~n3ic.systems.stream.messages.training.StreamTrainer`, or the
            name of a model (:func:`~n3ic.systems.stream.messages.models.message_model`).
        device: opens the device; None for a GPU, or the CPU without one.
        options: how messages are received.

    Attributes:
        address: host and port on which packets are received, once it is entered.
        ran: the device that computes, in words, once it is entered.

    Raises:
        UsageError: an option is wrong.
        DeviceMemoryError: the model or the messages do not fit the device.
    """

    address: tuple[str, int]
    ran: str

    def __init__(
        self,
        model: MessageWork | str,
        device: Callable[[], TransferDevice] | None = None,
        options: ReceiverOptions = ReceiverOptions(),
    ) -> None:
        self._options = options
        self._way = transfer_named(options.way)
        self._model = message_model(model, options.seed) if isinstance(model, str) else model
        self._make_device = device or open_device
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Open the device and the socket."""
        options, model = self._options, self._model
        limits = AssemblyLimits(
            model.message_bytes,
            per_sender=max(1, (options.rows - 1) * options.batch),
            timeout_s=options.timeout_s,
        )
        with ExitStack() as opening:
            device = opening.enter_context(closing(self._make_device()))
            sock = opening.enter_context(open_receiver(*options.address))
            buffers = PacketBuffers.allocate(options.slots, options.packet_bytes)
            work = model.on(device)
            self._pipeline = opening.enter_context(
                MessagePipeline(
                    *(sock, buffers, device, self._way, work, limits),
                    batch=options.batch,
                    batches=options.rows,
                )
            )
            self.address = (options.address[0], int(sock.getsockname()[1]))
            self.ran = device.ran
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        """Close them; messages that are being computed are lost."""
        self._open.close()

    @property
    def counts(self) -> MessageCounts:
        """Received and refused packets."""
        return self._pipeline.counts

    def __iter__(self) -> Iterator[BatchOutcome]:
        """Yield each message's outcome, until enough have ended or a signal ends it."""
        most = self._options.messages
        while not most or self.counts.ended < most:
            check()
            yield from self._pipeline.step(0.2)
        yield from self._pipeline.flush()


def serve_model(
    receiver: MessageReceiver,
    line: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Receive messages until enough have come or a signal ends it.

    Args:
        receiver: the receiver, not entered yet.
        line: called with a line of JSON for each message.
        note: called with the address once packets can be received, and at the end with the losses,
            by reason.
    """
    with receiver:
        host, port = receiver.address
        note(f"listening on {host}:{port}; {receiver.ran}")
        try:
            for outcome in receiver:
                line(json.dumps(described(outcome)))
        finally:
            counts = receiver.counts
            note(f"{counts.computed:,} messages computed, {counts.packets:,} packets received")
            for reason, count in counts.lines():
                note(f"lost {reason}: {count:,}")


def described(outcome: BatchOutcome) -> dict[str, Any]:
    """Describe a message's result and times as plain data.

    Results are equal if their ``digest`` is. ``classes`` is present if the model returns classes.
    """
    message, result = outcome.messages[0], outcome.result
    out: dict[str, Any] = {
        "sender": f"{IPv4Address(message.sender & 0xFFFFFFFF)}:{message.sender >> 32}",
        "message": message.number,
        "packets_ms": round((message.last_ns - message.first_ns) / 1e6, 3),
        "transfer_ms": round((outcome.ready_ns - message.first_ns) / 1e6, 3),
        "inference_ms": round((outcome.done_ns - outcome.ready_ns) / 1e6, 3),
    }
    if not outcome.computed:
        return out | {"lost": "the device's memory did not suffice"}
    if not isinstance(result, Tensor):
        return out
    out["digest"] = digest_of(result)
    if result.dim() > _CLASSES_AXES:
        return out | {"shape": list(result.shape[1:])}
    return out | {"classes": result[0].argmax(dim=-1).reshape(-1).tolist()}


def digest_of(result: Tensor) -> str:
    """The first digits of the SHA-256 of a tensor's bytes."""
    return hashlib.sha256(result.contiguous().numpy().tobytes()).hexdigest()[:_DIGITS]
