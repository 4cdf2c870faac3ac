# SPDX-License-Identifier: Apache-2.0
"""The page "Add a target", followed as written."""

import re
import shutil

import numpy as np
import pytest

from n3ic.model.random_models import random_model
from tests.support import command_line
from tests.support.page_packages import blocks_of, files_of, install, n3ic


@pytest.fixture(scope="module")
def blocks(repository):
    return blocks_of(repository / "docs" / "how-to" / "add-a-target.md")


@pytest.fixture(scope="module")
def site(blocks, tmp_path_factory):
    if shutil.which("awk") is None:
        pytest.skip("needs awk")
    return install(files_of(blocks), tmp_path_factory.mktemp("awk"))


def test_page_has_the_files_and_the_commands(blocks):
    package = {"__init__.py", "device.toml", "network.awk.j2", "README.md.j2"}
    assert set(files_of(blocks)) == {"pyproject.toml", *(f"awk_target/{n}" for n in package)}
    commands = next(text for language, text in blocks if language == "sh").splitlines()
    assert [c.split()[1] for c in commands[1:]] == ["targets", "train", "export", "verify"]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("small_baselines")
def test_commands_of_the_page(site, blocks, tmp_path):
    commands = next(text for language, text in blocks if language == "sh").splitlines()
    for command in commands[1:]:
        words = command.split()[1:]
        if words[0] == "train":  # in this process, for it does without the page's package
            command_line.n3ic(*words, cwd=tmp_path)
            continue
        done = n3ic(site, tmp_path, *words)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        if command == "n3ic targets":
            assert "a program for any awk" in done.stdout
    assert "awk: equal scores on " in done.stdout
    program = tmp_path / "small-awk" / "network.awk"
    text = program.read_text()
    at = text.index('= "') + 3
    program.write_text(text[:at] + "10"[int(text[at])] + text[at + 1 :])
    refused = n3ic(site, tmp_path, "verify", "small-awk")
    assert refused.returncode == 3
    assert "network.awk" in refused.stdout


@pytest.mark.slow
@pytest.mark.parametrize("density", [pytest.param(1.0, marks=pytest.mark.exhaustive), 0.5])
def test_wrong_template_is_found(site, blocks, tmp_path, density):
    model = random_model((40, 6, 5, 3), np.random.default_rng(3), density=density)
    model.save(tmp_path / "model.n3ic")
    right = n3ic(site, tmp_path, "export", "-t", "awk", "--model", "model.n3ic", "--out", "right")
    assert right.returncode == 0, right.stderr
    files = files_of(blocks)
    template = files["awk_target/network.awk.j2"]
    files["awk_target/network.awk.j2"] = template.replace(">= level", "> level")
    broken = install(files, tmp_path / "broken")
    wrong = n3ic(broken, tmp_path, "export", "-t", "awk", "--model", "model.n3ic", "--out", "wrong")
    assert wrong.returncode == 3
    assert re.search(r"layer [01], neuron \d: expected 1, got 0", wrong.stderr)
    assert not (tmp_path / "wrong").exists()
