# SPDX-License-Identifier: Apache-2.0
"""A folder that learns: replayed to the same bytes, whole after a crash, safe from changes."""

import itertools
import json
import os
import resource
import shutil
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from n3ic.errors import DataError, N3icError, UsageError
from n3ic.model.load import load_model
from n3ic.systems.stream.learning.learner import LearnSettings
from n3ic.systems.stream.learning.learning_folder import LOG, LearningFolder
from n3ic.systems.stream.learning.log import ChainedLog
from n3ic.systems.stream.learning.pushes import push_to
from tests.support.changing_traffic import labelled, tables, traffic

SETTINGS = LearnSettings(every=300)
BATCHES = [labelled(traffic(300, i, changed=True), i) for i in range(3)]


@pytest.fixture(name="model", scope="module")
def trained_before():
    return tables()


@pytest.fixture(name="folder")
def new_folder(tmp_path, model):
    LearningFolder.begin(tmp_path / "learned", model, SETTINGS)
    return tmp_path / "learned"


def opened(folder, where=None, **how):
    return LearningFolder(folder, None if where is None else push_to(f"file:{where}"), **how)


def learned(folder, where=None, **how):
    learning = opened(folder, where, **how)
    for rows in BATCHES:
        learning.add_rows(rows)
    return learning


@pytest.mark.slow
def test_the_log_gives_the_same_decisions_and_the_same_bytes_again(folder, tmp_path, model):
    times = iter(["2026-01-02", "1970-01-01", *["9999-12-31"] * 99])  # a clock that jumps
    learning = learned(folder, tmp_path / "running.n3ic", now=lambda: next(times))
    now = learning.learner.running
    assert now != model
    assert load_model(tmp_path / "running.n3ic").digest == now.digest
    for retrain in (False, True):
        again = opened(folder, retrain=retrain)
        assert again.decisions == learning.decisions
        assert again.learner.running.to_bytes() == now.to_bytes()
    for file in (folder / "models").glob("*.n3ic"):  # the log alone gives the models, too
        if file.stem != model.digest:
            file.unlink()
    assert opened(folder).learner.running.to_bytes() == now.to_bytes()


