# SPDX-License-Identifier: Apache-2.0
"""The answering program's value read back: exact for any shape, and every flipped bit is found."""

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.xdp.decode import NETWORK, decode_directory
from n3ic.exporters.xdp.network import layout, structure_of, value_bytes
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
        (found,) = decode_directory(folder, model)
    except VerifyError as error:
        return str(error)
    return decoding_difference(model, found)


@pytest.mark.parametrize("density", [None, 0.6])
@pytest.mark.parametrize(
    "shape",
    [(5, 3, 2), (33, 9, 3), (64, 40, 7, 2), (300, 12, 2), (1000, 9, 3), (17, 4), (255, 130, 2)],
)
@pytest.mark.parametrize("extremes", [True, False])
def test_every_shape_is_read_back(tmp_path, shape, density, extremes):
    model = random_model(
        shape, np.random.default_rng(sum(shape)), density=density, extremes=extremes
    )
    written(tmp_path, model)
    assert difference(tmp_path, model) == ""


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
