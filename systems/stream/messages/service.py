# SPDX-License-Identifier: Apache-2.0
"""A receiver that runs a model on every message and prints a line for each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from torch import Tensor

from n3ic.systems.stream.messages.assembly import AssemblyLimits
from n3ic.systems.stream.messages.batches import BatchOutcome
from n3ic.systems.stream.messages.buffers import PacketBuffers, Pages
from n3ic.systems.stream.messages.devices import TransferDevice
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
        rows: the most messages that are incomplete or being computed.
        slots: number of packet buffers.
        packet_bytes: bytes of the largest packet, header included.
        pages: memory of the packet buffers.
        seed: seed of random weights.
    """

    address: tuple[str, int]
    way: str = "pull"
    messages: int = 0
    timeout_s: float = 2.0
    rows: int = 8
    slots: int = 4096
    packet_bytes: int = 2048
    pages: Pages = "huge"
    seed: int = 0


def serve_model(
    model: str,
    make_device: Callable[[], TransferDevice],
    options: ReceiverOptions,
    line: Callable[[str], None],
    note: Callable[[str], None],
    listening: Callable[[int], None],
) -> None:
    """Receive messages until enough have come or a signal ends it.

    Args:
        model: a model of :func:`~n3ic.systems.stream.messages.models.message_model`.
        make_device: opens the device.
        options: how messages are received.
        line: called with a line of JSON for each message.
        note: called at the end with the losses, by reason.
        listening: called with the port once packets can be received.

    Raises:
        UsageError: An option is wrong.
        DeviceMemoryError: The model or the messages do not fit the device.
    """
    way = transfer_named(options.way)
    served = message_model(model, options.seed)
    limits = AssemblyLimits(
        served.message_bytes, per_sender=max(1, options.rows - 1), timeout_s=options.timeout_s
    )
    with (
        closing(make_device()) as device,
        open_receiver(*options.address) as sock,
        MessagePipeline(
            sock,
            PacketBuffers.allocate(options.slots, options.packet_bytes, options.pages),
            *(device, way, served.on(device), limits),
            batches=options.rows,
        ) as pipeline,
    ):
        listening(int(sock.getsockname()[1]))
        counts = pipeline.counts
        try:
            while not options.messages or counts.assembly.ended < options.messages:
                check()
                for outcome in pipeline.step(0.2):
                    line(json.dumps(described(outcome)))
            for outcome in pipeline.flush():
                line(json.dumps(described(outcome)))
        finally:
            note(
                f"{counts.computed:,} messages computed, "
                f"{counts.assembly.packets:,} packets received"
            )
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
