# SPDX-License-Identifier: Apache-2.0
"""n3ic runs only files that it would write itself."""

import json
import os
import warnings
from dataclasses import asdict

import numpy as np
import pytest

from n3ic.errors import (
    ExportError,
    MissingDependencyError,
    N3icError,
    N3icWarning,
    UsageError,
)
from n3ic.model.random_models import random_model
from n3ic.targets import artefacts
from n3ic.targets.directory import export
from n3ic.targets.figures import Figure, Report
from n3ic.targets.integrity import _report, difference, trusted_copy
from n3ic.targets.report import REPORT
from n3ic.targets.verification import Verification, verify_directory
from n3ic.util.files import sha256_file
from n3ic.util.json_text import json_text
from tests.support.command_line import n3ic


@pytest.fixture
def path(tmp_path, toy, model):
    return export(model, "toy", tmp_path / "out").path


def forge(path, name):
    """Put the digest of a changed file into the manifest."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = sha256_file(path / name)
    (path / "manifest.json").write_text(json_text(manifest))


def test_what_is_as_written_is_run(path):
    result = verify_directory(path, vectors=300)
    assert result.ok
    assert result.files == len([p for p in path.rglob("*") if p.is_file()]) - 1  # the outcome
    assert json.loads((path / "verification.json").read_text())["ok"]
    assert verify_directory(path, vectors=300).ok  # the outcome is no part of the export


def test_vectors_are_as_many_as_the_target_says_and_those_of_seed_0(path, toy, monkeypatch):
    seen, run = [], toy.run

    def watched(directory, model, options, words):
        seen.append(words)
        return run(directory, model, options, words)

    monkeypatch.setattr(toy, "run", watched, raising=False)
    assert verify_directory(path).vectors == len(seen[0]) == toy.verification.vectors
    verify_directory(path, vectors=400)
    verify_directory(path, vectors=400, seed=0)
    verify_directory(path, vectors=400, seed=1)
    assert [len(words) for words in seen[1:]] == [400] * 3
    assert np.array_equal(seen[1], seen[2]) and not np.array_equal(seen[1], seen[3])


@pytest.mark.parametrize("error", [MissingDependencyError, ExportError])
def test_what_cannot_be_written_again_is_not_run(path, toy, monkeypatch, error):
    def write(model, options, out):
        raise error("no toycc")

    monkeypatch.setattr(toy, "write", write, raising=False)
    verification = verify_directory(path, record=False)
    if error is MissingDependencyError:
        assert verification == Verification("toy", "", 0, missing="no toycc")
    else:
        message = "manifest.json: this n3ic cannot write such an export: no toycc"
        assert verification.failures[0] == message and len(verification.failures) == 2
        assert (verification.files, verification.vectors, verification.executor) == (0, 0, "")


def test_files_that_are_equal_are_counted(path):
    every = len([p for p in path.rglob("*") if p.is_file()]) - 1
    (path / "more").touch()
    assert verify_directory(path, vectors=50).files == every
    (path / "report.md").unlink()
    (path / "sub" / "README.md").write_text("changed")
    verification = verify_directory(path, vectors=50)
    assert (verification.files, verification.ok) == (every - 2, False)
    manifest = json.loads((path / "manifest.json").read_text()) | {"more": 1}
    (path / "manifest.json").write_text(json_text(manifest))
    assert verify_directory(path, vectors=50).files == every - 3


def test_code_of_a_changed_file_does_not_run(tmp_path, compiler, quick_build):
    """A constructor in the C of an export, with the manifest's digest made to agree."""
    model = random_model((40, 6, 2), np.random.default_rng(0))
    path = export(model, "host", tmp_path / "out", verify=False).path
    mark = tmp_path / "ran"
    evil = (
        f"#include <stdio.h>\n__attribute__((constructor)) static void x(void) "
        f'{{ FILE *f = fopen("{mark}", "w"); if (f) fclose(f); }}\n'
    )
    (path / "bnn.c").write_text((path / "bnn.c").read_text() + evil)
    forge(path, "bnn.c")
    result = verify_directory(path, vectors=50)
    assert not mark.exists()
    assert "bnn.c is not what n3ic writes" in str(result) and "was not run" in str(result)
    with pytest.warns(N3icWarning, match="with your rights"):
        verify_directory(path, vectors=50, run_changed=True)
    assert mark.exists()


