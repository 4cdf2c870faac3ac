# SPDX-License-Identifier: Apache-2.0
"""What is trained on a stream: messages of a label and a row, a network, and its test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from n3ic.errors import UsageError, needed
from n3ic.training.recipe import Recipe, Training

if TYPE_CHECKING:
    from n3ic.model.network import BinaryModel

LABEL_BYTES = 4
# Cuts at quantiles need no other model, so a stream can begin at once.
_RECIPE = Recipe(
    name="stream",
    summary="for one epoch on a stream",
    encoding="quantile",
    training=Training(hidden=(64,)),
)
DIGITS = "digits"


class StreamTask(ABC):
    """Rows to train on, and rows to test on.

    Attributes:
        payloads: messages, uint8 of shape ``(rows, bytes)``: a label as int32, then the row.
        test: test rows, as the network's input.
        test_label: their classes, shape ``(rows,)``.
        what: the data and the network, in words.
    """

    name: ClassVar[str]
    payloads: NDArray[np.uint8]
    test: Tensor
    test_label: Tensor
    what: str

    @abstractmethod
    def network(self) -> nn.Module:
        """Make a network with fresh weights from PyTorch's random numbers."""

    @abstractmethod
    def inputs(self, rows: Tensor) -> Tensor:
        """View rows of bytes, without their labels, as the network's input."""

    @abstractmethod
    def after_step(self, network: nn.Module) -> None:
        """Keep the weights within their bounds."""

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        """Share of the test rows that a network gets right."""
        network.eval()
        device = next(network.parameters()).device
        right = network(self.test.to(device)).argmax(dim=1).cpu() == self.test_label
        return float(right.float().mean())


def messages_of(label: NDArray[np.int64], rows: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Make messages from labels and rows of 4-byte numbers, little-endian.

    Returns:
        uint8 array of shape ``(rows, bytes)``.
    """
    head = label.astype("<i4").view(np.uint8).reshape(len(label), LABEL_BYTES)
    body = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    return np.concatenate([head, body], axis=1)


class DigitsTask(StreamTask):
    """scikit-learn's bundled digits, 8 x 8 pixels, and a small convolutional network."""

    name = "digits"

    def __init__(self, seed: int) -> None:
        with needed("training on digits"):
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        pixels, label = load_digits(return_X_y=True)
        train, test, label, test_label = train_test_split(
            (pixels / 16).astype("<f4"), label, test_size=0.2, random_state=seed, stratify=label
        )
        self.payloads = messages_of(label, train)
        self.test = torch.from_numpy(test).reshape(-1, 1, 8, 8)
        self.test_label = torch.from_numpy(test_label.astype(np.int64))
        self.what = "scikit-learn's digits; two convolutions, dropout, two dense layers"

    def network(self) -> nn.Module:
        """Two convolutions, dropout and two dense layers, like the paper's network for MNIST."""
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Dropout(0.25), nn.Flatten()),
            *(nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 10)),
        )

    def inputs(self, rows: Tensor) -> Tensor:
        """Images of float32, shape ``(rows, 1, 8, 8)``."""
        return rows.view(torch.float32).reshape(-1, 1, 8, 8)

    def after_step(self, network: nn.Module) -> None:
        """Do nothing: real weights have no bounds."""


class FlowsTask(StreamTask):
    """Flows of a data set as packed bits, and a binary network."""

    name = "flows"

    def __init__(self, data: str, seed: int) -> None:
        from n3ic.data.dataset import data_set
        from n3ic.data.split import split
        from n3ic.model.bits import unpack
        from n3ic.training.input_choice import choose_input
        from n3ic.training.loop import class_indices, signs

        table = data_set(data).load()
        rows = split(table, "random", seed)
        train, test = table.rows(rows.train), table.rows(rows.test)
        self.spec, _ = choose_input(train, _RECIPE, seed=seed)
        self.classes = table.classes
        words = self.spec.encode_words(train.features).astype("<u4")
        self.payloads = messages_of(train.label, words)
        self.test_words = self.spec.encode_words(test.features)
        self.test = signs(unpack(self.test_words, self.spec.n_bits))
        self.test_label = class_indices(test.label)
        self.what = f"flows of {table.name}; binary network "
        self.what += f"{self.spec.n_bits}-{_RECIPE.training.hidden[0]}-{len(self.classes)}"

    def network(self) -> nn.Module:
        """A binary network, as n3ic trains it."""
        from n3ic.families.binary.binary_mlp import BinaryMLP

        return BinaryMLP(self.spec.n_bits, len(self.classes), _RECIPE.training)

    def inputs(self, rows: Tensor) -> Tensor:
        """Bits as +1 and -1, float32 of shape ``(rows, bits)``."""
        words = rows.view(torch.int32).unsqueeze(-1)
        bits = (words >> torch.arange(32, device=rows.device)) & 1
        return bits.flatten(1)[:, : self.spec.n_bits].float() * 2 - 1

    def after_step(self, network: nn.Module) -> None:
        """Clip the latent weights."""
        network.clip_weights()  # type: ignore[operator]

    def model(self, network: nn.Module) -> BinaryModel:
        """Fold the trained network into the integer network."""
        from n3ic.families.binary.binary_mlp import BinaryMLP
        from n3ic.families.binary.fold import fold

        assert isinstance(network, BinaryMLP)  # noqa: S101 - made by network()
        return fold(network.cpu(), self.spec, self.classes, name="stream")

    def accuracy(self, network: nn.Module) -> float:
        """Share of the test rows that the integer network gets right."""
        scores = self.model(network).scores(self.test_words)
        return float((scores.argmax(axis=1) == self.test_label.numpy()).mean())


def task_named(name: str, data: str, seed: int) -> StreamTask:
    """Make the task ``digits`` or ``flows``.

    Args:
        name: the task.
        data: data set of the flows, which must have embedded rows.
        seed: seed of the split.

    Raises:
        UsageError: There is no such task or data set, or the data set embeds no rows.
    """
    if name == DIGITS:
        return DigitsTask(seed)
    if name == "flows":
        with needed("training on flows"):
            return FlowsTask(data, seed)
    raise UsageError(f"expected digits or flows, got {name!r}")
