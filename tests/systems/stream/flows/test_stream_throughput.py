# SPDX-License-Identifier: Apache-2.0
"""The command that compares a stream's processor time with that of the exported program."""

import pytest

from scripts.stream_throughput import example_model, measure, ratio


@pytest.mark.slow
def test_a_flood_is_paired_with_flow_exec_in_each_round():
    rounds = measure(example_model(), flows=600, rounds=2)
    assert len(rounds) == 2
    for name in ("no sink", "JSON lines", "Parquet"):
        assert ratio(rounds, name) > 0
