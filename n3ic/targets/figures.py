# SPDX-License-Identifier: Apache-2.0
"""The figures of a target: each measured, simulated or estimated, with its source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from n3ic.util.display import Displayed, TextTable, View

FigureKind = Literal["measured", "simulated", "estimated"]
KINDS: tuple[FigureKind, ...] = ("measured", "simulated", "estimated")  # the most certain first
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6}


@dataclass(frozen=True)
class Figure:
    """A number of a report.

    Attributes:
        name: name in dotted lower case: ``memory.weights``, ``latency``, ``throughput``.
        value: the number.
        unit: its unit: ``byte``, ``ns``, ``inference/s``, ``LUT``.
        kind: whether it was measured, simulated or estimated.
        source: its source: a tool and its version, a formula and its inputs, a count.
        paper: the paper's figure, if it has one.
    """

    name: str
    value: float
    unit: str
    kind: FigureKind
    source: str
    paper: float | None = None


@dataclass(frozen=True, repr=False)
class Report(Displayed):
    """A target's figures for one model, with remarks that a reader needs."""

    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()

    def view(self) -> View:
        """The title and the tables that are displayed."""
        kinds = Counter(f.kind for f in self.figures)
        counts_text = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
        return View(f"{len(self.figures)} figures: {counts_text}", (self.table,), self.notes)

    @property
    def table(self) -> TextTable:
        """The figures as text."""
        rows = tuple(
            (
                f.name,
                f.source,
                f.unit,
                f.kind,
                f"{f.value:,.6g}",
                "" if f.paper is None else f"{f.paper:,.6g}",
            )
            for f in self.figures
        )
        return TextTable("figures", ("figure", "source", "unit", "kind", "value", "paper"), rows, 4)


@dataclass(frozen=True)
class Bench:
    """Results of a benchmark.

    Attributes:
        tables: title, column names and rows of text of each table.
        notes: remarks that a reader needs.
        data: the same as plain data for JSON.
    """

    tables: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]], ...]
    notes: tuple[str, ...]
    data: Mapping[str, Any]
