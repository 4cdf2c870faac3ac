# SPDX-License-Identifier: Apache-2.0

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.model.bits import pack
from n3ic.model.classifier import family_text
from n3ic.model.family import Family, family
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel, margins_of
from n3ic.model.random_models import random_model

SHAPES = st.lists(st.integers(1, 70), min_size=1, max_size=4).flatmap(
    lambda head: st.integers(2, 5).map(lambda classes: (*head, classes))
)


def by_hand(model, bits):
    """The definition, one neuron at a time, without any packing."""
    x = bits
    hidden = []
    for layer in model.layers:
        agree = np.zeros((len(x), layer.n_outputs), dtype=int)
        for j in range(layer.n_outputs):
            for i in range(layer.n_inputs):
                if layer.mask is None or layer.mask[j, i]:
                    agree[:, j] += x[:, i] == layer.weights[j, i]
        if isinstance(layer, HiddenLayer):
            x = agree >= layer.thresholds
            hidden.append(x)
        else:
            return hidden, agree + layer.bias
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(0, 2**31), st.sampled_from([None, 0.3, 1.0]))
def test_packed_inference_is_the_definition(shape, seed, density):
    rng = np.random.default_rng(seed)
    model = random_model(shape, rng, density=density)
    bits = rng.random((17, shape[0])) < rng.random((17, 1))
    hidden, scores = by_hand(model, bits)
    trace = model.infer(pack(bits))
    assert np.array_equal(trace.scores, scores)
    assert len(trace.hidden) == len(hidden)
    for got, want in zip(trace.hidden, hidden, strict=True):
        assert np.array_equal(got, want)
    assert np.array_equal(model.scores(pack(bits)), scores)
    assert np.array_equal(trace.classes, [row.tolist().index(max(row)) for row in scores])
    ordered = np.sort(scores, axis=1)
    assert np.array_equal(trace.margins, ordered[:, -1] - ordered[:, -2])


@pytest.mark.parametrize(
    ("shape", "weights", "floats"),
    [
        ((256, 32, 16, 2), 1092, 34_944),
        ((152, 32, 16, 2), 676, 21_632),
        ((152, 64, 32, 2), 1480, 47_360),
        ((152, 128, 64, 2), 3472, 111_104),
    ],
)
def test_memory_is_the_papers_table_1_and_5(shape, weights, floats):
    model = random_model(shape, np.random.default_rng(0))
    assert model.weight_bytes == weights
    assert model.float_weight_bytes == floats


def test_the_papers_thresholds_cost_nothing():
    rng = np.random.default_rng(0)
    hidden = HiddenLayer(rng.random((9, 7)) < 0.5, thresholds=np.full(9, 4))
    output = OutputLayer(rng.random((2, 9)) < 0.5, bias=np.zeros(2, np.int32))
    paper = BinaryModel(InputSpec.raw(7), (hidden,), output, ("a", "b"))
    assert paper.threshold_bytes == 0
    moved = HiddenLayer(hidden.weights, thresholds=np.full(9, 5))
    assert BinaryModel(InputSpec.raw(7), (moved,), output, ("a", "b")).threshold_bytes == 9


def test_thresholds_take_as_many_bytes_as_the_largest():
    hidden = HiddenLayer(np.ones((3, 300), bool), thresholds=np.array([1, 300, 2]))
    output = OutputLayer(np.ones((2, 3), bool), bias=np.zeros(2, np.int32))
    assert BinaryModel(InputSpec.raw(300), (hidden,), output, ("a", "b")).threshold_bytes == 6


def test_a_layer_has_65536_inputs_at_most():
    OutputLayer(np.ones((2, 65536), bool), bias=np.zeros(2, np.int32))
    with pytest.raises(ModelError, match="at most 65536 inputs and outputs"):
        OutputLayer(np.ones((2, 65537), bool), bias=np.zeros(2, np.int32))


@pytest.mark.parametrize(
    ("bias", "size"), [([0, 0], 0), ([5, -127], 2), ([128, 5], 4), ([5, -200], 4), ([0, 32768], 8)]
)
def test_biases_take_as_many_bytes_as_the_largest_and_its_sign(bias, size):
    output = OutputLayer(np.ones((2, 7), bool), bias=np.array(bias, np.int32))
    assert BinaryModel(InputSpec.raw(7), (), output, ("a", "b")).threshold_bytes == size


def test_thresholds_0_and_k_plus_1_always_and_never_fire():
    layer = HiddenLayer(np.ones((2, 5), bool), thresholds=np.array([0, 6]))
    x = pack(np.random.default_rng(0).random((50, 5)) < 0.5)
    assert set(layer.fire(x).ravel().tolist()) == {1}


