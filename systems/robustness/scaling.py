# SPDX-License-Identifier: Apache-2.0
"""Flows as another site would see them: times multiplied by a factor, rates divided by it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.model.inputs import UINT32_MAX

EPOCH_S = 920_000_000
"""Seconds from 1970 to 1999; a column of whole seconds from here on holds dates, not durations."""
_TIME = re.compile(r"(\d+(/\d+)? ?)?(ns|us|ms|s|min)")
_RATE = re.compile(r"\S.*/ ?(\d+ )?s")
_MIXED = ("mixed", "octave")  # sums of several units, and logarithms: their parts are unknown


def power_of(unit: str) -> int:
    """The power with which a unit scales with time: 1 for times, -1 for rates, otherwise 0."""
    return 1 if _TIME.fullmatch(unit) else -1 if _RATE.fullmatch(unit) else 0


def powers(table: FlowTable, names: tuple[str, ...]) -> dict[str, int]:
    """The powers of the columns that scale, by name; dates do not scale."""
    out = {}
    for name in names:
        values, unit = table.features[name], table.feature(name).unit
        of_day = unit == "s" and len(values) > 0 and int(values.min()) >= EPOCH_S
        if (power := power_of(unit)) and not of_day:
            out[name] = power
    return out


def mixed(table: FlowTable, names: tuple[str, ...]) -> list[str]:
    """Columns computed from times or rates in a way that their unit does not show."""
    return [n for n in names if any(word in table.feature(n).unit for word in _MIXED)]


def scaled(
    columns: Mapping[str, NDArray[np.int64]], factor: float, power: Mapping[str, int]
) -> dict[str, NDArray[np.int64]]:
    """Columns with every time multiplied by a factor, and every rate divided by it.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature.
        factor: above 0.
        power: the power of each column that scales, see :func:`powers`; others are unchanged.

    Returns:
        The columns, rounded to nearest and clipped to ``0..2^32 - 1``. A positive value stays at
        least 1, as in :func:`n3ic.model.inputs.to_integer`.
    """
    out = dict(columns)
    for name, exponent in power.items():
        values = columns[name]
        grown = np.clip(np.rint(values * float(factor) ** exponent), 0, UINT32_MAX)
        out[name] = np.where((values > 0) & (grown == 0), 1.0, grown).astype(np.int64)
    return out
