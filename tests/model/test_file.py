# SPDX-License-Identifier: Apache-2.0

import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from n3ic.errors import ModelError, N3icWarning
from n3ic.model import file
from n3ic.model.file import Tensors, short, unpack_file
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
            BinaryModel.from_bytes(data[:end])


@pytest.mark.first_case
@pytest.mark.parametrize("density", [None, 0.4])
def test_every_flipped_bit_is_refused(density):
    """Of the safetensors header, of the JSON in it, of the checksum, of each tensor."""
    data = np.frombuffer(sample(density).to_bytes(), np.uint8)
    for at in range(0, 8 * len(data), 3):
        flipped = data.copy()
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(ModelError):
            BinaryModel.from_bytes(flipped.tobytes())


@pytest.mark.parametrize(
    "field",
    [
        Field("f", "binary", 8, 200, scale=1),
        Field("f", "binary", np.int64(8), np.uint32(200), unit="us", scale=np.float32(1e6)),
        Field("f", "thermometer", 2, 9, [3, np.int64(5)], scale=1000),
        Field.thermometer("f", np.array([1, 2**32 - 1]), scale=1 / 3),
        Field.binary("f", 32, scale=1e-18),
    ],
)
def test_a_model_equals_itself_after_save_and_load(tmp_path, field):
    parts = random_model((field.width, 3, 2), np.random.default_rng(0))
    spec = InputSpec([field])
    model = BinaryModel(spec, parts.hidden, parts.output, ("a", "b"), "n", {"seed": 0})
    path = tmp_path / "m.n3ic"
    model.save(path)
    loaded = BinaryModel.load(path)
    assert loaded == model and loaded.input == model.input
    assert loaded.provenance == model.provenance
    assert loaded.digest == model.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert replace(loaded).to_bytes() == path.read_bytes()


def test_a_field_of_fractions_is_refused():
    with pytest.raises(ModelError, match="are integers"):
        Field("f", "binary", 8, 2.5)


def version_1(model):
    """The bytes that n3ic 0.1 wrote: another name of the format, no checksum, no family."""
    tensors, header = parts_of(model.to_bytes())
    header = {k: v for k, v in header.items() if k not in ("checksum", "family")}
    header |= {"format": "n3ic-binary-model", "version": 1}
    header["input"]["fields"][0]["scale"] = 1  # 0.1 read it as 1.0, and wrote another file
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return bytes(save_tensors(tensors, metadata={"n3ic": text}))


def test_files_of_version_1_are_read_and_keep_their_digest(tmp_path):
    model = sample(0.5)
    path = tmp_path / "old.n3ic"
    path.write_bytes(version_1(model))
    with pytest.warns(N3icWarning, match="no checksum"):
        old = BinaryModel.load(path)
    assert old == model
    assert old.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    old.save(tmp_path / "copy.n3ic")
    assert (tmp_path / "copy.n3ic").read_bytes() == path.read_bytes()
    assert replace(old).to_bytes() == model.to_bytes()  # a new model is written as of today


def test_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, what in (("/dev/zero", "no regular file"), (tmp_path / "pipe", "no regular file")):
        with pytest.raises(ModelError, match=what):
            BinaryModel.load(path)
    with pytest.raises(ModelError, match="a folder"):
        BinaryModel.load(tmp_path)


@pytest.mark.parametrize("data", [b"", b"\x80\x04pickle", b"\xff" * 64, b"{}", b"PK\x03\x04"])
def test_foreign_bytes_are_refused(data):
    with pytest.raises(ModelError, match="not an n3ic model"):
        BinaryModel.from_bytes(data)


def parts_of(data):
    size = int.from_bytes(data[:8], "little")
    header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["n3ic"])
    return load_tensors(data), header


def rewritten(change, tensors_change=lambda t: t):
    """A file that says something else, with a checksum that is right."""
    tensors, header = parts_of(sample().to_bytes())
    header = change(header | {"checksum": "0" * 64})
    data = bytes(save_tensors(tensors_change(tensors), metadata={"n3ic": json.dumps(header)}))
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h | {"version": 4}, "a newer n3ic may read it"),
        (lambda h: h | {"format": "other"}, "format 'other'"),
        (lambda h: h | {"shape": [70, 33, 8, 3]}, "expected"),
        (lambda h: h | {"shape": [70, 33, 7, -3]}, "shape: expected"),
        (lambda h: h | {"shape": [2**60, 2**60]}, "expected|missing"),
        (lambda h: h | {"classes": ["a", "b"]}, "3 scores for 2 classes"),
        (lambda h: h | {"classes": "abc"}, "classes: expected a list, got 'abc'"),
        (lambda h: h | {"input": {"fields": []}}, "at least one field"),
        (lambda h: h | {"provenance": {"a": 1}}, "provenance.a: expected text, got 1"),
        (lambda h: [h], "damaged"),
        (lambda h: h | {"family": "sum-product"}, "family 'sum-product'"),
        (lambda h: h | {"checksum": "1" * 64}, "checksum"),
        (lambda h: h | {"checksum": 5}, "checksum"),
        (lambda h: {k: v for k, v in h.items() if k != "name"}, "name: expected text, got nothing"),
    ],
)
def test_headers_that_lie_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        BinaryModel.from_bytes(rewritten(change))


