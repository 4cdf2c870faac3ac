# SPDX-License-Identifier: Apache-2.0
"""How many flows per day a table holds, computed from its times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.data.table_meter import meter_of
from n3ic.data.time_scale import EPOCH_S
from n3ic.meter.table import read_table

DAY_S = 86_400
_METERED = "first_us"  # when a metered flow began


def flows_a_day(table: FlowTable, source: Path | None = None) -> float | None:
    """Compute the flows per day from the span of the times at which flows begin.

    Args:
        table: the flows; the first column in whole seconds since 1970 gives their times.
        source: the file of the table; a metered table has the time of each flow beside its
            features.

    Returns:
        Flows per day, or None if the table has no times, or all times are the same.
    """
    if source is not None and source.is_file() and meter_of(source) is not None:
        times = read_table(source).column(_METERED).to_numpy() / 1e6
        return _rate(np.asarray(times, dtype=np.float64))
    for feature in table.catalogue:
        values = table.features[feature.name]
        if feature.unit == "s" and len(values) and values.min() >= EPOCH_S:
            return _rate(values.astype(np.float64))
    return None


def _rate(seconds: NDArray[np.float64]) -> float | None:
    span = float(seconds.max() - seconds.min()) if len(seconds) else 0.0
    return len(seconds) / span * DAY_S if span else None
