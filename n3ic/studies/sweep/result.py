# SPDX-License-Identifier: Apache-2.0
"""Results of a sweep: one point per network, and the Pareto fronts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from n3ic.evaluation.study import StudyResult
from n3ic.runs.pictures.accuracy import SizePoint, pareto_front
from n3ic.runs.report import values_text
from n3ic.studies.sweep.request import SIZES, SweepNetwork
from n3ic.util.display import TextTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COSTS: Mapping[str, str] = {"bytes": "bytes", "sites": "sites e", "latency_ns": "latency e"}
"""Costs of a point and the heads of their columns; ``e`` is for estimated."""


@dataclass(frozen=True)
class SeedFigures:
    """Figures of one training: one network, one seed.

    Attributes:
        shape: neurons of its layers, input bits first.
        sha256: SHA-256 of the model file.
        memory: bytes by part: ``weight_bytes``, ``input_bytes`` (its cuts), ... and
            ``total_bytes``.
        sites: estimated LUT sites; None without an estimate.
        latency_ns: estimated latency in nanoseconds; None without an estimate.
        validation: accuracy on the validation rows.
        test: accuracy on the test rows, on which nothing is chosen.
        beside: bytes and accuracy on the validation rows of the other families tried within the
            same budget, by name; empty without a budget.
    """

    shape: tuple[int, ...]
    sha256: str
    memory: Mapping[str, int]
    sites: float | None
    latency_ns: float | None
    validation: float
    test: float
    beside: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes of all parts."""
        return self.memory.get("total_bytes", 0)


@dataclass(frozen=True, eq=False)
class SweepPoint:
    """A network over several seeds.

    Attributes:
        values: its values on the axes.
        varied: the values that differ among the points, in one line.
        series: those of ``varied`` that are not sizes; they name a curve.
        command: the words of the command that trains it, or None.
        runs: figures of each seed, by task; a single network has the empty name.
    """

    values: Mapping[str, Any]
    varied: str
    series: str
    command: tuple[str, ...] | None
    runs: Mapping[str, tuple[SeedFigures, ...]] = field(repr=False)

    @property
    def shapes(self) -> tuple[str, ...]:
        """Shapes of its networks, each once."""
        every = (f.shape for figures in self.runs.values() for f in figures)
        return tuple(dict.fromkeys("-".join(map(str, shape)) for shape in every))

    @property
    def command_text(self) -> str:
        """The command that trains it, for a shell; empty without one."""
        return shlex.join(self.command) if self.command else ""

    @property
    def validation(self) -> tuple[float, ...]:
        """Accuracy on validation rows, by seed; the median over several networks."""
        return self._by_seed("validation", np.median)

    @property
    def test(self) -> tuple[float, ...]:
        """Accuracy on test rows, by seed; the median over several networks."""
        return self._by_seed("test", np.median)

    @property
    def costs(self) -> dict[str, float]:
        """Means of the known ``COSTS`` over the seeds.

        Bytes and sites of several networks are summed. The slowest of them gives the latency.
        """
        every = [f for figures in self.runs.values() for f in figures]
        of = {"bytes": np.sum, "sites": np.sum, "latency_ns": np.max}
        return {
            name: float(np.mean(self._by_seed(name, of[name])))
            for name in COSTS
            # A cost that one training lacks is left out, because a mean of the others would be too
            # low.
            if all(getattr(f, name) is not None for f in every)
        }

    @property
    def beside(self) -> dict[str, SizePoint]:
        """Other families tried within the same budget, over all seeds; for single networks only."""
        if len(self.runs) != 1:
            return {}
        (runs,) = self.runs.values()
        out = {}
        for name in dict.fromkeys(name for run in runs for name in run.beside):
            sizes, shares = zip(
                *(run.beside[name] for run in runs if name in run.beside), strict=True
            )
            out[name] = SizePoint({"bytes": float(np.mean(sizes))}, shares, name)
        return out

    def _by_seed(self, name: str, of: Any) -> tuple[float, ...]:
        seeds = zip(*self.runs.values(), strict=True)
        return tuple(float(of([getattr(f, name) for f in networks])) for networks in seeds)