@pytest.mark.parametrize("threshold", [-1, 7])
def test_thresholds_outside_are_refused(threshold):
    with pytest.raises(ModelError, match=rf"neuron 0: threshold {threshold} is not in 0\.\.6"):
        HiddenLayer(np.ones((1, 5), bool), thresholds=np.array([threshold]))


def test_weights_of_absent_connections_do_not_matter():
    mask = np.array([[True, False, True]])
    a = HiddenLayer(np.array([[1, 0, 0]], bool), mask=mask, thresholds=np.array([1]))
    b = HiddenLayer(np.array([[1, 1, 0]], bool), mask=mask, thresholds=np.array([1]))
    assert np.array_equal(a.weight_words, b.weight_words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (np.zeros((2, 1), np.uint32), "shape"),
        (np.zeros((2, 2), np.int64), "uint32"),
        (np.full((2, 2), 0xFFFFFFFF, np.uint32), "pad bits"),
        (np.zeros(2, np.uint32), "shape"),
    ],
)
def test_inputs_that_are_not_packed_inputs_are_refused(words, message):
    model = random_model((40, 3, 2), np.random.default_rng(0))
    with pytest.raises(ModelError, match=message):
        model.scores(words)
    with pytest.raises(ModelError, match=message):
        model.hidden[0].popcounts(words)
    with pytest.raises(ModelError, match=message):
        model.hidden[0].fire(words)


def test_a_layer_takes_packed_inputs_of_its_own_width():
    model = random_model((256, 3, 2), np.random.default_rng(0))
    with pytest.raises(ModelError, match=r"\(rows, 8\), got \(2, 1\)"):  # it would broadcast
        model.hidden[0].popcounts(np.zeros((2, 1), np.uint32))
    with pytest.raises(ModelError, match="pad bits"):
        model.output.scores(np.full((1, 1), 8, np.uint32))


def test_layers_must_chain():
    rng = np.random.default_rng(0)
    a = random_model((8, 4, 2), rng)
    with pytest.raises(ModelError, match="layer 1 takes 4 bits, but layer 0 gives 5"):
        BinaryModel(a.input, random_model((8, 5, 2), rng).hidden, a.output, ("a", "b"))
    with pytest.raises(ModelError, match="layer 0 takes 8 bits, but the input gives 9"):
        BinaryModel(InputSpec.raw(9), a.hidden, a.output, ("a", "b"))
    with pytest.raises(ModelError, match="2 scores for 3 classes"):
        BinaryModel(a.input, a.hidden, a.output, ("a", "b", "c"))
    with pytest.raises(ModelError, match="differ"):
        BinaryModel(a.input, a.hidden, a.output, ("a", "a"))


def test_a_model_cannot_be_changed():
    model = random_model((8, 4, 2), np.random.default_rng(0))
    with pytest.raises(ValueError, match="read-only"):
        model.hidden[0].weights[0, 0] = False


def test_margin_of_a_tie_is_0():
    assert margins_of(np.array([[3, 3, 1], [0, 5, 4]], np.int32)).tolist() == [0, 1]


def test_a_mask_of_one_layer_is_counted_in_whole_bytes():
    rng = np.random.default_rng(0)
    model = random_model((9, 3, 2), rng, density=1.0)
    plain = replace(
        model,
        hidden=[replace(layer, mask=None) for layer in model.hidden],
        output=replace(model.output, mask=None),
    )
    assert not plain.has_masks
    assert plain.mask_bytes == 0
    mask = np.eye(3, 9, dtype=np.bool_) | (rng.random((3, 9)) < 0.5)
    first = replace(plain.hidden[0], mask=mask, thresholds=np.ones(3, np.int32))
    one = replace(plain, hidden=[first])
    assert one.has_masks
    assert one.mask_bytes == 4  # 27 connections


def test_a_random_network_of_the_family_has_64_bits_and_3_classes():
    made = family("binary-network").random(np.random.default_rng(0))
    assert made.shape == (64, 16, 3)
    assert made.digest == family("binary-network").random(np.random.default_rng(0)).digest


@pytest.mark.parametrize(
    ("name", "words"),
    [("sum-product-network", "sum-product network"), ("binary-network", "binary network"),
     ("tables", "tables")],
)  # fmt: skip
def test_the_name_of_a_family_in_words(name, words):
    assert family_text(name) == words


