# SPDX-License-Identifier: Apache-2.0
"""What the core does with a threshold: targets that know none, verdicts, what is read back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ExportError, VerifyError
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.targets.base import Execution
from n3ic.targets.decoding import Decoded, DecodedLayer
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory


@pytest.fixture
def shunting():
    """Not all connections, so that margins are even and odd."""
    return random_model((40, 9, 8, 4), np.random.default_rng(7), density=0.8).with_shunt(5)


@pytest.fixture
def able(toy, monkeypatch):
    monkeypatch.setattr(type(toy), "shunts", True)
    return toy


def test_a_target_that_knows_no_threshold_refuses_the_model(tmp_path, toy, shunting):
    with pytest.raises(ExportError, match=r"shunts flows whose margin is below 5.*would decide"):
        export(shunting, "toy", tmp_path / "out", force=True)
    assert not (tmp_path / "out").exists()


def test_an_export_that_was_made_of_it_fails_once_the_target_knows_none(
    tmp_path, able, shunting, monkeypatch
):
    path = export(shunting, "toy", tmp_path / "out").path
    monkeypatch.setattr(type(able), "shunts", False)
    assert "shunts flows" in verify_directory(path, vectors=50).failures[0]


def test_verdicts_are_compared_and_the_threshold_is_recorded(tmp_path, able, shunting):
    done = export(shunting, "toy", tmp_path / "out")
    verification = verify_directory(done.path, vectors=300)
    assert verification.ok and verification.shunt == 5
    assert verification.at_shunt >= 8 and verification.below_shunt >= 8
    assert "equal scores and verdicts" in str(verification)
    assert "at the shunting threshold 5" in str(verification)
    recorded = json.loads((done.path / "verification.json").read_bytes())
    assert recorded["shunt"] == 5
    assert "a flow of a margin below 5 is left" in (done.path / "report.md").read_text()
    assert json.loads((done.path / "manifest.json").read_bytes())["model"]["shunt"] == 5


@pytest.mark.parametrize("other", [0, 4, 6])
def test_a_target_of_another_threshold_fails(tmp_path, able, shunting, monkeypatch, other):
    def run(directory, model, options, words):
        return Execution(model.with_shunt(other).infer(words), "another threshold")

    monkeypatch.setattr(able, "run", run, raising=False)
    with pytest.raises(VerifyError, match="shunting threshold 5: verdict"):
        export(shunting, "toy", tmp_path / "out")


def test_a_target_that_tells_no_verdict_fails(tmp_path, able, shunting, monkeypatch):
    def run(directory, model, options, words):
        return Execution(replace(model.infer(words), verdicts=None), "no verdicts")

    monkeypatch.setattr(able, "run", run, raising=False)
    with pytest.raises(VerifyError, match="no verdicts"):
        export(shunting, "toy", tmp_path / "out")


@pytest.mark.parametrize(
    ("threshold", "message"),
    [(None, "no shunting threshold"), (6, "shunts margins below 6, the model below 5"), (5, None)],
)
def test_the_threshold_that_is_read_back_is_compared(
    tmp_path, able, shunting, monkeypatch, threshold, message
):
    def decode(directory, model, options):
        file_model = BinaryModel.load(directory / "artefact.bin")
        limits = [*(x.thresholds for x in file_model.hidden), file_model.output.bias]
        layers = tuple(
            DecodedLayer(x.weights, np.asarray(limit), x.mask)
            for x, limit in zip(file_model.layers, limits, strict=True)
        )
        return (Decoded("artefact.bin", layers, shunt=threshold),)

    monkeypatch.setattr(able, "decode", decode, raising=False)
    if message is None:
        assert export(shunting, "toy", tmp_path / "out").verification.ok
        return
    with pytest.raises(VerifyError, match=message):
        export(shunting, "toy", tmp_path / "out")


def test_the_nearest_margins_are_counted_where_the_threshold_is_none(tmp_path, able):
    """Two classes of all connections: with an odd margin at the threshold, none is even."""
    base = random_model((40, 9, 9, 2), np.random.default_rng(7), extremes=False)
    for shunt in (2, 3):
        done = export(base.with_shunt(shunt), "toy", tmp_path / str(shunt))
        assert done.verification.at_shunt >= 8 and done.verification.below_shunt >= 8
