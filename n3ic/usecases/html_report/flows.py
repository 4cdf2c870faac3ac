# SPDX-License-Identifier: Apache-2.0
"""A network's answers on flows whose classes are known, for the report page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.evaluation.calibration import MarginGroup, calibration_table
from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.interval import LEVEL
from n3ic.evaluation.sensitivity import FeatureChange, Flips, feature_changes, flips
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.usecases.html_report.charts import Chart, calibration_chart, importance_chart, roc_chart
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent

_MARGINS = 12  # thresholds in a table
_BITS = 12  # shown for a flow
_FEATURES = 8


@dataclass(frozen=True)
class ExplainedFlow:
    """A flow, its scores, and the features and input bits with the largest effect on them."""

    title: str
    scores: TextTable
    features: TextTable
    bits: TextTable


def confidence(of: HeldOut) -> tuple[tuple[Chart, ...], tuple[TextTable, ...]]:
    """Margins, calibration and importance of a network, as charts and as tables.

    Args:
        of: its answers on at least one row.
    """
    importance, groups = of.importance(), of.calibration()
    tables = importance_table(of, importance), calibration_table(groups, of.origin), margins(of)
    return _charts(of, importance, groups), tables


def _charts(
    of: HeldOut, importance: Sequence[FeatureImportance], groups: Sequence[MarginGroup]
) -> tuple[Chart, ...]:
    """ROC (if there is a positive class), calibration and importance."""
    charts: list[Chart] = []
    curve = of.roc
    if curve is not None and of.positive is not None:
        name = of.model.classes[of.positive]
        caption = (
            f"ROC of class {name} on {of.origin}: area {curve.area:.4f}; "
            f"{percent(curve.found_at(0.01))} of it is found where at most 1 % of the "
            f"{curve.negatives:,} others are taken for it. The band holds what each threshold "
            f"truly gives with {LEVEL:.0%}; rates below 1 of {curve.negatives:,} cannot be seen."
        )
        charts.append(roc_chart(curve, caption))
    first, last = groups[0], groups[-1]
    caption = (
        f"On {of.origin}: of the {first.rows:,} with margins of {first.name}, "
        f"{percent(first.accuracy)} are right, of the {last.rows:,} with {last.name} "
        f"{percent(last.accuracy)}. Upright lines are {LEVEL:.0%} intervals."
    )
    charts.append(calibration_chart(groups, caption))
    best = importance[0]
    caption = (
        f"Where the values of {best.feature} are permuted among {of.origin}, "
        f"{abs(100 * best.accuracy):.1f} points of accuracy are "
        f"{'lost' if best.accuracy >= 0 else 'won'}. Beside it, what the best bit of "
        "each feature tells by itself: chi-squared over the rows, 1 where it tells the class."
    )
    charts.append(importance_chart(importance, caption))
    return tuple(charts)


def importance_table(of: HeldOut, importance: Sequence[FeatureImportance]) -> TextTable:
    """The loss when a feature is permuted, and the information of its best bit."""
    rows = tuple(
        (
            f.feature,
            of.model.input.explain(f.bit).split(": ", 1)[-1],
            str(f.bits),
            f"{100 * f.accuracy:.2f} ± {100 * f.accuracy_std:.2f}",
            f"{100 * f.macro_f1:.2f} ± {100 * f.macro_f1_std:.2f}",
            f"{f.phi2:.3f}",
        )
        for f in importance
    )
    head = (
        *("feature", "its best bit", "bits", "points of accuracy lost", "of macro F1"),
        "best bit's chi-squared / rows",
    )
    return TextTable(f"Features permuted one by one, on {of.origin}", head, rows, left=2)


def margins(of: HeldOut) -> TextTable:
    """Number and accuracy of the rows with at least each of some margins."""
    right = of.right
    values = np.unique(of.inference.margins)
    chosen = values[np.unique(np.linspace(0, len(values) - 1, _MARGINS).astype(int))]
    rows = []
    for value in chosen.tolist():
        decided = of.inference.margins >= value
        share, good = percent(float(decided.mean())), percent(float(right[decided].mean()))
        rows.append((str(value), f"{int(decided.sum()):,}", share, good))
    head = ("margin at least", "rows", "share decided", "right of them")
    return TextTable(f"How sure it is, on {of.origin}", head, tuple(rows))


def explained_flows(of: HeldOut, most: int) -> tuple[ExplainedFlow, ...]:
    """Explain some flows: the surest of each class, the least sure, and the surest error.

    Args:
        of: the network's answers.
        most: the largest number of flows.
    """
    right = of.right
    margin = of.inference.margins
    reason_of: dict[int, str] = {}

    def pick(able: NDArray[np.bool_], sign: int, why: str) -> None:
        index = np.flatnonzero(able)
        if len(index):
            reason_of.setdefault(int(index[np.argmax(sign * margin[index])]), why)  # once each

    pick(~right, 1, "the surest error")
    pick(right, -1, "the least sure that is right")
    for c, name in enumerate(of.model.classes):
        pick(right & (of.label == c), 1, f"the surest {name}")
    return tuple(_decision(of, at, why) for at, why in list(reason_of.items())[:most])


def _decision(of: HeldOut, at: int, why: str) -> ExplainedFlow:
    model, table = of.model, of.table
    row = int(of.rows[at])
    values = {name: table.features[name][row : row + 1] for name in model.input.features}
    bit_flips = flips(model, model.encode(values)[0])
    true, predicted = model.classes[int(of.label[at])], model.classes[bit_flips.winner]
    verdict = "rightly" if true == predicted else f"but is {true}"
    return ExplainedFlow(
        f"Row {row:,}, {why}: called {predicted} {verdict}, by a margin of {bit_flips.margin}",
        TextTable(
            "Scores",
            ("class", "score"),
            tuple(
                (n, str(s)) for n, s in zip(model.classes, bit_flips.scores.tolist(), strict=True)
            ),
        ),
        TextTable(
            "Its features, each changed by itself",
            ("feature", "of this flow", "least lead", f"not {predicted} if it were"),
            tuple(
                _change(model, change)
                for change in feature_changes(model, {n: int(v[0]) for n, v in values.items()})
            )[:_FEATURES],
            left=1,
        ),
        TextTable(
            f"The input bits that matter most for {predicted}",
            ("input bit", "of this flow", "speaks", "flipped", "first-layer neurons"),
            tuple(_bit(model, values, bit_flips, int(i)) for i in bit_flips.strongest(_BITS)),
            left=4,
        ),
    )


def _change(model: Classifier, change: FeatureChange) -> tuple[str, ...]:
    otherwise = "no value"
    if change.nearest is not None:
        otherwise = f"{change.nearest:,} (then {model.classes[change.called]})"
    return change.feature, f"{change.value:,}", str(change.least), otherwise


def _bit(
    model: Classifier, values: Mapping[str, NDArray[np.int64]], bit_flips: Flips, bit: int
) -> tuple[str, ...]:
    effect = int(bit_flips.support[bit])
    changed = int(bit_flips.classes[bit])
    feature = model.input.feature_of(bit)
    counted = ""
    if bit_flips.counted is not None and isinstance(model, BinaryModel):
        counted = f"{int(bit_flips.counted[bit])} of {model.layers[0].n_outputs} count it"
    return (
        model.input.explain(bit),
        f"{'set' if bit_flips.bits[bit] else 'not set'}: {feature} is {int(values[feature][0]):,}",
        f"for it by {effect}" if effect > 0 else f"against it by {-effect}",
        "the same class" if changed == bit_flips.winner else f"{model.classes[changed]}",
        counted,
    )
