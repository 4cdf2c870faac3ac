# SPDX-License-Identifier: Apache-2.0
"""Verification of a directory that somebody else made ends, and says what is wrong with it."""

import errno
import json
import os
import shutil
import signal

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import ExportError, N3icError, N3icWarning, VerifyError
from n3ic.model.random_models import random_model
from n3ic.systems.card.export import export_card, verify_card
from n3ic.targets import manifest
from n3ic.targets.artefacts import exports_below, files_of
from n3ic.targets.directory import export
from n3ic.targets.export_index import read_export
from n3ic.targets.verification import verify_directory
from tests.support import software_cards as cards
from tests.support.command_line import n3ic

TARGETS = plugins.names("n3ic.exporters")
TERABYTE = 1 << 40
NUMBERS = [str(i) for i in range(100_000)]


@pytest.fixture(autouse=True)
def _ends():
    """A read that has no end fails the test, not the suite."""

    def stop(*_):
        raise AssertionError("it reads without an end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module", params=TARGETS)
def exported(request, tmp_path_factory):
    model = random_model((8, 2), np.random.default_rng(0))
    place = tmp_path_factory.mktemp(request.param) / "out"
    return export(model, request.param, place, verify=False, force=True).path


@pytest.fixture(name="host", scope="module")
def host_fixture(tmp_path_factory):
    model = random_model((8, 2), np.random.default_rng(0))
    return export(model, "host", tmp_path_factory.mktemp("host") / "out", verify=False).path


@pytest.fixture(name="path")
def path_fixture(host, tmp_path):
    return shutil.copytree(host, tmp_path / "copy")


