import os

import pytest

from n3ic.errors import N3icError, UsageError
from n3ic.util import files
from n3ic.util.files import new_directory, write_atomic


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomic(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(N3icError, match="No space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_directory_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_directory(tmp_path / "d") as d:
        (d / "half").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with new_directory(tmp_path / "d") as d:
        (d / "whole").write_text("x")
        assert not (tmp_path / "d").exists()
    assert (tmp_path / "d" / "whole").read_text() == "x"


def test_existing_directory_is_kept_unless_replaced(tmp_path):
    with new_directory(tmp_path / "d") as d:
        (d / "a").write_text("1")
    with pytest.raises(UsageError, match="exists"), new_directory(tmp_path / "d"):
        raise AssertionError
    with pytest.raises(RuntimeError), new_directory(tmp_path / "d", replace=True) as d:
        raise RuntimeError
    assert (tmp_path / "d" / "a").read_text() == "1"
    with new_directory(tmp_path / "d", replace=True) as d:
        (d / "b").write_text("2")
    assert [p.name for p in (tmp_path / "d").iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(UsageError, match="exists"), new_directory(tmp_path / "f", replace=True):
        raise AssertionError
    with pytest.raises(N3icError, match="cannot write"), new_directory(tmp_path / "f" / "below"):
        raise AssertionError


def test_parents_that_were_made_go_again_where_the_directory_cannot_be_made(tmp_path, monkeypatch):
    def refuse(**_):
        raise OSError("no room")

    monkeypatch.setattr(files.tempfile, "mkdtemp", refuse)
    with pytest.raises(N3icError, match="no room"), new_directory(tmp_path / "a" / "b" / "c"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_parents_that_hold_something_stay(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_directory(tmp_path / "a" / "b" / "c"):
        (tmp_path / "a" / "other").write_text("mine")
        raise KeyboardInterrupt
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["a", "a/other"]
