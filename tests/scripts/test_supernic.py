# SPDX-License-Identifier: Apache-2.0
"""The text's claims hold of the simulation; where ours differ, the experiment says so."""

import json

import pytest

from scripts.supernic import EXPERIMENTS, ExperimentResult, main

pytest.importorskip("simpy")


def experiment_data(name):
    shares = []
    result = EXPERIMENTS[name](0, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert result.table
    assert result.notes
    return result.data


@pytest.mark.slow
def test_chains_take_less_time_the_longer_they_are():
    data = experiment_data("chaining")
    short = [data["latency"][f"10 cycles, {n} tasks"] for n in range(2, 8)]
    assert [s["saved"] for s in short] == sorted(s["saved"] for s in short)
    assert all(s["chain_ns"] < s["halves_ns"] <= s["per_task_ns"] for s in short)
    assert 0.4 <= data["most_saved"] < 0.5


@pytest.mark.exhaustive
def test_sharing_saturates_where_the_text_s_does():
    data = experiment_data("sharing")
    rows = data["sharing"]
    assert rows["DAG-A at 60 Gb/s"]["shared_gbps"] == pytest.approx(15, rel=0.05)
    assert rows["DAG-C at 60 Gb/s"]["shared_gbps"] > 55
    assert all(r["gain"] > 0.99 for r in rows.values())
    assert data["most_gain"] > 2.81


def test_the_script_prints_the_claim_the_table_and_what_differs(monkeypatch, capsys):
    rows = (("10", "2", "100 ns"),)
    result = ExperimentResult("less latency", ("Latency", ("cycles", "tasks", "ns"), rows),
                              {"most_saved": 0.4}, ("other tasks",))  # fmt: skip
    monkeypatch.setitem(EXPERIMENTS, "chaining", lambda seed, progress: result)
    main(["chaining"])
    output = capsys.readouterr()
    assert "SuperNIC: less latency" in output.out and "100 ns" in output.out
    assert "other tasks" in output.out + output.err
    main(["chaining", "--json", "--seed", "3"])
    assert json.loads(capsys.readouterr().out) == {
        "kind": "simulated", "claim": "less latency", "seed": 3, "most_saved": 0.4
    }  # fmt: skip
