# SPDX-License-Identifier: Apache-2.0
"""Flows as a slower or faster site would see them: times multiplied, and rates divided."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

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


def powers(table: FlowTable, names: Sequence[str]) -> dict[str, int]:
    """The powers of the columns that scale, by name; dates do not scale."""
    out = {}
    for name in names:
        values, unit = table.features[name], table.feature(name).unit
        of_day = unit == "s" and len(values) > 0 and int(values.min()) >= EPOCH_S
        if (power := power_of(unit)) and not of_day:
            out[name] = power
    return out


def mixed(table: FlowTable, names: Sequence[str]) -> list[str]:
    """Columns computed from times or rates in a way that their unit does not show."""
    return [n for n in names if any(word in table.feature(n).unit for word in _MIXED)]


def scaled(
    table: FlowTable, names: Sequence[str], factor: float | NDArray[np.float64]
) -> dict[str, NDArray[np.int64]]:
    """Columns with every time multiplied by a factor, and every rate divided by it.

    Args:
        table: the flows.
        names: the columns, of which those that :func:`powers` names scale.
        factor: above 0; one for all rows, or float64 of shape ``(rows,)``.

    Returns:
        int64 array of shape ``(rows,)`` per column, rounded to nearest. A positive value stays at
        least 1, as in :func:`n3ic.model.inputs.to_integer`. Values end at the largest integer of
        the column's width, which itself stays: it stands for all larger and for unknown values.
    """
    out = {name: table.features[name] for name in names}
    for name, exponent in powers(table, names).items():
        values = out[name]
        largest = min((1 << table.feature(name).bits) - 1, UINT32_MAX)
        products = np.clip(np.rint(values * np.power(factor, float(exponent))), values > 0, largest)
        out[name] = np.where(values < largest, products, values).astype(np.int64)
    return out


def with_time_scales(table: FlowTable, most: float, seed: int) -> FlowTable:
    """The rows, and after them a copy of each on a time scale of its own.

    The factor of a copy is drawn between ``1 / most`` and ``most``, uniformly in its logarithm.

    Args:
        table: the rows.
        most: the largest factor, 1 or more.
        seed: seed of the factors.

    Returns:
        The table of twice as many rows; the same table if ``most`` is 1 or no column scales.
    """
    names = [*table.features]
    if most == 1 or not powers(table, names):
        return table
    rng = np.random.default_rng((seed, _FACTORS))
    copies = scaled(table, names, most ** rng.uniform(-1.0, 1.0, len(table)))
    doubled = table.rows(np.tile(np.arange(len(table)), 2))
    return replace(
        doubled, features={n: np.concatenate([table.features[n], copies[n]]) for n in names}
    )


_FACTORS = 1  # keeps the draws of factors apart from others of the same seed
