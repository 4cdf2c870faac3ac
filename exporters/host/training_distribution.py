# SPDX-License-Identifier: Apache-2.0
"""What a model knows of its training rows, by axis: a feature's bits by rising cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from n3ic.model.inputs import RATE_UNIT, SPAN_LEFT, InputSpec

FALSE_ALARMS = 0.01
"""Share of samples like the training rows that may be called another traffic."""
OUTSIDE = 4 * SPAN_LEFT
"""At most this share of flows like the training rows is outside of one feature's span: twice the
share of the training rows, which are a sample."""


@dataclass(frozen=True)
class Axis:
    """The input bits that say in which interval between its cuts a value of a feature lies.

    Attributes:
        feature: index of the feature among those of the input.
        bits: indices of the bits, by rising cut and each cut once; for a binary field one bit.
        rates: share of the training rows of each class that set each of them, over ``RATE_UNIT``;
            of all rows together where the model knows no classes.
    """

    feature: int
    bits: tuple[int, ...]
    rates: tuple[tuple[int, ...], ...]


def axes(spec: InputSpec) -> Iterator[Axis]:
    """Axes of the features whose training rows the model knows, in the order of the features."""
    # A file may say rates of more classes for some fields than for others: of those, of none.
    alike = len({len(f.class_rates) for f in spec.fields if f.rates}) == 1
    for number, feature in enumerate(spec.features):
        cuts: dict[int, tuple[int, tuple[int, ...]]] = {}  # bit, and its rates, by cut
        for start, field in zip(spec.offsets, spec.fields, strict=True):
            if field.feature != feature or not field.rates:
                continue
            of = field.class_rates if alike and field.class_rates else (field.rates,)
            of_bits = zip(*of, strict=True)
            known = list(enumerate(of_bits, start))
            if field.kind == "thermometer":
                cuts |= dict(zip(field.cuts, known, strict=True))
            else:
                yield from (Axis(number, (bit,), tuple((r,) for r in each)) for bit, each in known)
        if cuts:
            bits, rates = zip(*(cuts[c] for c in sorted(cuts)), strict=True)
            yield Axis(number, bits, tuple(zip(*rates, strict=True)))


def spans(spec: InputSpec) -> tuple[tuple[int, int] | None, ...]:
    """The range of each feature's training values, in the order of the features; None if unknown.

    Some rows lie outside of it, see :data:`n3ic.model.inputs.SPAN_LEFT`.
    """
    known = {f.feature: f.span for f in spec.fields if f.span}
    return tuple((known[n][0], known[n][1]) if n in known else None for n in spec.features)


def alarm_of(known: list[Axis]) -> float:
    """The chance of a false alarm of each question: of each feature, and of the spans."""
    return FALSE_ALARMS / (len({axis.feature for axis in known}) + 1)


def domain_values(spec: InputSpec) -> dict[str, Any]:
    """What the program's table of the training rows is rendered from."""
    known = list(axes(spec))
    ranges = [(i, *span) for i, span in enumerate(spans(spec)) if span is not None]
    alarm = alarm_of(known)
    return {
        "axes": known,
        "classes": len(known[0].rates) if known else 1,
        "features": len({axis.feature for axis in known}),
        "spans": ranges if known else [],
        "rate_unit": RATE_UNIT,
        "outside": repr(len(ranges) * OUTSIDE),
        "alarm": repr(alarm),
        "z": repr(NormalDist().inv_cdf(1 - alarm)),
    }
