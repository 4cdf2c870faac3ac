# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys

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
    with pytest.raises(RuntimeError), new_directory(tmp_path / "d", replace=True, written=["a"]):
        raise RuntimeError
    assert (tmp_path / "d" / "a").read_text() == "1"
    with new_directory(tmp_path / "d", replace=True, written=["a"]) as d:
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
    def refuse(*_):
        raise OSError("no room")

    monkeypatch.setattr(files, "_sweep", refuse)
    with pytest.raises(N3icError, match="no room"), new_directory(tmp_path / "a" / "b" / "c"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_parents_that_hold_something_stay(tmp_path):
    with pytest.raises(KeyboardInterrupt), new_directory(tmp_path / "a" / "b" / "c"):
        (tmp_path / "a" / "other").write_text("mine")
        raise KeyboardInterrupt
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["a", "a/other"]


def test_what_n3ic_did_not_write_keeps_a_directory(tmp_path):
    with new_directory(tmp_path / "d") as d:
        (d / "sub").mkdir()
        (d / "sub" / "a").write_text("1")
    with new_directory(tmp_path / "d", replace=True, written=["sub/a"]) as d:
        (d / "b").write_text("2")
    for mine in ("notes.txt", "sub/notes.txt"):
        (tmp_path / "d" / "sub").mkdir(exist_ok=True)
        (tmp_path / "d" / mine).write_text("mine")
        message = rf"holds {mine}, which n3ic did not write"
        again = new_directory(tmp_path / "d", replace=True, written=["b"])
        with pytest.raises(UsageError, match=message), again:
            raise AssertionError
        assert (tmp_path / "d" / mine).read_text() == "mine"
        (tmp_path / "d" / mine).unlink()


def test_a_file_that_comes_meanwhile_is_kept(tmp_path):
    with pytest.raises(UsageError, match=r"holds late"):
        with new_directory(tmp_path / "d") as d:
            (d / "a").touch()
        with new_directory(tmp_path / "d", replace=True, written=["a"]):
            (tmp_path / "d" / "late").write_text("mine")
    assert (tmp_path / "d" / "late").read_text() == "mine"
    with pytest.raises(UsageError, match="exists"), new_directory(tmp_path / "e"):
        (tmp_path / "e").mkdir()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "e"]


WRITER = """
import sys, time
from n3ic.util.files import new_directory
with new_directory(sys.argv[1]) as d:
    (d / "half").write_text("x")
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path):
    """Another process that is writing ``d``."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "d")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"writing\n"
    yield process
    process.kill()
    process.communicate()


def test_two_writers_of_one_directory(tmp_path, writer):
    """The second is refused at once; the first is not disturbed, neither is a third elsewhere."""
    message = "is being written by another n3ic"
    with pytest.raises(UsageError, match=message), new_directory(tmp_path / "d"):
        raise AssertionError
    with new_directory(tmp_path / "other"):
        pass
    writer.communicate()
    assert writer.returncode == 0
    assert (tmp_path / "d" / "half").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "other"]


def test_what_a_killed_process_left_is_swept(tmp_path, writer):
    writer.kill()
    writer.wait()
    assert [p.name for p in tmp_path.iterdir()] == [".d.n3ic-new"]
    with new_directory(tmp_path / "other"):
        assert not (tmp_path / ".d.n3ic-new").exists()
    with new_directory(tmp_path / "d"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d", "other"]


def test_what_was_being_replaced_comes_back(tmp_path):
    """A process was killed between the two renames of a replacement, or just after them."""
    (tmp_path / ".d.n3ic-old").mkdir()
    (tmp_path / ".d.n3ic-old" / "a").touch()
    (tmp_path / "e").mkdir()
    (tmp_path / ".e.n3ic-old").mkdir()
    with new_directory(tmp_path / "other"):
        pass
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == [
        "d",
        "d/a",
        "e",
        "other",
    ]


@pytest.mark.parametrize("name", [".", "", "/"])
def test_a_folder_without_a_name_is_refused(name):
    with pytest.raises(UsageError, match="exists"), new_directory(name, replace=True):
        raise AssertionError
