# SPDX-License-Identifier: Apache-2.0
"""Look-up tables of the comparisons of features with cuts: counted, and measured with Yosys."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.exporters.netfpga.packet.comparison_size import comparisons
from n3ic.exporters.netfpga.packet.wrapper import feature_widths
from n3ic.model.inputs import Field, InputSpec

MEASURED = {"own": 207, "32": 271}
"""LUT sites of :func:`some_cuts`, by bits of a feature: measured, Yosys 0.70."""


def some_cuts() -> InputSpec:
    """Cuts of twelve features of very different sizes."""
    rng = np.random.default_rng(7)
    fields = []
    for i in range(12):
        top = int(rng.integers(4, 30))
        cuts = sorted({int(c) for c in rng.integers(1, 1 << top, int(rng.integers(1, 9)))})
        fields.append(Field.thermometer(f"f{i}", cuts))
    return InputSpec(tuple(fields))


def spec_of(*cuts: int) -> InputSpec:
    return InputSpec((Field.thermometer("f", cuts),))


@pytest.mark.parametrize(
    ("cuts", "width", "tables"),
    [
        ((8,), 4, 0),  # the highest bit itself
        ((8,), 5, 1),  # two bits
        ((0b100001,), 6, 1),
        ((0b1000001,), 7, 2),  # seven bits
        ((0b1000000, 0b1000001), 7, 2),
        ((1,), 32, 7),  # an OR of 32 bits
        ((1 << 31,), 32, 0),
    ],
)
def test_a_comparison_takes_the_tables_of_its_bits(cuts, width, tables):
    assert comparisons(spec_of(*cuts), (width,)).luts == tables


def test_the_estimate_is_near_what_was_measured():
    spec = some_cuts()
    for bits, measured in MEASURED.items():
        estimated = comparisons(spec, feature_widths(spec, {"feature-bits": bits}))
        assert abs(estimated.lut_sites - measured) <= 0.15 * measured
        assert estimated.kind == "estimated"
