# SPDX-License-Identifier: Apache-2.0
"""The function ``learner``: flows of packets, late labels, a model refreshed and pushed."""

import json

import numpy as np
import pytest

from n3ic.errors import DataError, MissingDependencyError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.classifier import SHUNT
from n3ic.model.load import load_model
from n3ic.systems.stream.functions.packets import PacketView
from n3ic.systems.stream.learning.learner_function import LearnerFunction
from n3ic.targets.fuzz_traffic import pcap
from scripts.stream_demo.traffic import METER, flows, metered, trained
from tests.support.framed_traffic import label_line

BATCHES = 8


class Shared:
    """Stands for a manager."""

    def alive(self):
        pass


def batches(changed=True):
    rng = np.random.default_rng(5)
    return [flows(rng, 10_000 + 150 * i, 150, changed=changed) for i in range(BATCHES)]


def view_of(made, start=0):
    frames = [data for each, _ in made for data in each]
    length = np.array([len(data) for data in frames], dtype=np.uint32)
    offset = np.cumsum(length, dtype=np.uint64) - length
    data = np.frombuffer(b"".join(frames), dtype=np.uint8)
    time = (np.arange(len(frames), dtype=np.uint64) + np.uint64(start)) * np.uint64(10_000)
    return PacketView(data, offset, offset, length, length, time, np.zeros_like(length))


def right(model, made):
    """Share of flows that a model classifies as they are labelled."""
    features, label = metered(made)
    columns = dict(zip(METER.feature_names, features.T, strict=True))
    return float((model.scores(model.encode(columns)).argmax(axis=1) == label).mean())


@pytest.fixture(scope="module", name="card")
def trained_before():
    return trained(np.random.default_rng(1))[0]


@pytest.fixture(name="options")
def the_options(tmp_path, card):
    card.save(tmp_path / "model.n3ic")
    names = {"model": "model.n3ic", "labels": "labels.jsonl", "folder": "learned", "out": "out"}
    return {
        **{name: str(tmp_path / file) for name, file in names.items()},
        "push": f"file:{tmp_path / 'running.n3ic'}",
        "every": 300,
    }


@pytest.mark.slow
def test_a_model_is_refreshed_on_late_labels_and_pushed(options, tmp_path, card):
    """Labels of a batch come after the next one; a function that starts again knows it all."""
    function, late = LearnerFunction(options, (), Shared()), []
    with (tmp_path / "labels.jsonl").open("a") as file:
        for number, made in enumerate(batches()):
            assert function.on_batch(view_of(made, 10_000 * number)) is None  # all pass
            file.writelines(label_line(*flow) for flow in late)
            file.flush()
            late = made
        file.writelines(label_line(*flow) for flow in late)
    function.on_end()
    lines = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    counts = lines[-1].pop("counts")
    assert counts["flows labelled"] == lines[-1]["labelled"] == lines[-1]["flows"] == 150 * BATCHES
    assert [d for line in lines for d in line["decisions"]].count("push") >= 1
    running = load_model(tmp_path / "running.n3ic")
    assert running.digest == lines[-1]["running"] != card.digest
    new = flows(np.random.default_rng(9), 90_000, 500, changed=True)
    assert right(running, new) > right(card, new) + 0.15
    again = LearnerFunction(options, (), Shared())
    again.on_end()
    assert again.learning.decisions == function.learning.decisions
    assert again.learning.learner.running.digest == running.digest


