# SPDX-License-Identifier: Apache-2.0
"""A binary model on a cluster as a PyTorch module; importing this imports PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from n3ic.errors import ModelError
from n3ic.model.bits import Words, pack
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.fcsn_api import RingCluster, RunningKernel, check_computable, initialise
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.placement import ModelPlacement

TASK_ID = "model"
BATCHES = 4
"""Batches in flight at once in :meth:`ClusterModule.stream`."""


class ClusterModule(nn.Module):
    """Computes the scores of a binary model on the nodes that hold its weights.

    The module has no parameters and passes no gradient.

    Args:
        cluster: the nodes.
        task_id: name under which the model is loaded on them.
        inputs: number of input bits of the model.
    """

    def __init__(self, cluster: RingCluster, task_id: str, inputs: int) -> None:
        super().__init__()
        self._cluster = cluster
        self._task_id = task_id
        self._inputs = inputs

    def forward(self, bits: Tensor) -> Tensor:
        """Compute the model's scores.

        Args:
            bits: tensor of shape ``(rows, inputs)``: 0 and 1 of any dtype, or -1 and +1.

        Returns:
            int32 tensor of shape ``(rows, classes)``, the model's exact scores.

        Raises:
            ModelError: The bits have other values or the wrong shape.
            ClusterError: A node has died or failed.
        """
        return next(self.stream([bits]))

    def stream(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the scores of batches in order, with the next batches already in flight."""
        waiting: deque[RunningKernel] = deque()
        for batch in batches:
            # One batch is always computed while the next ones are on the wire.
            waiting.append(self._cluster.start(self._task_id, self._words(batch)))
            if len(waiting) == BATCHES:
                yield self._scores(waiting.popleft())
        while waiting:
            yield self._scores(waiting.popleft())

    def _scores(self, started: RunningKernel) -> Tensor:
        return torch.from_numpy(self._cluster.synchronise(started))

    def _words(self, bits: Tensor) -> Words:
        values = bits.detach().cpu().numpy()
        if values.ndim != 2 or values.shape[1] != self._inputs:
            raise ModelError(f"expected bits of shape (rows, {self._inputs}), got {values.shape}")
        ones = values == 1
        # A batch must hold 0 and 1 or -1 and +1, not a mixture of all three.
        for other in (0, -1):
            if (ones | (values == other)).all():
                return pack(ones)
        examples = np.unique(values)[:5].tolist()
        raise ModelError(f"expected 0 and 1, or -1 and +1; got {examples}")


@contextmanager
def on_cluster(
    model: BinaryModel,
    nodes: int = 4,
    placement: ModelPlacement | None = None,
    options: RingOptions | None = None,
) -> Iterator[ClusterModule]:
    """Run a model on a cluster of its own, which stops at the end of the block.

    Args:
        model: a trained model of any size.
        nodes: number of nodes.
        placement: placement of the model; even parts of every layer if None.
        options: how to start the nodes.

    Raises:
        ClusterError: The model is not binary (for a PyTorch module the text names the layer), or a
            node does not start or does not take its part.
        MissingDependencyError: distributed is not installed.
    """
    check_computable(model)
    count = nodes if placement is None else placement.nodes
    with initialise(count, options) as cluster:
        cluster.load(TASK_ID, model, placement)
        yield ClusterModule(cluster, TASK_ID, model.input.n_bits)
