# SPDX-License-Identifier: Apache-2.0
"""Baselines that need no network: one cut of one delay, and a linear model of all delays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol, split
from n3ic.data.table import FlowTable


@dataclass(frozen=True)
class DelayCut:
    """A rule that calls a queue congested if one delay is above a cut.

    Attributes:
        delay: name of the column.
        above: the cut; larger integers in the column mean congestion.
        accuracy: accuracy on the test rows.
    """

    delay: str
    above: int
    accuracy: float


@dataclass(frozen=True)
class DelayBaselines:
    """Results on the test rows of a queue.

    Attributes:
        cut: the single cut of a single delay that is right on the most training rows.
        logistic: accuracy of logistic regression on all delays.
    """

    cut: DelayCut
    logistic: float


def delay_baselines(table: FlowTable, protocol: SplitProtocol, seed: int) -> DelayBaselines:
    """Fit both baselines to the training rows of a queue's table, on the columns of a network.

    Args:
        table: a table of :func:`~n3ic.datasets.ns3_tomography.table.queue_tables`.
        protocol: the split of the network's training.
        seed: seed of that split.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    parts = split(table, protocol, seed)
    columns = table.matrix(table.usable)
    congested = table.label == 1
    train, test = columns[parts.train], columns[parts.test]
    cuts = [best_cut(column, congested[parts.train]) for column in train.T]
    number = int(np.argmax([right for _, right in cuts]))
    above = cuts[number][0]
    exceeds = test[:, number] > above
    cut = DelayCut(table.usable[number], above, float((exceeds == congested[parts.test]).mean()))
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    linear.fit(train, congested[parts.train])
    return DelayBaselines(cut, float(linear.score(test, congested[parts.test])))


def best_cut(column: NDArray[np.int64], congested: NDArray[np.bool_]) -> tuple[int, float]:
    """Find the cut above which calling rows congested is right most often.

    Args:
        column: int64 array of shape ``(rows,)``, not empty.
        congested: the truth, bool array of shape ``(rows,)``.

    Returns:
        The cut, which is -1 or a value of the column, and the share of rows that it gets right.
    """
    values, place = np.unique(column, return_inverse=True)
    positive = np.bincount(place[congested], minlength=len(values))
    negative = np.bincount(place[~congested], minlength=len(values))
    # Entry i counts the correct rows if those with the i smallest values are called free.
    right = np.concatenate([[0], np.cumsum(negative - positive)]) + positive.sum()
    best = int(right.argmax())
    return (-1 if best == 0 else int(values[best - 1])), float(right[best] / len(column))
