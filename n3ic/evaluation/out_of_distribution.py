# SPDX-License-Identifier: Apache-2.0
"""Whether the traffic that a model classifies resembles the rows that it was trained on.

Two tests decide. The first counts the flows that have a feature outside the range of the training
rows, which holds all but one in 1,000 of them. The second measures how far the rates of the input
bits have moved (:mod:`n3ic.evaluation.drift`) from the closest mixture of the training classes. A
mixture, because attacks are rarer in a network than in a training table; that alone does not make
the traffic different.

The second test needs many flows. With few, a third test takes its place: is a bit set more often
than in any class of the training rows, and therefore than in any mixture of them, or more rarely?
Its bound holds for any number of flows. It recognises a small capture whose flows are all alike.

A test reports different traffic only if the difference is large, and larger than chance explains:
flows drawn like the training rows, in any mixture, exceed the bound in at most 1 of 100 samples.
Flows of a real network are not independent, so they carry less information than their number
suggests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.data.flows import Columns
from n3ic.evaluation.drift import LARGE, Drift, drift
from n3ic.evaluation.plugin import WARNING, EvaluationPlugin, TrafficMonitor
from n3ic.evaluation.training_distribution import OUTSIDE, Axis, alarm_of, axes, spans
from n3ic.evaluation.unit_change import ScaleHistogram
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import RATE_UNIT, InputSpec

MANY_OUTSIDE = 0.05
"""The share of flows outside the range that counts as large."""
FEWEST = 200
"""The fewest flows whose bit rates are compared; fewer are too noisy."""
STEPS = 200
"""Steps of the search for a mixture."""
_LOOKED_AT = 4096  # flows per batch: enough for rates, and cheap compared with the prediction
_SHOWN = 3

Traffic = Literal["same", "another", "unknown"]


@dataclass(frozen=True)
class OodReport:
    """How the examined flows compare with the training rows.

    Attributes:
        traffic: ``another`` if a test found a difference, ``same`` if none did, ``unknown`` if
            there are too few flows.
        rows: number of flows that were examined.
        outside: share of them outside the range of the training rows; None if unknown.
        expected: upper bound on that share for flows like the training rows.
        outside_bound: the share from which on it is large and not explained by chance.
        mixture: share of each training class in the mixture that comes closest to the flows.
        drift: drift of each feature from that mixture, the largest first; the bounds hold for
            all features together.
        unlike: for few flows, the features with a bit whose rate no mixture of the classes
            explains.
    """

    traffic: Traffic
    rows: int
    outside: float | None
    expected: float
    outside_bound: float
    mixture: tuple[float, ...]
    drift: tuple[Drift, ...]
    unlike: tuple[str, ...] = ()

    @property
    def moved(self) -> tuple[Drift, ...]:
        """Features whose bits have moved far, and farther than by chance."""
        return tuple(d for d in self.drift if d.level == "large") if self.rows >= FEWEST else ()

    def lines(self) -> list[str]:
        """One line if the traffic differs or the flows are too few to tell; otherwise empty."""
        if self.traffic == "unknown" and self.rows:
            return [
                f"note: too few flows ({self.rows}) to say whether this is the traffic of the "
                f"training; from {FEWEST} on it is known"
            ]
        if self.traffic != "another":
            return []
        reasons = []
        if self.outside is not None and self.outside >= self.outside_bound:
            reasons.append(
                f"{self.outside:.1%} of {self.rows:,} flows are outside of the range of the "
                f"training rows ({self.outside_bound:.1%} are many)"
            )
        if self.moved:
            worst = ", ".join(f"{d.feature} {d.psi:.2f}" for d in self.moved[:_SHOWN])
            bound = max(d.bound for d in self.moved)
            reasons.append(
                f"{len(self.moved)} of {len(self.drift)} features have moved (PSI {worst}; "
                f"{max(LARGE, bound):.2f} is a change)"
            )
        if self.unlike:
            reasons.append(
                f"{len(self.unlike)} of {len(self.drift)} features of {self.rows:,} flows are "
                f"unlike those of any class ({', '.join(self.unlike[:_SHOWN])})"
            )
        return [
            f"{WARNING}this is not the traffic of the training: {'; '.join(reasons)}: check "
            "verdicts on labelled flows of this network before you act on them"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def ood_report(
    spec: InputSpec, counts: ArrayLike, rows: int, outside: int | None = None
) -> OodReport | None:
    """Compare flows with the training rows.

    Args:
        spec: the input stage of a trained model.
        counts: the number of flows that set each input bit, integers of shape ``(n_bits,)``.
        rows: number of flows.
        outside: how many of them are outside the range, see :func:`outside_of`; None if only
            the counts are known.

    Returns:
        The comparison, or None if the model carries no rates of its training rows.
    """
    known = list(axes(spec))
    if not known:
        return None
    ranges = sum(span is not None for span in spans(spec))
    alarm = alarm_of(known)
    bound = max(MANY_OUTSIDE, share_bound(ranges * OUTSIDE, rows, alarm))
    live = np.asarray(counts, dtype=np.float64) / max(rows, 1)
    weights = mixture(known, live)
    moved = drift(_mixed(spec, weights), counts, rows, NormalDist().inv_cdf(1 - alarm))
    share = None if outside is None or not ranges else outside / max(rows, 1)
    report = OodReport("same", rows, share, ranges * OUTSIDE, bound, weights, tuple(moved))
    if rows < FEWEST:
        report = replace(report, unlike=_unlike(spec, known, live, rows, alarm))
    if report.moved or report.unlike or (rows and share is not None and share >= bound):
        return replace(report, traffic="another")
    return report if rows >= FEWEST else replace(report, traffic="unknown")


def _unlike(
    spec: InputSpec, known: Sequence[Axis], live: NDArray[np.float64], rows: int, alarm: float
) -> tuple[str, ...]:
    """Features with a bit set more often than in every class, or more rarely, beyond chance."""
    features = len({axis.feature for axis in known})
    chance = alarm * features / (2 * sum(len(axis.bits) for axis in known))
    unlike = dict.fromkeys(
        spec.features[axis.feature]
        for axis in known
        for bit, *rates in zip(axis.bits, *axis.rates, strict=True)
        if live[bit] >= share_bound(max(rates) / RATE_UNIT, rows, chance)
        or 1 - live[bit] >= share_bound(1 - min(rates) / RATE_UNIT, rows, chance)
    )
    return tuple(unlike)


def mixture(known: Sequence[Axis], live: NDArray[np.float64]) -> tuple[float, ...]:
    """Find the mixture of the training classes that comes closest to the rates of some flows.

    Expectation maximisation of the likelihood of the intervals, as if the axes were independent
    (Dempster, Laird and Rubin 1977). The components are known, so only their weights are fitted.

    Args:
        known: axes of the input.
        live: share of the flows that set each input bit, float64 of shape ``(n_bits,)``.

    Returns:
        The share of each class; the shares add up to 1.
    """
    of, live_cells = [], []
    for axis in known:
        trained = np.array(axis.rates, dtype=np.float64) / RATE_UNIT
        of.append(np.maximum(_intervals(trained), 0.5 / RATE_UNIT))
        live_cells.append(np.maximum(_intervals(live[list(axis.bits)][None, :])[0], 0.0))
    cells, flows = np.concatenate(of, axis=1), np.concatenate(live_cells)
    weights = np.full(len(cells), 1 / len(cells))
    for _ in range(STEPS if len(cells) > 1 else 0):
        weights = weights * (cells @ (flows / (weights @ cells)))
        weights = weights / max(float(weights.sum()), 1e-300)
    return tuple(weights.tolist())


def _intervals(above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn the shares at or above each of some rising cuts into shares between the cuts."""
    ends = np.ones((len(above), 1))
    return -np.diff(np.concatenate([ends, above, 0 * ends], axis=1), axis=1)


