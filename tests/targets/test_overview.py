# SPDX-License-Identifier: Apache-2.0
"""A row a target: of exports that are there, of a set, of what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic import plugins
from n3ic.cli.report import exports_near, rows_text
from n3ic.errors import ExportError
from n3ic.model.passes import simplify
from n3ic.model.random_models import random_model
from n3ic.targets import batch
from n3ic.targets.batch import report_all
from n3ic.targets.device import Fit, Placement
from n3ic.targets.directory import export
from n3ic.targets.export_index import find_export, read_export
from n3ic.targets.figures import Figure, Report
from n3ic.targets.overview import SourcedNumber, TargetRow, duration, number, overview
from n3ic.targets.verification import verify_directory
from n3ic.util.files import sha256_file


@pytest.fixture
def only_toy(toy, monkeypatch):
    named = plugins.names
    toys = {"n3ic.exporters": ("toy",)}
    monkeypatch.setattr(plugins, "names", lambda group: toys.get(group) or named(group))
    return toy


def report_of(tool, figures):
    """The toy target, saying other figures."""
    tool.report = lambda model, options, directory: Report(figures)


def test_an_export_that_is_there_is_not_made_again(tmp_path, only_toy, model, monkeypatch):
    done = export(model, "toy", tmp_path / "exports" / "m-toy")
    monkeypatch.setattr(batch, "export_item", None)
    (outcome,) = report_all({"": model}, None, [tmp_path / "exports"])
    assert outcome.permanent and outcome.exported.path == done.path
    assert outcome.exported.report == done.report
    assert outcome.exported.fit == done.fit
    (row,) = overview([outcome])
    assert outcome.exported.verification == done.verification
    assert row.shown == ("tested",)
    assert row.remarks == (f"tested: {done.verification.vectors:,} vectors, toy executor",)
    checked = verify_directory(done.path, vectors=300)
    (outcome,) = report_all({"": model}, None, [tmp_path / "exports"])
    assert outcome.exported.verification == checked
    assert overview([outcome])[0].shown == ("tested",)
    assert outcome.details()["verification"]["ok"] and outcome.details()["fits"]


@pytest.mark.parametrize("how", ["changed", "added", "missing", "link", "of an older n3ic"])
def test_a_verification_of_other_files_does_not_count(tmp_path, only_toy, model, how):
    done = export(model, "toy", tmp_path / "exports" / "m-toy")
    artefact, record = done.path / "artefact.bin", done.path / "verification.json"
    if how == "changed":
        artefact.write_bytes(artefact.read_bytes() + b"\n")
    elif how == "added":
        (done.path / "beside.txt").touch()
    elif how == "missing":
        artefact.unlink()
    elif how == "link":
        artefact.rename(tmp_path / "elsewhere")
        artefact.symlink_to(tmp_path / "elsewhere")
    else:
        verification = json.loads(record.read_text())
        del verification["artefacts"]
        record.write_text(json.dumps(verification))
    notes = []
    (outcome,) = report_all({"": model}, None, [tmp_path / "exports"], note=notes.append)
    (row,) = overview([outcome])
    assert (row.shown, row.remarks) == (("not verified",), ())
    assert notes == [
        f"{done.path} is not verified: verification.json is about other files; "
        f"next: n3ic verify {done.path}"
    ]


def test_an_export_that_was_not_tested_says_so(tmp_path, only_toy, model):
    path = export(model, "toy", tmp_path / "exports" / "m-toy", verify=False).path
    assert not (path / "verification.json").exists()
    (row,) = overview(report_all({"": model}, None, [tmp_path / "exports"]))
    assert row.shown == ("not verified",)


def test_what_was_built_in_an_export_leaves_its_verification(tmp_path, only_toy, model):
    only_toy.is_product = lambda name: name == "built.o"
    done = export(model, "toy", tmp_path / "o")
    (done.path / "built.o").touch()
    assert read_export(done.path).verification == done.verification


def test_the_record_of_an_export_holds_nothing_that_differs_from_run_to_run(
    tmp_path, only_toy, model
):
    run, times = only_toy.run, iter((3.0, 5.0))
    lasting = Figure("clocks", 7, "clock", "simulated", "a")

    def timed(*arguments):
        figures = (lasting, Figure("latency", next(times), "ns", "measured", "a"))
        return replace(run(*arguments), figures=figures)

    only_toy.run = timed
    one, two = (export(model, "toy", tmp_path / name) for name in "ab")
    assert one.verification != two.verification
    texts = [(done.path / "verification.json").read_bytes() for done in (one, two)]
    assert texts[0] == texts[1]
    assert read_export(one.path).verification.figures == (lasting,)


def test_an_export_of_another_model_tool_or_report_is_not_taken(tmp_path, only_toy, model):
    root = tmp_path / "exports"
    other = random_model((40, 9, 5, 3), np.random.default_rng(2))
    export(other, "toy", root / "other")
    assert find_export(root, "toy", model) == (None, "")
    path = export(model, "toy", root / "own").path
    manifest = path / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(json.dumps(json.loads(text) | {"tool": "n3ic 0.0"}))
    assert find_export(root, "toy", model) == (None, "")
    manifest.write_text(text)
    (path / "report.json").write_text((path / "report.json").read_text().replace("12", "13"))
    (path / "report.json").write_text("{}")
    exported, why = find_export(root, "toy", model)
    assert exported is None and "report.json is not what was written" in why
    notes = []
    (outcome,) = report_all({"": model}, None, [root], note=notes.append)
    assert not outcome.permanent and outcome.details()["path"] is None and notes[:1] == [why]


@pytest.mark.first_case
@pytest.mark.parametrize("damage", ["placements", "figures", "problems"])
@pytest.mark.parametrize("value", [None, 5, [5], [{}], [{"name": "x"}]])
def test_a_damaged_report_is_refused_in_words(tmp_path, only_toy, model, damage, value):
    """Though its digest is that of the manifest."""
    path = export(model, "toy", tmp_path / "o").path
    data = json.loads((path / "report.json").read_text())
    (path / "report.json").write_text(json.dumps(data | {damage: value}))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["report.json"] = sha256_file(path / "report.json")
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ExportError, match="is damaged"):
        read_export(path)


@pytest.mark.parametrize("text", ["[]", "{", '{"target": "toy"}', '{"vectors": NaN}'])
def test_a_damaged_verification_is_refused_in_words(tmp_path, only_toy, model, text):
    path = export(model, "toy", tmp_path / "o").path
    (path / "verification.json").write_text(text)
    with pytest.raises(ExportError, match="damaged"):
        read_export(path)


def test_the_surest_figure_is_shown(only_toy, model):
    report_of(
        only_toy,
        (
            Figure("latency", 3.0, "us", "estimated", "a"),
            Figure("latency", 2.0, "us", "simulated", "b"),
            Figure("throughput", 6_250_000, "inference/s", "estimated", "c"),
            Figure("lut", 1589, "LUT", "estimated", "d"),
            Figure("memory.file", 7, "byte", "measured", "e"),
        ),
    )
    (row,) = overview(report_all({"": model}, None))
    assert row.latency == SourcedNumber(2000.0, "ns", "simulated")
    assert row.throughput == SourcedNumber(6_250_000, "/s", "estimated")
    assert row.resources == (SourcedNumber(1589, "LUT", "estimated"),)
    assert row.bytes == simplify(model).model.weight_bytes  # what is placed
    text = "\n".join(rows_text([row]))
    assert "2 us s" in text and "6.25M e" in text and "1,589 LUT e" in text


def test_a_family_that_a_target_does_not_take_is_said_in_its_row(only_toy, model):
    only_toy.family = "another"
    (row,) = overview(report_all({"": model}, None))
    assert (row.fitting, row.bytes, row.shown) == (0, None, ())
    assert "refused: target toy takes no model of family binary-network" in row.remarks[0]
    lines = rows_text([row])
    assert lines[1].split()[:2] == ["toy", "no"] and "refused:" in lines[2]


def test_a_set_is_one_row(only_toy):
    report_of(only_toy, (Figure("latency", 2.0, "us", "simulated", "b"),))
    rng = np.random.default_rng(0)
    models = {f"queue{i}": random_model((32, 8, 2), rng) for i in range(17)}
    outcomes = report_all(models, None)
    assert len(outcomes) == 17
    (row,) = overview(outcomes)
    assert (row.networks, row.fitting, row.together) == (17, 17, True)
    assert row.bytes == sum(simplify(m).model.weight_bytes for m in models.values())
    assert row.latency == SourcedNumber(34_000.0, "ns", "simulated")  # one after the other
    assert rows_text([row])[1].split()[1] == "17/17"
    only_toy.check = lambda model, options: Fit((Placement("weights", "RAM", 9_000),))
    (row,) = overview(report_all(models, None))
    assert row.together is False and "153,000 bytes of RAM" in row.remarks[0]
    assert rows_text([row])[1].split()[1] == "apart"


def test_the_overview_fits_80_columns():
    resources = (
        SourcedNumber(144_500, "LUT6", "estimated"),
        SourcedNumber(12, "BRAM36", "estimated"),
    )
    row = TargetRow(
        "p4-netfpga", 1, 1, None, 13_107_200, SourcedNumber(21.9, "ns", "estimated"),
        SourcedNumber(1.19e8, "/s", "measured"), resources * 2, ("checked", "tested"), ("x " * 60,),
    )  # fmt: skip
    lines = rows_text([row, replace(row, target="host", latency=None, remarks=())])
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "144k LUT6 e," in text and "12 BRAM36 e" in text and "21.9 ns e" in text


def test_numbers_and_times_have_three_digits():
    assert [number(x) for x in (0.136, 4, 1563.0, 99_999, 144_500, 6.25e6, 2.5e9)] == [
        *("0.136", "4", "1,563", "99,999"),
        *("144k", "6.25M", "2.5G"),
    ]
    assert [duration(x) for x in (21.9, 49_572, 2e6, 3e9)] == ["21.9 ns", "49.6 us", "2 ms", "3 s"]


def test_exports_beside_the_folder_of_runs_are_found_from_anywhere(
    tmp_path, only_toy, model, monkeypatch
):
    run = tmp_path / "work" / "runs" / "one"
    run.mkdir(parents=True)
    export(model, "toy", tmp_path / "work" / "exports" / "one" / "toy")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    notes = []
    (outcome,) = report_all({"": model}, None, exports_near(run), note=notes.append)
    assert outcome.permanent and outcome.exported.verification.ok and notes == []
    other = random_model((40, 9, 5, 3), np.random.default_rng(2))
    (outcome,) = report_all({"": other}, None, exports_near(run), note=notes.append)
    assert not outcome.permanent
    (line,) = notes
    assert (
        str(tmp_path / "work" / "exports") in line
        and "no export of this model in exports or" in line
    )


def test_the_same_folder_of_exports_is_searched_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "model.n3ic").touch()
    folders = (Path("exports"), tmp_path / "runs" / "exports")
    assert exports_near(Path("runs/one")) == folders
    assert exports_near(Path("runs/one/model.n3ic")) == folders
