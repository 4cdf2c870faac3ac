# SPDX-License-Identifier: Apache-2.0
"""A training that is started from a file, as a person types it."""

import json

import numpy as np
import pytest

from tests.support.command_line import n3ic


@pytest.fixture
def flows(tmp_path):
    """A small table of one's own."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1000, (300, 3))
    names = np.where(rows[:, 0] + rng.integers(0, 200, 300) > 550, "web", "mail")
    lines = [f"{a},{b},{c},{app}" for (a, b, c), app in zip(rows, names, strict=True)]
    (tmp_path / "flows.csv").write_text("\n".join(["a,b,c,app", *lines, ""]))
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("small_baselines")
def test_a_run_from_a_file_and_from_its_options_is_the_same(flows):
    text = (
        'data = "flows.csv"\nlabel = "app"\nencoding = "quantile"\nbits = 8\nhidden = [4]\n'
        "polish = 0\nepochs = 5\nseed = 1\n"
    )
    (flows / "run.toml").write_text(text)
    n3ic("train", "--config", "run.toml", "--seed", 3, "--out", "one", cwd=flows)
    options = json.loads((flows / "one" / "options.json").read_text())
    assert options["seed"] == 3
    assert options["recipe"]["training"]["hidden"] == [4]
    assert (flows / "one" / "config.toml").read_text() == text
    assert "config.toml" in json.loads((flows / "one" / "metrics.json").read_text())["files"]
    n3ic("train", "--config", "one/options.json", "--out", "two", cwd=flows)
    for name in ("model.n3ic", "options.json"):
        assert (flows / "two" / name).read_bytes() == (flows / "one" / name).read_bytes()
    assert (flows / "two" / "config.json").read_bytes() == (
        flows / "one" / "options.json"
    ).read_bytes()


def test_a_mistake_in_a_file_is_one_line(tmp_path):
    (tmp_path / "run.toml").write_text('use-case = "anomaly"\nepoch = 3\n')
    done = n3ic("train", "--config", "run.toml", cwd=tmp_path, expect=2)
    message = "n3ic: error: run.toml: unknown option 'epoch'; did you mean 'epochs'?\n"
    assert done.stderr == message
    assert not (tmp_path / "runs").exists()
