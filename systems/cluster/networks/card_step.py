# SPDX-License-Identifier: Apache-2.0
"""A network of integers over processes, with one of its steps on a card.

The coordinator takes the step's input from a ring of processes, gives it to a ring with the card,
and gives the sums to a second ring of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.kernels import GemmKernel
from n3ic.systems.cluster.launch import KernelWork, RingOptions, ring_on, workers
from n3ic.systems.cluster.matrices import FilterKernel
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep, checked_items
from n3ic.systems.cluster.networks.operations import Convolution, Dense
from n3ic.systems.cluster.networks.pipeline import NetworkPipeline, measured_seconds, plan_pipeline
from n3ic.systems.cluster.networks.ring import NetworkSession, NetworkWork, without_cards
from n3ic.systems.cluster.session import GemmSession
from n3ic.systems.cluster.simulated_cards import simulated_cards


@dataclass(frozen=True, eq=False)
class CardStep:
    """A step of a network that a card computes, and the networks before and behind it.

    Attributes:
        kernel: the kernel of the card.
        bias: what the coordinator adds to the card's sums, which have the channels last.
        before: the steps before; None for the first step.
        behind: the steps behind; None for the last step.
    """

    kernel: GemmKernel
    bias: NDArray[np.int64]
    before: IntegerNetwork | None
    behind: IntegerNetwork | None

    @classmethod
    def of(cls, network: IntegerNetwork, number: int) -> CardStep:
        """Cut a step out of a network.

        Args:
            network: the network.
            number: number of the step, from 0.

        Raises:
            ClusterError: A card does not compute the step, or other values pass beside it; the
                error names it.
        """
        if not 0 <= number < len(network.steps):
            raise ClusterError(f"step {number}: expected 0 to {len(network.steps) - 1}")
        step, values = network.steps[number], network.values
        if network.alive(number) != (number,) or network.alive(number + 1) != (number + 1,):
            raise ClusterError(
                f"step {number} ({step.name}): values pass beside it; a card takes a step through "
                "which all goes"
            )
        kernel, bias = _kernel(step, number, values[number].shape)
        before = IntegerNetwork(values[0], network.steps[:number]) if number else None
        after = number + 1
        moved = [
            replace(s, inputs=tuple(i - after for i in s.inputs)) for s in network.steps[after:]
        ]
        return cls(kernel, bias, before, IntegerNetwork(values[after], moved) if moved else None)


def _kernel(
    step: NetworkStep, number: int, shape: tuple[int, ...]
) -> tuple[GemmKernel, NDArray[np.int64]]:
    operation = step.operation
    if isinstance(operation, Dense) and len(shape) == 1:
        return GemmKernel(operation.weights.T.astype(np.int64)), operation.bias.astype(np.int64)
    if isinstance(operation, Convolution):
        (up, left), (down, right) = operation.padding, operation.stride
        if operation.groups == 1 and up == left and down == right:
            image = (*shape[1:], shape[0])
            filters = Filters(operation.weights.astype(np.int64), image, down, up)  # type: ignore[arg-type]
            return FilterKernel(filters), operation.bias.astype(np.int64)
    what = type(operation).__name__
    raise ClusterError(
        f"step {number} ({step.name}): a card computes no {what} of values of shape {shape}; it "
        "computes Dense of one row, and Convolution without groups and with the same stride and "
        "padding of rows and columns"
    )


@dataclass(frozen=True, eq=False)
class CardStepSession:
    """Running rings of a network with a step on a card."""

    network: IntegerNetwork
    step: CardStep
    card: GemmSession
    before: NetworkSession | None
    behind: NetworkSession | None

    def scores(self, items: ArrayLike) -> NDArray[np.int32]:
        """Compute items: those of :meth:`IntegerNetwork.scores`, bit for bit.

        Raises:
            ModelError: The items are no inputs of the network.
            ClusterError: A node died or failed.
        """
        values: NDArray[np.integer] = checked_items(self.network, items)
        if self.before is not None:
            values = self.before.scores(values)
        sums = self._sums(values)
        return sums.astype(np.int32) if self.behind is None else self.behind.scores(sums)

    def _sums(self, values: NDArray[np.integer]) -> NDArray[np.int64]:
        """Compute the card's step; channels are first in the network and last on the card."""
        if isinstance(self.step.kernel, FilterKernel):
            images = np.moveaxis(values, 1, -1)
            waiting = [self.card.submit(image) for image in images]
            sums = np.stack([result.result() for result in waiting]) + self.step.bias
            return np.moveaxis(sums, -1, 1)
        return self.card.submit(values).result() + self.step.bias


@contextmanager
def network_with_card(
    network: IntegerNetwork,
    step: int,
    nodes: int,
    target: str = "netfpga",
    options: RingOptions | None = None,
) -> Iterator[CardStepSession]:
    """Start the rings of a network with a step on a simulated card; they stop behind the block.

    Args:
        network: the network.
        step: number of the step that the card computes.
        nodes: number of processes for the other steps.
        target: target of the simulated card.
        options: how to start the rings.

    Raises:
        ClusterError: A card does not compute the step, or a side of it has no node.
        MissingDependencyError: distributed, or a tool of the simulated card, is missing.
    """
    given = without_cards(options or RingOptions())
    cut = CardStep.of(network, step)
    before, behind = _pipelines(cut, nodes, measured_seconds(network), step)
    work = KernelWork(cut.kernel, 1)
    faults = given.faults
    with ExitStack() as stack:
        client = stack.enter_context(workers(nodes, given.dask))
        cards = stack.enter_context(
            simulated_cards(work, {1: target}, loss=faults.loss, seed=faults.seed)
        )
        with_card = replace(given, cards=cards.addresses, addresses=cards.neighbours)
        card = stack.enter_context(ring_on(client, work, with_card)).session
        if not isinstance(card, GemmSession):  # pragma: no cover - what KernelWork makes of it
            raise ClusterError("expected a session of a matrix")
        others = [
            stack.enter_context(ring_on(client, NetworkWork(part, pipeline), given)).session
            if part is not None and pipeline is not None
            else None
            for part, pipeline in ((cut.before, before), (cut.behind, behind))
        ]
        yield CardStepSession(network, cut, card, *others)


def _pipelines(
    cut: CardStep, nodes: int, seconds: list[float], step: int
) -> tuple[NetworkPipeline | None, NetworkPipeline | None]:
    """Divide the nodes over the steps before and behind the card's, so that the slowest is fast."""
    parts = (cut.before, seconds[:step]), (cut.behind, seconds[step + 1 :])
    choices: list[tuple[float, NetworkPipeline | None, NetworkPipeline | None]] = []
    for count in range(nodes + 1):
        pair: list[NetworkPipeline | None] = []
        for (part, each), some in zip(parts, (count, nodes - count), strict=True):
            fits = some == 0 if part is None else some >= 1
            if fits:
                pair.append(None if part is None else plan_pipeline(part, some, each))
        if len(pair) == len(parts):
            slowest = max(p.bottleneck_s for p in pair if p is not None)
            choices.append((slowest, pair[0], pair[1]))
    if not choices:
        raise ClusterError(
            f"{nodes} nodes beside the card: expected a node for each side of its step"
        )
    _, before, behind = min(choices, key=lambda choice: choice[0])
    return before, behind
