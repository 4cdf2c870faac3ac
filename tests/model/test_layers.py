# SPDX-License-Identifier: Apache-2.0
"""Layers: what they count, what they refuse, and what they write."""

import inspect

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.model import bits
from n3ic.model.bits import pack
from n3ic.model.layers import MAX_NEURONS, Connections, HiddenLayer, OutputLayer
from n3ic.model.random_models import random_model

WEIGHTS = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 0, 1]], dtype=bool)
MASK = np.array([[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]], dtype=bool)
ROWS = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 0, 1], [1, 1, 1, 1, 1]], dtype=bool)


def test_popcounts_are_agreements_of_connections():
    plain = Connections(WEIGHTS)
    assert plain.popcounts(pack(ROWS)).tolist() == [[5, 2], [0, 3], [3, 2]]
    assert plain.fan_in.tolist() == [5, 5]
    assert plain.mask_words.tolist() == [[31], [31]]
    masked = Connections(WEIGHTS, mask=MASK)
    assert masked.popcounts(pack(ROWS)).tolist() == [[3, 2], [0, 3], [2, 2]]
    assert masked.fan_in.tolist() == [3, 5]
    assert masked.mask_words.tolist() == [[0b01011], [31]]
    assert masked.weight_words.tolist() == [[0xFFFFFFFD | 0b10000], [0xFFFFFFF4]]
    assert (masked.n_inputs, masked.n_outputs, masked.n_words) == (5, 2, 1)
    assert sorted(plain.tensors()) == ["weights"]
    assert sorted(masked.tensors()) == ["mask", "weights"]


@pytest.mark.parametrize("cells", [1, 2, 3, 7, 1 << 20])
def test_rows_are_counted_in_parts(monkeypatch, cells):
    monkeypatch.setattr(bits, "_CHUNK_CELLS", cells)
    assert Connections(WEIGHTS).popcounts(pack(ROWS)).tolist() == [[5, 2], [0, 3], [3, 2]]


def blocks(monkeypatch, layer, rows):
    """Shapes of the blocks of words that numpy holds at once."""
    shapes, count = [], np.bitwise_count

    def counted(block):
        shapes.append(block.shape)
        return count(block)

    with monkeypatch.context() as patched:
        patched.setattr(np, "bitwise_count", counted)
        layer.popcounts(np.zeros((rows, layer.n_words), np.uint32))
    return shapes


def test_as_many_rows_are_held_as_fit_2_to_the_22_words(monkeypatch):
    wide = Connections(np.ones((2048, 2048), bool))
    assert blocks(monkeypatch, wide, 40) == [(32, 2048, 64), (8, 2048, 64)]
    for cells, rows in ((1, [1] * 5), (11, [1] * 5), (12, [2, 2, 1]), (24, [4, 1]), (29, [4, 1])):
        narrow = Connections(np.ones((2, 70), bool))
        with monkeypatch.context() as patched:
            patched.setattr(bits, "_CHUNK_CELLS", cells)
            assert [shape[0] for shape in blocks(patched, narrow, 5)] == rows


def test_masks_thresholds_and_biases_are_given_by_name():
    for layer, own in ((Connections, ()), (HiddenLayer, ("thresholds",)), (OutputLayer, ("bias",))):
        given = inspect.signature(layer).parameters
        assert {*given} == {"weights", "mask", *own}
        for name in ("mask", *own):
            assert given[name].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_neuron_fires_from_its_threshold_on():
    layer = HiddenLayer(WEIGHTS, thresholds=np.array([3, 2]))
    assert layer.fire(pack(ROWS)).tolist() == [[0b11], [0b10], [0b11]]
    edges = HiddenLayer(WEIGHTS, mask=MASK, thresholds=np.array([4, 0]))
    assert edges.fire(pack(ROWS)).tolist() == [[0b10]] * 3
    assert sorted(layer.tensors()) == ["thresholds", "weights"]