@pytest.fixture(name="card")
def card_fixture(tmp_path):
    cards.models(tmp_path)
    plan = cards.plan(tmp_path, cards.text("host"))
    return plan, export_card(plan, tmp_path / "card", verify=False).directory


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def zero(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def sparse(path):
    os.truncate(path, TERABYTE)


def folder(path):
    path.unlink()
    path.mkdir()


def artefacts(path):
    """Every file of an export but those that say what it is."""
    names = json.loads((path / "manifest.json").read_text())["files"]
    return [name for name in names if name != "model.n3ic"]


KINDS = [
    (pipe, "is not to be read: it is a pipe, no regular file"),
    (zero, "is not to be read: it is a symbolic link, no regular file"),
    (folder, "is missing"),
]


@pytest.mark.first_case
@pytest.mark.parametrize(("damage", "message"), KINDS)
def test_no_file_of_any_target_is_opened_that_is_none(exported, tmp_path, damage, message):
    path = shutil.copytree(exported, tmp_path / "copy")
    for name in artefacts(path):
        damage(path / name)
    verification = verify_directory(path, record=False)
    assert {f"{name} {message}" for name in artefacts(path)} <= {*verification.failures}
    assert not verification.executor
    with pytest.warns(N3icWarning, match="your rights"):
        assert not verify_directory(path, vectors=10, record=False, run_changed=True).ok


def test_no_endless_file_of_any_target_is_read(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "copy")
    for name in artefacts(path):
        sparse(path / name)
    with pytest.raises(ExportError, match="has 1,099,511,627,776 bytes, at most"):
        verify_directory(path)


@pytest.mark.parametrize("name", ["manifest.json", "model.n3ic"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [(pipe, "a pipe"), (zero, "a symbolic link"), (sparse, "1,099,511"), (folder, "a folder")],
)
def test_what_says_what_a_directory_is_must_be_a_file(path, name, damage, message):
    damage(path / name)
    for read in (verify_directory, read_export):
        with pytest.raises(N3icError, match=message):
            read(path)


@pytest.mark.parametrize(
    ("damage", "message"), [(pipe, "a pipe"), (zero, "symbolic"), (sparse, "1,099,511")]
)
def test_a_report_is_not_taken_from_what_is_no_file(path, damage, message):
    damage(path / "report.json")
    with pytest.raises(ExportError, match=message):
        read_export(path)


@pytest.fixture
def few_files(monkeypatch):
    """A limit that is reached in a moment; the next test reaches the real one."""
    monkeypatch.setattr("n3ic.targets.artefacts.MAX_FILES", 100)


def test_more_files_than_an_export_has_are_refused(path, card, few_files):
    plan, image = card
    for directory in (path, image):
        for i in range(101):
            os.mknod(directory / f"x{i}")
    with pytest.raises(ExportError, match="more than 100 files and folders"):
        verify_directory(path)
    with pytest.raises(ExportError, match="more than 100 files and folders"):
        verify_card(plan, image, 1)


def test_a_folder_without_exports_is_not_walked_without_an_end(tmp_path):
    for i in range(10_001):
        os.mknod(tmp_path / f"x{i}")
    for words in ([], ["--kernel", "all"]):
        done = n3ic("verify", tmp_path, *words, cwd=tmp_path, expect=1)
        assert "holds more than 10,000 files and folders" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_the_files_of_exports_do_not_count_where_exports_are_looked_for(host, tmp_path, few_files):
    for i in range(3):
        shutil.copytree(host, tmp_path / "all" / str(i))
        for k in range(40):
            os.mknod(tmp_path / "all" / str(i) / f"x{k}")
    assert exports_below(tmp_path) == [tmp_path / "all" / str(i) for i in range(3)]
    assert exports_below(host) == [host]


def test_a_manifest_is_read_once(path, tmp_path, monkeypatch, quick_build):
    """Twice where an option of a target is typed: whose it is, the manifest says."""
    read, opened = [], manifest.read_regular

    def opens(file, *more, **others):
        read.append(file)
        return opened(file, *more, **others)

    monkeypatch.setattr(manifest, "read_regular", opens)
    for words, times in (["--seed=1", "--no-record"], 1), (["--kernel", "portable"], 2):
        read.clear()
        n3ic("verify", path, "--vectors", "10", *words, cwd=tmp_path)
        assert [file.name for file in read].count("manifest.json") == times


def test_folders_in_folders_are_no_recursion(path):
    before = files_of(path)
    at = path
    for _ in range(1_200):
        at = at / "f"
        at.mkdir()
    assert files_of(path) == before
    while at != path:  # what removes temporary folders is a recursion
        at.rmdir()
        at = at.parent


@pytest.mark.slow
def test_a_few_hundred_added_files_are_one_line(path):
    for i in range(300):
        (path / f"x{i:03}").touch()
    message = str(verify_directory(path, vectors=10, record=False))
    assert "x009 is no part of the export; nor are 290 more files" in message
    assert "x010" not in message


def test_a_file_that_may_not_be_read_is_named(path, monkeypatch):
    opened = os.open

    def refuse(name, *more, **others):
        if str(name).endswith("bnn.c"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(name))
        return opened(name, *more, **others)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ExportError, match=r"bnn\.c cannot be read: Permission denied"):
        verify_directory(path)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3_000_000,
        '{"format":' * 300_000,
        " " * (5 << 20),
        '{"format": "n3ic-export", "version": 1' + "0" * 5000 + "}",
        json.dumps(
            {"format": "n3ic-export", "version": 1, "files": {f"{i}": "" for i in range(99999)}}
        ),
    ],
    ids=["lists", "objects", "large", "number", "files"],
)
def test_a_hostile_manifest_is_one_line(path, text):
    (path / "manifest.json").write_text(text)
    for read in (verify_directory, read_export):
        with pytest.raises(ExportError, match=r"manifest\.json") as error:
            read(path)
        assert len(str(error.value)) < 400


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("damage", "message"), [*KINDS[:2], (folder, "missing from"), (sparse, "not what n3ic writes")]
)
def test_no_file_of_a_card_is_opened_that_is_none(card, damage, message):
    plan, path = card
    names = artefacts(path)
    for name in names:
        damage(path / name)
    with pytest.raises(VerifyError, match=message.removeprefix("is ")):
        verify_card(plan, path, 1)


@pytest.mark.first_case
@pytest.mark.parametrize("damage", [pipe, zero, sparse, folder])
def test_a_card_is_told_by_a_file(card, damage):
    plan, path = card
    damage(path / "manifest.json")
    with pytest.raises(N3icError, match="not an exported card"):
        verify_card(plan, path, 1)


def test_the_command_line_ends_with_one_line(path, tmp_path):
    pipe(path / "bnn.c")
    (path / b"\xff\n\x1b[31m".decode(errors="surrogateescape")).touch()
    done = n3ic("verify", path, cwd=tmp_path, expect=3)
    (line,) = done.stdout.splitlines()
    assert "bnn.c is not to be read: it is a pipe, no regular file" in line
    assert line.isprintable()
    sparse(path / "weights.bin")
    done = n3ic("verify", path, cwd=tmp_path, expect=1)
    assert "weights.bin cannot be read: it has 1,099,511,627,776 bytes" in done.stderr
    assert len(done.stderr.splitlines()) == 1