def test_changed_and_missing_files_are_named(path):
    (path / "sub" / "README.md").write_text("changed")
    (path / "report.md").unlink()
    result = verify_directory(path)
    assert result.failures[:2] == (
        "report.md is missing",
        "sub/README.md is not what n3ic writes for this model and these options",
    )
    assert result.executor == ""
    with pytest.warns(N3icWarning, match="with your rights"):
        result = verify_directory(path, run_changed=True)
    assert result.executor == "toy executor" and not result.ok


@pytest.mark.parametrize("kind", ["file", "link", "pipe", "hidden"])
def test_what_was_added_fails_and_takes_no_part(path, kind):
    name = ".stdint.h" if kind == "hidden" else "stdint.h"
    if kind == "link":
        (path / name).symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path / name)
    else:
        (path / name).write_text("#error")
    result = verify_directory(path)
    assert result.failures == (f"{name} is no part of the export",)
    assert result.executor == "toy executor"  # of the files as n3ic writes them


def test_what_building_makes_is_no_failure_and_not_compared(path, toy, model, monkeypatch):
    monkeypatch.setattr(type(toy), "products", ("build/*", "toy-exec"))
    (path / "build").mkdir()
    (path / "build" / "a.o").touch()
    (path / "toy-exec").touch()
    result = verify_directory(path)
    assert result.ok and str(result).endswith("; not compared: build/a.o, toy-exec")
    for i in range(11):
        (path / "build" / f"b{i:02}.o").touch()
    named = ", ".join(["build/a.o", *(f"build/b{i:02}.o" for i in range(9))])
    assert verify_directory(path).note == f"not compared: {named} and 3 more"
    export(model, "toy", path, replace=True)
    (path / "other-exec").touch()
    assert not verify_directory(path).ok


def test_of_many_added_files_ten_are_named(path):
    for i in range(10):
        (path / f"x{i:02}").touch()
    named = [f"x{i:02} is no part of the export" for i in range(10)]
    assert verify_directory(path).failures == (*named,)
    (path / "x\nb").touch()
    (path / "y").touch()
    named = ["x\\nb is no part of the export", *named[:9], "nor are 2 more files"]
    assert verify_directory(path).failures == (*named,)


@pytest.mark.parametrize(
    ("content", "message"),
    [("text", ""), ("texT", "not what"), ("tex", "not what"), ("text\n", "not what")],
)
def test_a_file_is_equal_if_each_byte_is(tmp_path, content, message):
    (tmp_path / "written").write_text("text")
    (tmp_path / "found").write_text(content)
    text = difference(tmp_path / "found", tmp_path / "written", "that")
    assert text == (message and "not what n3ic writes for that")
    (tmp_path / "found").unlink()
    (tmp_path / "found").mkdir()
    assert difference(tmp_path / "found", tmp_path / "written", "that").startswith("not to be read")