def _mixed(spec: InputSpec, weights: Sequence[float]) -> InputSpec:
    """A copy of the spec whose rates are those of a mixture of its classes."""
    fields = []
    for field in spec.fields:
        if len(field.class_rates) == len(weights):
            rates = np.rint(np.array(weights) @ np.array(field.class_rates)).astype(int)
            field = replace(field, rates=tuple(rates.tolist()))
        fields.append(field)
    return InputSpec(tuple(fields))


def share_bound(share: float, rows: int, alarm: float) -> float:
    """The share ``q`` of rows that chance reaches with at most a given probability.

    Chernoff's bound (Hoeffding 1963, theorem 1): ``P(S/n >= q) <= exp(-n KL(q | p))``.

    Args:
        share: the probability ``p`` of each row, below 1.
        rows: number of rows ``n``.
        alarm: the largest probability of reaching ``q``, above 0.

    Returns:
        The bound. It is above 1, so never reached, if there are so few rows that even all of
        them would be more probable than ``alarm``.
    """
    need = -log(alarm) / max(rows, 1)
    p = max(share, 1 / RATE_UNIT)
    if rows * -log(p) < -log(alarm):
        return 1 + 1 / max(rows, 1)
    low, high = p, 1.0
    while low < (q := (low + high) / 2) < high:
        entropy = q * log(q / p) + (1 - q) * log((1 - q) / (1 - p))
        low, high = (q, high) if entropy < need else (low, q)
    return high


