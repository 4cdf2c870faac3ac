# SPDX-License-Identifier: Apache-2.0
"""Early exit: flows that are decided at the first packet of a schedule whose margin suffices.

A data plane does so with a network of a schedule that shunts below a margin: it acts on a flow's
first verdict that is not to shunt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.plugin import EvaluationPlugin
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent
from n3ic.util.plain_data import from_plain

_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)  # quantiles of the margins that become thresholds


@dataclass(frozen=True)
class EarlyExit:
    """Flows that are decided at the first packet whose margin reaches a threshold.

    Attributes:
        margin: the threshold; 0 decides all flows at the first packet of the schedule.
        flows: number of flows.
        accuracy: share that is right. A flow that never reaches the margin counts as at its end.
        early: share of the flows that are decided before their end.
        packets: median packet of the flows that are decided before their end; 0 without one.
    """

    margin: int
    flows: int
    accuracy: float
    early: float
    packets: int


def early_exits(held: HeldOut) -> list[EarlyExit]:
    """Figures of some thresholds between the least and the largest margin.

    Returns:
        An empty list for flows that are decided once.
    """
    table = held.table
    if table.point is None or table.flow is None or not len(held.rows):
        return []
    end = np.iinfo(np.int64).max
    point = np.where(table.point[held.rows] == 0, end, table.point[held.rows])
    order = np.lexsort((point, table.flow[held.rows]))
    flow, point = table.flow[held.rows][order], point[order]
    margin, right = held.found.margins[order].astype(np.int64), held.right[order]
    first = np.flatnonzero(np.diff(flow, prepend=-1))
    last = np.append(first[1:], len(flow)) - 1
    found = []
    for threshold in sorted({0, *(int(np.quantile(margin, share)) for share in _SHARES)}):
        # The last row of a flow is its end, where it is decided in any case.
        sure = margin >= threshold
        sure[last] = True
        places = np.flatnonzero(sure)
        at = places[np.searchsorted(places, first)]
        early = point[at] != end
        found.append(
            EarlyExit(
                threshold,
                len(first),
                float(right[at].mean()),
                float(early.mean()),
                int(np.median(point[at][early])) if early.any() else 0,
            )
        )
    return found


class EarlyExitEvaluation(EvaluationPlugin):
    """Accuracy by the margin that suffices to decide early, in every run of a schedule."""

    def figures(self, held: HeldOut, seed: int) -> Mapping[str, Any]:
        """The thresholds; nothing for flows that are decided once."""
        exits = early_exits(held)
        return {"exits": [asdict(one) for one in exits]} if exits else {}

    def tables(self, figures: Mapping[str, Any]) -> Sequence[TextTable]:
        """One table, a row for each threshold."""
        exits = [from_plain(EarlyExit, one) for one in figures.get("exits", ())]
        rows = tuple(
            (str(e.margin), percent(e.accuracy), percent(e.early), str(e.packets or "-"))
            for e in exits
        )
        title = "decided at the first packet whose margin suffices"
        head = ("margin", "accuracy", "before the end", "at packet (median)")
        return [TextTable(title, head, rows)] if rows else []


EVALUATION = EarlyExitEvaluation()
