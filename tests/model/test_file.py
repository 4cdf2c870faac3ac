import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save as save_tensors

from n3ic.errors import ModelError
from n3ic.model import file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model


def sample(density=None):
    model = random_model((70, 33, 7, 3), np.random.default_rng(5), density=density)
    spec = InputSpec((Field.thermometer("a", range(1, 39), unit="us"), Field.binary("b", 32)))
    return BinaryModel(spec, model.hidden, model.output, ("x", "ü", "*/"), "n", {"seed": "0"})


@pytest.mark.parametrize("density", [None, 0.4])
def test_round_trip(tmp_path, density):
    model = sample(density)
    model.save(tmp_path / "m.n3ic")
    loaded = BinaryModel.load(tmp_path / "m.n3ic")
    assert loaded == model
    assert loaded.to_bytes() == model.to_bytes() == (tmp_path / "m.n3ic").read_bytes()
    assert loaded.input == model.input
    assert loaded.classes == model.classes
    assert loaded.provenance == {"seed": "0"}
    assert [p.name for p in tmp_path.iterdir()] == ["m.n3ic"]


def test_missing_file_is_one_line(tmp_path):
    with pytest.raises(ModelError, match=r"cannot read the model .*No such file"):
        BinaryModel.load(tmp_path / "none.n3ic")


def test_every_truncation_is_refused():
    data = sample().to_bytes()
    for end in range(0, len(data), 37):
        with pytest.raises(ModelError):
            file.parse(data[:end])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_is_a_valid_model(seed, bit):
    data = bytearray(sample(0.5).to_bytes())
    at = int(np.random.default_rng(seed).integers(len(data)))
    data[at] ^= 1 << bit
    try:
        model = file.parse(bytes(data))
    except ModelError:
        return
    assert file.parse(model.to_bytes()) == model


@pytest.mark.parametrize("data", [b"", b"\x80\x04pickle", b"\xff" * 64, b"{}", b"PK\x03\x04"])
def test_foreign_bytes_are_refused(data):
    with pytest.raises(ModelError, match="not an n3ic model"):
        file.parse(data)


def rewritten(change, tensors_change=lambda t: t):
    data = sample().to_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["n3ic"])
    tensors = tensors_change(file.load_tensors(data))
    return bytes(save_tensors(tensors, metadata={"n3ic": json.dumps(change(header))}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h | {"version": 2}, "a newer n3ic may read it"),
        (lambda h: h | {"format": "other"}, "format 'other'"),
        (lambda h: h | {"shape": [70, 33, 8, 3]}, "expected"),
        (lambda h: h | {"shape": [70, 33, 7, -3]}, "bad shape"),
        (lambda h: h | {"shape": [2**60, 2**60]}, "expected|missing"),
        (lambda h: h | {"classes": ["a", "b"]}, "3 scores for 2 classes"),
        (lambda h: h | {"classes": "abc"}, "bad classes"),
        (lambda h: h | {"input": {"fields": []}}, "at least one field"),
        (lambda h: h | {"provenance": {"a": 1}}, "must be text"),
        (lambda h: [h], "damaged"),
        (lambda h: {k: v for k, v in h.items() if k != "name"}, "damaged"),
    ],
)
def test_headers_that_lie_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        file.parse(rewritten(change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"extra": np.zeros(1, np.uint32)}, "unknown tensor extra"),
        (lambda t: {k: v for k, v in t.items() if k != "layer.2.bias"}, "layer.2.bias is missing"),
        (lambda t: t | {"layer.0.thresholds": np.full(33, 99, np.int32)}, "threshold 99"),
        (lambda t: t | {"layer.0.weights": t["layer.0.weights"] & 0xFFFF}, "pad bits"),
        (lambda t: t | {"layer.2.bias": np.full(3, 1 << 30, np.int32)}, "below 2"),
    ],
)
def test_tensors_that_lie_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        file.parse(rewritten(lambda h: h, change))
