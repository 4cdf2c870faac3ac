# SPDX-License-Identifier: Apache-2.0
"""What ``scripts/demo`` installs and runs, with stand-ins for pip, uv and n3ic."""

import os
import shutil
import subprocess

import pytest

STAND_IN = """#!/bin/sh
case "$*" in
*"pip config list"*) printf '%s' "$PIP_SAID" ;;
*) echo "$(basename "$0") $* torch=${UV_TORCH_BACKEND:-}" >>calls ;;
esac
"""


@pytest.fixture
def demo(repository, tmp_path):
    """Runs the demo in a copy of the scripts; gives what was called and what was told."""
    shutil.copytree(repository / "scripts", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(repository / name, tmp_path)
        os.utime(tmp_path / name, (1, 1))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "uv", "n3ic"):
        (tmp_path / ".venv/bin" / name).write_text(STAND_IN)
        (tmp_path / ".venv/bin" / name).chmod(0o755)

    def run(stamp="", pip=""):
        if stamp:
            (tmp_path / ".venv" / f".installed-{stamp}").touch()
        done = subprocess.run(
            ["bash", "scripts/demo", "--data", "mine"],
            cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if k != "UV_TORCH_BACKEND"}
            | {"PIP_SAID": pip},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        return (tmp_path / "calls").read_text().splitlines(), done.stderr

    return run


def test_the_demo_installs_what_training_and_targets_need_with_progress(demo):
    (pip, uv, train, export), output = demo()
    assert pip.startswith("python -m pip install") and " uv" in pip
    assert "--editable .[train,onnx] torch=cpu" in uv  # without some gigabytes of CUDA
    assert train.startswith("n3ic train anomaly") and "--data mine" in train
    assert export.startswith("n3ic export --target all")
    steps = [line for line in output.splitlines() if line.startswith("[")]
    assert [line[:4] for line in steps] == ["[1/3", "[2/3", "[3/3"]
    assert "MB in .venv" in steps[0] and "installed: " in output


@pytest.mark.slow
def test_the_demo_takes_pytorch_from_the_index_that_pip_is_set_to(demo):
    (_, uv, *_), _ = demo(pip="global.index-url='file:///mine'\n")
    assert uv.endswith("torch=")


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("stamp", "there"),
    [
        ("all", True),
        ("all,dev", True),
        pytest.param("train,onnx", True, marks=pytest.mark.slow),
        ("train", False),
        pytest.param("onnx", False, marks=pytest.mark.slow),
    ],
)
def test_what_is_there_is_not_installed_again(demo, stamp, there):
    calls, _ = demo(stamp)
    assert len(calls) == (2 if there else 4)
