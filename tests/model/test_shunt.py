# SPDX-License-Identifier: Apache-2.0
"""The margin below which a flow is left to the host: verdicts, the model's file, the passes."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.model.bits import pack
from n3ic.model.difference import first_difference
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import SHUNT, BinaryModel
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import margin_vectors, verification_vectors


def sample(shunt=3, shape=(40, 21, 4)):
    return random_model(shape, np.random.default_rng(3)).with_shunt(shunt)


def test_a_margin_at_the_threshold_is_decided_and_one_below_is_not():
    model = sample(3)
    scores = np.array([[0, 3, 0, 0], [0, 2, 0, 0], [5, 5, 0, 0], [9, 0, 0, 6]], dtype=np.int32)
    verdicts = model.verdicts(scores)
    assert verdicts.tolist() == [1, SHUNT, SHUNT, 0]
    assert verdicts.dtype == np.int64
    assert [model.verdict_names[v] for v in verdicts] == ["class1", "shunt", "shunt", "class0"]
    assert model.with_shunt(0).verdicts(scores).tolist() == [1, 1, 0, 0]


def test_what_a_network_computes_holds_the_verdicts():
    model = sample(3)
    inference = model.infer(verification_vectors(model, 300))
    want = np.where(inference.margins < 3, SHUNT, inference.classes)
    assert np.array_equal(inference.verdicts, want)
    assert 0 < (want == SHUNT).mean() < 1


def test_the_threshold_is_bounded_by_the_largest_margin():
    weights = np.ones((3, 8), dtype=bool)
    output = OutputLayer(weights, bias=np.array([-2, 0, 5], dtype=np.int32))
    model = BinaryModel(InputSpec.raw(8), (), output, ("a", "b", "c"))
    assert model.largest_margin == 13 - 0
    everything = model.with_shunt(14)
    assert (everything.infer(verification_vectors(model, 100)).verdicts == SHUNT).all()
    for wrong in (15, -1, True, 2.0):
        with pytest.raises(ModelError, match="threshold"):
            model.with_shunt(wrong)
    with pytest.raises(ModelError, match="no class named 'shunt'"):
        replace(model, classes=("a", "shunt", "c")).with_shunt(1)


def test_the_largest_margin_bounds_every_margin_and_is_reached_by_some_network():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        model = random_model((6, 3), rng, density=0.6)
        every = pack((np.arange(64)[:, None] >> np.arange(6) & 1).astype(bool))
        assert model.infer(every).margins.max() <= model.largest_margin


def test_the_threshold_survives_the_file_whose_version_an_old_reader_refuses():
    model = sample(3)
    again = BinaryModel.from_bytes(model.to_bytes())
    assert again == model and again.shunt == 3 and again.to_bytes() == model.to_bytes()
    assert model != model.with_shunt(4)
    header, _ = unpack_file(model.to_bytes(), "model")
    assert header["version"] == 3
    plain, _ = unpack_file(model.with_shunt(0).to_bytes(), "model")
    assert plain["version"] == 2 and "shunt" not in plain


def rewritten(model, change):
    """The file of a model whose header was changed, its checksum right."""
    header, tensors = unpack_file(model.to_bytes(), "model")
    change(header)
    return pack_file(header["family"], header, tensors._left, header["version"])


@pytest.mark.parametrize("value", [0, -1, 10**9, 1.0, True, "3", None, [3]])
def test_a_hostile_threshold_in_a_file_is_refused(value):
    changed = rewritten(sample(3), lambda header: header.update(shunt=value))
    with pytest.raises(ModelError, match=r"threshold|shunt: expected an integer"):
        BinaryModel.from_bytes(changed)


def test_version_and_threshold_go_together():
    """As a reader of version 2 would, a version 2 would decide the flows that are shunted."""
    data = rewritten(sample(3).with_shunt(0), lambda header: header.update(shunt=3))
    with pytest.raises(ModelError, match="shunting threshold of 3 in a file of version 2"):
        BinaryModel.from_bytes(data)
    data = rewritten(sample(3), lambda header: header.pop("shunt"))
    with pytest.raises(ModelError, match="shunting threshold of 0 in a file of version 3"):
        BinaryModel.from_bytes(data)


def test_the_passes_keep_the_verdicts():
    """Constant neurons go into the biases, and with them margins that no input reaches."""
    base = random_model((12, 6, 3), np.random.default_rng(1), extremes=False)
    first = base.hidden[0]
    stuck = np.where(np.arange(6) < 4, 0, first.thresholds).astype(np.int32)
    model = replace(base, hidden=(HiddenLayer(first.weights, thresholds=stuck),))
    words = verification_vectors(model, 500)
    for shunt in range(model.largest_margin + 2):
        simplified = simplify(model.with_shunt(shunt))
        assert simplified.findings.neurons
        want = simplified.source.infer(words).verdicts
        assert np.array_equal(simplified.model.infer(simplified.inputs(words)).verdicts, want)
        assert (simplified.model.shunt > 0) == (shunt > 0)


@pytest.mark.parametrize("shunt", [1, 2, 5, 6])
def test_vectors_lie_at_the_threshold_and_one_below(shunt):
    model = sample(shunt)
    words = margin_vectors(model)
    margins = model.infer(words).margins
    assert (margins == shunt).sum() >= 8 and (margins == shunt - 1).sum() >= 8
    assert np.array_equal(words, margin_vectors(model))
    assert len(margin_vectors(model.with_shunt(0))) == 0


def test_vectors_lie_on_both_sides_where_margins_are_even():
    """Two classes of all connections: their margins are all even, or all odd."""
    model = random_model((64, 33, 2), np.random.default_rng(2), extremes=False)
    parity = set((model.infer(verification_vectors(model, 500)).margins % 2).tolist())
    assert len(parity) == 1
    for shunt in (4, 5):
        margins = model.with_shunt(shunt).infer(margin_vectors(model.with_shunt(shunt))).margins
        assert {margins[margins >= shunt].min(), margins[margins < shunt].max()} <= set(
            range(shunt - 2, shunt + 2)
        )


def test_a_verdict_that_differs_is_named():
    model = sample(3)
    words = margin_vectors(model)
    want = model.infer(words)
    verdicts = want.verdicts.copy()
    row = int(np.flatnonzero(want.margins == 3)[0])
    verdicts[row] = SHUNT
    difference = first_difference(model, replace(want, verdicts=verdicts), words)
    assert (difference.vector, difference.got) == (row, SHUNT)
    assert "margin 3, shunting threshold 3: verdict class" in difference.text
    assert "got shunt" in difference.text
    difference = first_difference(model, replace(want, verdicts=None), words)
    assert "no verdicts" in difference.text
    plain = model.with_shunt(0)
    assert first_difference(plain, replace(plain.infer(words), verdicts=None), words) is None
