# SPDX-License-Identifier: Apache-2.0
"""The text's claims hold of the simulation; where ours differ, the experiment says so."""

import pytest

from n3ic.systems.card.simulation.experiments import EXPERIMENTS

pytest.importorskip("simpy")


def found(name):
    told = []
    result = EXPERIMENTS[name](0, told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    assert result.tables
    assert result.notes
    return result.data


def test_a_chain_of_any_length_is_scheduled_in_64_ns():
    added = found("scheduling")["added_ns"]
    assert {round(a["chains"]) for a in added.values()} == {64}
    assert [round(a["per-task"]) for a in added.values()] == [64 * n for n in range(1, 8)]


@pytest.mark.slow
def test_chains_take_less_time_the_longer_they_are():
    data = found("chaining")
    short = [data["latency"][f"10 cycles, {n} tasks"] for n in range(2, 8)]
    assert [s["saved"] for s in short] == sorted(s["saved"] for s in short)
    assert all(s["chain_ns"] < s["halves_ns"] <= s["per_task_ns"] for s in short)
    assert 0.4 <= data["most_saved"] < 0.5


def test_branches_are_worth_it_for_long_tasks_alone():
    latency = found("parallel")["latency"]
    assert latency["50"]["parallel_ns"] < latency["50"]["chain_ns"]
    assert latency["10"]["parallel_ns"] > latency["10"]["chain_ns"]


@pytest.mark.slow
def test_sharing_saturates_where_the_text_s_does():
    data = found("sharing")
    rows = data["sharing"]
    assert rows["DAG-A at 60 Gb/s"]["shared_gbps"] == pytest.approx(15, rel=0.05)
    assert rows["DAG-C at 60 Gb/s"]["shared_gbps"] > 55
    assert all(r["gain"] > 0.99 for r in rows.values())
    assert data["most_gain"] > 2.81


@pytest.mark.slow
def test_the_card_follows_a_load_and_drf_alone_does_not():
    rows = found("fairness")["fairness"]
    before, after = rows["chains, 0 to 50 s"], rows["chains, 50 to 100 s"]
    assert before["gbps"][1] > 20  # what user 1 leaves
    assert after["gbps"][0] == pytest.approx(14, rel=0.03)
    assert after["total_gbps"] == pytest.approx(30, rel=0.02)
    for name in ("drf", "static"):
        assert rows[f"{name}, 0 to 50 s"]["gbps"][1] == pytest.approx(10, rel=0.02)
        assert rows[f"{name}, 50 to 100 s"]["total_gbps"] < after["total_gbps"] - 5
    assert min(before["jain"], after["jain"]) > 0.99


def test_victims_save_reconfigurations():
    data = found("victims")["victims"]
    waits = [data[f"{n} regions, with cache"]["mean_wait_s"] for n in (8, 6, 4, 3)]
    assert waits == sorted(waits)
    assert waits[-1] < data["3 regions, without cache"]["mean_wait_s"]
