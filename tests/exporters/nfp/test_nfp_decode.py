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


@pytest.mark.parametrize("density", [None, 0.5])
def test_every_flipped_bit_is_found(density):
    """A weight without a connection does not count, and is no difference."""
    model = model_of(density)
    words = build(model).words
    assert difference(words, model) == ""
    absent = sum(int((~x.mask).sum()) for x in model.layers if x.mask is not None)
    silent = 0
    for at in range(32 * len(words)):
        damaged = words.copy()
        damaged[at // 32] ^= np.uint32(1 << at % 32)
        silent += difference(damaged, model) == ""
    assert silent == absent


def test_both_artefacts_are_read_and_named(tmp_path):
    model = model_of(None)
    EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)
    found = EXPORTER.decode(tmp_path, model, {})
    assert [d.artefact for d in found] == ["weights.bin", "n3ic_weights.h"]
    assert [decoding_difference(model, d) for d in found] == ["", ""]
    built = build(model)
    at = built.rows[0] + 4 * built.strides[0] + 1
    path = tmp_path / "n3ic_weights.h"
    text = path.read_text()
    place = [m.start() for m in re.finditer("0x", text)][at]
    digit = format(int(text[place + 9], 16) ^ 1, "x")
    path.write_text(text[: place + 9] + digit + text[place + 10 :])
    found = EXPORTER.decode(tmp_path, model, {})
    assert decoding_difference(model, found[0]) == ""
    assert "n3ic_weights.h, layer 0, neuron 4, input 0:" in decoding_difference(model, found[1])


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
