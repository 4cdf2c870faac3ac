# SPDX-License-Identifier: Apache-2.0
"""Every study is registered, shown and written alike."""

import csv
import json
from dataclasses import dataclass

import pytest
import typer

from n3ic import plugins
from n3ic.cli.outputs import show_result
from n3ic.errors import UsageError
from n3ic.evaluation import study
from n3ic.evaluation.study import StudyResult, write_result
from n3ic.util.display import TextTable
from n3ic.util.pictures import new_figure


@dataclass(frozen=True, repr=False)
class Counts(StudyResult):
    flows: int
    name: str | None

    @property
    def title(self):
        return f"flows of <{self.name}>"

    @property
    def tables(self):
        return (TextTable("by name", ("name", "flows"), ((str(self.name), str(self.flows)),)),)

    @property
    def conclusions(self):
        return ("few flows",)

    @property
    def commands(self):
        return {"all": "n3ic train 'a|b'"}

    def records(self):
        return [{"name": "=1|,", "flows": self.flows, "share": None, "few": True}]


@dataclass(frozen=True, repr=False)
class Drawn(Counts):
    def figure(self):
        return new_figure(2.0, 2.0)[0]


def test_a_result_is_printed_as_tables_or_as_one_json_document(capsys):
    counts = Counts(3, "a|b")
    show_result(counts, json=False)
    shown = capsys.readouterr().out
    assert "by name" in shown and shown.index("a|b") < shown.index("few flows")
    assert "all: n3ic train 'a|b'" in shown
    show_result(counts, json=True, beside={"path": "runs/x"})
    assert json.loads(capsys.readouterr().out) == {"flows": 3, "name": "a|b", "path": "runs/x"}
    assert repr(counts) == "<Counts flows of <a|b>>" and "&lt;a|b&gt;" in counts._repr_html_()


def test_a_view_ends_with_the_commands_if_there_are_any():
    class Plain(Counts):
        @property
        def commands(self):
            return {}

    assert [table.title for table in Counts(3, "a").view().tables] == ["by name", "commands"]
    assert [table.title for table in Plain(3, "a").view().tables] == ["by name"]


def test_a_result_is_written_in_the_format_of_the_suffix(tmp_path):
    counts = Counts(3, "a|b")
    page, table, data = (tmp_path / f"x{suffix}" for suffix in (".md", ".csv", ".json"))
    picture = tmp_path / "x.png"
    assert write_result(counts, page, picture) == (page,)  # nothing is drawn
    assert page.read_text() == (
        "# flows of &lt;a\\|b>\n\n- few flows\n\n## By name\n\n"
        "| name | flows |\n|---|---:|\n| a\\|b | 3 |\n\n```sh\nn3ic train 'a|b'  # all\n```\n"
    )
    write_result(counts, table)
    (row,) = csv.DictReader(table.open())
    assert row == {"name": "'=1|,", "flows": "3", "share": "", "few": "True"}
    write_result(counts, tmp_path / "x.txt", kind=".csv")
    assert (tmp_path / "x.txt").read_bytes() == table.read_bytes()
    write_result(counts, data)
    assert json.loads(data.read_text()) == {"flows": 3, "name": "a|b"}
    pytest.importorskip("matplotlib")
    assert write_result(Drawn(3, "a"), page, picture) == (page, picture)
    assert "(x.png)" in page.read_text() and picture.read_bytes().startswith(b"\x89PNG")
    write_result(Drawn(3, "a"), picture=tmp_path / "x.svg")
    assert b"<svg" in (tmp_path / "x.svg").read_bytes()


@pytest.mark.parametrize("name", plugins.names(study.GROUP))
def test_every_study_is_a_command_or_a_benchmark(name):
    one = study.study(name)
    assert (one.register is None) != (one.bench is None)
    if one.register is not None:
        app = typer.Typer()
        one.register(app, [name])
        assert [command.name for command in app.registered_commands] == [name]


def test_an_entry_point_that_names_no_study_is_refused(monkeypatch):
    monkeypatch.setattr(plugins, "load", lambda group, name: object())
    with pytest.raises(UsageError, match="the study 'x' is not an n3ic Study"):
        study.study("x")