def outside_of(spec: InputSpec, columns: Columns) -> NDArray[np.bool_]:
    """Mark the flows that have a feature outside the range of the training rows.

    Args:
        spec: the input stage of a trained model.
        columns: integers by feature, arrays of shape ``(rows,)``.

    Returns:
        A bool array of shape ``(rows,)``.
    """
    out = np.zeros(len(columns[spec.features[0]]), dtype=np.bool_)
    for name, span in zip(spec.features, spans(spec), strict=True):
        if span is not None:
            out |= (columns[name] < span[0]) | (columns[name] > span[1])
    return out


class OodMonitor:
    """Examines the flows that a model classifies: all of a small batch, every n-th of a large one.

    Args:
        spec: the input stage of the model.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._spec = spec
        self._counts = np.zeros(spec.n_bits, dtype=np.int64)
        self._scales = ScaleHistogram(spec)
        self._rows = self._outside = 0

    def add(self, columns: Columns) -> None:
        """Examine a batch of flows: integers by feature, arrays of shape ``(rows,)``."""
        rows = len(columns[self._spec.features[0]])
        step = max(1, rows // _LOOKED_AT)
        sample = {n: columns[n][::step] for n in self._spec.features}
        bits = self._spec.encode(sample)
        self._counts += bits.sum(axis=0)
        self._scales.add(sample)
        self._outside += int(outside_of(self._spec, sample).sum())
        self._rows += len(bits)

    def report(self) -> OodReport:
        """The comparison of all flows examined so far."""
        report = ood_report(self._spec, self._counts, self._rows, self._outside)
        assert report is not None  # noqa: S101 - without training rows no watch is made
        return report

    def lines(self) -> Sequence[str]:
        """Lines about columns in another unit, traffic that differs, and too few flows to tell."""
        scales = [f"{WARNING}{change}" for change in self._scales.changes()]
        return [*scales[:_SHOWN], *self.report().lines()]

    def to_dict(self) -> Mapping[str, Any]:
        """The figures as plain data for JSON."""
        scales = {change.feature: change.factor for change in self._scales.changes()}
        return {**self.report().to_dict(), "scales": scales}


class OodEvaluation(EvaluationPlugin):
    """Tells, while a model predicts, whether the traffic resembles that of its training."""

    name: ClassVar[str] = "domain"
    summary: ClassVar[str] = "whether the traffic is like the training rows"

    def watch(self, model: Classifier) -> TrafficMonitor | None:
        """A watch, or None if the model carries no rates of its training rows."""
        spec = model.input
        return OodMonitor(spec) if next(axes(spec), None) else None


EVALUATION = OodEvaluation()
