# SPDX-License-Identifier: Apache-2.0
"""Several targets at once: what ends one of them does not end the others."""

import json

import pytest
from typer.testing import CliRunner

from n3ic import plugins
from n3ic.cli.main import command_line
from n3ic.errors import (
    ExportError,
    MissingDependencyError,
    ModelError,
    N3icError,
    UsageError,
    VerifyError,
)

REFUSALS = (
    ExportError("no room for it"),
    MissingDependencyError("toycc is not installed"),
    ModelError("the input reads 'x0', which its table does not give"),
    UsageError("the target 'bad' is broken: no module"),
)
FAILURES = (VerifyError("bad: FAILED: scores"), N3icError("cannot write it"), KeyError("lane"))


@pytest.fixture
def targets(toy, monkeypatch):
    """The targets ``bad`` and ``good``; a function that says what the bad one raises, and when."""
    bad = type(toy)()
    tools = {"bad": bad, "good": toy}

    def fails(error, where="write"):
        def failing(*_, **__):
            raise error

        if where == "load":
            tools["bad"] = failing
        else:
            monkeypatch.setattr(bad, where, failing)

    others, named = plugins.load, plugins.names

    def load(group, name):
        if group != "n3ic.exporters":
            return others(group, name)
        tool = tools[name]
        return tool if tool in (bad, toy) else tool()

    monkeypatch.setattr(plugins, "load", load)
    groups = {"n3ic.exporters": ("bad", "good")}
    monkeypatch.setattr(
        plugins, "names", lambda group: groups[group] if group in groups else named(group)
    )
    return fails


@pytest.fixture
def typed(tmp_path, monkeypatch, model):
    """``n3ic`` beside the file ``m.n3ic``; what it printed and the error that it ended with."""
    monkeypatch.chdir(tmp_path)
    model.save(tmp_path / "m.n3ic")

    def run(*words):
        app = command_line(
            words[:1]
        )  # a command, and no options of the plug-ins that are not there
        return CliRunner().invoke(app, words)

    return run


CASES = [
    *(pytest.param(e, "write", id=type(e).__name__) for e in (*REFUSALS, *FAILURES)),
    pytest.param(REFUSALS[0], "for_family", id="family"),
    pytest.param(REFUSALS[1], "load", id="library"),
    pytest.param(REFUSALS[3], "load", id="broken"),
    pytest.param(REFUSALS[2], "report", id="late"),
    pytest.param(OSError(13, "Permission denied"), "check", id="OSError"),
]


@pytest.mark.first_case
@pytest.mark.parametrize(("error", "where"), CASES)
def test_one_targets_error_is_one_row(targets, typed, tmp_path, error, where):
    targets(error, where)
    refused = error in REFUSALS
    ends_with = None if refused else error
    done = typed("export", "--target", "all", "--model", "m.n3ic", "--out", "out", "--no-verify")
    assert (tmp_path / "out" / "good" / "artefact.bin").is_file()
    assert not (tmp_path / "out" / "bad").exists()
    bad, good = done.stdout.splitlines()
    assert bad.startswith("bad: ") and str(error) in bad
    assert good.startswith("good: ")
    assert (done.exit_code == 0, done.exception) == (refused, ends_with)
    done = typed("report", "m.n3ic", "--html", "page.html")
    assert (done.exit_code == 0, done.exception) == (refused, ends_with)
    rows = [line.split()[:2] for line in done.stdout.splitlines()]
    assert ["bad", "no"] in rows and ["good", "yes"] in rows
    assert str(error)[:12] in done.stdout and "good" in (tmp_path / "page.html").read_text()
    done = typed("report", "m.n3ic", "--json")
    rows_by_target = json.loads(done.stdout)
    assert str(error) in rows_by_target["bad"]["error"] and rows_by_target["good"]["fits"]


@pytest.mark.parametrize("error", [REFUSALS[2], *FAILURES], ids=lambda e: type(e).__name__)
def test_a_single_target_ends_with_its_error(targets, typed, tmp_path, error):
    targets(error)
    done = typed("export", "--target", "bad", "--model", "m.n3ic", "--out", "out", "--no-verify")
    assert done.exception is error
    assert not (tmp_path / "out").exists()


def test_a_model_that_every_target_refuses_is_an_error(targets, typed, toy, monkeypatch):
    targets(REFUSALS[0])
    monkeypatch.setattr(toy, "write", plugins.load("n3ic.exporters", "bad").write)
    done = typed("export", "--target", "all", "--model", "m.n3ic", "--out", "out")
    assert done.exception is REFUSALS[0]


def test_a_signal_that_a_library_swallowed_is_no_row(targets, typed, monkeypatch):
    from n3ic.targets import batch
    from n3ic.util.signals import EndedBySignal

    def ended():
        raise EndedBySignal

    monkeypatch.setattr(batch.signals, "check", ended)
    targets(ValueError("swallowed"))
    done = typed("export", "--target", "all", "--model", "m.n3ic", "--out", "out")
    assert done.exit_code != 0 and "good" not in done.stdout
