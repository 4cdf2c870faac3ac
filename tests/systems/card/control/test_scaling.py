# SPDX-License-Identifier: Apache-2.0

from n3ic.systems.card.control.scaling import Scaling, ScalingRules, scaled

RULES = ScalingRules(out=0.9, into=0.6, windows=3)


def after(state, loads, due=4.0):
    for load in loads:
        state = scaled(state, load, due, RULES)
    return state


def test_an_instance_comes_after_windows_in_a_row():
    assert after(Scaling(1), [1.2, 1.2]).instances == 1
    assert after(Scaling(1), [1.2, 1.2, 0.5, 1.2, 1.2]).instances == 1
    assert after(Scaling(1), [1.2] * 3).instances == 2


def test_no_more_than_are_due():
    assert after(Scaling(1), [5.0] * 20, due=2.5).instances == 2
    assert after(Scaling(3), [5.0], due=1.0).instances == 2  # given back at once


def test_an_instance_goes_when_one_fewer_has_room():
    assert after(Scaling(2), [0.5] * 3).instances == 1
    assert after(Scaling(2), [0.7] * 20).instances == 2  # between the thresholds
    assert after(Scaling(1), [0.0] * 20).instances == 1


def test_a_load_that_stays_is_never_scaled_for_and_back():
    for load in (k / 20 for k in range(60)):
        state = after(Scaling(1), [load] * 30, due=16)
        assert after(state, [load] * 30, due=16).instances == state.instances
