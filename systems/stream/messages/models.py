# SPDX-License-Identifier: Apache-2.0
"""Models behind messages: any unchanged PyTorch module, and n3ic's own models.

The image networks have the published shapes and random weights: their speed does not depend on the
weights, and their accuracy is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from n3ic.errors import UsageError
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.messages.assembly import PartialMessage
from n3ic.systems.stream.messages.devices import TransferDevice

FLOWS = 64  # flows in a message
FLOW_FEATURES = 16


@dataclass(frozen=True, eq=False)
class MessageModel:
    """A module, and the shape of the messages that it takes.

    Attributes:
        name: its name.
        module: takes a tensor of shape ``(messages, *shape)``, and knows nothing of messages.
        shape: shape of a message.
        dtype: dtype of its numbers, little-endian.
    """

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def message_bytes(self) -> int:
        """Bytes of a message."""
        return math.prod(self.shape) * self.dtype.itemsize

    def on(self, device: TransferDevice) -> Callable[[Tensor, list[PartialMessage]], Any]:
        """Place the module, and return a function that computes rows of a tensor of bytes.

        Raises:
            DeviceMemoryError: It does not fit.
        """
        module = device.place(self.module).eval()

        @torch.inference_mode()
        def compute(rows: Tensor, messages: list[PartialMessage]) -> Tensor:
            out: Tensor = module(self.tensor(rows))
            return out.cpu()

        return compute

    def tensor(self, rows: Tensor) -> Tensor:
        """View rows of bytes as the module's input.

        Args:
            rows: uint8 tensor of shape ``(messages, bytes)``.
        """
        # Rows end with padding, but a view only needs the last axis to be contiguous.
        numbers = rows.view(self.dtype)
        return numbers.reshape(len(rows), *self.shape)


def vgg11(classes: int = 1000) -> nn.Module:
    """VGG-11 of Simonyan and Zisserman for images of shape ``(3, 224, 224)``, random weights."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
        channels = width
    dense = [*_dense(512 * 7 * 7, 4096), *_dense(4096, 4096), nn.Linear(4096, classes)]
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def _dense(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.ReLU(inplace=True), nn.Dropout()]


def tiny_yolo() -> nn.Module:
    """A network of Tiny-YOLO's size for images of shape ``(3, 416, 416)``, random weights.

    It has nine convolutions and returns 125 numbers for each of 13 x 13 cells, without decoding
    boxes.
    """
    layers: list[nn.Module] = []
    channels = 3
    for i, width in enumerate((16, 32, 64, 128, 256, 512, 1024, 1024)):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.LeakyReLU(0.1, inplace=True),
        ]
        if i < 5:
            layers.append(nn.MaxPool2d(2))
        elif i == 5:
            layers += [nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, stride=1)]
        channels = width
    return nn.Sequential(*layers, nn.Conv2d(channels, 125, 1))


def flow_mlp(features: int = FLOW_FEATURES, classes: int = 2) -> nn.Module:
    """A float MLP on flows' features, random weights."""
    return nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, classes))


class ClassifierModule(nn.Module):
    """A model of n3ic as a module, from packed words to exactly the model's integer scores.

    Args:
        model: the model.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: Tensor) -> Tensor:
        """Compute scores: int32 ``(messages, flows, words)`` to ``(messages, flows, classes)``."""
        packed = words.cpu().numpy().view(np.uint32)
        scores = self.model.scores(packed.reshape(-1, packed.shape[-1]))
        return torch.from_numpy(scores.reshape(*packed.shape[:-1], -1))


_MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "vgg11": (vgg11, (3, 224, 224)),
    "tiny-yolo": (tiny_yolo, (3, 416, 416)),
    "flow-mlp": (flow_mlp, (FLOWS, FLOW_FEATURES)),
}
MODEL_NAMES: Sequence[str] = (*_MODULES, "binary")


def message_model(name: str, seed: int = 0) -> MessageModel:
    """Make a model by its name, or load a model file or run.

    Args:
        name: ``vgg11``, ``tiny-yolo``, ``flow-mlp``, ``binary`` (random weights, layers
            256-32-16-2), or the path of a model file or of a run with one network. Messages of
            the last two are 64 flows of packed words.
        seed: seed of random weights.

    Raises:
        UsageError: There is no such model.
    """
    if name in _MODULES:
        make, shape = _MODULES[name]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return MessageModel(name, make(), shape)
    if name == "binary":
        from n3ic.model.random_models import random_model

        model: Classifier = random_model((256, 32, 16, 2), np.random.default_rng(seed))
    elif Path(name).exists():
        from n3ic.model.load import load_model
        from n3ic.runs.folder import models_of

        files = models_of(name)
        if len(files) != 1:
            raise UsageError(f"{name} holds {len(files)} networks: give the file of one")
        model = load_model(next(iter(files.values())))
    else:
        raise UsageError(f"expected {', '.join(MODEL_NAMES)} or a model file or run, got {name!r}")
    return MessageModel(name, ClassifierModule(model), (FLOWS, model.input.n_words), torch.int32)