def test_an_error_has_the_first_words_of_the_librarys():
    with pytest.raises(ModelError, match=r"or damaged \(SafetensorError: .*[Hh]eader.*\)$"):
        BinaryModel.from_bytes(b"\x08" + bytes(7) + b"no JSON.")
    assert short(ValueError("two\n  lines " + 200 * "-")) == "ValueError: two lines " + 110 * "-"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t | {"extra": np.zeros(1, np.uint32)}, "unknown tensor 'extra'"),
        (lambda t: {k: v for k, v in t.items() if k != "layer.2.bias"}, "layer.2.bias is missing"),
        (lambda t: t | {"layer.0.thresholds": np.full(33, 99, np.int32)}, "threshold 99"),
        (lambda t: t | {"layer.0.weights": t["layer.0.weights"] & 0xFFFF}, "pad bits"),
        (lambda t: t | {"layer.2.bias": np.full(3, 1 << 30, np.int32)}, "below 2"),
    ],
)
def test_tensors_that_lie_are_refused(change, message):
    with pytest.raises(ModelError, match=message):
        BinaryModel.from_bytes(rewritten(lambda h: h, change))


def test_a_checksum_that_stands_in_the_content_too_is_no_checksum():
    """Only its first place is blank where it is computed."""
    data = sample().changed(name="0" * 64).to_bytes()
    assert BinaryModel.from_bytes(data).name == "0" * 64
    checksum = parts_of(data)[1]["checksum"].encode()
    with pytest.raises(ModelError, match="its checksum does not match"):
        BinaryModel.from_bytes(data.replace(b"0" * 64, checksum))


def test_a_file_and_its_header_have_a_largest_size():
    assert file.MAX_FILE_BYTES == 256 * 1024**2
    for size, message in ((1 << 24, "or damaged \\(Safetensor"), ((1 << 24) + 1, "is too large")):
        with pytest.raises(ModelError, match=message):
            unpack_file(size.to_bytes(8, "little") + bytes(9), "m")


def test_tensors_are_taken_once_with_their_type_and_shape():
    tensors = Tensors({"a": np.zeros(3, np.int32), "b": np.zeros(1, np.int32)})
    assert "a" in tensors
    assert tensors.take("a", np.int32, (3,)).tolist() == [0, 0, 0]
    assert "a" not in tensors
    with pytest.raises(ModelError, match="tensor a is missing"):
        tensors.take("a", np.int32, (3,))
    with pytest.raises(ModelError, match="unknown tensor 'b'"):
        tensors.close()
    for dtype, shape in ((np.uint32, (1,)), (np.int32, (2,)), (np.int32, ())):
        with pytest.raises(ModelError, match=r"tensor b: expected u?int32 \(.*got int32 \(1,\)"):
            Tensors({"b": np.zeros(1, np.int32)}).take("b", dtype, shape)


@pytest.mark.parametrize(
    ("kind", "version"),
    [("n3ic-model", v) for v in (0, 1, 4, 2.0, True, "2", None)] + [("n3ic-binary-model", 2)],
)
def test_versions_that_are_refused(kind, version):
    """2.0 and True equal versions that they are not; version 1 was of another name."""
    with pytest.raises(ModelError, match="this n3ic reads versions 1 to 3"):
        unpack_file(rewritten(lambda h: h | {"format": kind, "version": version}), "m")


def test_a_link_is_followed_if_nothing_else_is_said(tmp_path):
    model = sample()
    model.save(tmp_path / "m.n3ic")
    (tmp_path / "link").symlink_to(tmp_path / "m.n3ic")
    assert BinaryModel.load(tmp_path / "link") == model
    assert file.read_file(tmp_path / "m.n3ic", follow=False) == model.to_bytes()
    with pytest.raises(ModelError, match="cannot read the model"):
        file.read_file(tmp_path / "link", follow=False)
