# SPDX-License-Identifier: Apache-2.0
"""Networks that people have, small and whole, with random weights: for tests and measurements."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def _block(
    inputs: int, outputs: int, *, stride: int = 1, size: int = 3, groups: int = 1
) -> list[nn.Module]:
    filters = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return [filters, nn.BatchNorm2d(outputs)]


def vgg11(width: int = 64, classes: int = 10) -> nn.Module:
    """VGG-11 with batch norm for images of 32 x 32 pixels.

    Args:
        width: filters of the first layer.
        classes: number of classes.
    """
    layers: list[nn.Module] = []
    channels = 3
    for times in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0):
        if times:
            layers += [*_block(channels, times * width), nn.ReLU(inplace=True)]
            channels = times * width
        else:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(channels, classes))


class Residual(nn.Module):
    """Two convolutions beside a short cut.

    Args:
        inputs: channels of the input.
        outputs: channels of the result.
        stride: steps of the first convolution.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_block(inputs, outputs, stride=stride),
            nn.ReLU(inplace=True),
            *_block(outputs, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.short = (
            nn.Identity()
            if same
            else nn.Sequential(*_block(inputs, outputs, stride=stride, size=1))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Add both, and cut below zero."""
        out: Tensor = self.body(images)
        out += self.short(images)
        return torch.relu(out)


def resnet(width: int = 16, blocks: int = 3, classes: int = 10) -> nn.Module:
    """ResNet for images of 32 x 32 pixels; 3 blocks a stage are ResNet-20.

    Args:
        width: filters of the first layer.
        blocks: residual blocks of each of the three stages.
        classes: number of classes.
    """
    layers: list[nn.Module] = [*_block(3, width), nn.ReLU(inplace=True)]
    channels = width
    for stage in range(3):
        for block in range(blocks):
            outputs = width << stage
            layers.append(Residual(channels, outputs, 2 if stage and not block else 1))
            channels = outputs
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


class InvertedResidual(nn.Module):
    """MobileNetV2's block: wider by filters of one place, depthwise, narrower, and a short cut.

    Args:
        inputs: channels of the input.
        outputs: channels of the result.
        stride: steps of the depthwise convolution.
        wider: factor of the channels between.
    """

    def __init__(self, inputs: int, outputs: int, stride: int = 1, wider: int = 6) -> None:
        super().__init__()
        middle = wider * inputs
        self.body = nn.Sequential(
            *_block(inputs, middle, size=1),
            nn.ReLU6(inplace=True),
            *_block(middle, middle, stride=stride, groups=middle),
            nn.ReLU6(inplace=True),
            *_block(middle, outputs, size=1),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """Compute the block; it ends without an activation."""
        out: Tensor = self.body(images)
        return images + out if self.adds else out


def mobilenet(width: int = 16, classes: int = 10) -> nn.Module:
    """The beginning of MobileNetV2 for images of 32 x 32 pixels.

    Args:
        width: filters of the first layer.
        classes: number of classes.
    """
    return nn.Sequential(
        *_block(3, width, stride=2),
        nn.ReLU6(inplace=True),
        InvertedResidual(width, width),
        InvertedResidual(width, 2 * width, stride=2),
        InvertedResidual(2 * width, 2 * width),
        nn.AvgPool2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


class GraphConvolution(nn.Module):
    """A graph convolutional network of two layers (Kipf and Welling).

    Args:
        edges: int64 of shape ``(2, edges)``: both directions of each edge, no loops.
        vertices: number of vertices.
        features: features of a vertex.
        hidden: features of a vertex between the layers.
        classes: number of classes.
    """

    adjacency: Tensor

    def __init__(
        self, edges: Tensor, vertices: int, features: int, hidden: int, classes: int
    ) -> None:
        super().__init__()
        loops = torch.arange(vertices).expand(2, -1)
        both = torch.cat([edges, loops], dim=1)
        degrees = torch.bincount(both[0], minlength=vertices).float()
        weights = (degrees[both[0]] * degrees[both[1]]).rsqrt()
        shape = (vertices, vertices)
        self.register_buffer("adjacency", torch.sparse_coo_tensor(both, weights, shape).coalesce())
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Compute scores of shape ``(vertices, classes)`` from features."""
        hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(features)))
        scores: Tensor = torch.sparse.mm(self.adjacency, self.second(hidden))
        return scores


class GraphSage(nn.Module):
    """GraphSAGE of two layers with means of the neighbours (Hamilton et al.).

    Args:
        edges: int64 of shape ``(2, edges)``: receiving and sending vertices.
        vertices: number of vertices.
        features: features of a vertex.
        hidden: features of a vertex between the layers.
        classes: number of classes.
    """

    neighbours: Tensor

    def __init__(
        self, edges: Tensor, vertices: int, features: int, hidden: int, classes: int
    ) -> None:
        super().__init__()
        degrees = torch.bincount(edges[0], minlength=vertices).float()
        shape = (vertices, vertices)
        mean = torch.sparse_coo_tensor(edges, 1 / degrees[edges[0]], shape).coalesce()
        self.register_buffer("neighbours", mean)
        self.own = nn.ModuleList([nn.Linear(features, hidden), nn.Linear(hidden, classes)])
        self.others = nn.ModuleList(
            [nn.Linear(features, hidden, bias=False), nn.Linear(hidden, classes, bias=False)]
        )

    def forward(self, features: Tensor) -> Tensor:
        """Compute scores of shape ``(vertices, classes)`` from features."""
        means = torch.sparse.mm(self.neighbours, features)
        hidden = torch.relu(self.own[0](features) + self.others[0](means))
        means = torch.sparse.mm(self.neighbours, hidden)
        scores: Tensor = self.own[1](hidden) + self.others[1](means)
        return scores


def random_graph(vertices: int, edges: int, seed: int = 0) -> Tensor:
    """Make a graph whose vertices each have a neighbour: int64 of shape ``(2, 2 * edges)``.

    Args:
        vertices: number of vertices, at most ``edges``.
        edges: number of edges, each there in both directions.
        seed: seed of the random edges.
    """
    rng = np.random.default_rng(seed)
    ring = np.stack([np.arange(vertices), (np.arange(vertices) + 1) % vertices])
    more = rng.integers(0, vertices, (2, max(0, edges - vertices)))
    pairs: NDArray[np.int64] = np.concatenate([ring, more], axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    return torch.from_numpy(np.unique(both, axis=1))


def settled(module: nn.Module, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """Give a module's batch norms the statistics of random inputs, as training would.

    Args:
        module: the module, with random weights.
        shape: shape of a batch of inputs.
        seed: seed of the inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    module.train()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(shape, generator=generator))
    return module.eval()