def test_a_link_is_no_file_of_an_export(path, tmp_path):
    for name in ("artefact.bin", "manifest.json"):
        (path / name).rename(tmp_path / name)
        (path / name).symlink_to(tmp_path / name)
        if name == "artefact.bin":
            assert not verify_directory(path).ok
    with pytest.raises(ExportError, match="a symbolic link, no regular file"):
        verify_directory(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"files": {}}, "manifest.json: files"),
        (lambda m: m | {"fits": False}, "manifest.json: fits"),
        (lambda m: m | {"exported": {}}, "manifest.json: exported"),
        (lambda m: m | {"device": "another"}, "manifest.json: device"),
        (lambda m: m | {"more": 1}, "manifest.json: more"),
        (lambda m: m | {"version": 1.0}, "manifest.json: version"),
        (lambda m: m | {"options": {"limit": 9_000}}, "manifest.json: options"),
        (lambda m: m | {"model": m["model"] | {"sha256": "0" * 64}}, "manifest.json: model"),
        (lambda m: dict(reversed(m.items())), "not written as n3ic writes it"),
    ],
)
def test_fields_of_the_manifest_are_compared(path, change, message):
    manifest = change(json.loads((path / "manifest.json").read_text()))
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    assert message in str(verify_directory(path))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r | {"target": "another"},
        lambda r: r | {"placements": []},
        lambda r: r | {"figures": [{"name": "latency"}]},
        lambda r: r | {"figures": [r["figures"][0] | {"value": "fast"}]},
        lambda r: r | {"figures": [r["figures"][0] | {"value": 1}]},  # the page shows another
        lambda r: r | {"notes": [5]},
        lambda r: [r],
    ],
)
def test_a_report_that_its_page_does_not_show_is_noticed(path, change):
    report = change(json.loads((path / "report.json").read_text()))
    (path / "report.json").write_text(json_text(report))
    forge(path, "report.json")
    assert "report." in str(verify_directory(path))


def test_another_version_says_so(path, monkeypatch):
    monkeypatch.setattr(artefacts, "TOOL", "n3ic 9.9")
    monkeypatch.setattr("n3ic.targets.integrity.TOOL", "n3ic 9.9")
    result = verify_directory(path, record=False)
    assert result.ok
    assert "written by n3ic 0" in str(result) and "n3ic 9.9 writes the same" in str(result)
    (path / "artefact.bin").write_bytes(b"")
    result = verify_directory(path, record=False)
    assert result.failures[0].startswith("manifest.json: written by n3ic 0")
    assert len(result.failures) == 3  # the file, and that nothing was run
    manifest = json.loads((path / "manifest.json").read_text()) | {"more": 1}
    (path / "manifest.json").write_text(json_text(manifest))
    assert verify_directory(path, record=False).failures[2:-1] == (
        "manifest.json: more is not what n3ic writes",
    )


def test_a_verdict_that_cannot_be_recorded_is_not_lost(path):
    (path / "verification.json").unlink()
    (path / "verification.json").mkdir()
    (path / "verification.json" / "x").touch()
    with pytest.warns(N3icWarning, match="--no-record"):
        assert verify_directory(path).executor == "toy executor"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verify_directory(path, record=False)


def test_a_simulated_card_is_compared_too(path, tmp_path):
    (tmp_path / "a").mkdir()
    assert trusted_copy(path, tmp_path / "a").is_relative_to(tmp_path / "a")
    (path / "artefact.bin").write_bytes(b"")
    (tmp_path / "b").mkdir()
    with pytest.raises(ExportError, match=r"artefact\.bin .* n3ic runs only"):
        trusted_copy(path, tmp_path / "b")
    (tmp_path / "c").mkdir()
    copy = trusted_copy(path, tmp_path / "c", run_changed=True)
    assert (copy / "artefact.bin").read_bytes() == b"" and copy.is_relative_to(tmp_path / "c")


def test_the_command_line_has_the_rule(tmp_path):
    path = export(random_model((8, 2), np.random.default_rng(0)), "p4", tmp_path / "out").path

    def verify(*options, expect=0):
        done = n3ic("verify", path, "--vectors", 50, *options, cwd=tmp_path, expect=expect)
        return " ".join(f"{done.stdout} {done.stderr}".split())

    before = (path / "verification.json").read_bytes()
    verify("--no-record")
    assert (path / "verification.json").read_bytes() == before
    (path / "n3ic.p4").write_text((path / "n3ic.p4").read_text() + "\n")
    assert "was not run" in verify(expect=3)
    assert "with your rights" in verify("--run-changed", expect=3)
    assert "Files that" in verify("--help")


GOOD = {
    "format": "n3ic-export",
    "version": 1,
    "tool": "n3ic 0.1.0",
    "target": "toy",
    "device": "a toy card",
    "options": {},
    "model": {"name": "n", "sha256": "", "shape": []},
    "simplify": True,
    "fits": True,
    "problems": [],
    "files": {},
}


