# SPDX-License-Identifier: Apache-2.0
"""Feature catalogues in TOML: the meaning of columns, and features derived from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.util.markdown import table

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Derived:
    """A feature that is computed from other columns.

    Attributes:
        feature: its catalogue entry.
        needs: names of these columns.
        of: function of the columns' integer arrays, in the order of ``needs``, to the feature.
    """

    feature: Feature
    needs: tuple[str, ...]
    of: Callable[..., Column]

    def column(self, columns: Mapping[str, Column]) -> Column:
        """The feature, within its bits: int64, shape ``(rows,)``."""
        values = self.of(*(columns[name] for name in self.needs))
        within: Column = np.minimum(values, (1 << self.feature.bits) - 1)
        return within


def feature_of(name: str, entry: Mapping[str, Any], sentences: Mapping[str, str]) -> Feature:
    """The feature that an entry of a catalogue describes.

    Args:
        name: name of the column.
        entry: ``meaning``, ``unit``, ``bits`` and ``reason``; optionally ``source_unit`` and
            ``scale`` (the files have another unit), ``nic`` (whether a NIC computes it), ``leak``
            (how it leaks), ``use`` (overrides both), ``tap`` and ``evidence`` (its relation to a
            meter at one tap).
        sentences: texts that ``reason``, ``leak`` and ``evidence`` may refer to by name.
    """
    use = entry.get("use")
    leaks = "leak" in entry and use is not True
    return Feature(
        name=name,
        meaning=entry["meaning"],
        source_unit=entry.get("source_unit", entry["unit"]),
        unit=entry["unit"],
        scale=entry.get("scale", 1),
        bits=entry["bits"],
        nic=entry.get("nic", True) if use is None else use,
        nic_reason=sentences.get(entry["reason"], entry["reason"]),
        leaks=leaks,
        leak_reason=sentences.get(entry.get("leak", ""), entry.get("leak", "")),
        tap=entry.get("tap", ""),
        tap_reason=sentences.get(entry.get("evidence", ""), entry.get("evidence", "")),
        doubt=entry.get("doubt", ""),
    )


def with_derived(columns: Mapping[str, Column], derived: Sequence[Derived]) -> dict[str, Column]:
    """The columns and the derived features that can be computed from them, within their bits."""
    out = dict(columns)
    for entry in derived:
        if all(name in columns for name in entry.needs):
            out[entry.feature.name] = entry.column(columns)
    return out


def feature_table(features: Sequence[Feature]) -> str:
    """The features as a Markdown table for a data card."""

    def unit(f: Feature) -> str:
        if f.scale == 1:
            return f.unit
        return f"{f.unit} ({f.source_unit} x {f.scale:,.10g})"

    known = any(f.tap for f in features)
    head = ["column", "meaning", "integer unit", "bits", "a NIC can", "leaks the set-up"]
    head += ["at one tap"] if known else []
    rows = [
        [
            f"`{f.name}`",
            f.meaning,
            unit(f),
            str(f.bits),
            f"{'yes' if f.nic else 'no'}: {f.nic_reason}",
            f"yes: {f.leak_reason}" if f.leaks else "no",
            *([f"{f.tap}: {f.tap_reason}"] if known else []),
        ]
        for f in features
    ]
    return "\n".join(table(head, rows, "l"))
