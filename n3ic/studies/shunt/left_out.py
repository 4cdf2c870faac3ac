# SPDX-License-Identifier: Apache-2.0
"""Kinds of traffic that a network has not seen: which it would take for its positive class.

Validation rows are like those of training, so they promise nothing about visitors of another kind.
Here the network is trained again without each kind, and its flows are judged by that network. A
threshold promises something about further kinds by an exact bound on the share of kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment
from n3ic.studies.shunt.guarantee import at_least
from n3ic.training.recipe import Recipe
from n3ic.usecases.evaluation import LabelledFlows
from n3ic.util.markdown import percent

_NEVER = -1  # below every margin


@dataclass(frozen=True)
class LeftOutKind:
    """What a network that was trained without a kind says of it.

    Attributes:
        kind: the kind's name.
        flows: its flows.
        called: flows that get the positive class at any of their decisions.
        blocked_to: the highest threshold at which as many flows as block a host get that class; -1
            if there is none.
    """

    kind: str
    flows: int
    called: int
    blocked_to: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return vars(self).copy()


def left_out_kinds(
    flows: LabelledFlows, recipe: Recipe, protocol: SplitProtocol, seed: int, times: int
) -> tuple[LeftOutKind, ...]:
    """Train the network without each kind of the other classes, and judge the kind's flows.

    The networks keep the input bits and the shape. Kinds of fewer flows than block a host are left
    out, as they cannot tell anything.

    Args:
        flows: the network, and labelled flows whose table has a category.
        recipe: how the network was trained.
        protocol: how the remaining rows are split.
        seed: seed of the split and of the training.
        times: how many flows of the positive class block a host.

    Raises:
        UsageError: the flows have fewer than two kinds, or the network has no class to detect.
    """
    table, positive = flows.table, flows.positive
    if positive is None or table.category is None:
        raise UsageError(
            "left-out kinds need one class to detect, and flows of known kinds: give the table of "
            "hosts a column kind, and train with --positive"
        )
    ordered = replace(table, label=flows.label, classes=flows.model.classes)
    other = flows.label != positive
    names = sorted({*table.category[other].tolist()})
    if len(names) < 2:
        raise UsageError(
            f"left-out kinds need two kinds or more that are not {flows.model.classes[positive]}, "
            f"got {', '.join(names) or 'none'}: give the table of hosts a column kind"
        )
    kinds = []
    for name in names:
        of = other & (table.category == name)
        rest = Experiment(
            ordered.rows(~of), recipe, protocol, seed, positive=positive,
            with_baselines=False, keeps=flows.model,
        )  # fmt: skip
        margins = _margins_by_flow(train(rest).model, ordered.rows(of), positive)
        if len(margins) >= times:
            called = int((margins > _NEVER).sum())
            kinds.append(LeftOutKind(name, len(margins), called, int(margins[times - 1])))
    return tuple(sorted(kinds, key=lambda kind: -kind.blocked_to))


def threshold_for_kinds(kinds: Sequence[LeftOutKind], share: float, confidence: float) -> int:
    """Return the lowest threshold that blocks few enough kinds.

    With a probability of at least ``confidence``, the share of kinds that are blocked is at most
    ``share``, if further kinds are drawn like these. Thresholds are tested in decreasing order, so
    the bound is exact (:mod:`n3ic.studies.shunt.guarantee`).

    Raises:
        UsageError: the kinds are too few to show it, even if none is blocked.
    """
    if not kinds or at_least(len(kinds), len(kinds), confidence) < 1 - share:
        most = percent(1 - float(at_least(len(kinds), len(kinds), confidence)) if kinds else 1.0)
        raise UsageError(
            f"{len(kinds)} left-out kinds of which none is blocked show that at most {most} of "
            f"kinds are, with {percent(confidence)} confidence, not {percent(share)}: record more "
            "kinds, or ask for less"
        )
    chosen = 0
    for threshold in sorted({0, *(kind.blocked_to + 1 for kind in kinds)}, reverse=True):
        spared = sum(kind.blocked_to < threshold for kind in kinds)
        if at_least(spared, len(kinds), confidence) < 1 - share:
            break
        chosen = threshold
    return chosen


def _margins_by_flow(model: Classifier, table: FlowTable, positive: int) -> NDArray[np.int64]:
    """The largest margin of each flow's decisions for a class; -1 without one; in falling order."""
    inference = predict(model, model.encode({n: table.features[n] for n in model.input.features}))
    called = np.where(inference.classes == positive, inference.margins, _NEVER)
    flow = np.arange(len(table)) if table.flow is None else table.flow
    _, of_row = np.unique(flow, return_inverse=True)
    largest = np.full(of_row.max(initial=-1) + 1, _NEVER, dtype=np.int64)
    np.maximum.at(largest, of_row, called)
    return np.sort(largest)[::-1]
