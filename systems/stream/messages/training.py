# SPDX-License-Identifier: Apache-2.0
"""Training on the stream: a network takes a step with each batch of messages that is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from n3ic.systems.stream.messages.assembly import PartialMessage
from n3ic.systems.stream.messages.devices import TransferDevice

LABEL_BYTES = 4


class StreamTrainer:
    """A network that learns from messages: each is a label (int32, little-endian), then a row.

    Hand it to :class:`~n3ic.systems.stream.messages.service.MessageReceiver` in place of a model,
    with ``batch`` messages of a step. An outcome's result is the loss.

    Args:
        network: the network; takes what ``inputs`` returns, and gives the logits of the classes.
        row_bytes: bytes of a message's row, a multiple of 4.
        inputs: from rows, a uint8 tensor of shape ``(messages, row_bytes)``, to the network's
            input. It must not keep the rows.
        learning_rate: of Adam.
        after_step: called with the network after each step, such as to clip weights.

    Attributes:
        network: the network, on the device once the receiver is entered.
        steps: number of steps so far.
    """

    def __init__(
        self,
        network: nn.Module,
        row_bytes: int,
        inputs: Callable[[Tensor], Tensor],
        *,
        learning_rate: float = 1e-2,
        after_step: Callable[[nn.Module], object] = lambda network: None,
    ) -> None:
        self.network, self.steps = network, 0
        self.message_bytes = LABEL_BYTES + row_bytes
        self._inputs, self._rate, self._after_step = inputs, learning_rate, after_step

    def on(self, device: TransferDevice) -> Callable[[Tensor, Sequence[PartialMessage]], float]:
        """Place the network, and return the function that takes a step.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        self.network = device.place(self.network).train()
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=self._rate)
        return self.step

    def step(self, rows: Tensor, messages: Sequence[PartialMessage]) -> float:
        """Take a step on messages, uint8 of shape ``(messages, bytes)``; return the loss."""
        label = rows[:, :LABEL_BYTES].view(torch.int32).flatten().long()
        if len(label) < 2:
            return 0.0  # batch norm needs two rows; only the end of a stream with losses has one
        logits = self.network(self._inputs(rows[:, LABEL_BYTES:]))
        loss = nn.functional.cross_entropy(logits, label)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._after_step(self.network)
        self.steps += 1
        return float(loss.detach())


def weights_digest(network: nn.Module) -> str:
    """SHA-256 of a network's weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
