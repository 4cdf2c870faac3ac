# SPDX-License-Identifier: Apache-2.0
"""``n3ic cluster`` as typed."""

import json

import numpy as np
import pytest

from n3ic.model.random_models import random_model
from tests.support.command_line import n3ic


def cluster(*words, **more):
    done = n3ic("cluster", *words, **more)
    return done.stdout, done.stderr


def test_plan_writes_json(tmp_path):
    words = ("plan", "--shape", "512-256-4", "-n", 3, "--out", "plan.json")
    out, _ = cluster(*words, cwd=tmp_path)
    assert "this plan" in out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["placement"]["shape"] == [512, 256, 4]
    first = (tmp_path / "plan.json").read_bytes()
    assert "exists" in cluster(*words, cwd=tmp_path, expect=2)[1]
    cluster(*words, "--replace", cwd=tmp_path)
    assert (tmp_path / "plan.json").read_bytes() == first


def test_a_plan_is_simulated(tmp_path):
    pytest.importorskip("simpy")
    cluster("plan", "--shape", "768-256-4", "-n", 3, "--out", "plan.json", cwd=tmp_path)
    report = json.loads(cluster("simulate", "plan.json", "--rows", 8, "--json", cwd=tmp_path)[0])
    assert (report["kind"], report["plan"]["kind"]) == ("simulated", "estimated")
    assert report["packets"] == report["plan"]["packets"]
    assert "busy" in cluster("simulate", "plan.json", "--rows", 8, cwd=tmp_path)[0]


def test_a_mistake_is_one_line(tmp_path):
    for words, message in (
        (("plan",), "expected a model or --shape"),
        (("plan", "--shape", "4x4"), "--shape: expected numbers"),
        (("plan", "--shape", "64-4", "--split", "both"), "--split: expected output"),
        (("plan", "--shape", "64-4", "--split", "input,input"), "expected one or 1"),
    ):
        assert message in cluster(*words, cwd=tmp_path, expect=2)[1]
    refused = cluster("plan", "--shape", "4096-60000-10", "-n", 1, cwd=tmp_path, expect=1)[1]
    assert "bytes are missing" in refused
    assert len(refused.strip().splitlines()) == 1


def test_a_simulated_card_that_cannot_be_is_one_line(tmp_path):
    random_model((64, 40, 3), np.random.default_rng(0)).save(tmp_path / "model.n3ic")
    for simulate, message, code in (
        (("2",), "expected NODE=TARGET", 2),
        (("2=p4",), "unknown simulated card 'p4'", 2),
        (("9=netfpga",), "the ring has nodes 1 to 4", 1),
        (("2=netfpga", "3=netfpga"), "no network connects", 1),
        (("1=netfpga", "2=netfpga", "3=netfpga", "4=netfpga"), "needs a process", 1),
    ):
        options = [word for given in simulate for word in ("--simulate", given)]
        error = cluster("run", "model.n3ic", *options, cwd=tmp_path, expect=code)[1]
        assert message in error.replace("\n", " ")
