# SPDX-License-Identifier: Apache-2.0
"""Rounds the real entries of look-up tables to the integers of least loss.

A real entry is a step times an integer. Rounding to the nearest integer costs accuracy. So table by
table, until nothing changes, each entry then takes the integer of least loss given all other
entries, if that gains enough. The step itself and the biases are fitted in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.boosting import RealTable
from n3ic.families.tables.loss import Floats, WeightedRows

_QUANTILE = 0.97  # this quantile of the entries' sizes becomes the largest integer; few are clipped
_LEAST_GAIN = 0.3  # least gain for which an entry leaves its integer: less is chance
SWEEPS = 3
"""Most sweeps over all tables."""
_SCALES = (0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1)


@dataclass(frozen=True, eq=False)
class Rounded:
    """Integers for grown tables.

    Attributes:
        entries: int8 array of shape ``(2 ** d, sums)`` of each table.
        bias: int64 array of shape ``(sums,)``.
        step: what an integer of 1 stands for, in log-odds.
        loss: the loss of the rows.
    """

    entries: tuple[NDArray[np.int8], ...]
    bias: NDArray[np.int64]
    step: float
    loss: float


def rounded(
    rows: WeightedRows,
    tables: Sequence[RealTable],
    bias: Floats,
    widths: Sequence[int],
    sweeps: int = SWEEPS,
    done: Callable[[], object] = lambda: None,
) -> Rounded:
    """Round tables to entries of some bits.

    Args:
        rows: the rows that they grew on.
        tables: the tables.
        bias: bias of each sum, float64 array of shape ``(sums,)``.
        widths: bits of an entry of each table, two's complement.
        sweeps: most sweeps over all tables.
        done: called whenever a table's entries were chosen again.
    """
    values = [np.arange(-(1 << (w - 1)), 1 << (w - 1), dtype=np.float64) for w in widths]
    # A table's entries may be moved by any constant, which the bias takes back: the middle of
    # their range goes to the middle of the integers'.
    # Sums that a table does not add to keep entries of 0.
    middle = [t.held * (t.entries.max(axis=0) + t.entries.min(axis=0)) / 2 for t in tables]
    real = [t.entries - m for t, m in zip(tables, middle, strict=True)]
    halves = [len(v) / 2 for v in values]
    sizes = [
        np.abs(e[:, t.held]).ravel() / half for e, t, half in zip(real, tables, halves, strict=True)
    ]
    step = max(float(np.quantile(np.concatenate(sizes), _QUANTILE)), 1e-6)
    entries = [
        t.held * np.clip(np.rint(e / step - 0.5), v[0], v[-1])
        for e, t, v in zip(real, tables, values, strict=True)
    ]
    offset = bias + np.sum(middle, axis=0) + 0.5 * step * np.sum([t.held for t in tables], axis=0)
    total = offset + step * _sum(entries, tables)
    for _ in range(sweeps):
        changed = 0
        for table, own, allowed in zip(tables, entries, values, strict=True):
            for column in np.flatnonzero(table.held).tolist():
                total[:, column] -= step * own[table.cells, column]
                losses = rows.column_losses(total, column, step * allowed, table.cells, len(own))
                now = (own[:, column] - allowed[0]).astype(np.int64)
                losses[now, np.arange(len(own))] -= _LEAST_GAIN
                best = allowed[losses.argmin(axis=0)]
                changed += int((best != own[:, column]).sum())
                own[:, column] = best
                total[:, column] += step * own[table.cells, column]
            done()
        step, offset, total = _fitted(rows, (total - offset) / step, step, offset)
        if not changed:
            break
    whole = np.rint(offset / step)
    loss = rows.loss(step * (whole + (total - offset) / step))
    return Rounded(tuple(e.astype(np.int8) for e in entries), whole.astype(np.int64), step, loss)


def _sum(entries: Sequence[Floats], tables: Sequence[RealTable]) -> Floats:
    return np.asarray(sum(e[t.cells] for e, t in zip(entries, tables, strict=True)))


def _fitted(
    rows: WeightedRows, integers: Floats, step: float, offset: Floats
) -> tuple[float, Floats, Floats]:
    """Fit the biases by Newton steps, then the step by trial."""
    total = offset + step * integers
    for _ in range(3):
        slopes, curves = rows.gradients(total)
        moved = np.clip(-slopes.sum(axis=0) / (curves.sum(axis=0) + 1e-9), -1, 1)
        offset, total = offset + moved, total + moved
    losses = [rows.loss(scale * total) for scale in _SCALES]
    scale = _SCALES[int(np.argmin(losses))]
    return step * scale, offset * scale, total * scale
