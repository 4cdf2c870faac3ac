# SPDX-License-Identifier: Apache-2.0
"""The nearest shape that a target takes."""

from itertools import pairwise

import pytest

from n3ic.targets.shape_search import nearest_shape


@pytest.mark.parametrize(
    ("shape", "widest", "cells", "expected"),
    [
        ((256, 32, 16, 2), None, 10**6, "256-32-16-2"),
        ((256, 32, 16, 2), 64, 10**6, "64-32-16-2"),
        ((256, 64, 32, 2), None, 8_736, "256-32-16-2"),  # both layers by half
        ((256, 128, 2), None, 300, "256-1-2"),
        ((256, 128, 2), None, 100, "98-1-2"),  # no neuron less: the input
        ((256, 2), None, 100, "50-2"),
        ((256, 128, 1000), None, 100, ""),  # classes stay
    ],
)
def test_the_widest_that_fits(shape, widest, cells, expected):
    def fits(near):
        assert near[-1] == shape[-1]
        return sum(a * b for a, b in pairwise(near)) <= cells

    assert nearest_shape(shape, fits, widest=widest) == expected
