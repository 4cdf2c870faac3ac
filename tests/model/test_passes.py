# SPDX-License-Identifier: Apache-2.0
"""Passes on the integer network: equal scores on every input, and nothing left to remove."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Findings, Removed, simplify, unchanged
from n3ic.model.passes.dead import read_neurons
from n3ic.model.passes.draft import Draft, narrowed
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors


def degenerate(shape, seed: int, *, masked: bool) -> BinaryModel:
    """A random model with dead, constant, equal and complementary neurons in every layer."""
    rng = np.random.default_rng(seed)
    model = random_model(shape, rng, density=0.7 if masked else None)
    hidden = []
    for layer in model.hidden:
        weights, thresholds = layer.weights.copy(), layer.thresholds.copy()
        mask = np.ones_like(weights) if layer.mask is None else layer.mask.copy()
        if masked:
            mask[:, rng.random(layer.n_inputs) < 0.3] = False
        for j in range(1, layer.n_outputs):
            source, kind = int(rng.integers(0, j)), rng.integers(0, 4)
            if kind < 2:  # a copy, or its complement
                mask[j] = mask[source]
                weights[j] = weights[source] ^ bool(kind)
                fan_in = int(mask[j].sum())
                own = int(thresholds[source])
                thresholds[j] = fan_in + 1 - own if kind else own
        thresholds = np.clip(thresholds, 0, mask.sum(axis=1) + 1)
        hidden.append(HiddenLayer(weights, mask=mask if masked else None, thresholds=thresholds))
    output = model.output
    if masked and output.mask is not None:
        mask = output.mask.copy()
        mask[:, rng.random(output.n_inputs) < 0.3] = False
        output = OutputLayer(output.weights, mask=mask, bias=output.bias)
    return replace(model, hidden=tuple(hidden), output=output)


def every_input(n: int):
    return pack((np.arange(1 << n)[:, None] >> np.arange(n)) & 1)


def assert_equal(model: BinaryModel, words) -> None:
    simplified = simplify(model)
    before, after = model.infer(words), simplified.model.infer(simplified.inputs(words))
    np.testing.assert_array_equal(after.scores, before.scores)
    np.testing.assert_array_equal(after.classes, before.classes)
    np.testing.assert_array_equal(after.margins, before.margins)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=4),
    classes=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
    masked=st.booleans(),
)
def test_scores_stay_on_every_input(shape, classes, seed, masked):
    model = degenerate((*shape, classes), seed, masked=masked)
    assert_equal(model, every_input(shape[0]))
    simplified = simplify(model)
    assert not simplify(simplified.model).findings.removes
    for old, new in zip(model.layers, simplified.model.layers, strict=True):
        assert (new.mask is None) == (old.mask is None)
        assert new.n_outputs <= old.n_outputs
    gone = [
        sum(r.layer == i for r in simplified.findings.neurons) for i in range(len(model.hidden))
    ]
    assert [
        a - b for a, b in zip(model.shape[1:-1], simplified.model.shape[1:-1], strict=True)
    ] == gone


@pytest.mark.parametrize("masked", [False, True])
def test_wide_networks(masked):
    model = degenerate((100, 40, 30, 20, 3), 5, masked=masked)
    assert_equal(model, verification_vectors(model, 2000))
    assert simplify(model).findings.neurons


def spec() -> InputSpec:
    return InputSpec(
        (
            Field.thermometer("size", (10, 20, 30)),
            Field.binary("flags", 2),
            Field.thermometer("gap", (5,)),
            Field.binary("port", 2),
        )
    )


def small(mask, thresholds=(3, 2), last=((1, 0), (0, 1)), bias=(0, 0)) -> BinaryModel:
    mask = np.array(mask, dtype=bool)
    weights = np.random.default_rng(1).random(mask.shape) < 0.5
    return BinaryModel(
        input=spec(),
        hidden=(HiddenLayer(weights, mask=mask, thresholds=np.array(thresholds)),),
        output=OutputLayer(np.array(last), bias=np.array(bias)),
        classes=("a", "b"),
    )


def test_input_bits_that_nothing_reads_go_and_their_features():
    model = small([[1, 0, 1, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]], thresholds=(2, 1))
    simplified = simplify(model)
    # A cut goes alone; of a binary field all bits stay as long as one is read.
    assert simplified.source_bits == (0, 2, 3, 4)
    assert simplified.findings.bits == (1, 5, 6, 7)
    assert simplified.findings.features == ("gap", "port")
    assert simplified.model.input.features == ("size", "flags")
    assert simplified.model.input.fields[0].cuts == (10, 30)
    rows = {"size": [0, 10, 25, 40], "flags": [0, 1, 2, 3], "gap": [9] * 4, "port": [1] * 4}
    words = simplified.inputs(model.encode(rows))
    np.testing.assert_array_equal(words, simplified.model.encode(rows))
    np.testing.assert_array_equal(simplified.model.scores(words), model.scores(model.encode(rows)))


def test_a_constant_neuron_becomes_a_bias():
    mask = np.ones((2, 8))
    model = small(mask, thresholds=(0, 5), last=((1, 1), (0, 1)), bias=(4, -2))
    simplified = simplify(model)
    assert simplified.findings.neurons == (Removed(0, 0, "constant", 1),)
    assert simplified.model.output.bias.tolist() == [5, -2]
    assert simplified.model.shape == (8, 1, 2)
    assert "layer 0: 1 constant neuron removed" in simplified.findings.lines()


def test_findings_in_words_and_as_data():
    removed = (
        Removed(0, 1, "dead"), Removed(0, 2, "dead"), Removed(0, 3, "equal", 1),
        Removed(1, 0, "constant", 1),
    )  # fmt: skip
    findings = Findings(removed, (3,), ("size", "gap"), ((1, (0, 2)),), ("one part",))
    assert findings.lines() == [
        "one part",
        "layer 0: 2 dead neurons removed",
        "layer 0: 1 equal neuron removed",
        "layer 1: 1 constant neuron removed",
        "input: 1 bit that nothing reads removed",
        "features that are no longer read: size, gap",
        "layer 1: neurons 0, 2 are equal or complementary and stay",
    ]
    assert (
        replace(findings, bits=tuple(range(1000))).lines()[4].startswith("input: 1,000 bits that")
    )
    document = findings.to_dict()
    assert document["neurons"][2] == {"layer": 0, "neuron": 3, "cause": "equal", "other": 1}
    assert document["shared"] == [{"layer": 1, "neurons": [0, 2]}] and document["parts"] == [
        "one part"
    ]
    assert (document["bits"], document["features"]) == ([3], ["size", "gap"])
    none = Findings(shared=((0, (1, 2)),))
    assert none.removes is False and "parts" not in none.to_dict()
    for some in (Findings(removed), Findings(bits=(1,)), Findings(parts=("a",))):
        assert some.removes is True


def test_neurons_that_the_output_depends_on():
    """By its scores, or by its class, to which equal weights of all classes are one."""
    first = HiddenLayer(
        np.ones((3, 4), bool), thresholds=np.array([2, 0, 2]),
        mask=np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=bool),
    )  # fmt: skip
    second = HiddenLayer(
        np.ones((3, 3), bool), thresholds=np.array([1, 1, 2]),
        mask=np.array([[1, 1, 0], [0, 0, 1], [0, 1, 0]], dtype=bool),
    )  # fmt: skip
    last = OutputLayer(np.array([[1, 1, 1], [1, 0, 0]]), bias=np.array([0, 0]))
    model = BinaryModel(InputSpec.raw(4), (first, second), last, ("a", "b"))
    by_score = read_neurons(model)
    assert [neurons.tolist() for neurons in by_score] == [[True] * 3, [True] * 3]
    # Neuron 0 counts alike for both classes, and neuron 2 never fires whatever it reads.
    assert [neurons.tolist() for neurons in read_neurons(model, scores=False)] == [
        [False, False, True], [False, True, True],
    ]  # fmt: skip


def two_classes(hidden, last):
    return BinaryModel(InputSpec.raw(hidden.n_inputs), (hidden,), last, ("a", "b"))


def test_of_a_layer_that_nothing_reads_one_neuron_stays():
    rng = np.random.default_rng(4)
    hidden = HiddenLayer(rng.random((4, 6)) < 0.5, thresholds=np.array([3, 2, 4, 3]))
    last = OutputLayer(np.ones((2, 4)), mask=np.zeros((2, 4), bool), bias=np.array([0, 1]))
    simplified = simplify(two_classes(hidden, last)).model
    assert simplified.hidden[0].n_outputs == 1
    constant = HiddenLayer(hidden.weights, thresholds=np.array([0, 7, 0, 7]))
    dense = OutputLayer(np.ones((2, 4)), bias=np.array([0, 1]))
    simplified = simplify(two_classes(constant, dense))
    assert simplified.model.hidden[0].n_outputs == 1
    assert [r.neuron for r in simplified.findings.neurons] == [1, 2, 3]


@pytest.mark.parametrize("masked", [False, True])
def test_of_copies_that_cancel_two_stay_or_one_where_it_need_not_be_read(masked):
    row = np.array([1, 0, 1, 1, 0], bool)
    hidden = HiddenLayer(np.tile(row, (4, 1)), thresholds=np.full(4, 3))
    mask = np.ones((2, 4), bool) if masked else None
    last = OutputLayer(np.array([[1, 0, 0, 1], [0, 0, 1, 1]]), mask=mask, bias=np.array([0, 0]))
    model = two_classes(hidden, last)
    assert simplify(model).model.hidden[0].n_outputs == (1 if masked else 2)
    assert_equal(model, every_input(5))


def test_what_is_counted_of_copies_stays_where_all_of_them_stay():
    """Of neurons 0 and 1 both stay, and how the second class counts them; 3 is a copy of 2."""
    rng = np.random.default_rng(5)
    one, other = rng.random((2, 6)) < 0.5
    hidden = HiddenLayer(np.array([one, one, other, other]), thresholds=np.array([3, 3, 2, 2]))
    last = OutputLayer(np.array([[1, 1, 1, 0], [0, 1, 0, 1]]), bias=np.array([0, 0]))
    simplified = simplify(two_classes(hidden, last))
    assert simplified.model.output.weights[:, :2].tolist() == [[True, True], [False, True]]
    assert_equal(two_classes(hidden, last), every_input(6))


def test_complements_are_found_where_the_first_input_is_not_connected():
    mask = np.array([[0, 1, 1, 1, 0]] * 2, bool)
    weights = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 0]], bool)
    hidden = HiddenLayer(weights, mask=mask, thresholds=np.array([2, 2]))
    last = OutputLayer(np.ones((2, 2)), mask=np.array([[1, 0], [0, 1]]), bias=np.array([0, 0]))
    simplified = simplify(two_classes(hidden, last))
    assert [(r.neuron, r.cause) for r in simplified.findings.neurons] == [(1, "complementary")]
    assert_equal(two_classes(hidden, last), every_input(5))


def test_neurons_that_cancel_and_neurons_that_add_up():
    rng = np.random.default_rng(2)
    row = rng.random(6) < 0.5
    other = rng.random(6) < 0.5
    weights = np.array([row, ~row, other, row])
    hidden = (HiddenLayer(weights, thresholds=np.array([3, 4, 2, 3])),)

    def model(last):
        return BinaryModel(
            InputSpec.raw(6), hidden, OutputLayer(np.array(last), bias=np.zeros(2, int)), ("a", "b")
        )

    # Copies 0 and 3 and the complement 1: both classes count one of them, with its sign.
    simplified = simplify(model([[1, 1, 1, 1], [0, 0, 1, 0]]))
    assert [(r.neuron, r.cause, r.other) for r in simplified.findings.neurons] == [
        (1, "complementary", 0),
        (3, "equal", 0),
    ]
    # A class that counts all three with one sign keeps all three.
    simplified = simplify(model([[1, 0, 1, 1], [0, 0, 1, 0]]))
    assert not simplified.findings.removes
    assert simplified.findings.shared == ((0, (0, 1, 3)),)
    assert_equal(model([[1, 0, 1, 1], [0, 0, 1, 0]]), every_input(6))


def test_what_only_a_dead_neuron_reads_is_dead():
    rng = np.random.default_rng(3)
    first = HiddenLayer(rng.random((3, 5)) < 0.5, thresholds=np.array([3, 2, 4]))
    mask = np.array([[1, 1, 0], [0, 0, 1]], dtype=bool)
    second = HiddenLayer(rng.random((2, 3)) < 0.5, mask=mask, thresholds=np.array([1, 1]))
    last = OutputLayer(np.ones((2, 2)), mask=np.array([[1, 0], [1, 0]]), bias=np.array([0, 1]))
    model = BinaryModel(InputSpec.raw(5), (first, second), last, ("a", "b"))
    simplified = simplify(model)
    assert {(r.layer, r.neuron, r.cause) for r in simplified.findings.neurons} == {
        (0, 2, "dead"),
        (1, 1, "dead"),
    }
    assert_equal(model, every_input(5))


def test_a_network_without_findings_comes_back_as_it_is():
    model = random_model((40, 8, 2), np.random.default_rng(4), extremes=False)
    simplified = simplify(model)
    assert simplified.model is model
    assert not simplified.findings.lines()
    assert unchanged(model).model is model
    assert "simplified from" not in simplified.model.provenance


def test_the_simplified_network_names_the_one_that_it_was():
    model = small(np.ones((2, 8)), thresholds=(0, 5))
    assert simplify(model).model.provenance["simplified from"] == model.digest


def test_inputs_of_another_width_are_refused():
    with pytest.raises(ModelError, match="shape"):
        simplify(small(np.ones((2, 8)))).inputs(np.zeros((1, 2), np.uint32))


def test_a_draft_knows_where_the_neurons_of_each_layer_stood():
    model = random_model((16, 5, 4, 3), np.random.default_rng(1))
    first = Draft.of(model).without(
        0, {1: ("dead", None)}, narrowed(model.layers[1], [0, 2, 3, 4], 0)
    )
    assert [layer.tolist() for layer in first.neurons] == [[0, 2, 3, 4], [0, 1, 2, 3]]
    second = first.without(1, {0: ("dead", None)}, narrowed(model.output, [1, 2, 3], 0))
    assert [layer.tolist() for layer in second.neurons] == [[0, 2, 3, 4], [1, 2, 3]]
    assert second.removed == (Removed(0, 1, "dead", None), Removed(1, 0, "dead", None))
