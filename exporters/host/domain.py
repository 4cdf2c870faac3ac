# SPDX-License-Identifier: Apache-2.0
"""What a model knows of its training rows, by axis: a feature's bits by rising cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from n3ic.model.inputs import InputSpec


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
    for number, feature in enumerate(spec.features):
        cuts: dict[int, tuple[int, tuple[int, ...]]] = {}  # bit, and its rates, by cut
        for start, field in zip(spec.offsets, spec.fields, strict=True):
            if field.feature != feature or not field.rates:
                continue
            of_bits = zip(*(field.class_rates or (field.rates,)), strict=True)
            known = list(enumerate(of_bits, start))
            if field.kind == "thermometer":
                cuts |= dict(zip(field.cuts, known, strict=True))
            else:
                yield from (Axis(number, (bit,), tuple((r,) for r in of)) for bit, of in known)
        if cuts:
            bits, rates = zip(*(cuts[c] for c in sorted(cuts)), strict=True)
            yield Axis(number, bits, tuple(zip(*rates, strict=True)))


def spans(spec: InputSpec) -> tuple[tuple[int, int] | None, ...]:
    """The range of each feature's training values, in the order of the features; None if unknown.

    Some rows lie outside of it, see :data:`n3ic.model.inputs.SPAN_LEFT`.
    """
    known = {f.feature: f.span for f in spec.fields if f.span}
    return tuple((known[n][0], known[n][1]) if n in known else None for n in spec.features)
