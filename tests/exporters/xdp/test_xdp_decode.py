# SPDX-License-Identifier: Apache-2.0
"""The answering program's value read back: exact for any shape, and every flipped bit is found."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.xdp.decode import NETWORK, decode_directory
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import layout, value_bytes
from n3ic.model.layers import HiddenLayer
from n3ic.model.random_models import random_model
from n3ic.targets.decoding import decoding_difference


def written(folder, model, data=None):
    path = folder / NETWORK
    path.parent.mkdir(exist_ok=True)
    if data is None:
        data = value_bytes(structure_of([model], bits=True), model)
    path.write_bytes(data)
    return data


def difference(folder, model):
    try:
        (decoded_model,) = decode_directory(folder, model)
    except VerifyError as error:
        return str(error)
    return decoding_difference(model, decoded_model)


@pytest.mark.first_case
@pytest.mark.parametrize("density", [None, 0.6])
@pytest.mark.parametrize(
    "shape",
    [
        (5, 3, 2),
        (33, 9, 3),
        (64, 40, 7, 2),
        (300, 12, 2),
        (1000, 9, 3),
        (17, 4),
        (255, 130, 2),
        (9, 4, 5),
        (40, 9, 17),
        (1000, 20, 2),
    ],
)
@pytest.mark.parametrize("extremes", [True, False])
def test_every_shape_is_read_back(tmp_path, shape, density, extremes):
    model = random_model(
        shape, np.random.default_rng(sum(shape)), density=density, extremes=extremes
    )
    written(tmp_path, model)
    assert difference(tmp_path, model) == ""


@pytest.mark.parametrize(("inputs", "halves"), [(250, True), (500, False)])
def test_sums_of_several_segments_are_read_back(tmp_path, inputs, halves):
    """Starts are split over two bytes, or have 16 bits."""
    model = random_model((inputs, 40, 2), np.random.default_rng(inputs), extremes=False)
    layer = structure_of([model], bits=True).layers[0]
    assert layer.segments and layer.halves == halves
    written(tmp_path, model)
    assert difference(tmp_path, model) == ""


@pytest.mark.parametrize("classes", [2, 3, 9])
def test_biases_that_need_wide_lanes_are_read_back(tmp_path, classes):
    """Scores of 32 bits: two to a word."""
    model = random_model((9, 4, classes), np.random.default_rng(classes))
    bias = np.array([1 << 20, -(1 << 20), *range(classes - 2)], dtype=np.int32)
    model = replace(model, output=replace(model.output, bias=bias))
    assert structure_of([model], bits=True).layers[-1].lane == 32
    written(tmp_path, model)
    assert difference(tmp_path, model) == ""


FAN_INS = [0, 0, 3, 3, 5, 5, 5]


def constants(thresholds):
    """Neurons of five inputs of which some connect none or three."""
    mask = np.array([[i < fan_in for i in range(5)] for fan_in in FAN_INS])
    hidden = HiddenLayer(mask, mask=mask, thresholds=np.array(thresholds))
    model = random_model((5, len(FAN_INS), 2), np.random.default_rng(0))
    return replace(model, hidden=(hidden,))


ALWAYS, NEVER = [0] * 7, [fan_in + 1 for fan_in in FAN_INS]


def test_a_neuron_that_is_constant_is_the_models_if_that_is_constant_alike(tmp_path):
    mixed = [0, 1, 0, 4, 0, 6, 6]
    for model in map(constants, (ALWAYS, NEVER, mixed)):
        written(tmp_path, model)
        assert difference(tmp_path, model) == ""
    # Thresholds at which a neuron with connections is not constant.
    varying = [0, 1, 1, 3, 1, 5, 5]
    for thresholds, wanted in (
        (ALWAYS, NEVER),
        (NEVER, ALWAYS),
        (ALWAYS, varying),
        (NEVER, varying),
        (varying, ALWAYS),
        (varying, NEVER),
    ):
        written(tmp_path, constants(thresholds))
        data = bytearray((tmp_path / NETWORK).read_bytes())
        for j in range(7):
            one = [
                w if i == j else h for i, (h, w) in enumerate(zip(thresholds, wanted, strict=True))
            ]
            if one == thresholds:
                continue
            data[:32] = bytes.fromhex(constants(one).digest)
            written(tmp_path, constants(one), bytes(data))
            assert "layer 0, neuron" in difference(tmp_path, constants(one)), (thresholds, one)


@pytest.mark.parametrize("name", ["rows0", "rows1"])
def test_an_input_counts_once_and_exists(tmp_path, name):
    """Rows that are sums over their inputs all the same."""
    model = random_model((9, 4, 2), np.random.default_rng(3), extremes=False)
    data = written(tmp_path, model)
    structure = structure_of([model], bits=True)
    where = layout(structure)
    start = where.offset(name)
    size = next(m.bytes for m in where.members if m.name == name)
    kind, lanes = ("u1", 8) if name == "rows0" else ("<u2", 4)
    rows = np.frombuffer(data[start : start + size], kind).reshape(-1, lanes)
    layer = model.layers[int(name[-1])]
    nibble = (0, 1, 2, 3) if name == "rows0" else structure.layers[0].fired[0]
    exists = [bit < layer.n_inputs for bit in nibble]
    for place, bit in enumerate(nibble):
        lit = np.arange(16) >> place & 1
        weight = layer.weights[0, bit] if exists[place] else True
        changed = rows.copy()
        changed[:16, 0] += (lit if weight else 1 - lit).astype(kind)
        damaged = data[:start] + changed.tobytes() + data[start + size :]
        written(tmp_path, model, damaged)
        message = "are not sums over them" if exists[place] else "an input that does not exist"
        assert message in difference(tmp_path, model)
    assert all(exists) == (name == "rows0")


@pytest.mark.parametrize("density", [None, 0.6])
def test_a_flipped_bit_is_found(tmp_path, density):
    """Of the digest, the threshold, a neuron's start and its lane of a row; the rest is padding."""
    model = random_model((9, 4, 3, 2), np.random.default_rng(3), density=density, extremes=False)
    data = written(tmp_path, model)
    where = layout(structure_of([model], bits=True))
    sizes = {member.name: member.bytes for member in where.members}
    rows = 16 + 16 + 2  # two nibbles of patterns, and one of a single bit
    lanes = sizes["rows0"] // rows
    places = [("model", 0), ("model", 31), ("shunt", 0), ("start0", 0), ("start0", 3)]
    places += [("rows0", lanes * row + neuron) for row in range(rows) for neuron in (0, 3)]
    for name, at in places:
        damaged = bytearray(data)
        damaged[where.offset(name) + at] ^= 1
        written(tmp_path, model, bytes(damaged))
        assert difference(tmp_path, model), (name, at)
    for row in range(rows):
        damaged = bytearray(data)
        damaged[where.offset("rows0") + lanes * row + 4] ^= 1  # there is no fifth neuron
        written(tmp_path, model, bytes(damaged))
        assert difference(tmp_path, model) == ""


def test_a_value_that_is_not_there_or_of_another_size(tmp_path):
    model = random_model((9, 4, 2), np.random.default_rng(0))
    assert difference(tmp_path, model) == f"{NETWORK}: No such file or directory"
    data = written(tmp_path, model)
    for other in (data[:-1], data + b"\0"):
        written(tmp_path, model, other)
        expected = f"{NETWORK}: {len(other):,} bytes, {len(data):,} expected"
        assert difference(tmp_path, model) == expected
