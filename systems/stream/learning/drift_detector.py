# SPDX-License-Identifier: Apache-2.0
"""Tests whether traffic is still that of the training; the test may run for ever.

In each statistic, a flow gets a rank among the reference flows and all flows before it. As long as
flows are exchangeable with the reference, these ranks are independent and uniform, whatever the
distribution (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World"). A gambler bets
that they are not. New gamblers start as the stream goes on, each with a share of a common initial
capital, so a change after a million flows is detected nearly as fast as one after a hundred.
Without a change, the probability that the total capital ever reaches ``1 / alpha`` is at most
``alpha`` (Ville's inequality).
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

MARGIN, VERDICT, BITS = "margin", "verdict", "bits"
_FEWEST = 100  # fewest flows of the reference
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
            ``(flows, features)``. Every other flow chooses the cells; the stream is compared with
            the rest.
        alpha: probability that it ever raises an alarm without a change.
        block: flows between the starts of two gamblers.
        seed: seed that breaks ties between ranks.

    Attributes:
        flows: number of flows so far.
        alarm: the alarm, once there is one.

    Raises:
        UsageError: There are too few reference flows.
    """

    def __init__(
        self,
        model: Classifier,
        reference: NDArray[np.uint32],
        *,
        alpha: float = 0.01,
        block: int = 50,
        seed: int = 0,
    ) -> None:
        if len(reference) < _FEWEST:
            raise UsageError(f"expected {_FEWEST} reference flows or more, got {len(reference)}")
        self._statistics = FlowStatistics(model, reference[::2])
        # Flows that chose the cells are distributed over them differently from new flows.
        own = self._statistics.of(reference[1::2])
        self._counts = [
            np.bincount(cells, minlength=size).astype(np.float64)
            for cells, size in zip(own, self._statistics.cells, strict=True)
        ]
        self._rows_seen = len(own[0])
        self._random = np.random.default_rng(seed)
        self._alpha, self._block = alpha, block
        # The logarithm of all gamblers' capital in each bet on each statistic.
        self._wealth = np.full((len(self._statistics.names), len(_TILTS) + len(_CURVES)), -np.inf)
        self.flows = 0
        self.alarm: DriftAlarm | None = None

    def add(self, features: NDArray[np.uint32]) -> DriftAlarm | None:
        """Test flows, up to the one that raises an alarm.

        Args:
            features: uint32, shape ``(flows, features)``.

        Returns:
            The alarm, from these flows or earlier ones; None if there is none.
        """
        if self.alarm is not None or not len(features):
            return self.alarm
        steps = np.log(_bets(self._ranks(self._statistics.of(features))))
        at = 0
        while at < len(features) and self.alarm is None:
            if self.flows % self._block == 0:
                self._start()
            size = min(self._block - self.flows % self._block, len(features) - at)
            self._bet(steps[at : at + size])
            at += size
        return self.alarm

    def _ranks(self, cells: list[NDArray[np.int64]]) -> NDArray[np.float64]:
        """The rank of each flow among all before it, in (0, 1), shape ``(flows, statistics)``."""
        rows = len(cells[0])
        total = self._rows_seen + np.arange(1, rows + 1)
        out = np.empty((rows, len(cells)))
        for s, (own, counts) in enumerate(zip(cells, self._counts, strict=True)):
            marks = np.zeros((rows, len(counts)))
            marks[np.arange(rows), own] = 1
            before = counts + np.cumsum(marks, axis=0) - marks
            below = (before * (np.arange(len(counts)) < own[:, None])).sum(axis=1)
            equal = before[np.arange(rows), own] + 1
            out[:, s] = (below + self._random.random(rows) * equal) / total
            counts += marks.sum(axis=0)
        self._rows_seen += rows
        return out

    def _start(self) -> None:
        """Let a gambler start; the initial capitals of all gamblers add up to 1."""
        money = spent(1.0, self.flows // self._block + 1) / self._wealth.size
        self._wealth = np.logaddexp(self._wealth, log(money))

    def _bet(self, steps: NDArray[np.float64]) -> None:
        """Apply log gains, shape ``(flows, statistics, bets)``, up to the flow that decides."""
        paths = self._wealth + np.cumsum(steps, axis=0)
        of = np.logaddexp.reduce(paths, axis=2)
        total = np.logaddexp.reduce(of, axis=1)
        reached = np.flatnonzero(total >= -log(self._alpha))
        last = int(reached[0]) if len(reached) else len(steps) - 1
        self._wealth = paths[last]
        self.flows += last + 1
        if len(reached):
            name = self._statistics.names[int(of[last].argmax())]
            self.alarm = DriftAlarm(self.flows, name)


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
