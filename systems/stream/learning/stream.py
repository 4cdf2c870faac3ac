# SPDX-License-Identifier: Apache-2.0
"""Feeds a learner from a stream of flows and from labels that come late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from n3ic.meter.flow_keys import Key
from n3ic.meter.labels import Labelled
from n3ic.model.classifier import Classifier
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.learning.blocks import record_key
from n3ic.systems.stream.learning.late_labels import LabelJoin
from n3ic.systems.stream.learning.learning_folder import LearningFolder
from n3ic.systems.stream.learning.replay import ReplayedFlows


class LabelSource(Protocol):
    """Where labels come from."""

    def news(self) -> list[tuple[Key, Labelled]]:
        """Labels that have come since the last call; none only if all have been read."""


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


class ReplayedLabels:
    """The labels of a table, which come late and out of order.

    Args:
        flows: the table.
        model: the model, which defines the classes.
        delay: the most flows that pass before a label comes; each label's delay is drawn between
            half of it and all of it.
        seed: seed of the delays.
    """

    def __init__(self, flows: ReplayedFlows, model: Classifier, delay: int, seed: int) -> None:
        rows = np.flatnonzero(flows.label >= 0)
        drawn = np.random.default_rng(seed).integers(delay // 2, delay + 1, len(rows))
        order = np.argsort(rows + drawn, kind="stable")
        self._due = (rows + drawn)[order]
        self._rows = rows[order]
        self._flows, self._classes = flows, model.classes
        self._at = 0
        self.flow = 0
        """Number of flows that have passed."""

    def pass_flows(self, flows: int) -> None:
        """Let flows pass, which makes labels due.

        Args:
            flows: number of flows that have passed.
        """
        self.flow = flows

    def news(self) -> list[tuple[Key, Labelled]]:
        """The labels that are now due."""
        end = int(np.searchsorted(self._due, self.flow))
        rows, self._at = self._rows[self._at : end], end
        return [
            (
                record_key(self._flows.records[row]),
                Labelled(self._classes[self._flows.label[row]]),
            )
            for row in rows.tolist()
        ]


class LiveLearner:
    """Joins flows with their labels and learns from them.

    Args:
        labels: where labels come from.
        folder: the learner.
        join: keeps flows and labels that wait for each other.
        on_flows: called with the number of flows so far, before labels are read.
    """

    def __init__(
        self,
        labels: LabelSource,
        folder: LearningFolder,
        join: LabelJoin,
        on_flows: Callable[[int], object] = lambda flows: None,
    ) -> None:
        self._labels, self._folder, self._join, self._on_flows = labels, folder, join, on_flows
        self._flows = 0

    def learn(self, batch: FlowBatch) -> LearnedBatch:
        """Learn from the labels that have come meanwhile, for these flows and for others."""
        self._flows += len(batch)
        self._on_flows(self._flows)
        before = len(self._folder.decisions)
        for rows in (self._join.flows(batch), self._join.labels(self._labels.news())):
            self._folder.add_rows(rows)
        return self._done(before)

    def finish(self) -> LearnedBatch:
        """Learn from the remaining labels, when no more flows come."""
        before = len(self._folder.decisions)
        while labels := self._labels.news():
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