def test_a_score_is_a_popcount_and_its_bias():
    layer = OutputLayer(WEIGHTS, bias=np.array([10, -1]))
    assert layer.scores(pack(ROWS)).tolist() == [[15, 1], [10, 2], [13, 1]]
    assert sorted(layer.tensors()) == ["bias", "weights"]


@pytest.mark.parametrize("threshold", [-1, 5])
def test_thresholds_out_of_reach_are_refused(threshold):
    with pytest.raises(ModelError, match=rf"neuron 0: threshold {threshold} is not in 0\.\.4"):
        HiddenLayer(WEIGHTS, mask=MASK, thresholds=np.array([threshold, 0]))
    assert HiddenLayer(WEIGHTS, mask=MASK, thresholds=np.array([4, 6])).thresholds[1] == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HiddenLayer(WEIGHTS, thresholds=np.array([1])), "2 integer thresholds"),
        (lambda: HiddenLayer(WEIGHTS, thresholds=np.array([1.0, 2.0])), "2 integer thresholds"),
        (lambda: OutputLayer(WEIGHTS, bias=np.array([1, 2, 3])), "2 integer biases"),
        (lambda: OutputLayer(WEIGHTS, bias=np.array([1.0, 2.0])), "2 integer biases"),
        (lambda: OutputLayer(WEIGHTS, bias=np.array([1 << 24, 0])), "below 2\\^24"),
        (lambda: OutputLayer(WEIGHTS, bias=np.array([0, -(1 << 24)])), "below 2\\^24"),
        (lambda: Connections(WEIGHTS[0]), "weights have shape"),
        (lambda: Connections(WEIGHTS[:, :0]), "weights have shape"),
        (lambda: Connections(WEIGHTS + 1), "weights are bits"),
        (lambda: Connections(WEIGHTS, mask=MASK[:, :4]), "a mask has bits"),
        (lambda: Connections(WEIGHTS, mask=MASK + 1), "a mask has bits"),
        (lambda: Connections(np.ones((1, MAX_NEURONS + 1), bool)), "at most"),
        (lambda: Connections(np.ones((MAX_NEURONS + 1, 1), bool)), "at most"),
    ],
)
def test_what_is_no_layer_is_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_the_largest_layer_and_bias():
    assert Connections(np.ones((1, MAX_NEURONS), bool)).n_inputs == MAX_NEURONS == 65_536
    largest = (1 << 24) - 1
    assert OutputLayer(WEIGHTS, bias=np.array([largest, -largest])).bias.tolist() == [
        largest,
        -largest,
    ]
    model = random_model((5, 3, 2), np.random.default_rng(0))
    for step in (1 << 25, -(1 << 25)):
        at = model.favouring(1, step, "x").output.bias[1]
        assert at == (largest if step > 0 else -largest)


class Tensors(dict):
    """A file's tensors, whose shapes and types are checked."""

    def take(self, name, dtype, shape):
        array = self[name]
        assert array.dtype == dtype and array.shape == shape, name
        return array


def test_layers_are_read_as_they_were_written():
    for layer in (
        HiddenLayer(WEIGHTS, mask=MASK, thresholds=np.array([1, 2])),
        OutputLayer(WEIGHTS, bias=np.array([1, 2])),
    ):
        tensors = Tensors({f"l.{name}": array for name, array in layer.tensors().items()})
        again = type(layer).from_tensors(tensors, "l.", (2, 5))
        for name, array in layer.tensors().items():
            assert np.array_equal(again.tensors()[name], array), name


@pytest.mark.parametrize(("name", "pad"), [("weights", 1), ("mask", 0)])
@pytest.mark.parametrize("bit", [5, 31])
def test_a_wrong_pad_bit_is_refused(name, pad, bit):
    layer = OutputLayer(WEIGHTS, mask=MASK, bias=np.array([1, 2]))
    tensors = Tensors({f"l.{key}": array.copy() for key, array in layer.tensors().items()})
    tensors[f"l.{name}"][1, 0] ^= np.uint32(1 << bit)
    with pytest.raises(ModelError, match=f"l.{name}: pad bits are not {pad}"):
        OutputLayer.from_tensors(tensors, "l.", (2, 5))
