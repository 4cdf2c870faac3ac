# SPDX-License-Identifier: Apache-2.0
"""Every bit of the weights is read back from the artefacts and compared."""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.host.decode import _Words, decode_blob
from n3ic.exporters.host.exporter import EXPORTER
from n3ic.kernel import blob
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import decoding_difference
from tests.support.kernel_models import put_word, reseal, small_model

MODEL = small_model()
SMALL = replace(
    random_model((MODEL.input.n_bits, 2, 2), np.random.default_rng(2)),
    input=MODEL.input,
    classes=MODEL.classes,
)
MASKED = random_model((37, 4, 2), np.random.default_rng(1), density=0.5)


def difference(data: bytes, model) -> str:
    try:
        return decoding_difference(model, decode_blob("weights.bin", data, model))
    except VerifyError as error:
        return str(error)


@pytest.mark.first_case
@pytest.mark.parametrize("model", [SMALL, MASKED])
def test_every_flipped_bit_is_found(model) -> None:
    """Also where the checksum is made to fit. A weight without a connection does not count."""
    data = blob.dump(model)
    assert difference(data, model) == ""
    absent = sum(int((~x.mask).sum()) for x in model.layers if x.mask is not None)
    silent = 0
    # Of the network without masks, one bit in three of each place in a byte.
    for at in range(0, 8 * (len(data) - 4), 1 if absent else 3):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        silent += difference(reseal(bytes(damaged)), model) == ""
    assert silent == absent


def test_masks_are_read_back_and_a_set_pad_bit_of_one_is_found() -> None:
    data = blob.dump(MASKED)
    assert difference(data, MASKED) == ""
    mask = struct.pack("<I", int(MASKED.hidden[0].mask_words[2, 1]))
    padded = data.replace(mask, struct.pack("<I", int.from_bytes(mask, "little") | 1 << 31))
    assert difference(reseal(padded), MASKED) == (
        "weights.bin, layer 0, neuron 2: a padding bit is not 0"
    )


