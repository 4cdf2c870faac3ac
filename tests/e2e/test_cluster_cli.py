"""``n3ic cluster`` as typed."""

import json
import subprocess
import sys

import pytest


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
