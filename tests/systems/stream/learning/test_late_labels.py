# SPDX-License-Identifier: Apache-2.0
"""Labels find their flows, however late they come and in whatever order."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from n3ic.errors import DataError
from n3ic.meter.labels import Labelled
from n3ic.systems.stream.learning import late_labels
from n3ic.systems.stream.learning.blocks import record_key
from n3ic.systems.stream.learning.late_labels import LabelFile, LabelJoin
from n3ic.systems.stream.learning.stream import LiveLearner
from tests.support.changing_traffic import CLASSES, key_fields, label_lines, tables, traffic

FLOWS = traffic(60, 3)


@pytest.fixture(name="model", scope="module")
def trained_before():
    return tables(rows=300)


def joined(rows):
    return sorted(zip(rows.features.tolist(), rows.label.tolist(), strict=True))


def test_any_order_gives_the_same_labelled_flows(model, tmp_path):
    """Labels before their flows, after them, in pieces of lines, and out of order."""
    wanted = sorted(zip(FLOWS.features.tolist(), FLOWS.label.tolist(), strict=True))
    rng = np.random.default_rng(0)
    for trial in range(5):
        path, join, rows = tmp_path / f"{trial}.jsonl", LabelJoin(model), []
        feed = LabelFile(path)
        assert feed.news() == []
        text = label_lines(FLOWS, rng.permutation(len(FLOWS))).encode()
        cuts = sorted([0, len(text), *rng.integers(0, len(text), 9).tolist()])
        starts = iter(range(0, len(FLOWS), 6))
        for begin, end in pairwise(cuts):
            with path.open("ab") as stream:
                stream.write(text[begin:end])
            if rng.random() < 0.8:
                rows += joined(join.labels(feed.news()))
            if (start := next(starts, None)) is not None:
                rows += joined(join.flows(FLOWS.batch(model, slice(start, start + 6))))
        for start in starts:
            rows += joined(join.flows(FLOWS.batch(model, slice(start, start + 6))))
        rows += joined(join.labels(feed.news()))
        assert sorted(rows) == wanted


def test_a_label_holds_for_its_time_and_contradictions_for_nothing(model):
    batch = FLOWS.batch(model, slice(0, 3))
    for i in range(3):
        batch.records["first"][i] = batch.records["last"][i] = (i + 1) * 100_000_000
    keys = [record_key(record) for record in batch.records]
    join = LabelJoin(model)
    assert not len(join.flows(batch))
    late = Labelled(CLASSES[1], 500_000_000, 600_000_000)
    assert not len(join.labels([(keys[0], late), (keys[0], Labelled("other"))]))
    assert len(join.labels([(keys[0], Labelled(CLASSES[0], 99_000_000, 101_000_000))])) == 1
    assert not len(join.labels([(keys[1], Labelled(name)) for name in CLASSES]))
    assert join.counts == {
        "flows labelled": 1,
        "flows with contradicting labels": 1,
        "labels of unknown classes": 1,
        "flows left unlabelled": 0,
    }
    back = batch.select(slice(2, 3))
    back.records["source"], back.records["destination"] = (
        back.records["destination"].copy(), back.records["source"].copy()
    )  # fmt: skip
    assert [record_key(record) for record in back.records] == keys[2:]


def test_flows_that_wait_for_labels_are_bounded(model):
    join = LabelJoin(model, room=10)
    join.flows(FLOWS.batch(model, slice(0, 30)))
    assert join.counts["flows left unlabelled"] == 20
    entries = [
        (record_key(record), Labelled(CLASSES[label]))
        for record, label in zip(FLOWS.records, FLOWS.label, strict=True)
    ]
    assert len(join.labels(entries[:30])) == 10
    join.labels(entries[30:])
    assert len(join.flows(FLOWS.batch(model, slice(30, 60)))) == 10


def test_lines_that_cannot_be_read_are_counted(tmp_path):
    good = label_lines(FLOWS, [0])
    bad = [
        "{",
        "[]",
        "1",
        "null",
        '{"label": "attack"}',
        good.replace("10.0", "999.0"),
        '"\\ud800"',
    ]
    bad.append("[" * 9000)
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join([*(line.strip() for line in bad), "", good]))
    feed = LabelFile(path)
    assert len(feed.news()) == 1
    assert feed.unread == len(bad)
    assert "line 1" in feed.first_fault
    path.write_bytes(b"")
    with pytest.raises(DataError, match="shorter"):
        feed.news()
    path.write_bytes(b"x" * (1 << 17))
    with pytest.raises(DataError, match="expected lines of at most"):
        LabelFile(path).news()


def test_what_follows_a_block_of_unreadable_lines_is_read(model, tmp_path, monkeypatch):
    monkeypatch.setattr(late_labels, "_READ", 1000)
    path = tmp_path / "labels.jsonl"
    garbage = 1200 * "x\n"
    path.write_text(label_lines(FLOWS, [0]) + garbage + label_lines(FLOWS, [1]) + garbage)
    taken, feed = [], LabelFile(path)
    running = SimpleNamespace(running=SimpleNamespace(digest=""))
    folder = SimpleNamespace(decisions=[], add_rows=taken.append, learner=running)
    learner = LiveLearner(lambda _: feed.news(), folder, LabelJoin(model))
    learner.learn(FLOWS.batch(model, slice(0, 2)))
    assert learner.finish().labelled == 2
    assert (sum(map(len, taken)), feed.unread) == (2, 2400)
    assert feed.news() == []


def test_labels_are_read_from_csv_too(tmp_path):
    path = tmp_path / "labels.csv"
    key = key_fields(FLOWS.records[0])
    path.write_text(",".join([*key, "label", "start"]) + "\n")
    feed = LabelFile(path)
    with path.open("a") as stream:
        stream.write(",".join(map(str, [*key.values(), "attack", "3.5"])) + "\nx,y\n")
    ((flow_key, entry),) = feed.news()
    assert flow_key == record_key(FLOWS.records[0])
    assert (entry.label, entry.start, feed.unread) == ("attack", 3_500_000, 1)
    other = tmp_path / "other.csv"
    other.write_text("source,label\n")
    with pytest.raises(DataError, match="is missing"):
        LabelFile(other).news()
