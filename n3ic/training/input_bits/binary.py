# SPDX-License-Identifier: Apache-2.0
"""Raw bits of integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from n3ic.data.table import Feature
from n3ic.model.inputs import Field
from n3ic.training.input_bits.columns import unit_of


def binary_fields(
    names: Sequence[str], width: int = 16, *, catalogue: Mapping[str, Feature] | None = None
) -> tuple[Field, ...]:
    """One field of ``width`` raw bits per feature; values that do not fit are clamped.

    Args:
        names: the features, in the order of their bits.
        width: bits per feature, 1 to 32.
        catalogue: what the features mean, for their units.
    """
    fields = []
    for name in names:
        unit, scale = unit_of(catalogue, name)
        fields.append(Field.binary(name, width, unit=unit, scale=scale))
    return tuple(fields)
