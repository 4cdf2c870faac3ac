# SPDX-License-Identifier: Apache-2.0
"""Feeds a learner from a stream of flows and from labels that come late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from n3ic.meter.flow_keys import Key
from n3ic.meter.labels import Labelled
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.learning.blocks import record_key
from n3ic.systems.stream.learning.late_labels import LabelJoin
from n3ic.systems.stream.learning.learning_folder import LearningFolder
from n3ic.systems.stream.learning.replay import ReplayedFlows

LabelSource = Callable[[int], list[tuple[Key, Labelled]]]
"""Labels that have come since the last call, given the number of flows so far; none only if all
have been read."""


@dataclass(frozen=True)
class LearnedBatch:
    """The result of learning from a batch of flows.

    Attributes:
        flows: number of flows so far.
        labelled: number of flows whose labels have come so far.
        running: digest of the running model.
        decisions: names of the learner's decisions, with the outcome of a test.
    """

    flows: int
    labelled: int
    running: str
    decisions: tuple[str, ...]


def replayed_labels(flows: ReplayedFlows, model: Classifier, delay: int, seed: int) -> LabelSource:
    """The labels of a table, which come late and out of order.

    Args:
        flows: the table.
        model: the model, which defines the classes.
        delay: the most flows that pass before a label comes; each label's delay is drawn between
            half of it and all of it.
        seed: seed of the delays.
    """
    rows = np.flatnonzero(flows.label >= 0)
    drawn = np.random.default_rng(seed).integers(delay // 2, delay + 1, len(rows))
    order = np.argsort(rows + drawn, kind="stable")
    due, waiting = (rows + drawn)[order], iter(rows[order].tolist())
    given = 0

    def news(passed: int) -> list[tuple[Key, Labelled]]:
        nonlocal given
        before, given = given, int(np.searchsorted(due, passed))
        return [
            (record_key(flows.records[row]), Labelled(model.classes[flows.label[row]]))
            for row in islice(waiting, given - before)
        ]

    return news


class LiveLearner:
    """Joins flows with their labels and learns from them.

    Args:
        labels: where labels come from; see :data:`LabelSource`.
        folder: the learner.
        join: keeps flows and labels that wait for each other.
    """

    def __init__(self, labels: LabelSource, folder: LearningFolder, join: LabelJoin) -> None:
        self._labels, self._folder, self._join = labels, folder, join
        self._flows = 0

    def learn(self, batch: FlowBatch) -> LearnedBatch:
        """Learn from the labels that have come meanwhile, for these flows and for others."""
        self._flows += len(batch)
        before = len(self._folder.decisions)
        for rows in (self._join.flows(batch), self._join.labels(self._labels(self._flows))):
            self._folder.add_rows(rows)
        return self._done(before)

    def finish(self) -> LearnedBatch:
        """Learn from the remaining labels, when no more flows come."""
        before = len(self._folder.decisions)
        while labels := self._labels(self._flows):
            self._folder.add_rows(self._join.labels(labels))
        return self._done(before)

    def _done(self, before: int) -> LearnedBatch:
        new = self._folder.decisions[before:]
        return LearnedBatch(
            self._flows,
            self._join.counts["flows labelled"],
            self._folder.learner.running.digest,
            tuple(str(d.get("outcome", d["what"])) for d in new),
        )
