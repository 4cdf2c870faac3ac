# SPDX-License-Identifier: Apache-2.0

import pytest

from n3ic.systems.card.simulation.figures import jain_index, served_share


def test_jain_s_index():
    assert jain_index([1, 1, 1]) == pytest.approx(1)
    assert jain_index([1, 0, 0, 0]) == pytest.approx(1 / 4)
    assert jain_index([0.0, 0.0]) == 1


def test_who_sends_less_than_is_due_is_served_when_all_of_it_arrives():
    assert served_share(4, wanted=4, entitled=8) == 1
    assert served_share(6, wanted=20, entitled=8) == pytest.approx(0.75)
    assert served_share(0, wanted=0, entitled=8) == 1
