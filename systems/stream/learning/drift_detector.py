# SPDX-License-Identifier: Apache-2.0
"""Tests whether traffic is still that of the training; the test may run for ever.

In each statistic, the first flow of each block (:mod:`.blocks`) gets a rank among those of the
reference's blocks and of all blocks before it. As long as blocks are exchangeable with those of the
reference, these ranks are independent and uniform, whatever the distribution, and however alike the
flows of one block are (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World"). A
gambler bets that they are not. New gamblers start as the stream goes on, each with a share of a
common initial capital, so a change after a million blocks is detected nearly as fast as one after a
hundred. Without a change, the probability that the total capital ever reaches ``1 / alpha`` is at
most ``alpha`` (Ville's inequality).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import RATE_UNIT
from n3ic.runs.refresh import columns_of
from n3ic.systems.stream.learning.betting_tests import spent
from n3ic.systems.stream.learning.blocks import RecentBlocks

MARGIN, VERDICT, BITS = "margin", "verdict", "bits"
_FEWEST = 100  # fewest blocks of the reference
_CELLS = 32  # cells of a statistic with many values
_TILTS = (-0.9, -0.5, 0.5, 0.9)  # bets on ranks that are smaller, or larger
_CURVES = (-0.45, 0.45, 0.9)  # bets on ranks that are central, or extreme
_SHARE_FLOOR = 0.5 / RATE_UNIT


@dataclass(frozen=True)
class DriftAlarm:
    """A change that the test detected.

    Attributes:
        flow: number of the flow at which the alarm was raised, from 1.
        statistic: what has moved most: a feature, ``bits``, ``margin`` or ``verdict``.
    """

    flow: int
    statistic: str


class FlowStatistics:
    """The statistics of a flow: features, bits, margin and verdict, each in a few cells.

    Args:
        model: the model.
        reference: features of flows like those of the training, uint32, shape
            ``(flows, features)``; they choose the cells.

    Attributes:
        names: a name for each statistic.
        cells: number of cells of each statistic.
    """

    def __init__(self, model: Classifier, reference: NDArray[np.uint32]) -> None:
        self._model = model
        bits = model.input.encode(columns_of(model, reference))
        share = np.clip(bits.mean(axis=0), _SHARE_FLOOR, 1 - _SHARE_FLOOR)
        self._set, self._unset = -np.log(share), -np.log(1 - share)
        self.names = (*model.input.features, BITS, MARGIN, VERDICT)
        values = self._values(reference)
        self._edges = [_edges(column) for column in values[:-1]]
        self._edges.append(
            np.arange(len(model.classes), dtype=np.float64)
        )  # verdicts: shunted, then each class
        self.cells = [len(edges) + 1 for edges in self._edges]

    def of(self, features: NDArray[np.uint32]) -> list[NDArray[np.int64]]:
        """Find the cell of each flow.

        Args:
            features: uint32, shape ``(flows, features)``.

        Returns:
            An int64 array of shape ``(flows,)`` for each statistic.
        """
        values = self._values(features)
        return [
            np.searchsorted(edges, column, side="right").astype(np.int64)
            for edges, column in zip(self._edges, values, strict=True)
        ]

    def _values(self, features: NDArray[np.uint32]) -> list[NDArray[np.float64]]:
        model = self._model
        bits = model.input.encode(columns_of(model, features))
        inference = predict(model, pack(bits))
        strange = np.where(bits, self._set, self._unset).sum(axis=1)
        verdicts = model.verdicts(inference.scores)
        own = [column.astype(np.float64) for column in features.T]
        return [*own, strange, inference.margins.astype(np.float64), verdicts.astype(np.float64)]


class DriftDetector:
    """The test of one stream.

    Args:
        model: the model.
        reference: features of flows like those of the training but not used in it, uint32, shape
            ``(flows, features)``. Every other block chooses the cells; the stream is compared with
            the rest.
        reference_block: hash of the block of each of these flows, uint64, shape ``(flows,)``; None
            if each is a block of its own.
        alpha: probability that it ever raises an alarm without a change.
        gap: blocks between the starts of two gamblers.
        seed: seed that breaks ties between ranks.

    Attributes:
        flows: number of flows so far, up to that of the alarm.
        blocks: number of blocks among them.
        alarm: the alarm, once there is one. It does not depend on how flows are batched.

    Raises:
        UsageError: There are too few reference blocks.
    """

    def __init__(
        self,
        model: Classifier,
        reference: NDArray[np.uint32],
        *,
        reference_block: NDArray[np.uint64] | None = None,
        alpha: float = 0.01,
        gap: int = 50,
        seed: int = 0,
    ) -> None:
        self._known = RecentBlocks()
        if reference_block is not None:
            reference = reference[self._known.first_flows(reference_block)]
        if len(reference) < _FEWEST:
            raise UsageError(
                f"expected {_FEWEST} reference flows or more, each of another block, "
                f"got {len(reference)}"
            )
        self._statistics = FlowStatistics(model, reference[::2])
        # Flows that chose the cells are distributed over them differently from new flows.
        own = self._statistics.of(reference[1::2])
        self._counts = [
            np.bincount(cells, minlength=size).astype(np.float64)
            for cells, size in zip(own, self._statistics.cells, strict=True)
        ]
        self._rows_seen = len(own[0])
        self._random = np.random.default_rng(seed)
        self._alpha, self._gap = alpha, gap
        # The logarithm of all gamblers' capital in each bet on each statistic.
        self._wealth = np.full((len(self._statistics.names), len(_TILTS) + len(_CURVES)), -np.inf)
        self.flows = self.blocks = 0
        self.alarm: DriftAlarm | None = None

    def add(
        self, features: NDArray[np.uint32], block: NDArray[np.uint64] | None = None
    ) -> DriftAlarm | None:
        """Test flows, up to the one that raises an alarm; of each block, the first is tested.

        Args:
            features: uint32, shape ``(flows, features)``.
            block: hash of each flow's block, uint64, shape ``(flows,)``; None if each is a block
                of its own.

        Returns:
            The alarm, from these flows or earlier ones; None if there is none.
        """
        if self.alarm is not None or not len(features):
            return self.alarm
        tested = np.arange(len(features)) if block is None else self._known.first_flows(block)
        before, at = self.flows, 0
        self.flows += len(features)
        if not len(tested):
            return None
        steps = np.log(_bets(self._ranks(self._statistics.of(features[tested]))))
        while at < len(tested):
            if self.blocks % self._gap == 0:
                self._start()
            size = min(self._gap - self.blocks % self._gap, len(tested) - at)
            used, statistic = self._bet(steps[at : at + size])
            self.blocks += used
            at += used
            if statistic:
                self.flows = before + int(tested[at - 1]) + 1
                self.alarm = DriftAlarm(self.flows, statistic)
                break
        return self.alarm

    def _ranks(self, cells: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        """The rank of each flow among all before it, in (0, 1), shape ``(flows, statistics)``."""
        rows = len(cells[0])
        total = self._rows_seen + np.arange(1, rows + 1)
        out = np.empty((rows, len(cells)))
        ties = self._random.random(out.shape)  # drawn flow by flow, so that batches do not matter
        for s, (own, counts) in enumerate(zip(cells, self._counts, strict=True)):
            marks = np.zeros((rows, len(counts)))
            marks[np.arange(rows), own] = 1
            before = counts + np.cumsum(marks, axis=0) - marks
            below = (before * (np.arange(len(counts)) < own[:, None])).sum(axis=1)
            equal = before[np.arange(rows), own] + 1
            out[:, s] = (below + ties[:, s] * equal) / total
            counts += marks.sum(axis=0)
        self._rows_seen += rows
        return out

    def _start(self) -> None:
        """Let a gambler start; the initial capitals of all gamblers add up to 1."""
        money = spent(1.0, self.blocks // self._gap + 1) / self._wealth.size
        self._wealth = np.logaddexp(self._wealth, log(money))

    def _bet(self, steps: NDArray[np.float64]) -> tuple[int, str]:
        """Apply log gains, shape ``(blocks, statistics, bets)``, up to the block that decides.

        Returns:
            Number of blocks used, and the statistic that moved most; "" if nothing is decided.
        """
        paths = np.cumsum(np.concatenate([self._wealth[None], steps]), axis=0)[1:]
        of = np.logaddexp.reduce(paths, axis=2)
        total = np.logaddexp.reduce(of, axis=1)
        reached = np.flatnonzero(total >= -log(self._alpha))
        last = int(reached[0]) if len(reached) else len(steps) - 1
        self._wealth = paths[last]
        name = self._statistics.names[int(of[last].argmax())] if len(reached) else ""
        return last + 1, name


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of cells that each hold about equally many values."""
    quantiles = np.quantile(values, np.linspace(0, 1, _CELLS + 1)[1:-1], method="inverted_cdf")
    return np.unique(quantiles)


def _bets(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each bet turns a capital of 1 into, shape ``(flows, statistics)`` to ``(..., bets)``.

    Each bet has a mean of 1 if ranks are uniform.
    """
    x = 2 * ranks[..., None] - 1
    return np.concatenate([1 + np.array(_TILTS) * x, 1 + np.array(_CURVES) * (3 * x * x - 1)], -1)