def test_flows_that_the_model_decides_may_be_left_out(options, tmp_path, card):
    made = [flow for batch in batches() for flow in batch]
    (tmp_path / "labels.jsonl").write_text("".join(label_line(*flow) for flow in made))
    features, _ = metered(made)
    words = card.encode(dict(zip(METER.feature_names, features.T, strict=True)))
    shunted = int((card.verdicts(card.scores(words)) == SHUNT).sum())
    function = LearnerFunction({**options, "shunted": True}, (), Shared())
    function.on_batch(view_of(made))
    function.on_end()
    assert function.join.counts["flows labelled"] == shunted and 10 < shunted < 1000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ""}, "options.labels: expected a path"),
        ({"folder": None}, "options.folder: expected a path"),
        ({"every": "often"}, "options.every: expected"),
        ({"every": 0}, "every: expected 1 to"),
        ({"held": 2.0}, "held: expected a share"),
        ({"push": "card"}, "'card'"),
        ({"shunted": 1}, "options.shunted: expected true or false"),
        ({"verdicts": {}}, "options.verdicts: unknown"),
    ],
)
def test_wrong_options_are_refused(options, change, message):
    with pytest.raises(UsageError, match=message):
        LearnerFunction({**options, **change}, (), Shared())


def test_a_folder_of_something_else_is_refused(options, tmp_path, card):
    LearnerFunction(options, (), Shared()).on_end()
    with pytest.raises(
        UsageError, match=r"learned: expected .*every=200.*got LearnSettings.*every=300"
    ):
        LearnerFunction({**options, "every": 200}, (), Shared())
    card.changed(shunt=0).save(tmp_path / "model.n3ic")
    with pytest.raises(UsageError, match="learned learns from another model"):
        LearnerFunction(options, (), Shared())
    with pytest.raises(UsageError, match="the model shunts nothing"):
        LearnerFunction({**options, "shunted": True}, (), Shared())


def test_a_fault_of_the_learner_ends_the_function(options, tmp_path):
    """Its labels become fewer, though labels are only added."""
    made = batches()[0]
    (tmp_path / "labels.jsonl").write_text(label_line(*made[0]))
    function = LearnerFunction(options, (), Shared())
    function.on_batch(view_of(made))
    while not function.join.counts["flows labelled"]:
        function._thread.join(0.01)
    (tmp_path / "labels.jsonl").write_text("")
    with pytest.raises(DataError, match="has become shorter"):
        function.on_end()


CHAIN = """
ports = ["net_pcap0,rx_pcap=in.pcap"]
receive = ["meter", "learner"]
until_end = true

[[function]]
name = "meter"
use = "meter"
hang_s = 600
options = { model = "model.n3ic", out = "flows.jsonl" }

[[function]]
name = "learner"
use = "learner"
hang_s = 600
[function.options]
model = "model.n3ic"
labels = "labels.jsonl"
folder = "learned"
push = "file:running.n3ic"
every = 300
out = "learned.jsonl"
"""


@pytest.mark.slow
def test_a_chain_learns_and_pushes(n3ic, options, tmp_path, card):
    """By processes: packets of DPDK, a learner beside the meter, its log replayed afterwards."""
    try:
        require_dpdk()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    made = [flow for batch in batches() for flow in batch]
    frames = [data for each, _ in made for data in each]
    stamped = [(data, len(data), 10**9 + 10 * i) for i, data in enumerate(frames)]
    (tmp_path / "in.pcap").write_bytes(pcap(LINK_ETHERNET, stamped, 1000, "<"))
    (tmp_path / "labels.jsonl").write_text("".join(label_line(*flow) for flow in made))
    (tmp_path / "chain.toml").write_text(CHAIN)
    status = json.loads(n3ic("stream functions run chain.toml --socket here --json").stdout)
    assert status["balance"]["unaccounted"] == status["balance"]["full"] == 0
    assert all(f["passed"] == f["given"] == len(frames) for f in status["functions"])
    last = json.loads((tmp_path / "learned.jsonl").read_text().splitlines()[-1])
    assert last["labelled"] == len(made) == len((tmp_path / "flows.jsonl").read_text().splitlines())
    running = load_model(tmp_path / "running.n3ic")
    assert running.digest == last["running"] != card.digest
    new = flows(np.random.default_rng(9), 90_000, 500, changed=True)
    assert right(running, new) > right(card, new) + 0.15
    history = json.loads(n3ic("stream history learned --replay --json").stdout)
    assert history["running"] == running.digest
