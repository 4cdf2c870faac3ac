# SPDX-License-Identifier: Apache-2.0
"""The picture of a study of shunting: whole, readable at half size."""

import warnings

import numpy as np
import pytest

from n3ic.studies.shunt.picture import shunting_figure
from n3ic.studies.shunt.points import TwoStageRows, shunt_points, thresholds_of
from tests.support.pictured import overhang, smallest_type

pytest.importorskip("matplotlib")
EVIL = "$\\frac{$ \x1b[2J <b> " + "W" * 200


def points(rows=500):
    rng = np.random.default_rng(0)
    margins = rng.geometric(0.1, rows).astype(np.int32)
    label = rng.integers(0, 2, rows)
    card = np.where(rng.random(rows) < 0.5 + margins / 60, label, 1 - label)
    stages = TwoStageRows(label, card, margins, label, rng.random(rows) < 0.5)
    return shunt_points(stages, thresholds_of(margins))


@pytest.mark.parametrize(("rows", "title", "chosen"), [(500, EVIL, 4), (3, "rows", 0)])
def test_everything_is_on_the_page_and_large_enough_for_half_of_it(rows, title, chosen):
    curve = points(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = shunting_figure(curve, title, curve[chosen].threshold)
        assert overhang(figure) < 0.02
    assert smallest_type(figure) >= 10