@pytest.mark.first_case
@pytest.mark.parametrize("field", sorted(GOOD))
@pytest.mark.parametrize(
    "value",
    [None, 5, -1.5, 10**400, "x" * 100_000, [], [[]], {}, {"a": None}, {"a": {}}, {"../x": "y"}],
    ids=lambda v: repr(v)[:12],
)
def test_a_damaged_field_of_a_manifest_is_one_line(tmp_path, toy, model, field, value):
    model.save(tmp_path / "model.n3ic")
    (tmp_path / "manifest.json").write_text(json.dumps(GOOD | {field: value}))
    try:
        message = str(verify_directory(tmp_path, record=False))
    except N3icError as error:
        message = str(error)
        assert len(message) < 1000
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"format": "n3ic-export"}'])
def test_what_is_no_manifest_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ExportError):
        verify_directory(tmp_path)


@pytest.mark.parametrize("missing", sorted({*GOOD} - {"simplify"}))
def test_a_manifest_that_lacks_a_field_is_refused(tmp_path, toy, missing):
    lacking = {k: v for k, v in GOOD.items() if k != missing}
    (tmp_path / "manifest.json").write_text(json.dumps(lacking))
    with pytest.raises(ExportError):
        verify_directory(tmp_path)


def test_an_option_that_this_version_lacks_is_said(path):
    manifest = json.loads((path / "manifest.json").read_text()) | {"options": {"nope": 1}}
    (path / "manifest.json").write_text(json_text(manifest))
    with pytest.raises(UsageError, match="has no option --nope"):
        verify_directory(path)


def test_no_export_directory_is_said(tmp_path):
    with pytest.raises(ExportError, match="is not an export directory"):
        verify_directory(tmp_path / "none")
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ExportError, match="no regular file"):
        verify_directory(tmp_path)


def test_what_a_report_claims_is_taken_where_it_is_whole(tmp_path):
    figure = Figure("lut", 7, "site", "estimated", "source", 9.5)
    whole = {"figures": [asdict(figure)], "notes": ["n"], "accuracy": {"test": 0.5}}

    def claimed(**changes):
        (tmp_path / REPORT).write_text(json.dumps(whole | changes))
        return _report(tmp_path)

    assert _report(tmp_path) == (Report((), ()), {})
    assert claimed() == (Report((figure,), ("n",)), {"test": 0.5})
    assert claimed(figures=[asdict(figure) | {"paper": None}])[0].figures[0].paper is None
    assert claimed(accuracy=[1]) == (Report((figure,), ("n",)), {})
    for damaged in (
        {"figures": [asdict(figure) | {"value": "7"}]},
        {"figures": [asdict(figure) | {"paper": "7"}]},
        {"figures": [asdict(figure) | {"unit": 7}]},
        {"figures": [asdict(figure) | {"source": None}]},
        {"figures": [asdict(figure) | {"more": 1}]},
        {"figures": 7},
        {"notes": [7]},
        {"notes": None},
    ):
        assert claimed(**damaged) == (Report((), ()), {}), damaged
    (tmp_path / REPORT).write_text("{")
    assert _report(tmp_path) == (Report((), ()), {})


def test_libraries_of_another_machine_are_no_change(path, monkeypatch):
    """Versions are claims of whoever wrote the export; digests and options are compared."""
    monkeypatch.setattr(
        "n3ic.targets.bill_of_materials.library_versions", lambda: {"numpy": "9.9", "python": "9"}
    )
    assert verify_directory(path, record=False).ok
    text = (path / "sbom.spdx.json").read_text()
    digest = json.loads(text)["files"][0]["checksums"][1]["checksumValue"]
    (path / "sbom.spdx.json").write_text(text.replace(digest, 64 * "0"))
    forge(path, "sbom.spdx.json")
    result = verify_directory(path, record=False)
    assert any(f.startswith("sbom.spdx.json is not what n3ic writes") for f in result.failures)
