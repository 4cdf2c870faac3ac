# SPDX-License-Identifier: Apache-2.0
"""``n3ic stream learn``, ``history`` and ``rollback``, as typed."""

import json

import numpy as np
import pytest

from n3ic.model.load import load_model
from n3ic.systems.stream.learning.replay import ReplayedFlows, numbered
from tests.support.changing_traffic import label_lines, tables, traffic, write_table
from tests.support.stream_models import MODELS, lines
from tests.support.traffic import labelled_capture


@pytest.fixture(name="files")
def files_of_a_change(tmp_path):
    """A model, flows that change after 1,000, their labels in any order, and anchors."""
    tables().save(tmp_path / "model.n3ic")
    parts = traffic(1000, 1), traffic(2500, 2, changed=True)
    whole = ReplayedFlows(
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.label for part in parts]),
        numbered(3500),
    )
    write_table(tmp_path / "flows.csv", whole)
    write_table(tmp_path / "bare.csv", whole, labels=False)
    order = np.random.default_rng(0).permutation(3500)
    (tmp_path / "labels.jsonl").write_text(label_lines(whole, order))
    write_table(tmp_path / "anchors.csv", traffic(300, 3))
    return tmp_path


@pytest.mark.exhaustive
def test_a_model_recovers_from_a_change_and_goes_back(n3ic, files):
    learn = "stream learn flows.csv --delay 300 --every 300 --guard 1"
    report = json.loads(
        n3ic(f"{learn} --folder one --model model.n3ic --push file:now.n3ic --json").stdout
    )
    right = [(each["flows"], each["right"]) for each in report["accuracy"]]
    share = [sum(r for _, r in part) / sum(n for n, _ in part) for part in
             (right[:5], right[5:7], right[-3:])]  # fmt: skip
    assert share[0] > 0.8 > 0.6 > share[1]
    assert share[2] > share[1] + 0.2
    assert report["running"] == load_model(files / "now.n3ic").digest != report["began"]
    replayed = json.loads(n3ic("stream history one --replay --json").stdout)
    assert replayed["running"] == report["running"]
    assert replayed["decisions"] == report["decisions"]
    shown = n3ic("stream history one").stdout
    assert "better : worse" in shown and report["running"][:12] in shown
    n3ic("stream rollback one --push file:now.n3ic")
    assert load_model(files / "now.n3ic").digest != report["running"]


def test_labels_of_a_file_are_joined_by_key(n3ic, files):
    learn = "stream learn bare.csv --folder one --model model.n3ic --anchors anchors.csv --json"
    report = json.loads(n3ic(f"{learn} --labels labels.jsonl").stdout)
    assert report["counts"]["flows labelled"] == 3500


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("flows.csv --folder one --delay 5", "needs --model"),
        ("flows.csv --folder one --model model.n3ic", "--labels FILE"),
        ("flows.csv --folder one --model model.n3ic --delay 5 --push cloud:1", "known: file"),
        ("none.csv --folder one --model model.n3ic --delay 5", "no such file"),
        ("flows.csv --folder one --model model.n3ic --delay 5 --alpha 2", "alpha"),
        ("flows.csv --folder one --model model.n3ic --delay 5 --seconds 2", "--seconds"),
    ],
)
def test_mistakes_are_errors_of_one_line(n3ic, files, words, message):
    err = n3ic(f"stream learn {words}", expect=2).stderr
    assert message in err and "Traceback" not in err
    assert not (files / "one").exists()


def test_a_capture_is_learned_from_as_a_stream(n3ic, tmp_path):
    """Its flows are metered, decided and joined with labels of a file, all of them."""
    (tmp_path / "c.pcap").write_bytes(labelled_capture(60)[0])
    model = MODELS["binary"]()
    model.save(tmp_path / "model.n3ic")
    n3ic("stream c.pcap --model model.n3ic --sink flows.jsonl")
    flows = lines(tmp_path / "flows.jsonl")
    keys = ("source", "source_port", "destination", "destination_port", "protocol")
    with (tmp_path / "labels.jsonl").open("w") as out:
        for row in flows:
            label = model.classes[row["packets"] % 3]
            out.write(json.dumps({**{key: row[key] for key in keys}, "label": label}) + "\n")
    learn = "stream learn c.pcap --folder one --model model.n3ic --labels labels.jsonl --json"
    report = json.loads(n3ic(learn).stdout)
    assert report["counts"]["flows labelled"] == len(flows) > 30
    n3ic("stream learn c.pcap --folder two --model model.n3ic --delay 5", expect=2)
    assert not (tmp_path / "two").exists()
