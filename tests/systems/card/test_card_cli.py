# SPDX-License-Identifier: Apache-2.0
"""``n3ic card`` as a person types it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from n3ic.model.random_models import random_model

pytest.importorskip("scipy")


def save_models(folder, queues, shape=(152, 32, 16, 2)):
    (folder / "tomography" / "models").mkdir(parents=True)
    for i in range(queues):
        model = random_model(shape, np.random.default_rng(i))
        model.save(folder / "tomography" / "models" / f"q{i:02}.n3ic")
    random_model((256, 32, 16, 2), np.random.default_rng(99)).save(folder / "anomaly.n3ic")


def test_init_and_plan(n3ic, tmp_path):
    save_models(tmp_path, 3)
    output = n3ic("card init tomography soc=anomaly.n3ic --target host").stdout
    assert "card.toml: 2 tenants, 4 networks" in output
    n3ic("card init anomaly.n3ic", expect=2)  # it exists
    n3ic("card init anomaly.n3ic --out other.toml --wants 3", expect=1)
    done = n3ic("card plan --json --out plan.json --picture card.png")
    planned = json.loads(done.stdout)
    assert planned == json.loads((tmp_path / "plan.json").read_text())
    assert [g["uid"] for g in planned["graphs"]] == [1, 2]
    assert (tmp_path / "card.png").read_bytes()[:4] == b"\x89PNG"
    shown = n3ic("card plan card.toml").stdout
    for words in ("dominant-resource fairness", "tomography/q02", "soc/network", "cycles"):
        assert words in shown
    n3ic("card plan --out plan.json", expect=2)
    n3ic("card plan --picture card.gif", expect=2)


def test_what_a_solver_prints_does_not_reach_the_result():
    """C keeps what it prints to a pipe in a buffer of its own, until the program ends."""
    code = (
        "import ctypes\n"
        "from n3ic.systems.card.commands import _solver_to_standard_error\n"
        "with _solver_to_standard_error():\n"
        "    ctypes.CDLL(None).printf(b'noise')\n"
        "print('result')\n"
    )
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=buffered, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("result\n", "noise")


def test_queues_hold_as_many_packets_as_the_description_says(n3ic, tmp_path):
    save_models(tmp_path, 1)
    card = tmp_path / "card.toml"
    n3ic("card init anomaly.n3ic --target host")
    card.write_text(card.read_text().replace("[device]\n", "[device]\nqueue = 64\n"))
    n3ic("card export card.toml --out exported --no-verify")
    assert "#define CARD_QUEUE 64 " in (tmp_path / "exported" / "card_plan.h").read_text()
    card.write_text(card.read_text().replace('"host"', '"xdp"'))
    refused = n3ic("card plan", expect=1).stderr
    assert "card.toml: target xdp has no queues: remove 'queue' from [device]" in refused


def test_what_cannot_be_guaranteed_is_an_error(n3ic, tmp_path):
    save_models(tmp_path, 1)
    n3ic("card init a=anomaly.n3ic --target host --wants '1e12 inferences/s'")
    done = n3ic("card plan --out plan.json", expect=1)
    assert "cannot be guaranteed what they want" in done.stderr
    assert not (tmp_path / "plan.json").exists()
    n3ic("card plan --out plan.json --best-effort")
    (tmp_path / "card.toml").write_text("[device]\ntarget = 3\n")
    assert "card.toml:2: 'target': expected a text, got 3" in n3ic("card plan", expect=1).stderr
    assert "unknown.toml: cannot be read" in n3ic("card plan unknown.toml", expect=1).stderr


@pytest.mark.slow
def test_17_queues_and_an_anomaly_network_on_a_netfpga(n3ic, tmp_path):
    save_models(tmp_path, 17)
    n3ic("card init tomography soc=anomaly.n3ic")
    planned = json.loads(n3ic("card plan --json").stdout)
    assert planned["problems"] == []
    chains = [{name.partition("/")[0] for name in r["chain"]} for r in planned["regions"]]
    assert sorted(map(sorted, chains)) == [[], ["soc"], ["tomography"], ["tomography"]]
    kinds = {a["kind"] for t in planned["tasks"].values() for a in t["needs"].values()}
    assert kinds == {"estimated"}
    assert {t["rate_kind"] for t in planned["tasks"].values()} == {"simulated"}


@pytest.mark.slow
def test_a_tenants_network_is_changed_on_a_card_that_runs(n3ic, tmp_path):
    save_models(tmp_path, 2, shape=(64, 8, 2))
    random_model((256, 32, 16, 2), np.random.default_rng(98)).save(tmp_path / "new.n3ic")
    n3ic("card init tomography soc=anomaly.n3ic --target p4")
    n3ic("card export --no-verify")
    output = n3ic("card replace soc new.n3ic --to soc.txt").stdout
    assert "soc.txt: " in output and "simple_switch_CLI < soc.txt" in output
    assert "table_modify" in (tmp_path / "soc.txt").read_text()
    n3ic("card remove soc --to gone.txt")
    n3ic("card load soc --to back.txt")
    assert n3ic("card load soc --to back.txt", expect=2).stderr.startswith("n3ic: error: back.txt")
    refused = n3ic("card replace soc tomography/models/q00.n3ic --to no.txt", expect=2).stderr
    assert "soc/network: expected 256 input bits" in refused
    assert not (tmp_path / "no.txt").exists()
    (tmp_path / "card" / "commands.txt").write_text("")
    assert "not what n3ic" in n3ic("card remove soc --to no.txt", expect=3).stderr


@pytest.mark.slow
def test_a_card_and_an_export_of_one_model_are_verified_by_their_own_commands(n3ic, tmp_path):
    save_models(tmp_path, 1, shape=(64, 8, 2))
    n3ic("card init soc=anomaly.n3ic --target p4")
    n3ic("card export --no-verify")
    error = n3ic("verify card", expect=1).stderr
    assert "card is a card of several tenants: n3ic card verify card" in error
    n3ic("export --target host --model anomaly.n3ic --out one --no-verify")
    for words in ("card verify one", "card remove soc --to x --directory one"):
        assert "one is the export of one model: n3ic verify one" in n3ic(words, expect=2).stderr
    error = n3ic("card verify nothing", expect=2).stderr
    assert "nothing is not an exported card" in error


UNITS = """
[device]
resources = { units = 4 }
regions = 2
"""
TASK = """
[[tasks]]
name = "NAME"
kind = "verilog"
sources = ["user.v"]
top = "user"
needs = { units = 1 }
rate = "10 Gb/s"
"""
TENANT = """
[[tenants]]
name = "NAME"
[[tenants.graphs]]
name = "g"
uid = UID
wants = "4 Gb/s"
packet_bytes = 512
flow = ["first", "second"]
"""


@pytest.mark.slow
def test_a_card_is_simulated_under_every_policy(n3ic, tmp_path):
    text = UNITS + "".join(TASK.replace("NAME", name) for name in ("first", "second"))
    text += "".join(
        TENANT.replace("NAME", name).replace("UID", str(uid)) for uid, name in enumerate("ab", 1)
    )
    (tmp_path / "card.toml").write_text(text)
    (tmp_path / "user.v").write_text("module user; endmodule\n")
    words = "card simulate --seconds 3e-4 --load poisson --load b=bursts*3 --event 0:stuck@1e-4"
    first, second, other = (
        json.loads(n3ic(f"{words} --json --seed {seed}").stdout) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert first["kind"] == "simulated"
    assert [p["policy"] for p in first["policies"]] == ["chains", "drf", "static", "per-task"]
    shown = n3ic(f"{words} --policy chains --policy static --plot card.png").stdout
    for phrase in ("(simulated)", "chains", "static", "p99.9", "Jain", "card.png written"):
        assert phrase in shown
    assert (tmp_path / "card.png").read_bytes()[:4] == b"\x89PNG"
    n3ic("card simulate --plot card.png", expect=2)