def test_kinds_that_are_not_known_are_refused() -> None:
    """Of a field, and of a layer: weights alone, or with a mask."""
    data = blob.dump(MODEL)
    layers = len(MODEL.layers)
    shapes, rows = 4 * (10 + 8), 4 * (10 + 8 + 4 * layers)
    kinds = [field.kind == "thermometer" for field in MODEL.input.fields]
    at = rows + 16 * kinds.index(True) + 4
    assert struct.unpack_from("<I", data, at) == (1,)
    for place in (at, shapes + 8, shapes + 12):
        for kind in (2, 3) if place != shapes + 12 else (1,):
            message = difference(reseal(put_word(data, place // 4, kind)), MODEL)
            assert message == "weights.bin: an unknown kind of layer or field"


@pytest.mark.parametrize("size", range(10))
def test_a_name_ends_with_zeros_up_to_the_next_word(size: int) -> None:
    def words(octets: bytes, more: bytes = b"") -> _Words:
        body = struct.pack("<I", size) + octets + more
        return _Words("file", body + struct.pack("<I", zlib.crc32(body)))

    name = bytes(range(1, size + 1))
    padded = name.ljust(-(-size // 4) * 4, b"\0")
    read = words(padded)
    assert read.name() == name
    read.end()
    read = words(padded, b"next")
    assert (read.name(), read.take(1)) == (name, [int.from_bytes(b"next", "little")])
    read = words(padded, b"next")
    assert read.name() == name
    with pytest.raises(VerifyError, match=r"^file: 1 words too many$"):
        read.end()
    for at in range(size, len(padded)):
        wrong = bytearray(padded)
        wrong[at] = 1
        with pytest.raises(VerifyError, match=r"^file: a name's padding is not 0$"):
            words(bytes(wrong)).name()
    with pytest.raises(VerifyError, match="ends before"):
        words(padded).take(len(padded) // 4 + 2)


def test_a_checksum_of_other_bytes_is_refused() -> None:
    data = blob.dump(SMALL)
    for at in range(1, 5):
        changed = bytearray(data)
        changed[-at] ^= 1
        assert "cut short or damaged (checksum)" in difference(bytes(changed), SMALL)


def test_a_file_that_ends_anywhere_is_refused() -> None:
    data = blob.dump(SMALL)
    for end in range(len(data) - 4):
        assert difference(data[:end], SMALL)
        assert end % 4 or difference(reseal(data[:end] + bytes(4)), SMALL)


@pytest.mark.parametrize("changed", ["classes", "features"])
def test_names_of_another_model_are_refused(changed: str) -> None:
    names = {"classes": MODEL.classes, "features": MODEL.input.features}[changed]
    name = names[-1].encode()
    other = name[:-1] + bytes([name[-1] ^ 1])
    data = blob.dump(MODEL)
    at = data.rindex(name) if changed == "features" else data.index(name)
    data = data[:at] + other + data[at + len(name) :]
    assert "the names of classes or features differ" in difference(reseal(data), MODEL)


def test_the_place_is_named(tmp_path: Path) -> None:
    weights = MODEL.hidden[1].weights.copy()
    weights[4, 17] ^= True
    other = replace(MODEL, hidden=(MODEL.hidden[0], replace(MODEL.hidden[1], weights=weights)))
    message = difference(blob.dump(other), MODEL)
    assert message.startswith("weights.bin, layer 1, neuron 4, input 17: weight ")


@pytest.mark.parametrize("name", ["weights.bin", "bnn.c"])
def test_each_artefact_is_read(tmp_path: Path, name: str) -> None:
    """A bit that no vector decides: the neuron never fires, whatever its weights."""
    base = random_model((64, 8, 2), np.random.default_rng(3), extremes=False)
    thresholds = base.hidden[0].thresholds.copy()
    thresholds[5] = 65
    model = replace(base, hidden=(replace(base.hidden[0], thresholds=thresholds),))
    weights = base.hidden[0].weights.copy()
    weights[5, 60] ^= True
    wrong = blob.dump(replace(model, hidden=(replace(model.hidden[0], weights=weights),)))
    EXPORTER.write(model, {}, tmp_path)
    if name == "weights.bin":
        (tmp_path / name).write_bytes(wrong)
    else:
        text = (tmp_path / name).read_text()
        body = ", ".join(f"0x{byte:02x}" for byte in wrong)
        (tmp_path / name).write_text(re.sub(r"(baked\[\d+\] = \{)[^}]*", rf"\g<1>{body}", text))
    differences = [decoding_difference(model, d) for d in EXPORTER.decode(tmp_path, model, {})]
    differences.sort()
    assert differences[0] == ""
    assert differences[1].startswith(f"{name}, layer 0, neuron 5, input 60: weight ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"baked\[(\d+)\]", r"baked[\g<1>0]", "are declared"),
        (r"0x", r"0X", "one array of bytes"),
        (r"baked", r"based", "one array of bytes"),
    ],
)
def test_c_that_is_no_array_of_weights_is_refused(
    export_directory: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (export_directory / "bnn.c").read_text()
    (tmp_path / "bnn.c").write_text(re.sub(old, new, text))
    (tmp_path / "weights.bin").write_bytes(blob.dump(MODEL))
    with pytest.raises(VerifyError, match=message):
        EXPORTER.decode(tmp_path, MODEL, {})


def test_a_threshold_that_was_changed_is_seen(tmp_path):
    model = small_model().with_shunt(3)
    EXPORTER.write(model, EXPORTER.parse_options({}), tmp_path)
    assert [d.shunt for d in EXPORTER.decode(tmp_path, model, {})] == [3, 3]
    weights = tmp_path / "weights.bin"
    weights.write_bytes(put_word(weights.read_bytes(), 9, 4))
    decoded = EXPORTER.decode(tmp_path, model, {})
    assert "shunts margins below 4, the model below 3" in decoding_difference(model, decoded[0])
