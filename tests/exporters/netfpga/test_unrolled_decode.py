"""Weights read back from the unrolled Verilog: exact, and every changed literal is found."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga import unrolled
from n3ic.exporters.netfpga.unrolled.decode import decode_core, equal_tests
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.directory import export


def written(model: BinaryModel, **options) -> tuple[str, str]:
    texts = unrolled.generate(model, **options)
    return texts[unrolled.FILE], texts[unrolled.CELLS]


def fault(model: BinaryModel, core: str, cells: str) -> str:
    """What is found wrong with a core; empty where nothing is."""
    try:
        found = decode_core(core, cells, model)
    except VerifyError as error:
        return str(error)
    assert found, "the network is decidable"
    return decoding_difference(model, found)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(1, 28), min_size=1, max_size=3),
    classes=st.integers(2, 4),
    density=st.sampled_from([None, 0.7, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    outputs=st.sampled_from(unrolled.OUTPUTS),
    pipeline=st.integers(1, 4),
)
def test_every_weight_is_read_back(shape, classes, density, seed, outputs, pipeline):
    model = random_model((*shape, classes), np.random.default_rng(seed), density=density)
    model = simplify(model).model
    found = decode_core(*written(model, outputs=outputs, pipeline=pipeline), model)
    if found:  # else a neuron is constant, or two share a wire
        assert not decoding_difference(model, found)


def small(seed: int = 3) -> BinaryModel:
    return random_model((20, 5, 4, 2), np.random.default_rng(seed), extremes=False)


@pytest.mark.parametrize("options", [{}, {"pipeline": 3}, {"outputs": "scores"}])
def test_no_weight_of_a_dense_network_is_left_out(options):
    assert not fault(small(), *written(small(), **options))


def test_a_changed_literal_is_found():
    model = small()
    core, cells = written(model)
    end = core.index("--- results ---")
    places = [m.start(1) for m in re.finditer(r"[{ ](!?)(?:in|l\d|class)\w*[\[,}]", core[:end])]
    inputs = [at for at in places if ".in({" in core[core.rindex(";", 0, at) : at]]
    assert len(inputs) > 90
    for at in np.random.default_rng(1).choice(inputs, 25, replace=False):
        changed = core[:at] + (core[at + 1 :] if core[at] == "!" else "!" + core[at:])
        assert fault(model, changed, cells), core[at - 60 : at + 30]


def test_changed_cells_clocks_and_outputs_are_found():
    model = small()
    core, cells = written(model)
    table = re.search(r"'h([0-9a-f])", cells)
    digit = f"{int(table[1], 16) ^ 1:x}"
    assert "is wrong" in fault(model, core, cells[: table.start(1)] + digit + cells[table.end(1) :])
    assert "is wrong" in fault(model, core, cells.replace("in[0] & in[1]", "in[0] | in[1]", 1))
    late = re.search(r"l0_c\d+_b\d+_d\[(1)\]", core)
    assert "clock" in fault(model, core[: late.start(1)] + "2" + core[late.end(1) :], cells) or (
        "drives" in fault(model, core[: late.start(1)] + "2" + core[late.end(1) :], cells)
    )
    swapped = re.sub(r"(assign out_trace = \{)([^,]+), ([^,]+),", r"\1\3, \2,", core)
    assert "neuron" in fault(model, swapped, cells)
    inverted = core.replace("assign out_class = {", "assign out_class = {!").replace("{!!", "{")
    assert fault(model, inverted, cells)
    assert "not understood" in fault(
        model, core.replace("    wire", "    initial x; wire", 1), cells
    )


def test_the_debug_build_may_not_differ():
    model = small()
    core, cells = written(model)
    honest = re.search(r"assign out_class = \{(.*?)\};", core)[0]
    cheating = f"`ifdef N3IC_TRACE\n{honest}\n`else\nassign out_class = {{1'b0}};\n`endif\n"
    assert "debug build" in fault(model, core.replace(honest, cheating), cells)


def test_what_the_logic_does_not_tell_is_not_decoded():
    row = np.random.default_rng(0).random(9) < 0.5
    hidden = HiddenLayer(np.array([row, row, ~row]), thresholds=np.array([4, 4, 10]))
    last = OutputLayer(np.array([[1, 1, 0], [0, 1, 0]]), bias=np.zeros(2, int))
    model = BinaryModel(small().input.raw(9), (hidden,), last, ("a", "b"))
    assert decode_core(*written(model), model) is None


@pytest.mark.parametrize("outputs", unrolled.OUTPUTS)
def test_a_tournament_whose_sums_meet_again_is_read(outputs):
    """Five classes: the parity of some differences is a bit that they were made of."""
    model = random_model((24, 9, 5), np.random.default_rng(5), density=0.7, extremes=False)
    model = simplify(model).model
    assert not fault(model, *written(model, outputs=outputs))


def test_comparisons_that_agree():
    two = np.array([2, 2, 2])
    assert equal_tests(np.array([1, 1, 1]), 2, two, 3)
    assert not equal_tests(np.array([1, 1, 1]), 2, two, 5)
    assert equal_tests(np.array([2, 2, 1]), 3, two, 4)
    assert not equal_tests(np.array([2, 2, 1]), 4, two, 4)


@pytest.mark.parametrize(
    "options", [{"outputs": "class"}, {"outputs": "class", "pipeline": 2}, {"pipeline": 4}]
)
def test_exports_are_decoded_and_run(tmp_path, options):
    model = small(5)
    done = export(model, "netfpga", tmp_path / "card", options={"style": "unrolled", **options})
    if done.verification.missing:
        pytest.skip(done.verification.missing)
    assert done.verification.ok, str(done.verification)
    assert done.verification.decoded == ("rtl/n3ic_core.v",)
