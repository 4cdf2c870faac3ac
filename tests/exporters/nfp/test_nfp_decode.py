# SPDX-License-Identifier: Apache-2.0
"""Every bit of the weights is read back from the artefacts and compared."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.nfp.blob import build
from n3ic.exporters.nfp.decode import decode_words
from n3ic.exporters.nfp.exporter import EXPORTER
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import decoding_difference

SPEC = InputSpec(
    (
        Field.binary("size", 11),
        Field.thermometer("rate", [1, 5, 4_000_000_000]),
        Field("size", "binary", 5, 20),
        Field.thermometer("ttl", range(3, 40, 2)),
    )
)


def model_of(density):
    base = random_model((SPEC.n_bits, 5, 2), np.random.default_rng(1), density=density)
    return replace(base, input=SPEC)


def difference(words, model) -> str:
    try:
        return decoding_difference(model, decode_words("weights.bin", words, model))
    except VerifyError as error:
        return str(error)


@pytest.mark.first_case
@pytest.mark.parametrize("density", [None, 0.5])
def test_every_flipped_bit_is_found(density):
    """A weight without a connection does not count, and is no difference."""
    model = model_of(density)
    words = build(model).words
    assert difference(words, model) == ""
    absent = sum(int((~x.mask).sum()) for x in model.layers if x.mask is not None)
    silent = 0
    # Of the network without masks, one bit in three of each place in a word.
    for at in range(0, 32 * len(words), 1 if absent else 3):
        damaged = words.copy()
        damaged[at // 32] ^= np.uint32(1 << at % 32)
        silent += difference(damaged, model) == ""
    assert silent == absent


def test_both_artefacts_are_read_and_named(tmp_path):
    model = model_of(None)
    EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)
    decoded = EXPORTER.decode(tmp_path, model, {})
    assert [d.artefact for d in decoded] == ["weights.bin", "n3ic_weights.h"]
    assert [decoding_difference(model, d) for d in decoded] == ["", ""]
    built = build(model)
    at = built.rows[0] + 4 * built.strides[0] + 1
    path = tmp_path / "n3ic_weights.h"
    text = path.read_text()
    place = [m.start() for m in re.finditer("0x", text)][at]
    digit = format(int(text[place + 9], 16) ^ 1, "x")
    path.write_text(text[: place + 9] + digit + text[place + 10 :])
    decoded = EXPORTER.decode(tmp_path, model, {})
    assert decoding_difference(model, decoded[0]) == ""
    assert "n3ic_weights.h, layer 0, neuron 4, input 0:" in decoding_difference(model, decoded[1])


@pytest.mark.parametrize("text", ["", "uint32_t n3ic_words[N3IC_WORDS] = { 1 };", "\xff"])
def test_a_header_that_is_no_array_of_words_is_refused(tmp_path, text):
    model = model_of(None)
    EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)
    (tmp_path / "n3ic_weights.h").write_text(text)
    with pytest.raises(VerifyError, match="one array of words"):
        EXPORTER.decode(tmp_path, model, {})


def test_a_short_file_is_refused(tmp_path):
    model = model_of(None)
    words = build(model).words
    for length in range(len(words)):
        assert difference(words[:length], model) != ""


@pytest.mark.parametrize("inputs", [31, 32, 33, 64, 65, 97])
@pytest.mark.parametrize("density", [None, 0.5])
def test_rows_have_as_many_words_as_inputs_need(inputs, density):
    model = random_model((inputs, 3, 2), np.random.default_rng(inputs), density=density)
    decoded = decode_words("weights.bin", build(model).words, model)
    assert decoding_difference(model, decoded) == ""
    assert [layer.mask is None for layer in decoded.layers] == [density is None] * 2
    assert decoded.shunt == 0 and decoded.digest == model.digest


def test_the_threshold_is_the_last_word():
    model = model_of(None).with_shunt(3)
    words = build(model).words.copy()
    assert decode_words("weights.bin", words, model).shunt == 3
    words[-1] = 2
    assert "shunts margins below 2, the model below 3" in difference(words, model)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0x464E334F, "not weights for the NFP"),
        (1, 0, "not weights for the NFP"),
        (1, 3, "not weights for the NFP"),
        (4, 39, "the header does not match the sizes"),
        (7, 2, "the header does not match the sizes"),
        (16, 37, "layer 0: not of the shape"),
        (17, 6, "layer 0: not of the shape"),
        (19, 2, "layer 0: not of the shape"),
        (20, 6, "layer 1: not of the shape"),
    ],
)
def test_a_header_that_says_something_else_is_refused(at, value, message):
    words = build(model_of(None)).words.copy()
    words[at] = value
    assert message in difference(words, model_of(None))


@pytest.mark.parametrize(("field", "at", "value"), [(0, 1, 2), (1, 0, 3), (0, 4, 30), (1, 4, 0)])
def test_a_field_of_no_kind_feature_or_cuts_is_refused(field, at, value):
    words = build(model_of(None)).words.copy()
    words[words[6] + 5 * field + at] = value
    assert difference(words, model_of(None)) == (
        f"weights.bin, input field {field}: unknown kind, feature or cuts"
    )
