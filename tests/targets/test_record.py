# SPDX-License-Identifier: Apache-2.0
"""The digest that a record of a verification holds: of each file that counts."""

import json
import os

import pytest

from n3ic.errors import ExportError
from n3ic.targets import verification_record
from n3ic.targets.manifest import VERIFICATION
from n3ic.targets.verification_record import state_of, write_record


class Tool:
    """What a target says of its files."""

    def is_product(self, name):
        return name.endswith(".o")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.c", "sub/b.c"):
        (tmp_path / name).write_text(f"text of {name}")
    return tmp_path


def state(folder):
    return state_of(folder, Tool())


def test_each_byte_and_each_name_of_a_file_counts(folder):
    before = state(folder)
    assert state(folder) == before
    (folder / "a.c").write_text("text of a.C")
    assert state(folder) != before
    (folder / "a.c").write_text("text of a.c")
    assert state(folder) == before
    (folder / "a.c").rename(folder / "c.c")
    assert state(folder) != before
    (folder / "c.c").rename(folder / "a.c")
    (folder / "more").write_text("")
    assert state(folder) != before


def test_the_record_and_what_was_built_do_not_count(folder):
    before = state(folder)
    write_record(folder, {"ok": True}, before)
    (folder / "a.o").write_text("built")
    assert state(folder) == before
    written = json.loads((folder / VERIFICATION).read_text())
    assert written == {"ok": True, "artefacts": before}


def test_a_pipe_is_a_file_like_no_other_and_never_read(folder):
    before = state(folder)
    os.mkfifo(folder / "pipe")
    with_pipe = state(folder)
    assert verification_record._digest(folder / "pipe", 9) == ("no regular file", 0)
    assert verification_record._digest(folder / "a.c", 99)[1] == len("text of a.c")
    assert with_pipe != before
    (folder / "pipe").unlink()
    (folder / "pipe").write_text("")
    assert state(folder) not in (before, with_pipe)


def test_all_files_together_have_a_limit(folder, monkeypatch):
    size = sum(len(f"text of {name}") for name in ("a.c", "sub/b.c"))
    monkeypatch.setattr(verification_record, "MAX_BYTES", size)
    state(folder)
    monkeypatch.setattr(verification_record, "MAX_BYTES", size - 1)
    with pytest.raises(ExportError, match="cannot be read"):
        state(folder)


def test_an_export_may_have_a_gibibyte_and_no_more(folder, monkeypatch):
    asked = []

    def digest(path, most):
        asked.append(most)
        return "digest", 1000

    monkeypatch.setattr(verification_record, "_digest", digest)
    state(folder)
    assert asked == [1 << 30, (1 << 30) - 1000]
