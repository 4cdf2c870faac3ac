# SPDX-License-Identifier: Apache-2.0
"""Digits of MNIST's size as messages, and the network of *NetML*'s table III."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import interpolate

from n3ic.systems.stream.messages.training import LABEL_BYTES, StreamTrainer

SIDE = 28  # pixels
_DIGIT = 20  # pixels of the digit itself, as in MNIST
_TEST = 0.2


class DigitImages:
    """Images of 28 x 28 grey bytes: scikit-learn's 8 x 8 digits, enlarged to 20 x 20, anywhere.

    Args:
        count: number of training messages; each shows one of 1,437 digits at another place.
        seed: seed of the split and of the places.

    Attributes:
        payloads: messages, uint8 of shape ``(count, 788)``: the label as int32, then the image.
        test: test images of 360 other digits, float32 of shape ``(images, 1, 28, 28)``.
        test_label: their classes, int64 of shape ``(images,)``.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        pixels, label = load_digits(return_X_y=True)
        train, test, label, test_label = train_test_split(
            _enlarged(pixels), label, test_size=_TEST, random_state=seed, stratify=label
        )
        rng = np.random.default_rng(seed)
        which = rng.integers(0, len(train), count)
        head = label[which].astype("<i4").view(np.uint8).reshape(count, LABEL_BYTES)
        images = _placed(train[which], rng).reshape(count, -1)
        self.payloads = np.concatenate([head, images], axis=1)
        self.test = _inputs(torch.from_numpy(_placed(test, rng).reshape(len(test), -1)))
        self.test_label = torch.from_numpy(test_label.astype(np.int64))

    def trainer(self) -> StreamTrainer:
        """Two convolutions, dropout and two dense layers, with fresh weights."""
        network = nn.Sequential(
            *(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10)),
        )
        return StreamTrainer(network, SIDE * SIDE, _inputs)

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        """Share of the test images that a network gets right."""
        device = next(network.parameters()).device
        right = network.eval()(self.test.to(device)).argmax(dim=1).cpu() == self.test_label
        return float(right.float().mean())


def _inputs(rows: Tensor) -> Tensor:
    return rows.reshape(-1, 1, SIDE, SIDE).float() / 255


def _enlarged(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Digits of 8 x 8 pixels from 0 to 16 as 20 x 20 bytes."""
    small = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8)
    large = interpolate(small, (_DIGIT, _DIGIT), mode="bilinear", align_corners=True)
    return (large[:, 0] * (255 / 16)).round().to(torch.uint8).numpy()


def _placed(digits: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Each digit somewhere in an image of 28 x 28 pixels."""
    images = np.zeros((len(digits), SIDE, SIDE), np.uint8)
    places = rng.integers(0, SIDE - _DIGIT + 1, (len(digits), 2))
    for image, digit, (y, x) in zip(images, digits, places.tolist(), strict=True):
        image[y : y + _DIGIT, x : x + _DIGIT] = digit
    return images
