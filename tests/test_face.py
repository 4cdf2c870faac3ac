# SPDX-License-Identifier: Apache-2.0
"""``import n3ic``: the verbs and the classes, lazily, and nothing else."""

import subprocess
import sys

import numpy as np
import pytest

import n3ic
from n3ic.errors import UsageError
from n3ic.model.random_models import random_model


def test_the_face_is_what_is_promised():
    verbs = {"load", "train", "predict", "export", "verify", "bench"}
    assert verbs < set(n3ic.__all__)
    assert dir(n3ic) == sorted([*n3ic.__all__, "__version__"])
    for name in n3ic.__all__:
        if name != "BinaryMLPClassifier":
            assert getattr(n3ic, name).__doc__


def test_nothing_is_imported_before_it_is_used():
    code = "import n3ic, sys; print({'numpy', 'torch', 'pandas', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        n3ic.nonsense  # noqa: B018


def test_what_the_command_line_does_is_one_call(tmp_path):
    rng = np.random.default_rng(0)
    model = random_model((40, 8, 3), rng)
    model.save(tmp_path / "m.n3ic")
    loaded = n3ic.load(tmp_path / "m.n3ic")
    assert loaded == model
    features = {name: rng.integers(0, 2**32, 50) for name in model.input.features}
    got, want = n3ic.predict(loaded, features), model.infer(model.encode(features))
    np.testing.assert_array_equal(got.scores, want.scores)
    np.testing.assert_array_equal(got.classes, want.classes)
    np.testing.assert_array_equal(got.margins, want.margins)
    done = n3ic.export(tmp_path / "m.n3ic", "nfp", tmp_path / "nfp", threads=120)
    assert done.verification.ok
    assert n3ic.verify(tmp_path / "nfp", vectors=64).ok
    with pytest.raises(UsageError, match="no option thread; did you mean 'threads'"):
        n3ic.export(model, "nfp", tmp_path / "other", thread=120)
    with pytest.raises(UsageError, match="no network 'other'"):
        n3ic.load(tmp_path / "m.n3ic", "other")
