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

import n3ic
from n3ic.cli.main import main
from n3ic.errors import MissingDependencyError, needed
from n3ic.model.random_models import random_model
from tests.support import command_line

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
CARD = ("card", "init", "m.n3ic", "--target", "host")
CLUSTER_PLAN = ("cluster", "plan", "--shape", "64-32-2", "--out", "plan.json")
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
    distributions, open_ = set(), [("n3ic", frozenset({extra} if extra else ()))]
    while open_:
        name, extras = open_.pop()
        if (normal(name), extras) not in distributions:
            distributions.add((normal(name), extras))
            open_ += [(need.name, frozenset(need.extras)) for need in needs_of(name, extras)]
    return {name for name, _ in distributions}


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
        distributions = installed_by(extra)
        blocked = {
            module
            for module, owners in owners_of_modules().items()
            if not {normal(o) for o in owners} & distributions and not module.startswith("_")
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


def imports():
    """The libraries that n3ic imports, those of type checkers included, and words that are none."""
    roots = ("n3ic", "datasets", "exporters", "families", "systems")
    for path in chain.from_iterable((ROOT / root).rglob("*.py") for root in roots):
        yield from re.findall(r"^ *(?:from|import) (\w+)", path.read_text("utf-8"), re.M)


@pytest.mark.slow
def test_every_optional_import_is_of_an_extra_that_is_named():
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    base = {normal(Requirement(line).name) for line in project["dependencies"]}
    extras = {
        extra: {normal(Requirement(line).name) for line in lines}
        for extra, lines in project["optional-dependencies"].items()
        if extra not in ("all", "dev", "docs")
    }
    modules = {
        name: {file.parts[0].partition(".")[0] for file in distribution(name).files or ()}
        for name in {*base, *chain.from_iterable(extras.values())}
    }
    checked = set()
    for library in sorted({*imports()} - sys.stdlib_module_names - {"n3ic"}):
        brought = {name for name, tops in modules.items() if library in tops}
        if not brought or brought & base:  # what is no dependency, such as nfstream
            continue
        with pytest.raises(MissingDependencyError) as error, needed("it"):
            raise ModuleNotFoundError(name=library)
        (extra,) = re.findall(r"pip install 'n3ic\[(\w+)\]'", str(error.value))
        assert brought & extras[extra], library
        checked.add(library)
    assert {"torch", "sklearn", "scipy", "onnx", "simpy", "distributed"} <= checked
    with pytest.raises(ModuleNotFoundError, match="none of ours"), needed("it"):
        raise ModuleNotFoundError("none of ours", name="elsewhere")


@pytest.mark.parametrize(
    ("library", "extra", "before", "words"),
    [
        ("scipy", "card", CARD, ["card", "simulate"]),
        ("simpy", "cluster", CLUSTER_PLAN, ["cluster", "simulate", "plan.json"]),
    ],
)
def test_of_what_several_extras_bring_it_names_that_of_the_command(
    library, extra, before, words, monkeypatch, tmp_path, capsys
):
    random_model((40, 8, 2), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    command_line.n3ic(*before, cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["n3ic", *words])
    for name in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as left:
        main()
    error = capsys.readouterr().err
    assert left.value.code == 4
    assert f"needs {library}, which is not installed: pip install 'n3ic[{extra}]'" in error


def test_a_verb_of_python_names_the_extra_too(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(MissingDependencyError, match=re.escape("pip install 'n3ic[train]'")):
        n3ic.train("anomaly", overrides={"epochs": 1, "polish": 0})


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


@pytest.mark.exhaustive
def test_card_plans_and_simulates(alone):
    alone("", "-m", "n3ic", *CARD)
    words = ("-m", "n3ic", "card", "simulate", "--seconds", "1e-4")
    assert "pip install 'n3ic[card]'" in alone("", *words, expect=4)
    assert "(simulated)" in alone("card", *words)


@pytest.mark.slow
def test_cluster_plans_and_simulates(alone):
    assert "this plan" in alone("", "-m", "n3ic", *CLUSTER_PLAN)
    words = ("-m", "n3ic", "cluster", "simulate", "plan.json")
    assert "pip install 'n3ic[cluster]'" in alone("", *words, expect=4)
    assert "a row alone" in alone("cluster", *words)


@pytest.mark.exhaustive
def test_train_trains_and_draws(alone, tmp_path):
    alone("train", "-m", "n3ic", "data", "generate", "unsw-nb15-synthetic", "--rows", 600,
          "--out", "f.csv")  # fmt: skip
    alone("train", "-m", "n3ic", "train", "anomaly", "--data", "f.csv", "--epochs", 1)
    run = tmp_path / "runs" / "anomaly"
    assert (run / "model.n3ic").is_file()
    assert list((run / "plots").glob("*.png"))
