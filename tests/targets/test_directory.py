# SPDX-License-Identifier: Apache-2.0
"""The directory around an exporter, with an exporter that can be made to fail."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import (
    ExportError,
    N3icError,
    N3icWarning,
    UsageError,
    VerifyError,
)
from n3ic.model.bits import pack
from n3ic.model.difference import first_difference
from n3ic.model.network import BinaryModel, Inference
from n3ic.model.verification_vectors import boundary_vectors, verification_vectors
from n3ic.targets.directory import export
from n3ic.targets.manifest import read_manifest
from n3ic.targets.verification import verify_directory
from n3ic.util.files import sha256_file


def test_an_export_describes_itself(tmp_path, toy, model):
    figures = {"rows": 7, "roc_auc": 0.25, "accuracy": 0.5, "fpr": 1, "confusion": [[1]]}
    data = {"synthetic": True, "name": "d", "sha256": ""}
    metrics = {"test": figures, "data": data, "model": {"sha256": model.digest}}
    done = export(model, "toy", tmp_path / "out", metrics=metrics)
    assert done.verification.ok
    assert verify_directory(done.path, vectors=300, record=False).ok
    files = {p.relative_to(done.path).as_posix() for p in done.path.rglob("*") if p.is_file()}
    manifest = json.loads((done.path / "manifest.json").read_text())
    assert set(manifest["files"]) == files - {"manifest.json", "verification.json"}
    assert manifest["model"]["sha256"] == model.digest
    assert manifest["options"] == {"limit": 10_000, "mode": "good"}
    report = json.loads((done.path / "report.json").read_text())
    known_figures = {k: figures[k] for k in ("rows", "roc_auc", "accuracy", "fpr")}
    assert report["accuracy"] == known_figures | {"data_name": "d", "data_synthetic": True}
    line = "accuracy 0.5000, fpr 1, roc_auc 0.2500, rows 7, data_name d, data_synthetic True"
    assert line in (done.path / "report.md").read_text()
    assert report["figures"][0]["kind"] == "measured"
    assert "size \\| of &lt;file>" in (done.path / "report.md").read_text()
    again = export(model, "toy", tmp_path / "again", metrics=metrics)
    for name in files:
        assert (again.path / name).read_bytes() == (done.path / name).read_bytes()


@pytest.mark.parametrize("named", [{}, {"model": 5}, {"model": {"sha256": "0" * 64}}])
def test_the_accuracy_of_another_model_is_not_repeated(tmp_path, toy, model, named):
    with pytest.warns(N3icWarning, match="repeats no accuracy"):
        done = export(model, "toy", tmp_path / "o", metrics={"test": {"accuracy": 0.5}} | named)
    assert json.loads((done.path / "report.json").read_text())["accuracy"] == {}


def test_a_wrong_export_never_appears(tmp_path, toy, model):
    with pytest.raises(VerifyError, match=r"layer 2, class 1 \(class1\): score"):
        export(model, "toy", tmp_path / "out", options={"mode": "broken"})
    assert list(tmp_path.iterdir()) == []


def test_a_missing_tool_is_said_and_the_export_kept(tmp_path, toy, model):
    done = export(model, "toy", tmp_path / "out", options={"mode": "absent"})
    assert not done.verification.ok
    assert "toycc is not installed" in str(done.verification)


def test_what_does_not_fit_is_refused_with_the_nearest_shape(tmp_path, toy, model):
    with pytest.raises(ExportError, match=r"layer 0 lacks .* nearest shape that fits: 8-2"):
        export(model, "toy", tmp_path / "out", options={"limit": 10})
    done = export(model, "toy", tmp_path / "out", options={"limit": 10}, force=True)
    manifest = read_manifest(done.path)
    assert not manifest["fits"]
    assert "lacks" in manifest["problems"][0]
    assert "Does not fit" in (done.path / "report.md").read_text()


def test_a_full_disk_leaves_what_was_there(tmp_path, toy, model):
    export(model, "toy", tmp_path / "out")
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    with pytest.raises(N3icError, match="No space left"):
        export(model, "toy", tmp_path / "out", options={"mode": "disk-full"}, replace=True)
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_existing_folders_are_kept(tmp_path, toy, model):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="exists"):
        export(model, "toy", tmp_path / "mine")
    with pytest.raises(UsageError, match="not an export directory"):
        export(model, "toy", tmp_path / "mine", replace=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nope": 1}, "has no option --nope; it has --limit, --mode"),
        ({"limit": "x"}, "not of type int"),
        ({"limit": "0"}, "below 1"),
        ({"mode": "fast"}, "not one of good, broken"),
    ],
)
def test_options_are_checked(tmp_path, toy, model, options, message):
    with pytest.raises(UsageError, match=message):
        export(model, "toy", tmp_path / "out", options=options)


def test_real_rows_run_too(tmp_path, toy, model):
    path = export(model, "toy", tmp_path / "out").path
    rng = np.random.default_rng(0)
    rows = {f: rng.integers(0, 2**32, 50) for f in model.input.features}
    result = verify_directory(path, vectors=100, rows=rows)
    assert result.ok
    assert result.rows == 50


def test_a_verification_takes_options_of_its_own(tmp_path, toy, model):
    path = export(model, "toy", tmp_path / "out").path
    assert verify_directory(path, vectors=50, options={"slow": True}).ok
    with pytest.raises(UsageError, match="has no option --nope; it has --limit, --mode, --slow"):
        verify_directory(path, vectors=50, options={"nope": 1})


def test_vectors_reach_every_first_layer_threshold(model):
    bits = boundary_vectors(model, np.random.default_rng(0))
    popcounts = model.hidden[0].popcounts(pack(bits))
    for j, threshold in enumerate(model.hidden[0].thresholds):
        wanted = {t for t in (threshold, threshold - 1) if 0 <= t <= model.hidden[0].fan_in[j]}
        assert wanted <= set(popcounts[:, j].tolist())
    words = verification_vectors(model, 500, seed=3)
    assert len(words) == 500
    assert np.array_equal(words, verification_vectors(model, 500, seed=3))


def test_a_difference_is_named_by_layer_and_neuron(model):
    words = verification_vectors(model, 200)
    want = model.infer(words)
    assert first_difference(model, want, words) is None
    hidden = [h.copy() for h in want.hidden]
    hidden[1][7, 2] = ~hidden[1][7, 2]
    got = Inference(want.scores, want.classes, want.margins, tuple(hidden))
    difference = first_difference(model, got, words)
    assert (difference.vector, difference.layer, difference.neuron, difference.vectors) == (
        7,
        1,
        2,
        1,
    )
    assert f"threshold {model.hidden[1].thresholds[2]}" in difference.text
    scores = want.scores.copy()
    scores[9, 1] += 1
    difference = first_difference(model, Inference(scores, want.classes, want.margins), words)
    assert (difference.vector, difference.layer, difference.neuron) == (9, 2, 1)
    assert difference.got == difference.expected + 1
    classes = (want.classes + 1) % 3
    difference = first_difference(model, Inference(want.scores, classes, want.margins), words)
    assert "the lowest index wins a tie" in difference.text
    difference = first_difference(
        model, Inference(want.scores, want.classes, want.margins + 1), words
    )
    assert "margin" in difference.text
    difference = first_difference(model, Inference(scores[:5], want.classes, want.margins), words)
    assert "shape" in difference.text


def test_replacing_keeps_what_n3ic_did_not_write(tmp_path, toy, model):
    path = export(model, "toy", tmp_path / "out").path
    verify_directory(path, vectors=50)
    export(model, "toy", path, replace=True)
    (path / "sub" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds sub/notes\.txt, which n3ic did not write"):
        export(model, "toy", path, replace=True)
    assert (path / "sub" / "notes.txt").read_text() == "mine"


def test_the_share_of_decided_weight_bits_is_told(tmp_path, toy, model):
    path = export(model, "toy", tmp_path / "out").path
    result = verify_directory(path, vectors=300)
    assert result.weight_bits == result.decided_bits > 0
    assert f"would show an error in any of {result.weight_bits:,} weight bits" in str(result)
    record = json.loads((path / "verification.json").read_text())
    assert record["weight_bits"] == result.weight_bits
    partly = replace(result, decided_bits=result.weight_bits - 1)
    assert f"% of {result.weight_bits:,} weight bits" in str(partly)
    assert "100" not in str(partly).partition("decide")[2].partition("%")[0]


def test_an_export_is_matched_to_its_run_by_one_digest(tmp_path, toy, model):
    model.save(tmp_path / "run.n3ic")
    path = export(BinaryModel.load(tmp_path / "run.n3ic"), "toy", tmp_path / "out").path
    digest = sha256_file(tmp_path / "run.n3ic")
    assert sha256_file(path / "model.n3ic") == digest == model.digest
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["model"]["sha256"] == manifest["files"]["model.n3ic"] == digest
