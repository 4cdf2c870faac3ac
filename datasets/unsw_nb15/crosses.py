# SPDX-License-Identifier: Apache-2.0
"""Crosses of two published columns, each of which saves a small network many cuts of both.

A cut on ``a - b`` is one bit; without it, a network needs neurons that read thermometers of a and
b. The same holds for quotients and products, which are differences and sums of logarithms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.catalogue import Column, Derived
from n3ic.data.table import Feature
from n3ic.model.inputs import UINT32_MAX

OCTAVE = 64
"""Steps of :func:`log_steps` from one power of two to the next."""
_LOG_ZERO = 1 << 13
_LESS_ZERO = 1 << 31
_TAPS = ("payload", "artefact", "not causal", "halved", "approximate", "exact")


@cache
def _powers() -> NDArray[np.int64]:
    """The least integer of each step, at least ``2**(k / 64)``, by exact integer arithmetic."""
    out = []
    for k in range(33 * OCTAVE):
        n = max(1, int(2.0 ** (k / OCTAVE)) - 1)
        while n**OCTAVE < 1 << k:
            n += 1
        out.append(n)
    return np.array(out, dtype=np.int64)


def log_steps(values: Column) -> Column:
    """``64 * log2(value + 1)``, rounded down, the same on every machine.

    A NIC computes it from the position of the leading 1 and a table of the bits after it.

    Args:
        values: int64 array of values from 0 to 2^33 - 2.
    """
    steps: Column = np.searchsorted(_powers(), values + 1, side="right") - 1
    return steps


def crosses(
    entries: Mapping[str, Sequence[Any]], columns: Mapping[str, Feature]
) -> tuple[Derived, ...]:
    """Make the derived features of the crosses that a catalogue lists.

    Args:
        entries: ``log``, a list of ``[a, i, b, j]`` for ``i * log_steps(a) + j * log_steps(b)``;
            ``less`` and ``and``, lists of ``[a, b]`` for ``a - b`` and ``a + b``.
        columns: the columns by name.
    """
    out = []
    for a, i, b, j in entries["log"]:
        name = f"{_power(a, i)}_{'per' if j < 0 else 'times'}_{_power(b, abs(j))}"
        times = f"{_times(i)}the logarithm of {a} {'less' if j < 0 else 'and'} {_times(abs(j))}"
        meaning = f"{times}that of {b}, each of the value plus 1, plus {_LOG_ZERO}"
        out.append(_derived(name, meaning, "1/64 octave", (a, b), columns, partial(_logs, i, j)))
    for a, b in entries["less"]:
        meaning = f"{a} less {b}, plus 2^31"
        out.append(_derived(f"{a}_less_{b}", meaning, "mixed", (a, b), columns, _less))
    for a, b in entries["and"]:
        meaning = f"{a} and {b}, added"
        out.append(_derived(f"{a}_and_{b}", meaning, "mixed", (a, b), columns, _sum))
    return tuple(out)


def _power(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}_{exponent}"


def _times(factor: int) -> str:
    return "" if factor == 1 else f"{factor} times "


def _logs(i: int, j: int, a: Column, b: Column) -> Column:
    return i * log_steps(a) + j * log_steps(b) + _LOG_ZERO


def _less(a: Column, b: Column) -> Column:
    moved: Column = np.clip(a - b + _LESS_ZERO, 0, UINT32_MAX)
    return moved


def _sum(a: Column, b: Column) -> Column:
    total: Column = np.minimum(a + b, UINT32_MAX)
    return total


def _derived(
    name: str,
    meaning: str,
    unit: str,
    needs: tuple[str, str],
    columns: Mapping[str, Feature],
    of: Callable[[Column, Column], Column],
) -> Derived:
    """Make a cross: it has the ``tap`` of its worse column, and leaks if either column leaks."""
    leaky = next((columns[n] for n in needs if columns[n].leaks), None)
    worst = min((columns[n] for n in needs), key=lambda f: _TAPS.index(f.tap))
    feature = Feature(
        name=name,
        meaning=meaning,
        source_unit=unit,
        unit=unit,
        scale=1,
        bits=14 if unit == "1/64 octave" else 32,
        nic=False,
        nic_reason="a cross of published values",
        leaks=leaky is not None,
        leak_reason=leaky.leak_reason if leaky else "",
        tap=worst.tap,
        tap_reason=worst.tap_reason,
    )
    return Derived(feature, needs, of)
