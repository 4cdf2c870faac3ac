# SPDX-License-Identifier: Apache-2.0
"""What each extra gives, where nothing but its own libraries can be imported."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from n3ic.model.random_models import random_model

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
HOOK = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = name.partition('.')[0] in {blocked!r}
        return None if missing else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def needs_of(name, extras):
    """What a distribution needs; of n3ic itself as pyproject.toml says, which no build rewrites."""
    if name == "n3ic":
        project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
        further = (project["optional-dependencies"][extra] for extra in extras)
        return [Requirement(line) for line in chain(project["dependencies"], *further)]
    try:
        needs = map(Requirement, distribution(name).requires or [])
    except PackageNotFoundError:
        return []  # of another platform
    chosen = [{"extra": extra} for extra in (*extras, "")]
    return [n for n in needs if n.marker is None or any(n.marker.evaluate(e) for e in chosen)]


def installed_by(extra):
    """The distributions that ``pip install n3ic[extra]`` brings, those that they need included."""
    found, open_ = set(), [("n3ic", frozenset({extra} if extra else ()))]
    while open_:
        name, extras = open_.pop()
        if (normal(name), extras) not in found:
            found.add((normal(name), extras))
            open_ += [(need.name, frozenset(need.extras)) for need in needs_of(name, extras)]
    return {name for name, _ in found}


def owners_of_modules():
    """The distributions that each importable module is of, as a fresh Python sees them.

    This one may see more: setuptools puts the folder of what it vendors on ``sys.path``.
    """
    code = "import json, importlib.metadata as m; print(json.dumps(m.packages_distributions()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture
def alone(tmp_path):
    """Runs Python where the libraries of one extra alone can be imported."""

    def run(extra, *words, expect=0):
        kept = installed_by(extra)
        blocked = {
            module
            for module, owners in owners_of_modules().items()
            if not {normal(o) for o in owners} & kept and not module.startswith("_")
        }
        assert "pytest" in blocked
        hook = tmp_path / "hook"
        hook.mkdir(exist_ok=True)
        (hook / "sitecustomize.py").write_text(HOOK.format(blocked=blocked))
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(hook), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    model = random_model((40, 8, 2), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "t.csv").write_text("x0,x1\n1,2\n")
    return run


@pytest.mark.slow
def test_the_plain_installation_predicts_exports_and_verifies(alone, tmp_path):
    assert "score_class0" in alone("", "-m", "n3ic", "predict", "--model", "m.n3ic", "t.csv")
    alone("", "-c", "import pyarrow as p, pyarrow.parquet as q\n"
                    "q.write_table(p.table({'x0': [1], 'x1': [2]}), 't.parquet')")  # fmt: skip
    parquet = alone("", "-m", "n3ic", "predict", "--model", "m.n3ic", "t.parquet")
    assert "score_class0" in parquet
    alone(
        "", "-m", "n3ic", "data", "generate", "unsw-nb15-synthetic", "--rows", 60, "--out", "f.csv"
    )
    assert "60" in alone("", "-m", "n3ic", "data", "check", "f.csv")
    alone("", "-m", "n3ic", "export", "-t", "nfp", "--model", "m.n3ic", "--out", "nfp")
    alone("", "-m", "n3ic", "verify", "nfp", "--vectors", 20)
    refused = alone("", "-m", "n3ic", "export", "-t", "onnx", "--model", "m.n3ic", expect=4)
    assert "pip install 'n3ic[onnx]'" in refused
    refused = alone("", "-m", "n3ic", "train", "anomaly", expect=4)
    assert "pip install 'n3ic[train]'" in refused


@pytest.mark.slow
def test_onnx_exports_verifies_and_imports(alone):
    for target in ("onnx", "qonnx"):
        alone("onnx", "-m", "n3ic", "export", "-t", target, "--model", "m.n3ic", "--out", target)
        alone("onnx", "-m", "n3ic", "verify", target, "--vectors", 20)


@pytest.mark.slow
def test_card_plans_and_simulates(alone):
    words = ("-m", "n3ic", "card", "simulate", "--experiment", "scheduling")
    assert "pip install 'n3ic[card]'" in alone("", *words, expect=4)
    assert "64 ns" in alone("card", *words)


@pytest.mark.slow
def test_cluster_plans_and_simulates(alone):
    plan = ("-m", "n3ic", "cluster", "plan", "--shape", "64-32-2")
    assert "this plan" in alone("", *plan)
    words = ("-m", "n3ic", "cluster", "simulate", "--kernel", "conv2d", "--size", 64, "-n", 1)
    assert "pip install 'n3ic[card]'" in alone("", *words, expect=4)
    assert "one big node" in alone("cluster", *words)


@pytest.mark.slow
def test_train_trains_and_draws(alone, tmp_path):
    alone("train", "-m", "n3ic", "data", "generate", "unsw-nb15-synthetic", "--rows", 600,
          "--out", "f.csv")  # fmt: skip
    alone("train", "-m", "n3ic", "train", "anomaly", "--data", "f.csv", "--epochs", 1)
    run = tmp_path / "runs" / "anomaly"
    assert (run / "model.n3ic").is_file()
    assert list((run / "plots").glob("*.png"))
