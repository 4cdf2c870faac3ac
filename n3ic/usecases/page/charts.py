"""Charts of the report page: shapes in a square of about 100, drawn as SVG by ``chart.html.j2``.

They say the same as the PNG pictures of :mod:`n3ic.runs.pictures`, in the page's own colours, light
or dark. Each has its figures in words or in a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from n3ic.evaluation.calibration import MarginGroup
from n3ic.evaluation.importance import FeatureImportance
from n3ic.evaluation.roc import RocCurve

LEFT, TOP, SIDE = 14.0, 4.0, 100.0  # of the axes
_ROW = 7.0  # height of a bar and its gap
_LABEL = 44.0  # width of the names
_NAME = 16  # characters of a name
_BARS = 12
_POINTS = 200


@dataclass(frozen=True)
class Shape:
    """A line, an area or a bar.

    Attributes:
        look: class of the style sheet: ``axis``, ``grid``, ``line``, ``band``, ``bar``, ``other``.
        points: corners, as SVG's ``points``.
        closed: whether it is filled.
    """

    look: str
    points: str
    closed: bool = False


@dataclass(frozen=True)
class Label:
    """Text at a place; ``anchor`` is SVG's, ``turned`` stands it upright."""

    x: float
    y: float
    text: str
    anchor: str = "middle"
    turned: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: a heading.
        words: what is seen, for those who do not see it, and below it.
        width: of the canvas.
        height: of the canvas.
        shapes: from the back to the front.
        labels: what is written.
    """

    title: str
    words: str
    width: float
    height: float
    shapes: tuple[Shape, ...]
    labels: tuple[Label, ...]


def roc_chart(curve: RocCurve, words: str) -> Chart:
    """A ROC with its band, from a false positive rate of 1/negatives on, logarithmic."""
    decades = -math.log10(curve.least) or 1.0

    def place(rate: float, found: float) -> tuple[float, float]:
        x = LEFT + SIDE * (1 + math.log10(max(rate, curve.least)) / decades)
        return x, TOP + SIDE * (1 - found)

    grid, low, high = curve.band(points=_POINTS)
    edge = [place(x, y) for x, y in zip(grid, high, strict=True)]
    edge += [place(x, y) for x, y in reversed([*zip(grid, low, strict=True)])]
    rates, found = curve.steps(_POINTS)
    steps: list[tuple[float, float]] = []
    for rate, y in zip(rates, found, strict=True):
        x, height = place(rate, y)
        steps += [(x, steps[-1][1] if steps else height), (x, height)]
    ticks = [10.0**-k for k in range(int(decades), -1, -1)]
    return Chart(
        "ROC",
        words,
        *_canvas(),
        (
            *_frame(LEFT, TOP, SIDE, SIDE),
            *(_line("grid", [place(t, 0), place(t, 1)]) for t in ticks),
            Shape("band", _points(edge), closed=True),
            _line("line", steps),
        ),
        (
            *(Label(place(t, 0)[0], TOP + SIDE + 6, f"{100 * t:g}") for t in ticks),
            *_scale([0, 50, 100], 0, 100),
            _below(f"false positive rate, % (from 1 of {curve.negatives:,} on)"),
            _beside("true positive rate, %"),
        ),
    )


def calibration_chart(groups: Sequence[MarginGroup], words: str) -> Chart:
    """Observed accuracy by margin, with its intervals."""
    widest = max((g.most for g in groups), default=0) + 1
    least = 10 * math.floor(10 * min((g.low for g in groups), default=0.0))

    def place(margin: float, share: float) -> tuple[float, float]:
        x = LEFT + SIDE * (margin + 0.5) / widest
        return x, TOP + SIDE * (100 - 100 * share) / (100 - least)

    shapes = []
    for g in groups:
        middle = (g.least + g.most) / 2
        shapes += [
            _line("line", [place(middle, g.low), place(middle, g.high)]),
            _line("line", [place(g.least - 0.4, g.accuracy), place(g.most + 0.4, g.accuracy)]),
        ]
    step = max(1, 2 ** math.ceil(math.log2(widest / 8)))
    marks = range(0, widest, step)
    shares = [least, (least + 100) // 2, 100]
    grid = (_line("grid", [place(-0.5, s / 100), place(widest - 0.5, s / 100)]) for s in shares)
    return Chart(
        "Calibration of the margin",
        words,
        *_canvas(),
        (*_frame(LEFT, TOP, SIDE, SIDE), *grid, *shapes),
        (
            *(Label(place(m, 0)[0], TOP + SIDE + 6, str(m)) for m in marks),
            *_scale(shares, least, 100),
            _below("margin (best score less second best)"),
            _beside("right, %"),
        ),
    )


def importance_chart(found: Sequence[FeatureImportance], words: str) -> Chart:
    """Bars of the features that a network rests on most: accuracy lost, and the best bit's chi2."""
    shown = found[:_BARS]
    height = _ROW * len(shown)
    panels = (
        (_LABEL, 38.0, "bar", [100 * f.accuracy for f in shown], "points lost"),
        (_LABEL + 47, 23.0, "other", [f.phi2 for f in shown], "best bit"),
    )
    shapes: list[Shape] = []
    labels = [
        Label(_LABEL - 2, TOP + _ROW * (i + 0.7), _short(f.feature), "end")
        for i, f in enumerate(shown)
    ]
    for x, width, look, values, name in panels:
        least, most = min([*values, 0.0]), max([*values, 0.0])
        scale = width / ((most - least) or 1.0)
        zero = x - scale * least
        shapes += _frame(x, TOP, width, height)
        shapes.append(_line("axis", [(zero, TOP), (zero, TOP + height)]))
        for i, value in enumerate(values):
            end, y = zero + scale * value, TOP + _ROW * i + 1.2
            corners = [(zero, y), (end, y), (end, y + _ROW - 2.4), (zero, y + _ROW - 2.4)]
            shapes.append(Shape(look, _points(corners), closed=True))
        labels += [
            Label(x, TOP + height + 6, f"{least:.2g}"),
            Label(x + width, TOP + height + 6, f"{most:.2g}"),
            Label(x + width / 2, TOP + height + 12, name),
        ]
    title = "What the accuracy rests on"
    canvas = (LEFT + SIDE + 4, TOP + height + 16)
    return Chart(title, words, *canvas, tuple(shapes), tuple(labels))


def _canvas() -> tuple[float, float]:
    return LEFT + SIDE + 4, TOP + SIDE + 16


def _frame(x: float, y: float, width: float, height: float) -> tuple[Shape, ...]:
    return (_line("axis", [(x, y), (x, y + height), (x + width, y + height)]),)


def _scale(ticks: Sequence[int], low: int, high: int) -> Iterable[Label]:
    for t in ticks:
        yield Label(LEFT - 2, TOP + SIDE * (high - t) / (high - low) + 1.4, str(t), "end")


def _below(text: str) -> Label:
    return Label(LEFT + SIDE / 2, TOP + SIDE + 13, text)


def _beside(text: str) -> Label:
    return Label(4, TOP + SIDE / 2, text, turned=True)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _line(look: str, places: Iterable[tuple[float, float]]) -> Shape:
    return Shape(look, _points(places))


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in places)