@pytest.mark.slow
def test_a_log_goes_on_wherever_it_was_cut(folder, tmp_path):
    learned(folder).close()
    whole = (folder / LOG).read_bytes()
    lines = whole.splitlines(keepends=True)
    what = [json.loads(line)["what"] for line in lines]
    pushed = what.index("push")
    rows = max(i for i, name in enumerate(what[:pushed]) if name == "rows")
    after = next((i for i, name in enumerate(what) if i > pushed and name == "rows"), len(what))
    assert {"candidate", "test"} & {*what[rows:pushed]}
    for cut in range(rows + 1, after):
        torn = lines[cut][: len(lines[cut]) // 2]
        (folder / LOG).write_bytes(b"".join(lines[:cut]) + torn)
        again = opened(folder, tmp_path / "running.n3ic")
        again.close()
        assert (folder / LOG).read_bytes() == b"".join(lines[:after])
        # The swap of which nobody knows whether it was made is made.
        assert (tmp_path / "running.n3ic").exists()
        (tmp_path / "running.n3ic").unlink()


@pytest.mark.first_case
@pytest.mark.parametrize("line", [0, 1, -1])
def test_a_line_that_was_changed_is_found(folder, line):
    learned(folder).close()
    lines = (folder / LOG).read_bytes().splitlines(keepends=True)
    entry = json.loads(lines[line])
    for field, value in (("previous", "0" * 63 + "1"), ("n", 77), ("what", "nothing")):
        changed = json.dumps({**entry, field: value}).encode() + b"\n"
        other = [*lines]
        other[line] = changed
        (folder / LOG).write_bytes(b"".join(other))
        with pytest.raises(DataError, match=r"log\.jsonl"):
            opened(folder)


def test_rows_that_were_changed_with_all_digests_give_other_decisions(folder, tmp_path):
    learned(folder).close()
    entries = [json.loads(line) for line in (folder / LOG).read_bytes().splitlines()]
    forged = ChainedLog(tmp_path / "forged.jsonl")
    with forged.alone():
        for entry in entries:
            facts = {k: v for k, v in entry.items() if k not in ("what", "n", "previous")}
            if entry["what"] == "rows":
                facts["label"] = [1 - label for label in facts["label"]]
            forged.append(entry["what"], facts)
    (tmp_path / "forged.jsonl").replace(folder / LOG)
    with pytest.raises(DataError, match="the rows before it give"):
        opened(folder, retrain=True)


def test_a_folder_from_before_blocks_is_refused_in_words(folder, tmp_path):
    (entry,) = [json.loads(line) for line in (folder / LOG).read_bytes().splitlines()]
    del entry["settings"]["block"]
    old = ChainedLog(tmp_path / "old.jsonl")
    with old.alone():
        old.append("begin", {name: entry[name] for name in ("model", "settings")})
    (tmp_path / "old.jsonl").replace(folder / LOG)
    with pytest.raises(DataError, match="begin a new folder"):
        opened(folder)


def facts_of(learning):
    """Everything that decides what a learner does next, as text."""
    return json.dumps(learning.learner.to_dict())


SMALL = [labelled(traffic(60, 100 + i, changed=True), 100 + i) for i in range(20)]


@pytest.mark.slow
def test_a_log_that_begins_anew_decides_as_a_whole_one(tmp_path, model):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        LearningFolder.begin(folder, model, SETTINGS)
    reference = opened(whole)
    largest, states = 0, set()
    for rows in SMALL:
        reference.add_rows(rows)
        learning = opened(cut, log_bytes=4000)
        learning.add_rows(rows)
        learning.close()
        again = opened(cut)
        assert facts_of(again) == facts_of(reference)
        assert again.decisions == reference.decisions
        again.close()
        largest = max(largest, (cut / LOG).stat().st_size)
        states |= {*(cut / "states").glob("*")}
        assert len([*(cut / "states").glob("*")]) <= 1
    assert len(states) > 3 and any(d["what"] == "push" for d in reference.decisions)
    assert largest < 12_000 < (whole / LOG).stat().st_size
    assert len([*(cut / "models").iterdir()]) < len([*(whole / "models").iterdir()])
    opened(cut).roll_back()
    reference.roll_back()
    assert opened(cut).learner.running == reference.learner.running
    assert opened(cut, retrain=True).learner.running == reference.learner.running


def killed_at(step, folder, rows):
    """Learn from rows in a fork that is killed at a step that touches a file; whether it was."""
    child = os.fork()
    if child == 0:
        steps = iter(range(step))
        for owner, name in (
            *((os, name) for name in ("fsync", "pwrite", "ftruncate", "unlink")),
            *((Path, name) for name in ("replace", "unlink", "mkdir")),
        ):
            real = getattr(owner, name)

            def counted(*given, real=real, **named):
                if next(steps, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given, **named)

            setattr(owner, name, counted)
        opened(folder, log_bytes=100).add_rows(rows)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_a_kill_while_the_log_begins_anew_loses_nothing(tmp_path, model):
    folder = tmp_path / "first"
    LearningFolder.begin(folder, model, SETTINGS)
    opened(folder, log_bytes=100).add_rows(SMALL[0])
    shutil.copytree(folder, tmp_path / "expected")
    expected = opened(tmp_path / "expected")
    before = facts_of(expected)
    expected.add_rows(SMALL[1])
    kills = 0
    for step in itertools.count():
        at = tmp_path / str(step)
        shutil.copytree(folder, at)
        killed = killed_at(step, at, SMALL[1])
        again = opened(at, log_bytes=100)
        if facts_of(again) == before:  # killed before the rows were on the disk
            again.add_rows(SMALL[1])
        assert facts_of(again) == facts_of(expected)
        assert facts_of(opened(at)) == facts_of(expected)
        if not killed:
            break
        kills += 1
    assert kills >= 8


def test_another_process_reads_a_log_that_begins_anew(folder):
    watching = opened(folder)
    learning = opened(folder, log_bytes=100)
    learning.add_rows(SMALL[0])
    with watching.up_to_date():
        assert facts_of(watching) == facts_of(learning)
    watching.add_rows(SMALL[1])
    with learning.up_to_date():
        assert facts_of(learning) == facts_of(watching)


def test_a_damaged_state_is_refused_in_words(folder):
    opened(folder, log_bytes=100).add_rows(SMALL[0])
    (state,) = (folder / "states").iterdir()
    data = bytearray(state.read_bytes())
    data[len(data) // 2] ^= 1
    state.write_bytes(data)
    with pytest.raises(DataError, match="damaged: its digest"):
        opened(folder)
    state.unlink()
    with pytest.raises(DataError, match="No such file"):
        opened(folder)


@pytest.mark.parametrize(("field", "value"), [("n", 77), ("previous", "0" * 64), ("state", "../x")])
def test_a_first_line_that_does_not_fit_its_state_is_refused(folder, field, value):
    opened(folder, log_bytes=100).add_rows(SMALL[0])
    (line,) = (folder / LOG).read_bytes().splitlines()
    (folder / LOG).write_text(json.dumps(json.loads(line) | {field: value}) + "\n")
    with pytest.raises(DataError):
        opened(folder)


def begun_before(folder, where, **settings):
    """Give a folder a log that an earlier version began."""
    (entry,) = [json.loads(line) for line in (folder / LOG).read_bytes().splitlines()]
    old = ChainedLog(where)
    with old.alone():
        old.append("begin", {"model": entry["model"], "settings": entry["settings"] | settings})
    where.replace(folder / LOG)


def test_logs_of_a_time_with_teachers_go_on_without_one(folder, tmp_path, model):
    begun_before(folder, tmp_path / "old.jsonl", teacher=False)
    assert opened(folder).learner.running == model


def test_a_log_with_a_teacher_is_refused_in_words(folder, tmp_path):
    begun_before(folder, tmp_path / "old.jsonl", teacher=True)
    with pytest.raises(DataError, match="begin a new folder"):
        opened(folder)


@contextmanager
def full_disk(most):
    """No file grows beyond so many bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_promotes_nothing_and_leaves_a_whole_log(folder, tmp_path, model):
    where = tmp_path / "running.n3ic"
    learning = opened(folder, where)
    learning.add_rows(BATCHES[0])
    size = (folder / LOG).stat().st_size
    row = len(json.dumps(BATCHES[1].to_dict(), separators=(",", ":")))
    for room in (100, row + 300):  # no room for the rows, or none for what they decide
        with full_disk(size + room), pytest.raises(N3icError, match="cannot write"):
            learning.add_rows(BATCHES[1])
        assert (folder / LOG).read_bytes().endswith(b"}\n")
        assert not where.exists()
        size = (folder / LOG).stat().st_size
    with learning.up_to_date():  # what the rows decide is decided now
        assert next(each["what"] for each in learning.decisions) == "candidate"
    learning.add_rows(BATCHES[2])
    assert learning.learner.running != model and where.exists()


def test_an_order_to_roll_back_reaches_a_learner_that_runs(folder, tmp_path, model):
    where = tmp_path / "running.n3ic"
    learning = learned(folder, where)
    other = opened(folder, where)
    back = len(other.learner.former)
    for _ in range(back):
        other.roll_back()
    with pytest.raises(UsageError, match="no former model"):
        other.roll_back()
    other.close()
    assert load_model(where).digest == model.digest
    learning.add_rows(labelled(traffic(1, 5), 5))
    assert learning.learner.running == model
    assert json.loads((folder / LOG).read_bytes().splitlines()[-1])["what"] == "rows"


@pytest.mark.slow
def test_a_host_export_is_swapped_by_one_link(folder, tmp_path, model):
    push = push_to(f"host:{tmp_path / 'exports'}")
    push(model)
    link = tmp_path / "exports/current"
    before = str(link.readlink())
    learning = LearningFolder(folder, push)
    for rows in BATCHES:
        learning.add_rows(rows)
    now = learning.learner.running
    assert str(link.readlink()) == now.digest[:16] != before
    assert load_model(link / "model.n3ic").digest == now.digest
    learning.roll_back()
    assert str(link.readlink()) == learning.learner.running.digest[:16]


@pytest.mark.parametrize("where", ["cloud:1", "file", "file:", "xdp:lo:zero"])
def test_a_place_that_is_none_is_refused(where, model):
    with pytest.raises(UsageError):
        push_to(where)(model)


def test_a_folder_that_is_none_is_refused(tmp_path, folder, model):
    with pytest.raises(UsageError, match="expected a folder"):
        opened(tmp_path / "nothing")
    with pytest.raises(UsageError, match="exists"):
        LearningFolder.begin(folder, model, SETTINGS)
