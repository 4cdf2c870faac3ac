# SPDX-License-Identifier: Apache-2.0
"""Crosses of two columns: exact integers, named and described by rule."""

from __future__ import annotations

import numpy as np

from n3ic.datasets.unsw_nb15.catalogue import BY_NAME, COLUMNS, DERIVED, PUBLISHED, with_derived
from n3ic.datasets.unsw_nb15.crosses import OCTAVE, crosses, log_steps
from n3ic.datasets.unsw_nb15.recipes import RECIPES

COLUMN = {f.name: f for f in COLUMNS}


def test_log_steps_are_exact_where_floats_would_be_a_step_off():
    values = np.array([0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])
    steps = log_steps(values).tolist()
    for value, step in zip((values + 1).tolist(), steps, strict=True):
        assert 2**step <= value**OCTAVE < 2 ** (step + 1)
    assert steps[:3] == [0, OCTAVE, 101]
    assert (np.diff(log_steps(np.arange(10_000))) >= 0).all()


def test_each_kind_is_what_it_says():
    entries = {
        "log": [["smean", 1, "dmean", -1], ["spkts", 2, "dpkts", 1]],
        "less": [["swin", "dwin"]],
        "and": [["sload", "dload"]],
    }
    by_name = {one.feature.name: one for one in crosses(entries, COLUMN)}
    assert list(by_name) == [
        "smean_per_dmean", "spkts_2_times_dpkts", "swin_less_dwin", "sload_and_dload"
    ]  # fmt: skip
    a, b = np.array([0, 7, 2**32 - 1]), np.array([7, 0, 2**32 - 1])
    assert by_name["smean_per_dmean"].of(a, b).tolist() == [2**13 - 192, 2**13 + 192, 2**13]
    assert by_name["spkts_2_times_dpkts"].of(a, b).tolist() == [
        2**13 + 192, 2**13 + 384, 2**13 + 3 * int(log_steps(a[2:])[0])
    ]  # fmt: skip
    assert by_name["swin_less_dwin"].of(a, b).tolist() == [2**31 - 7, 2**31 + 7, 2**31]
    assert by_name["sload_and_dload"].of(a, b).tolist() == [7, 7, 2**32 - 1]
    assert by_name["spkts_2_times_dpkts"].feature.meaning == (
        "2 times the logarithm of spkts and that of dpkts, each of the value plus 1, plus 8192"
    )


def test_extreme_columns_stay_within_the_bits_and_no_tap_is_said_to_compute_them():
    for extreme in (0, 2**32 - 1):
        columns = {f.name: np.array([min(extreme, (1 << f.bits) - 1)]) for f in COLUMNS}
        whole = with_derived(columns)
        for one in DERIVED:
            value = int(whole[one.feature.name][0])
            assert 0 <= value < 1 << one.feature.bits, one.feature.name
    names = [n for n in PUBLISHED if BY_NAME[n].nic_reason.startswith("a cross")]
    assert len(names) >= 40
    assert not any(BY_NAME[n].nic for n in names)
    assert set(names) <= set(RECIPES["published"].columns)


def test_a_cross_is_as_far_from_a_tap_as_the_worse_of_its_columns():
    entries = {"log": [["tcprtt", 1, "ct_srv_src", 2], ["sload", 1, "proto", -1]]}
    first, second = crosses(entries | {"less": [], "and": []}, COLUMN)
    assert (first.feature.tap, second.feature.tap) == ("not causal", "halved")
    assert first.feature.tap_reason == COLUMN["ct_srv_src"].tap_reason
