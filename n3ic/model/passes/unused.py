# SPDX-License-Identifier: Apache-2.0
"""Input bits that nothing reads, and the features that no longer matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import Connections
from n3ic.model.passes.draft import Draft


def bits(layer: Connections) -> list[int]:
    """Inputs of a layer that no neuron of it reads."""
    return [] if layer.mask is None else np.flatnonzero(~layer.mask.any(axis=0)).tolist()


def drop(draft: Draft) -> Draft:
    """Remove input bits that nothing reads; the input keeps at least one bit.

    A thermometer field loses single cuts. A binary field is removed as a whole or not at all,
    because its bits are those of one clamped integer.
    """
    spec, remaining = narrowed(draft.model.input, set(bits(draft.model.layers[0])))
    return (
        draft if len(remaining) == draft.model.input.n_bits else draft.without_bits(spec, remaining)
    )


def narrowed(spec: InputSpec, idle: set[int]) -> tuple[InputSpec, list[int]]:
    """The input without some bits, and the bits that stay; the same input if none would.

    Args:
        spec: the input.
        idle: bits that nothing reads.
    """
    fields: list[Field] = []
    remaining: list[int] = []
    for start, field in zip(spec.offsets, spec.fields, strict=True):
        read = [k for k in range(field.width) if start + k not in idle]
        if field.kind == "binary" and read:
            read = list(range(field.width))
        if read:
            cuts = tuple(field.cuts[k] for k in read) if field.cuts else ()
            rates = tuple(field.rates[k] for k in read) if field.rates else ()
            of = tuple(tuple(r[k] for k in read) for r in field.class_rates)
            fields.append(replace(field, width=len(read), cuts=cuts, rates=rates, class_rates=of))
            remaining.extend(start + k for k in read)
    return (InputSpec(tuple(fields)), remaining) if fields else (spec, list(range(spec.n_bits)))
