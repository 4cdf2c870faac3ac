# SPDX-License-Identifier: Apache-2.0
"""What is named is loaded, and nothing else: modules of a fresh process are counted."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import get_args

import numpy as np
import pytest

from n3ic import plugins
from n3ic.families.spn.random_models import random_spn
from n3ic.model.random_models import random_model
from n3ic.systems.stream.flows.sink import SCHEMES, SUFFIXES
from n3ic.systems.stream.flows.source import OWN
from n3ic.systems.stream.functions.packets import PacketFunction
from n3ic.systems.stream.functions.process import READY, function_class
from n3ic.targets.base import Command, exporter

RUN = """
import sys
sys.argv = ["n3ic", *sys.argv[1:]]
from n3ic.cli.main import main
try:
    main()
except SystemExit as end:
    code = end.code
loaded = [m for m, found in sys.modules.items() if getattr(found, "__file__", None)]
sys.stderr.write("\\n" + " ".join(loaded))
sys.exit(code)
"""


def loaded_by(folder, *words):
    """Names of the modules that a command line imports, ours alone and those of libraries."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = done.stderr.splitlines()[-1].split()
    return {n for n in names if n.split(".")[0] == "n3ic"}, {n.split(".")[0] for n in names}


def plug_ins_of(ours):
    """Root and folder of each plug-in that is loaded."""
    roots = {"datasets", "exporters", "families", "systems"}
    parts = [name.split(".")[1:3] for name in ours]
    return {tuple(p) for p in parts if len(p) == 2 and p[0] in roots}


OFTEN = ("host", "netfpga", "xdp")  # the others are slow: each is a process
IMPORTED = {"dpdk": "host", "p4-netfpga": "p4", "qonnx": "onnx"}  # targets by those they build on


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name in plugins.names("n3ic.exporters")
    ],
)
def test_an_export_loads_its_target_and_few_files(target, tmp_path):
    random_model((16, 8, 3), np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    words = ("export", "--model", "m.n3ic", "--target", target, "--out", "o")
    ours, libraries = loaded_by(tmp_path, *words)
    folders = {target.replace("-", "_"), IMPORTED.get(target, target).replace("-", "_")}
    assert plug_ins_of(ours) == {("families", "binary"), *(("exporters", f) for f in folders)}
    needless = ("n3ic.meter.c", "n3ic.training", "n3ic.usecases", "n3ic.data")
    parts = ("graph", "tables", "unrolled", "bench")  # other families, the other style, benchmarks
    assert not {n for n in ours if n.startswith(needless) or {*n.split(".")[3:4]} & {*parts}}
    assert len(ours) < 100
    assert not libraries & {"torch", "sklearn", "matplotlib", "pyarrow"}


@pytest.mark.slow
def test_a_model_of_a_family_loads_that_family(tmp_path):
    random_spn(np.random.default_rng(0)).save(tmp_path / "m.n3ic")
    ours, _ = loaded_by(tmp_path, "inspect", "m.n3ic")
    assert plug_ins_of(ours) == {("families", "spn")}
    assert "n3ic.families.spn.learner" not in ours
    random_model((8, 4, 2), np.random.default_rng(0)).save(tmp_path / "b.n3ic")
    ours, _ = loaded_by(tmp_path, "inspect", "b.n3ic")
    assert plug_ins_of(ours) == {("families", "binary")}
    assert "n3ic.families.binary.learner" not in ours


@pytest.mark.slow
def test_the_options_of_a_use_case_are_its_own(tmp_path):
    ours, libraries = loaded_by(tmp_path, "train", "anomaly", "--help")
    families = {("families", name) for name in ("spn", "tables", "trees")}  # learners' options
    assert plug_ins_of(ours) == {("datasets", "unsw_nb15"), *families}
    of_families = {n for n in ours if n.startswith("n3ic.families.") and n.count(".") > 2}
    parts = ("learner", "settings")
    assert of_families == {f"n3ic.families.{name}.{p}" for _, name in families for p in parts}
    assert not libraries & {"torch", "sklearn"}


@pytest.mark.first_case
@pytest.mark.parametrize("words", [("--help",), ("export", "--help"), ("data", "--help")])
def test_help_needs_no_numbers(words, tmp_path):
    _, libraries = loaded_by(tmp_path, *words)
    assert not libraries & {"numpy", "pyarrow", "torch", "safetensors", "jinja2"}


@pytest.mark.slow
def test_a_command_of_a_system_loads_that_system(tmp_path):
    ours, _ = loaded_by(tmp_path, "cluster", "--help")
    assert plug_ins_of(ours) == {("systems", "cluster")}


def test_a_prediction_loads_no_target_and_no_system(tmp_path):
    model = random_model((64, 8, 2), np.random.default_rng(0))
    model.save(tmp_path / "m.n3ic")
    names = model.input.features
    lines = [",".join(map(str, row)) for row in np.arange(3 * len(names)).reshape(3, -1)]
    (tmp_path / "flows.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    ours, _ = loaded_by(tmp_path, "predict", "flows.csv", "--model", "m.n3ic")
    assert plug_ins_of(ours) == {("families", "binary")}


def test_options_of_other_families_bear_names_of_the_targets_own():
    for target in plugins.names("n3ic.exporters"):
        tool = exporter(target)
        for family in tool.families:
            other = tool.for_family(family)
            for command in get_args(Command):
                own = {option.name for option in tool.options_of(command)}
                added = {option.name for option in other.options_of(command)}
                assert added <= own, (target, family)


def test_modules_that_are_named_by_strings_are_there():
    for use in READY:
        assert issubclass(function_class(use), PacketFunction)
    for module in OWN.values():
        assert callable(import_module(module).open_source)
    for sink in (*SCHEMES, *SUFFIXES.values()):
        assert find_spec(f"n3ic.systems.stream.flows.sinks.{sink}")
