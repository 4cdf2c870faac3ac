"""What a run's network says of flows whose classes are known, for the report page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.sensitivity import FeatureChange, Flips, feature_changes, flips
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.util.display import Table
from n3ic.util.markdown import percent

_MARGINS = 12  # thresholds in a table
_BITS = 12  # of a flow
_FEATURES = 8


@dataclass(frozen=True)
class Roc:
    """A ROC curve: SVG points in a square of 100 by 100 at (12, 4), and the same in words."""

    points: str
    words: str


@dataclass(frozen=True)
class Decision:
    """A flow, its scores, and the features and input bits of the largest effect on them."""

    title: str
    scores: Table
    features: Table
    bits: Table


def roc(of: HeldOut) -> Roc | None:
    """The ROC of the class that is to be found; None where no class is, or it is absent."""
    curve = of.roc
    if curve is None or of.positive is None:
        return None
    pairs = zip(*curve.steps(), strict=True)
    name = of.model.classes[of.positive]
    return Roc(
        " ".join(f"{12 + 100 * x:.2f},{104 - 100 * y:.2f}" for x, y in pairs),
        f"ROC of class {name} on {of.origin}: area {curve.area:.4f}; "
        f"{percent(curve.found_at(0.01))} of it is found where at most 1 % of the "
        f"{curve.negatives:,} others are taken for it.",
    )


def margins(of: HeldOut) -> Table | None:
    """What deciding only flows of a margin or more would give; None of no flows."""
    if not len(of.rows):
        return None
    right = of.right
    values = np.unique(of.found.margins)
    chosen = values[np.unique(np.linspace(0, len(values) - 1, _MARGINS).astype(int))]
    rows = []
    for value in chosen.tolist():
        kept = of.found.margins >= value
        share, good = percent(float(kept.mean())), percent(float(right[kept].mean()))
        rows.append((str(value), f"{int(kept.sum()):,}", share, good))
    head = ("margin at least", "rows", "share decided", "right of them")
    return Table(f"How sure it is, on {of.origin}", head, tuple(rows))


def decisions(of: HeldOut, most: int) -> tuple[Decision, ...]:
    """Some flows and what decides them: the surest of each class, the least sure, the worst error.

    Args:
        of: the network's answers.
        most: how many flows.
    """
    right = of.right
    margin = of.found.margins
    wanted: dict[int, str] = {}

    def pick(able: NDArray[np.bool_], sign: int, why: str) -> None:
        index = np.flatnonzero(able)
        if len(index):
            wanted.setdefault(int(index[np.argmax(sign * margin[index])]), why)

    pick(~right, 1, "the surest error")
    pick(right, -1, "the least sure that is right")
    for c, name in enumerate(of.model.classes):
        pick(right & (of.label == c), 1, f"the surest {name}")
    return tuple(_decision(of, at, why) for at, why in list(wanted.items())[:most])


def _decision(of: HeldOut, at: int, why: str) -> Decision:
    model, table = of.model, of.table
    row = int(of.rows[at])
    values = {name: table.features[name][row : row + 1] for name in model.input.features}
    found = flips(model, model.encode(values)[0])
    true, called = model.classes[int(of.label[at])], model.classes[found.winner]
    verdict = "rightly" if true == called else f"but is {true}"
    return Decision(
        f"Row {row:,}, {why}: called {called} {verdict}, by a margin of {found.margin}",
        Table(
            "Scores",
            ("class", "score"),
            tuple((n, str(s)) for n, s in zip(model.classes, found.scores.tolist(), strict=True)),
        ),
        Table(
            "Its features, each changed by itself",
            ("feature", "of this flow", "least lead", f"not {called} if it were"),
            tuple(
                _change(model, change)
                for change in feature_changes(model, {n: int(v[0]) for n, v in values.items()})
            )[:_FEATURES],
            left=1,
        ),
        Table(
            f"The input bits that matter most for {called}",
            ("input bit", "of this flow", "speaks", "flipped", "first-layer neurons"),
            tuple(_bit(model, values, found, int(i)) for i in found.strongest(_BITS)),
            left=4,
        ),
    )


def _change(model: Classifier, change: FeatureChange) -> tuple[str, ...]:
    otherwise = "no value"
    if change.nearest is not None:
        otherwise = f"{change.nearest:,} (then {model.classes[change.called]})"
    return change.feature, f"{change.value:,}", str(change.least), otherwise


def _bit(
    model: Classifier, values: Mapping[str, NDArray[np.int64]], found: Flips, bit: int
) -> tuple[str, ...]:
    effect = int(found.support[bit])
    changed = int(found.classes[bit])
    feature = model.input.feature_of(bit)
    counted = ""
    if found.counted is not None and isinstance(model, BinaryModel):
        counted = f"{int(found.counted[bit])} of {model.layers[0].n_outputs} count it"
    return (
        model.input.explain(bit),
        f"{'set' if found.bits[bit] else 'not set'}: {feature} is {int(values[feature][0]):,}",
        f"for it by {effect}" if effect > 0 else f"against it by {-effect}",
        "the same class" if changed == found.winner else f"{model.classes[changed]}",
        counted,
    )
