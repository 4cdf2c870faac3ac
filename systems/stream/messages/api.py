# SPDX-License-Identifier: Apache-2.0
"""What a program needs to send and receive messages: one import."""

from n3ic.systems.stream.messages.batches import BatchOutcome
from n3ic.systems.stream.messages.devices import open_device
from n3ic.systems.stream.messages.models import MessageModel
from n3ic.systems.stream.messages.sender import MessageSender
from n3ic.systems.stream.messages.service import MessageReceiver, ReceiverOptions
from n3ic.systems.stream.messages.training import StreamTrainer

__all__ = [
    "BatchOutcome",
    "MessageModel",
    "MessageReceiver",
    "MessageSender",
    "ReceiverOptions",
    "StreamTrainer",
    "open_device",
]
