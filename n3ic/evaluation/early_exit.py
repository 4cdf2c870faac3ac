# SPDX-License-Identifier: Apache-2.0
"""Early exit: each flow is decided at the first packet of a schedule whose margin suffices.

A data plane does the same if its network has a schedule and shunts below a margin: it acts on a
flow's first verdict other than "shunt".
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
    """Figures of one threshold: flows are decided at the first packet whose margin reaches it.

    Attributes:
        margin: the threshold; 0 decides all flows at the first packet of the schedule.
        flows: number of flows.
        accuracy: share decided correctly. A flow that never reaches the margin counts with the
            verdict at its end.
        early: share of the flows that are decided before their end.
        packets: median packet of the flows that are decided before their end; 0 if there is none.
    """

    margin: int
    flows: int
    accuracy: float
    early: float
    packets: int


def early_exits(sample: HeldOut) -> list[EarlyExit]:
    """Evaluate thresholds at 0 and at quantiles of the margins.

    Returns:
        One entry per threshold, in increasing order; none for flows that are decided only once.
    """
    table = sample.table
    if table.point is None or table.flow is None or not len(sample.rows):
        return []
    end = np.iinfo(np.int64).max
    point = np.where(table.point[sample.rows] == 0, end, table.point[sample.rows])
    order = np.lexsort((point, table.flow[sample.rows]))
    flow, point = table.flow[sample.rows][order], point[order]
    margin, right = sample.inference.margins[order].astype(np.int64), sample.right[order]
    first = np.flatnonzero(np.diff(flow, prepend=-1))
    last = np.append(first[1:], len(flow)) - 1
    exits = []
    for threshold in sorted({0, *(int(np.quantile(margin, share)) for share in _SHARES)}):
        # The last row of a flow is its end, where it is always decided.
        sure = margin >= threshold
        sure[last] = True
        places = np.flatnonzero(sure)
        at = places[np.searchsorted(places, first)]
        early = point[at] != end
        exits.append(
            EarlyExit(
                threshold,
                len(first),
                float(right[at].mean()),
                float(early.mean()),
                int(np.median(point[at][early])) if early.any() else 0,
            )
        )
    return exits


class EarlyExitEvaluation(EvaluationPlugin):
    """Accuracy by the margin required to decide early, in every run with a schedule."""

    def figures(self, sample: HeldOut, seed: int) -> Mapping[str, Any]:
        """Return the thresholds; empty for flows that are decided only once."""
        exits = early_exits(sample)
        return {"exits": [asdict(early_exit) for early_exit in exits]} if exits else {}

    def tables(self, figures: Mapping[str, Any]) -> Sequence[TextTable]:
        """Return one table with a row for each threshold."""
        exits = [from_plain(EarlyExit, record) for record in figures.get("exits", ())]
        rows = tuple(
            (str(e.margin), percent(e.accuracy), percent(e.early), str(e.packets or "-"))
            for e in exits
        )
        title = "decided at the first packet whose margin suffices"
        head = ("margin", "accuracy", "before the end", "at packet (median)")
        return [TextTable(title, head, rows)] if rows else []


EVALUATION = EarlyExitEvaluation()