@dataclass(frozen=True, repr=False)
class Sweep(StudyResult):
    """Results of a sweep.

    Attributes:
        path: its folder.
        subject: use case, split and data in words.
        points: points from the smallest to the largest.
        source: source of the estimates in words.
        left_out: a line about each network that was not trained.
    """

    path: Path
    subject: str
    points: tuple[SweepPoint, ...]
    source: str
    left_out: tuple[str, ...] = ()

    def sizes(self) -> list[SizePoint]:
        """Return the points for pictures: costs, accuracies on validation rows, numbers."""
        return [
            SizePoint(p.costs, p.validation, p.series, str(i)) for i, p in enumerate(self.points, 1)
        ]

    @property
    def beside(self) -> TextTable | None:
        """Other families tried within each budget of bytes; None without budgets."""
        names = list(dict.fromkeys(name for p in self.points for name in p.beside))
        rows = []
        for i, point in enumerate(self.points, 1):
            families = (point.beside.get(name) for name in names)
            cells = (
                f"{p.size['bytes']:,.0f} B: {spread_text(p.accuracies)}" if p else "-"
                for p in families
            )
            rows.append((str(i), point.varied, *cells))
        title = "Beside them, within the same budgets, on validation rows (%)"
        return TextTable(title, ("", "network", *names), tuple(rows), left=2) if names else None

    @cached_property
    def fronts(self) -> Mapping[str, tuple[SweepPoint, ...]]:
        """The Pareto front against each known cost, by mean accuracy on validation rows.

        No other point is as accurate at less cost, or more accurate at the same.
        """
        out = {}
        for cost in COSTS:
            known = [size for size in self.sizes() if cost in size.size]
            out[cost] = tuple(self.points[int(p.label) - 1] for p in pareto_front(known, cost))
        return out

    @cached_property
    def chosen(self) -> tuple[SweepPoint, ...]:
        """Points on some front, whose figures on test rows are reported."""
        return tuple(p for p in self.points if any(p in front for front in self.fronts.values()))

    def cells(self, point: SweepPoint) -> tuple[str, ...]:
        """Format a point: costs, with a star if it is on their front, and both accuracies."""
        costs = []
        for cost in COSTS:
            value = point.costs.get(cost)
            star = "*" * (point in self.fronts[cost])
            costs.append("-" if value is None else f"{value:,.0f}{star or ' '}")
        # Points were chosen on validation rows; showing test rows of all would invite choosing by
        # them.
        test = spread_text(point.test) if point in self.chosen else "-"
        return (*costs, spread_text(point.validation), test)

    @property
    def title(self) -> str:
        """Use case, split and data, and numbers of networks."""
        return f"{self.subject}, {len(self.points)} networks, {len(self.chosen)} on fronts"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """A row per point, and other families within the same budgets."""
        rows = [(str(i), p.varied, *self.cells(p)) for i, p in enumerate(self.points, 1)]
        head = ("", "network", *COSTS.values(), "validation %", "test %")
        points = TextTable(self.subject, head, tuple(rows), left=2)
        return (points, self.beside) if self.beside else (points,)

    @property
    def commands(self) -> dict[str, str]:
        """The command that trains each point, by its number."""
        return {str(i): p.command_text for i, p in enumerate(self.points, 1) if p.command}

    @property
    def conclusions(self) -> tuple[str, ...]:
        """The meaning of the table's signs, and what was left out."""
        legend = (
            "* on the Pareto front of the accuracy on validation rows against this cost. Test "
            "rows, on which nothing is chosen, are shown for these only. Bytes count all parts, "
            f"cuts included. LUT sites and latency in ns are estimated (e): {self.source}."
        )
        return (legend, *self.left_out)

    def figure(self) -> Figure:
        """Accuracy on validation rows against each known cost."""
        from n3ic.studies.sweep.picture import front_figure

        other_families = [p for point in self.points for p in point.beside.values()]
        costs = [cost for cost, front in self.fronts.items() if front]
        return front_figure(self.subject, costs, self.sizes(), other_families)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; figures on test rows only for points on fronts."""
        return {
            "title": self.subject,
            "estimates": self.source,
            "left_out": list(self.left_out),
            "points": [self._plain(p) for p in self.points],
        }

    def _plain(self, point: SweepPoint) -> dict[str, Any]:
        chosen = point in self.chosen
        return {
            "values": dict(point.values),
            "command": point.command and list(point.command),
            "shapes": list(point.shapes),
            **{cost: point.costs.get(cost) for cost in COSTS},
            "validation": _spread(point.validation),
            "beside": {
                name: {"bytes": p.size["bytes"], "validation": _spread(p.accuracies)}
                for name, p in point.beside.items()
            },
            "test": _spread(point.test) if chosen else None,
            "front": [cost for cost, front in self.fronts.items() if point in front],
            "models": {task: [f.sha256 for f in runs] for task, runs in point.runs.items()},
        }

    def records(self) -> list[dict[str, object]]:
        """A line per point, for a spreadsheet."""
        return [self._record(point, self._plain(point)) for point in self.points]

    @staticmethod
    def _record(point: SweepPoint, plain: Mapping[str, Any]) -> dict[str, object]:
        return {
            "network": point.varied,
            "shapes": " ".join(point.shapes),
            **{cost: plain[cost] for cost in COSTS},
            "front": " ".join(plain["front"]),
            "seeds": len(point.validation),
            **{
                f"{rows}_{statistic}": (plain[rows] or {}).get(statistic)
                for rows in ("validation", "test")
                for statistic in ("mean", "std")
            },
            "command": point.command_text,
        }


def spread_text(shares: Sequence[float]) -> str:
    """Format the mean and, for several seeds, the deviation in per cent."""
    spread = _spread(shares)
    return f"{100 * spread['mean']:.2f}" + f" +- {100 * spread['std']:.2f}" * (len(shares) > 1)


def _spread(shares: Sequence[float]) -> dict[str, Any]:
    # ddof 1: the seeds are a sample of all possible seeds.
    deviation = float(np.std(shares, ddof=1)) if len(shares) > 1 else 0.0
    return {"mean": float(np.mean(shares)), "std": deviation, "values": list(shares)}


def points_of(
    trained: Sequence[tuple[SweepNetwork, Mapping[str, tuple[SeedFigures, ...]]]],
) -> tuple[SweepPoint, ...]:
    """Make points in the order of their bytes.

    Args:
        trained: networks, and figures of their trainings by task.
    """
    first = trained[0][0].values
    differ = [n for n in first if any(network.values[n] != first[n] for network, _ in trained)]
    points = []
    for network, runs in trained:
        varied = values_text({n: network.values[n] for n in differ or first}) or "as asked"
        series = values_text({n: network.values[n] for n in differ if n not in SIZES})
        points.append(SweepPoint(network.values, varied, series, network.command, runs))
    return tuple(sorted(points, key=lambda p: p.costs["bytes"]))
