# SPDX-License-Identifier: Apache-2.0
"""ORs of ANDs, such as decision trees, as tables: the same function, and read back exactly."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import rules
from n3ic.exporters.netfpga.unrolled import write as unrolled_write
from n3ic.exporters.netfpga.unrolled.decode import decode_core
from n3ic.exporters.netfpga.unrolled.netlist import Netlist
from n3ic.exporters.netfpga.unrolled.size import estimate
from n3ic.families.binary.forest import train_forest
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.decoding import decoding_difference
from n3ic.training.recipe import Training
from tests.exporters.netfpga.test_synth_yosys import export, needs_icarus, needs_yosys
from tests.exporters.netfpga.test_unrolled_core import check
from tests.support.synthesised import run_netlist


def model_of(trees, inputs: int) -> BinaryModel:
    """A vote of ORs of ANDs; an AND is a dict of input and wanted value."""
    leaves = [(t, leaf) for t, tree in enumerate(trees) for leaf in tree]
    weights = np.zeros((len(leaves), inputs), dtype=bool)
    mask, own = weights.copy(), np.zeros((len(trees), len(leaves)), dtype=bool)
    for j, (t, leaf) in enumerate(leaves):
        own[t, j] = True
        for i, wanted in leaf.items():
            mask[j, i], weights[j, i] = True, bool(wanted)
    one = np.ones((1, len(trees)), dtype=bool)
    return BinaryModel(
        input=InputSpec.raw(inputs),
        hidden=(
            HiddenLayer(weights, mask=mask, thresholds=mask.sum(axis=1).astype(np.int32)),
            HiddenLayer(
                np.ones_like(own), mask=own, thresholds=np.ones(len(trees), dtype=np.int32)
            ),
        ),
        output=OutputLayer(np.concatenate([~one, one]), bias=np.zeros(2, dtype=np.int32)),
        classes=("no", "yes"),
        name="rules",
    )


def tree(rng, inputs: int, leaves: int):
    """The leaves of one class of a random decision tree."""
    grown = [{}]
    while len(grown) < leaves:
        leaf = grown.pop(int(rng.integers(len(grown))))
        free = [i for i in range(inputs) if i not in leaf]
        if not free:
            return [leaf, *grown]
        i = int(rng.choice(free))
        grown += [{**leaf, i: 0}, {**leaf, i: 1}]
    return grown[::2]


def forest(seed: int, *, trees: int = 3, inputs: int = 20, leaves: int = 30) -> BinaryModel:
    rng = np.random.default_rng(seed)
    return model_of([tree(rng, inputs, leaves) for _ in range(trees)], inputs)


def written(model: BinaryModel, **options) -> tuple[str, str]:
    texts = unrolled_write.generate(model, **options)
    return texts[unrolled_write.FILE], texts[unrolled_write.CELLS]


def fault(model: BinaryModel, core: str, cells: str) -> str:
    try:
        decoded = decode_core(core, cells, model)
    except VerifyError as error:
        return str(error)
    assert decoded, "the network is decidable"
    return decoding_difference(model, decoded)


@pytest.mark.parametrize("trees", [1, 3])
@pytest.mark.parametrize("outputs", unrolled_design.OUTPUTS)
def test_trees_compute_the_model_and_are_read_back(trees, outputs):
    model = forest(1, trees=trees)
    check(model, outputs, 300)
    for pipeline in (1, 3):
        assert not fault(model, *written(model, outputs=outputs, pipeline=pipeline))


def test_trees_over_a_layer_of_sums_are_read_back():
    """The ANDs that a formula is made of are those of the layer before, not of the first."""
    rng = np.random.default_rng(8)
    rules_of = forest(3, trees=2, inputs=8, leaves=10)
    first = HiddenLayer(rng.random((8, 9)) < 0.5, thresholds=rng.integers(3, 7, 8))
    model = BinaryModel(
        InputSpec.raw(9), (first, *rules_of.hidden), rules_of.output, rules_of.classes, "sums"
    )
    assert rules.layers(model) == {2}
    check(model, "class", 100)
    assert not fault(model, *written(model))


def test_votes_of_trees_for_several_classes_are_read_back():
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, (400, 10)).astype(bool)
    label = bits[:, 0] + 0 + (bits[:, 1] & bits[:, 2] ^ bits[:, 3])
    config = Training(method="trees", leaves=9)
    model = train_forest(bits, label, InputSpec.raw(10), ("a", "b", "c"), config, seed=1)
    model = simplify(model).model
    check(model, "class", 400)
    assert not fault(model, *written(model))


AND = st.dictionaries(st.integers(0, 7), st.integers(0, 1), min_size=1, max_size=5)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(st.lists(AND, min_size=1, max_size=9), min_size=1, max_size=3))
def test_any_or_of_ands_is_computed_and_never_misread(trees):
    """ANDs that hold each other, that differ in one bit, that are equal, that cover all inputs."""
    model = model_of(trees, 8)
    check(model, "class", 256)
    decoded = decode_core(*written(model), model)
    if decoded:  # else two ANDs are one, or a tree is constant
        assert not decoding_difference(model, decoded)


def test_a_formula_has_each_and_once():
    cubes = [frozenset(c) for c in ({2, 4}, {2, 5, 6}, {3, 8}, {10, 13})]
    multiplied: list[frozenset[int]] = []

    def expand(gate):
        if gate.kind == "x":
            return [frozenset({gate.literal})]
        below = [expand(child) for child in gate.children]
        if gate.kind == "o":
            return below[0] + below[1]
        if gate.kind == "a":
            return [a | b for a in below[0] for b in below[1]]
        return [c | {gate.literal ^ 1 ^ k} for k in (0, 1) for c in below[k]]

    multiplied = expand(rules.factored(cubes))
    assert sorted(map(sorted, multiplied)) == sorted(map(sorted, cubes))


def test_a_tree_takes_a_table_for_three_splits():
    net = Netlist(20)
    leaves = [frozenset(c) for c in ({2, 4, 6}, {2, 5, 8}, {3, 10, 12}, {3, 11, 14})]
    rules.build(net, rules.factored(leaves), "tree")
    assert len(net.tables) == 2  # 7 inputs: a selection of two selections


def test_trees_are_small():
    model = forest(2, trees=1, inputs=64, leaves=128)
    assert estimate(model, pipeline=8).lut_sites <= 64


def test_a_changed_literal_table_or_formula_is_found():
    model = forest(4, trees=2, leaves=16)
    core, cells = written(model)
    assert not fault(model, core, cells)
    end = core.index("--- debug build")
    places = [m.start(1) for m in re.finditer(r"[{ ](!?)(?:in|l\d|class)\w*[\[,}]", core[:end])]
    inputs = [at for at in places if ".in({" in core[core.rindex(";", 0, at) : at]]
    assert len(inputs) > 20
    for at in inputs:
        changed = core[:at] + (core[at + 1 :] if core[at] == "!" else "!" + core[at:])
        assert fault(model, changed, cells), core[at - 60 : at + 30]
    table = re.search(r"module n3ic_rule_\w+.*?'h([0-9a-f])", cells, re.S)
    digit = f"{int(table[1], 16) ^ 1:x}"
    assert "is wrong" in fault(model, core, cells[: table.start(1)] + digit + cells[table.end(1) :])
    name = re.search(r"n3ic_rule_(\w+)", cells)[1]
    for other in ("m01", "a0", "0a", "a06", "n", "a" * 70 + "0"):
        texts = [t.replace(f"n3ic_rule_{name}", f"n3ic_rule_{other}") for t in (core, cells)]
        assert fault(model, *texts), other


def test_wide_ands_and_other_layers_stay_sums():
    model = forest(5)
    assert rules.layers(model) == {1}
    wide = model_of([[dict.fromkeys(range(80), 1)], [{0: 1}]], 80)
    assert rules.layers(wide) == frozenset()
    check(wide, "class", 50)


@pytest.mark.exhaustive
@needs_yosys
@needs_icarus
def test_the_netlist_is_as_small_as_foretold_and_computes_the_model(tmp_path):
    model = forest(6)
    directory = export(model, tmp_path)
    measured, foretold = synth.synthesise(directory), estimate(model)
    assert abs(measured.lut_sites - foretold.lut_sites) <= 0.05 * measured.lut_sites
    words = verification_vectors(model, 300)
    seen = run_netlist(directory, model, words, "icarus")
    np.testing.assert_array_equal(seen.inference.classes, model.infer(words).classes)
