# SPDX-License-Identifier: Apache-2.0
"""A stream costs little more than the exported program, on flows of one packet each."""

import pytest

from scripts.stream_throughput import example_model, measure, ratio


@pytest.mark.slow
def test_a_flood_costs_at_most_a_few_times_what_it_costs_flow_exec():
    """Row by row in Python, JSON lines took 7.5 times as much."""
    rounds = measure(example_model(), flows=60_000, rounds=3)
    assert ratio(rounds, "no sink") < 2, rounds
    assert ratio(rounds, "JSON lines") < 4, rounds
    assert ratio(rounds, "Parquet") < 4, rounds
