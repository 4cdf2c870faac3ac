"""``n3ic cluster`` as typed."""

import json
import subprocess
import sys

import numpy as np
import pytest

from n3ic.model.random_models import random_model


def n3ic(*words, cwd, expect=0):
    done = subprocess.run(
        [sys.executable, "-m", "n3ic", "cluster", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def test_plan_writes_json_and_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    words = ("plan", "--shape", "512-256-4", "-n", 3, "--out", "plan.json", "--picture", "p.png")
    out, _ = n3ic(*words, cwd=tmp_path)
    assert "this plan" in out
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["placement"]["shape"] == [512, 256, 4]
    first = (tmp_path / "p.png").read_bytes()
    assert "exists" in n3ic(*words, cwd=tmp_path, expect=2)[1]
    n3ic(*words, "--replace", cwd=tmp_path)
    assert (tmp_path / "p.png").read_bytes() == first


def test_a_mistake_is_one_line(tmp_path):
    for words, said in (
        (("plan",), "expected a model or --shape"),
        (("plan", "--shape", "4x4"), "--shape: expected numbers"),
        (("plan", "--shape", "64-4", "--split", "both"), "--split: expected output"),
        (("plan", "--shape", "64-4", "--split", "input,input"), "expected one or 1"),
        (("plan", "--shape", "64-4", "--picture", "p.pdf"), ".png or .svg"),
    ):
        assert said in n3ic(*words, cwd=tmp_path, expect=2)[1]
    refused = n3ic("plan", "--shape", "4096-60000-10", "-n", 1, cwd=tmp_path, expect=1)[1]
    assert "bytes are missing" in refused
    assert len(refused.strip().splitlines()) == 1


def test_a_simulated_card_that_cannot_be_is_one_line(tmp_path):
    random_model((64, 40, 3), np.random.default_rng(0)).save(tmp_path / "model.n3ic")
    for simulate, said, code in (
        (("2",), "NODE=TARGET expected", 2),
        (("2=p4",), "unknown simulated card 'p4'", 2),
        (("9=netfpga",), "the ring has nodes 1 to 4", 1),
        (("2=netfpga", "3=netfpga"), "no network connects", 1),
        (("1=netfpga", "2=netfpga", "3=netfpga", "4=netfpga"), "needs a process", 1),
    ):
        options = [word for given in simulate for word in ("--simulate", given)]
        error = n3ic("run", "model.n3ic", *options, cwd=tmp_path, expect=code)[1]
        assert said in error.replace("\n", " ")
