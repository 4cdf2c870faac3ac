# SPDX-License-Identifier: Apache-2.0
"""Precision and false alarms per day where attacks are as rare as the user says.

Test rows hold far more attacks than a network does. By Bayes' rule the precision at a share ``p``
of attacks is ``p tpr / (p tpr + (1 - p) fpr)``. The two rates are counted on disjoint rows, so
their exact intervals at ``sqrt(level)`` span a rectangle that holds both with a probability of at
least ``level`` (:meth:`n3ic.evaluation.roc.RocCurve.band`). The precision is lowest and highest at
two of its corners. The intervals assume independent rows; duplicate rows, or many rows of one
attack, carry less information than their number suggests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import split
from n3ic.errors import UsageError
from n3ic.evaluation.false_alarms import with_false_alarms
from n3ic.evaluation.flow_rate import flows_a_day
from n3ic.evaluation.held_out import HeldOut, known_split, labels_of
from n3ic.evaluation.interval import LEVEL, share_interval
from n3ic.evaluation.plugin import EvaluationPlugin
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.options import Option, Options
from n3ic.util.display import TextTable
from n3ic.util.files import free_path
from n3ic.util.markdown import percent
from n3ic.util.plain_data import from_plain

SHARES = (0.1, 0.01, 0.001)
"""The shares of attacks at which every run reports the precision."""
OWN = "own threshold"


@dataclass(frozen=True)
class BaseRate:
    """A classifier's figures at one share of positive flows.

    Attributes:
        threshold: which threshold was used, in words.
        prevalence: share of the flows that are positive, between 0 and 1.
        recall: share of the positive rows that are called positive (TPR).
        false_alarm_rate: share of the other rows that are called positive (FPR).
        precision: share of the flows called positive that are positive; None if no flow is
            called positive.
        precision_low: lower end of the interval of ``precision``.
        precision_high: upper end of that interval.
        false_alarms: false alarms per day; None if the number of flows per day is unknown.
        false_alarms_low: lower end of its interval, which comes from the false-alarm rate alone.
        false_alarms_high: upper end of that interval.
    """

    threshold: str
    prevalence: float
    recall: float
    false_alarm_rate: float
    precision: float | None
    precision_low: float
    precision_high: float
    false_alarms: float | None = None
    false_alarms_low: float | None = None
    false_alarms_high: float | None = None


@dataclass(frozen=True)
class BaseRateFigures:
    """The figures of a model on some rows.

    Attributes:
        positive: name of the class to detect.
        rows: number of rows.
        level: coverage probability of the intervals.
        flows_per_day: flows per day; None if unknown.
        rates: one entry for each threshold and prevalence.
    """

    positive: str
    rows: int
    level: float
    flows_per_day: float | None
    rates: tuple[BaseRate, ...]


def base_rate(
    confusion: tuple[int, int, int, int],
    prevalence: float,
    per_day: float | None = None,
    *,
    threshold: str = OWN,
    level: float = LEVEL,
) -> BaseRate:
    """Compute precision and false alarms at a share of positive flows.

    Args:
        confusion: numbers of true positives, positives, false positives and negatives; there is
            at least one positive and one negative row.
        prevalence: share of the flows that are positive, between 0 and 1.
        per_day: flows per day; None if unknown.
        threshold: which threshold was used, in words.
        level: coverage probability of the intervals.
    """
    hits, positives, alarms, negatives = confusion
    tpr, fpr = hits / positives, alarms / negatives
    each = float(np.sqrt(level))
    tpr_low, tpr_high = map(float, share_interval(hits, positives, each))
    fpr_low, fpr_high = map(float, share_interval(alarms, negatives, each))
    daily: list[float | None] = [None] * 3
    if per_day is not None:
        ends = share_interval(alarms, negatives, level)
        daily = [float(rate) * (1 - prevalence) * per_day for rate in (fpr, *ends)]
    return BaseRate(
        threshold,
        prevalence,
        tpr,
        fpr,
        _precision(prevalence, tpr, fpr),
        _precision(prevalence, tpr_low, fpr_high) or 0.0,
        1.0 if (high := _precision(prevalence, tpr_high, fpr_low)) is None else high,
        *daily,
    )


def _precision(prevalence: float, tpr: float, fpr: float) -> float | None:
    flagged = prevalence * tpr + (1 - prevalence) * fpr
    return prevalence * tpr / flagged if flagged else None


def confusion_counts(
    label: NDArray[np.int64], predicted: NDArray[np.integer[Any]], positive: int
) -> tuple[int, int, int, int]:
    """Count true positives, positives, false positives and negatives.

    Args:
        label: true class of each row, shape ``(rows,)``.
        predicted: predicted class of each row, shape ``(rows,)``.
        positive: index of the class to detect.
    """
    true, flagged = label == positive, predicted == positive
    counts = (true & flagged, true, ~true & flagged, ~true)
    return tuple(int(np.count_nonzero(c)) for c in counts)  # type: ignore[return-value]


def at_false_alarms(sample: HeldOut, share: float) -> Classifier:
    """Change the bias of the positive class so that the model keeps a false-alarm rate.

    Args:
        sample: the model and its table; the bias is chosen on the validation rows of its training.
        share: largest share of the other classes' validation flows that may be called positive.

    Raises:
        UsageError: The model is of another family, or was not trained on this table, so that its
            validation rows are unknown. A bias chosen on test rows would make their figures
            optimistic.
    """
    model, table = sample.model, sample.table
    protocol, seed, trained = known_split(model, table)
    if not trained:
        raise UsageError(
            f"--false-alarms: {table.name} is not the table that {model.name} was trained on, "
            "whose validation rows choose the threshold; name that table"
        )
    rows = split(table, protocol, seed).validation
    words = model.encode({n: table.features[n][rows] for n in model.input.features})
    label = labels_of(model, table)[rows]
    scores = predict(model, words).scores
    flow = None if table.flow is None else table.flow[rows]
    return with_false_alarms(model, scores, label, sample.positive, share, flow)


class BaseRates(EvaluationPlugin):
    """Precision and false alarms per day at the share of attacks that the user names."""

    name: ClassVar[str] = "base_rates"
    summary: ClassVar[str] = "precision and false alarms where attacks are rare"
    options: ClassVar[tuple[Option, ...]] = (
        Option("prevalence", "share of the flows that are positive, such as 0.001", 0.0,
               minimum=0.0, maximum=1.0),
        Option("flows-per-day", "flows a day; 0 measures the table's times", 0.0, minimum=0.0),
        Option("false-alarms", "also with the bias that keeps this rate on validation rows", 0.0,
               minimum=0.0, maximum=0.999),
        Option("write-model", "model file to write with that bias", ""),
    )  # fmt: skip

    def figures(self, sample: HeldOut, seed: int) -> Mapping[str, Any]:
        """Compute the precision on the test rows, at each share of :data:`SHARES`."""
        return _figures(sample, {OWN: sample.model}, SHARES, None)

    def requested_figures(
        self, sample: HeldOut, options: Options, source: Path, data: Path | None
    ) -> Mapping[str, Any]:
        """Compute precision and false alarms at the named share, on held-out rows.

        Raises:
            UsageError: The model has no positive class, all rows are of one kind, or the
                validation rows are unknown.
        """
        models: dict[str, Classifier] = {OWN: sample.model}
        out = str(options["write-model"])
        if share := float(options["false-alarms"]):
            changed = at_false_alarms(sample, share)
            models[f"{percent(share, 2)} false alarms"] = changed
            if out:
                free_path(out, False)
                changed.save(out)
        elif out:
            raise UsageError("--write-model: expected beside --false-alarms, whose bias it has")
        shares = [float(options["prevalence"])] if options["prevalence"] else SHARES
        per_day = float(options["flows-per-day"]) or flows_a_day(sample.table, data)
        if figures := _figures(sample, models, shares, per_day):
            return figures
        raise UsageError(
            f"{sample.origin}: a precision needs one class to detect, and rows of it and of "
            "others; for several classes name it at training with --positive"
        )

    def tables(self, figures: Mapping[str, Any]) -> Sequence[TextTable]:
        """A table with a row for each threshold and share."""
        rates = from_plain(BaseRateFigures, figures)
        daily = rates.flows_per_day
        head = ["threshold", "attacks among flows", "precision", "interval", "recall", "FPR"]
        head += ["false alarms a day", "interval"] if daily else []
        rows = []
        for of in rates.rates:
            cells = [of.threshold, f"{100 * of.prevalence:g} %", percent(of.precision)]
            cells += [f"{percent(of.precision_low)} to {percent(of.precision_high)}"]
            cells += [percent(of.recall, 2), percent(of.false_alarm_rate, 3)]
            if daily:
                ends = (of.false_alarms, of.false_alarms_low, of.false_alarms_high)
                alarms, low, high = (f"{end or 0:,.0f}" for end in ends)
                cells += [alarms, f"{low} to {high}"]
            rows.append(tuple(cells))
        flows = f", {daily:,.0f} flows a day" if daily else ""
        title = (
            f"Precision of {rates.positive} where it is rarer than in the {rates.rows:,} rows"
            f"{flows} ({rates.level:.0%} intervals)"
        )
        return (TextTable(title, tuple(head), tuple(rows)),)


def _figures(
    sample: HeldOut,
    models: Mapping[str, Classifier],
    shares: Sequence[float],
    per_day: float | None,
) -> dict[str, Any]:
    """The figures; empty if there is no positive class, or if all rows are of one kind."""
    if sample.positive is None or len(np.unique(sample.label == sample.positive)) < 2:
        return {}
    columns = {n: sample.table.features[n][sample.rows] for n in sample.model.input.features}
    rates = []
    for threshold, model in models.items():
        own = model is sample.model
        inference = sample.inference if own else predict(model, model.encode(columns))
        counts = confusion_counts(sample.label, inference.classes, sample.positive)
        rates += [base_rate(counts, p, per_day, threshold=threshold) for p in shares]
    name = sample.model.classes[sample.positive]
    return asdict(BaseRateFigures(name, len(sample.rows), LEVEL, per_day, tuple(rates)))


EVALUATION = BaseRates()