@pytest.mark.slow
def test_a_model_predicts_as_its_family_does():
    spec = InputSpec((Field.thermometer("x", (3, 9, 27)), Field.binary("y", 7)))
    model = random_model((10, 4, 3), np.random.default_rng(0)).changed(input=spec)
    values = {"x": np.array([1, 9, 30]), "y": np.array([5, 99, 0])}
    want = model.infer(model.encode(values))
    for inference in (model.predict(values), family(model.family).predict(model, values)):
        assert np.array_equal(inference.scores, want.scores)
        assert np.array_equal(inference.classes, want.classes)


def test_equal_models_are_one_and_nothing_else_is():
    model = random_model((10, 4, 3), np.random.default_rng(0))
    same = random_model((10, 4, 3), np.random.default_rng(0))
    other = model.changed(name="other")
    assert model == same and hash(model) == hash(same) and len({model, same, other}) == 2
    assert model != other and model != 5 and (model == "model") is False
    assert model.learned_all is True
    assert model.changed(name="", provenance={"k": ""}).name == ""


@pytest.mark.parametrize("shape", [(1, 2), (33, 3), (1, 1, 1, 2), (70, 1, 5)])
def test_the_smallest_networks_survive_their_files(shape):
    model = random_model(shape, np.random.default_rng(0))
    assert BinaryModel.from_bytes(model.to_bytes()) == model


def test_a_shape_is_of_two_positive_integers_or_more():
    model = random_model((10, 4, 3), np.random.default_rng(0))
    header, tensors = unpack_file(model.to_bytes(), "m")
    for shape in ([10], [], [10, 0, 3], [10, -4, 3], [10, True, 3], [10, 4.0, 3], "10", None):
        data = pack_file(model.family, header | {"shape": shape}, tensors._left)
        with pytest.raises(ModelError, match="shape: expected a list of two positive integers"):
            BinaryModel.from_bytes(data)


def test_one_class_is_none():
    output = OutputLayer(np.ones((1, 4), bool), bias=np.zeros(1, np.int32))
    with pytest.raises(ModelError, match=r"1 scores for 1 classes; expected .* at least two"):
        BinaryModel(InputSpec.raw(4), (), output, ("a",))


def test_provenance_has_64_facts_of_4096_characters_at_most():
    model = random_model((10, 4, 3), np.random.default_rng(0))
    facts = {f"k{i}": "v" * 4096 for i in range(64)}
    assert model.changed(provenance=facts).provenance == facts
    for wrong in (facts | {"more": ""}, {"k": "v" * 4097}, {"k" * 257: ""}, {"": "v"}):
        with pytest.raises(ModelError, match="provenance"):
            model.changed(provenance=wrong)


def test_tables_of_a_model_say_its_sizes():
    rng = np.random.default_rng(0)
    hidden = HiddenLayer(rng.random((1200, 9)) < 0.5, thresholds=np.full(1200, 3))
    output = OutputLayer(rng.random((3, 1200)) < 0.5, bias=np.array([0, 200, -1]))
    model = BinaryModel(InputSpec.raw(9), (hidden,), output, ("a", "b", "c"))
    assert model.memory_table.rows == (
        ("0", "9", "1,200", "10,800", "1,350", "1,200"),
        ("scores", "1,200", "3", "3,600", "450", "6"),
    )  # fmt: skip
    assert model.memory == {
        "weight_bytes": 1800, "input_bytes": 0, "threshold_bytes": 1206, "mask_bytes": 0,
    }  # fmt: skip
    assert model.total_bytes == 3006
    rows = dict(model.with_shunt(4).view().tables[0].rows)
    assert rows["shunting"] == "margins below 4 are shunted"
    assert "shunting" not in dict(model.view().tables[0].rows)


def test_the_summary_counts_weights_and_bytes():
    model = random_model((10, 4, 3), np.random.default_rng(0)).changed(name="small")
    table, _ = family("binary-network").summary_of(model)
    assert table.title == "small"
    assert table.head[:2] == ("layer", "shape")
    assert table.rows[1] == ("layer 0", "10 -> 4", "4", "40", "40", "5", "160")
    assert table.rows[2] == ("layer 1 (scores)", "4 -> 3", "3", "12", "12", "2", "48")
    assert table.rows[-1][3:5] == ("52", "52") and len(table.head) == 7
    usual, notes = Family.summary_of(family("binary-network"), model)
    assert notes == () and usual.rows[:2] == (
        ("shape", "10-4-3"),
        ("classes", "class0, class1, class2"),
    )
    assert [name for name, _ in usual.rows[2:]] == [n.replace("_", " ") for n in model.memory]
    assert all(text.endswith(" B") for _, text in usual.rows[2:])
