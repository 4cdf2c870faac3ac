# SPDX-License-Identifier: Apache-2.0
"""What is read back of an artefact is compared field by field and bit by bit, and named."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import (
    Decoded,
    DecodedField,
    DecodedLayer,
    _field_difference,
    _layer_difference,
    decoding_difference,
    unpack_bitwise,
)

FIELDS = (Field.thermometer("a", (3, 70), unit="us"), Field.binary("b", 5))
MODEL = replace(
    random_model((7, 4, 3), np.random.default_rng(0), density=0.6), input=InputSpec(FIELDS)
)


def read_back(model=MODEL, **changes):
    """What an artefact holds that was written without a fault."""
    layers = tuple(
        DecodedLayer(
            layer.weights.copy(),
            (layer.thresholds if layer in model.hidden else layer.bias).copy(),
            None if layer.mask is None else layer.mask.copy(),
        )
        for layer in model.layers
    )
    fields = tuple(DecodedField(f.feature, f.kind, f.width, f.clamp, f.scale) for f in FIELDS)
    return replace(Decoded("weights.bin", layers, fields=fields), **changes)


def test_an_artefact_of_the_model_decodes_without_difference():
    assert decoding_difference(MODEL, read_back()) == ""


def test_equal_parts_have_the_empty_difference():
    whole = read_back()
    assert _layer_difference(MODEL.layers[0], whole.layers[0]) == ""
    assert _field_difference(MODEL, whole.fields) == ""


@pytest.mark.parametrize("layer", [0, 1])
def test_every_weight_and_connection_counts(layer):
    present = MODEL.layers[layer].mask
    shape = MODEL.layers[layer].weights.shape
    present = np.ones(shape, bool) if present is None else present
    for j, k in np.ndindex(shape):
        other = read_back()
        other.layers[layer].weights[j, k] ^= True
        where = f"weights.bin, layer {layer}, neuron {j}, input {k}: "
        mine = int(MODEL.layers[layer].weights[j, k])
        message = f"{where}weight {1 - mine}, the model has {mine}" if present[j, k] else ""
        assert decoding_difference(MODEL, other) == message
        other = read_back()
        if other.layers[layer].mask is not None:
            other.layers[layer].mask[j, k] ^= True
            what = "no connection" if present[j, k] else "a connection"
            message = f"{where}{what}, against the model's mask"
            assert decoding_difference(MODEL, other) == message


def test_no_mask_is_one_of_all_connections():
    full = random_model((7, 4, 3), np.random.default_rng(0))
    layer = full.hidden[0]
    every = DecodedLayer(layer.weights, None, np.ones((4, 7), bool))
    assert _layer_difference(layer, every) == ""
    every.mask[2, 5] = False
    message = "neuron 2, input 5: no connection, against the model's mask"
    assert _layer_difference(layer, every) == message
    masked = MODEL.layers[0]
    j, k = (int(v) for v in np.argwhere(~masked.mask)[0])
    message = f"neuron {j}, input {k}: a connection, against the model's mask"
    assert _layer_difference(masked, DecodedLayer(masked.weights, None)) == message


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("by", [-1, 1])
def test_every_threshold_and_bias_counts(layer, by):
    for j in range(MODEL.layers[layer].n_outputs):
        other = read_back()
        other.layers[layer].limits[j] += by
        message = decoding_difference(MODEL, other)
        mine = other.layers[layer].limits[j] - by
        word = ("threshold", "bias")[layer]
        assert message == (
            f"weights.bin, layer {layer}, neuron {j}: {word} {mine + by}, the model has {mine}"
        )


@pytest.mark.parametrize(
    "change",
    [{"feature": "c"}, {"kind": "binary"}, {"width": 3}, {"clamp": 71}, {"scale": 2.0}],
)
def test_every_fact_of_a_field_counts(change):
    fields = read_back().fields
    other = read_back(fields=(replace(fields[0], **change), fields[1]))
    (name,) = change
    assert decoding_difference(MODEL, other).startswith(
        f"weights.bin, input field 0 (a): {name} {change[name]}, the model has "
    )
    without_value = read_back(fields=(replace(fields[0], **{name: None}), fields[1]))
    assert decoding_difference(MODEL, without_value) == ""
    assert "1 input fields, the model has 2" in decoding_difference(
        MODEL, read_back(fields=fields[:1])
    )


def test_missing_layers_and_other_shapes_are_told():
    layers = read_back().layers
    message = decoding_difference(MODEL, read_back(layers=layers[:1]))
    assert message == "weights.bin: 1 layers, the model has 2"
    narrow = replace(layers[0], weights=layers[0].weights[:, :6])
    message = decoding_difference(MODEL, read_back(layers=(narrow, layers[1])))
    assert message == "weights.bin, layer 0, shape (4, 6), the model has (4, 7)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuts": ((3, 70), ())}, ""),
        ({"cuts": ((3, 71), ())}, ", input field a: other cuts than the model's"),
        ({"cuts": ((3, 70), (1,))}, ", input field b: other cuts than the model's"),
        ({"cuts": ((3, 70),)}, ": 1 input fields, the model has 2"),
        ({"shunt": 0}, ""),
        ({"shunt": 1}, ": shunts margins below 1, the model below 0"),
        ({"digest": MODEL.digest}, ""),
        ({"digest": "00"}, f": of model 00, the model is {MODEL.digest}"),
    ],
)
def test_what_else_an_artefact_holds_is_compared(change, message):
    assert decoding_difference(MODEL, read_back(**change)) == (
        f"weights.bin{message}" if message else ""
    )


def test_what_an_artefact_does_not_hold_is_not_compared():
    bare = tuple(replace(layer, limits=None) for layer in read_back().layers)
    assert decoding_difference(MODEL, read_back(layers=bare, fields=None)) == ""
    assert read_back().weight_bits == 4 * 7 + 3 * 4


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("width", [1, 31, 32, 33, 64, 70])
def test_words_are_read_bit_by_bit(pad, width):
    rng = np.random.default_rng(width)
    words = -(-width // 32)
    bits = np.full((3, 32 * words), pad, dtype=bool)
    bits[:, :width] = rng.random((3, width)) < 0.5
    packed = (bits.reshape(3, words, 32) * (1 << np.arange(32))).sum(axis=2).astype(np.uint32)
    assert np.array_equal(unpack_bitwise(packed, width, pad, "here"), bits[:, :width])
    if width % 32:
        for at in {width, 32 * words - 1}:
            damaged = packed.copy()
            damaged[1, at // 32] ^= np.uint32(1 << at % 32)
            with pytest.raises(VerifyError, match=f"here, neuron 1: a padding bit is not {pad}"):
                unpack_bitwise(damaged, width, pad, "here")
