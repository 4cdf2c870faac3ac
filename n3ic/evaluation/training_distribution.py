# SPDX-License-Identifier: Apache-2.0
"""What a model knows of its training rows: shares of rows that set a bit, and ranges of values.

Whoever compares other flows with the training rows reads it, such as the domain report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from n3ic.model.inputs import SPAN_LEFT, InputSpec

FALSE_ALARMS = 0.01
"""Share of samples like the training rows that may be reported as other traffic (false alarms)."""
OUTSIDE = 4 * SPAN_LEFT
"""Largest share of flows like the training rows that lies outside one feature's span. It is twice
the share of the training rows outside it, because those rows are only a sample."""


@dataclass(frozen=True)
class Axis:
    """The input bits that tell which interval between its cuts a feature's value lies in.

    Attributes:
        feature: index of the feature among those of the input.
        bits: indices of the bits in ascending order of their cuts, one per cut; a single bit for
            a bit of a binary field.
        rates: for each class, the share of its training rows that set each bit, in units of
            ``1 / RATE_UNIT``; a single row for all classes together if the model has no rates by
            class.
    """

    feature: int
    bits: tuple[int, ...]
    rates: tuple[tuple[int, ...], ...]


def axes(spec: InputSpec) -> Iterator[Axis]:
    """Yield the axes of all fields with rates of training rows, in the order of the features."""
    # Rates by class are used only if every field has them for the same number of classes.
    alike = len({len(f.class_rates) for f in spec.fields if f.rates}) == 1
    for number, feature in enumerate(spec.features):
        cuts: dict[int, tuple[int, tuple[int, ...]]] = {}  # by cut: a bit and its rates
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

    A few rows lie outside the range, see :data:`n3ic.model.inputs.SPAN_LEFT`.
    """
    known = {f.feature: f.span for f in spec.fields if f.span}
    return tuple((known[n][0], known[n][1]) if n in known else None for n in spec.features)


def alarm_of(known: list[Axis]) -> float:
    """Probability of a false alarm for each test: one test per feature, and one for all spans."""
    return FALSE_ALARMS / (len({axis.feature for axis in known}) + 1)
