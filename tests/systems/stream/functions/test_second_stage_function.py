# SPDX-License-Identifier: Apache-2.0
"""The function ``second-stage``: shunted flows' packets, and the verdicts of the larger model."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, UsageError
from n3ic.exporters.dpdk.application import require_dpdk
from n3ic.kernel.prediction import predict
from n3ic.meter.compiled import CompiledMeter
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.meter.rows import key_table
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import features_of
from n3ic.model.classifier import SHUNT
from n3ic.model.inputs import InputSpec
from n3ic.model.random_models import random_model
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.functions.packets import PacketView
from n3ic.systems.stream.learning.second_stage import second_verdicts
from n3ic.systems.stream.learning.second_stage_function import SecondStageFunction
from n3ic.targets.fuzz_traffic import fuzz_frames, pcap
from tests.support.metered_models import metered_network

SPEC = replace(standard_spec(packets=4), windows=())
CLASSES = ("a", "b", "d")
KEY = ("source", "source_port", "destination", "destination_port", "protocol", "first_us")


def the_models(folder):
    """A model that shunts an eighth of its flows, and a second stage on other features."""
    model = metered_network(SPEC, 25, classes=CLASSES, extremes=False).with_shunt(1)
    other = metered_network(SPEC, 7, classes=CLASSES, extremes=False)
    inputs = InputSpec(other.input.fields[1::3])
    stage = random_model((inputs.n_bits, 16, len(CLASSES)), np.random.default_rng(9))
    stage = stage.with_input(inputs).changed(classes=CLASSES)
    model.save(folder / "model.safetensors")
    stage.save(folder / "stage.n3ic")
    return model, stage


def traffic(count):
    made = fuzz_frames(random.Random(5), count, [0, 0, 1, 7, 60])
    return [(data, len(data), t) for data, _, t in made if 0 < len(data) <= 2048]


def view_of(stamped):
    length = np.array([n for _, n, _ in stamped], dtype=np.uint32)
    offset = np.cumsum(length, dtype=np.uint64) - length
    data = np.frombuffer(b"".join(d for d, _, _ in stamped), dtype=np.uint8)
    time = np.array([t for _, _, t in stamped], dtype=np.uint64) * np.uint64(1000)
    return PacketView(data, offset, offset, length, length, time, np.zeros_like(length))


def flows_of(model, stage, view):
    """The flows of packets by their keys: what the model says, and both stages together."""
    meter = CompiledMeter(SPEC, LINK_ETHERNET)
    meter.count_frames(view.frames(SPEC.tick_ns))
    records = [meter.records()]
    more = True
    while more:
        more = meter.end(1 << 20)
        records.append(meter.records())
    meter.close()
    flow_records = np.concatenate(records)
    columns = features_of(flow_records, SPEC)
    inference = predict(model, model.encode(columns))
    verdicts = model.verdicts(inference.scores)
    used = np.stack([columns[n] for n in model.input.features], axis=1)
    batch = FlowBatch(
        flow_records, used, inference.scores, inference.classes, inference.margins, verdicts
    )
    keys = key_table(flow_records, SPEC, "").to_pylist()
    both_verdicts = verdicts.tolist(), second_verdicts(stage, batch, SPEC, CLASSES).tolist()
    shunted = replace(batch, verdicts=np.full(len(flow_records), SHUNT))
    every = second_verdicts(stage, shunted, SPEC, CLASSES)
    rows = zip(*both_verdicts, every.tolist(), strict=True)
    return {tuple(k[n] for n in KEY): row for k, row in zip(keys, rows, strict=True)}


def lines_of(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_key = {tuple(line[n] for n in KEY): line for line in lines}
    assert len(by_key) == len(lines)
    return by_key


class Shared:
    """Stands for a manager."""

    def alive(self):
        pass


@pytest.mark.slow
def test_every_flow_that_comes_is_decided_by_the_second_stage(tmp_path):
    model, stage = the_models(tmp_path)
    options = {n: str(tmp_path / f) for n, f in (("model", "model.safetensors"), ("out", "out"))}
    options |= {"stage": str(tmp_path / "stage.n3ic"), "verdicts": {"a": "drop"}}
    view = view_of(traffic(600))
    function = SecondStageFunction(options, (), Shared())
    actions = function.on_batch(view)
    function.on_end()
    expected, lines = flows_of(model, stage, view), lines_of(tmp_path / "out")
    names = model.verdict_names
    assert {k: (line["first"], line["verdict"]) for k, line in lines.items()} == {
        k: (names[first], CLASSES[every]) for k, (first, _, every) in expected.items()
    }
    assert {line["verdict"] for line in lines.values()} == {*CLASSES}
    assert 0 < actions.sum() < len(view)  # packets of flows that the second stage calls a


def test_a_stage_that_does_not_fit_the_model_is_refused(tmp_path):
    _, stage = the_models(tmp_path)
    options = {"model": str(tmp_path / "model.safetensors"), "out": str(tmp_path / "out")}
    options["stage"] = str(tmp_path / "other.n3ic")
    stage.changed(classes=("a", "b", "e")).save(tmp_path / "other.n3ic")
    with pytest.raises(UsageError, match="expected the model's classes a, b, d, got a, b, e"):
        SecondStageFunction(options, (), Shared())
    inputs = InputSpec((replace(stage.input.fields[0], feature="x"), *stage.input.fields[1:]))
    stage.with_input(inputs).save(tmp_path / "other.n3ic")
    with pytest.raises(
        UsageError, match="the second stage reads 'x', which the model's meter lacks"
    ):
        SecondStageFunction(options, (), Shared())


CHAIN = """
ports = ["net_pcap0,rx_pcap=in.pcap"]
receive = ["meter"]
until_end = true

[[function]]
name = "meter"
use = "meter"
routes = ["second"]
[function.options]
model = "model.safetensors"
out = "first.jsonl"
verdicts = { shunt = "second", undecided = "second" }

[[function]]
name = "second"
use = "second-stage"
options = { model = "model.safetensors", stage = "stage.n3ic", out = "second.jsonl" }
"""


@pytest.mark.slow
def test_shunted_flows_reach_the_second_stage_whole(n3ic, tmp_path):
    try:
        require_dpdk()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    model, stage = the_models(tmp_path)
    stamped = traffic(2000)
    (tmp_path / "in.pcap").write_bytes(pcap(LINK_ETHERNET, stamped, 1000, "<"))
    (tmp_path / "chain.toml").write_text(CHAIN)
    done = n3ic("stream functions run chain.toml --socket here --json")
    expected = flows_of(model, stage, view_of(stamped))
    first, second = lines_of(tmp_path / "first.jsonl"), lines_of(tmp_path / "second.jsonl")
    assert first.keys() == expected.keys()
    shunted = {k for k, line in first.items() if line["verdict"] == "shunt"}
    assert 20 < len(shunted) < len(first) - 100
    for key in shunted:
        assert second[key]["first"] == "shunt"
        assert second[key]["verdict"] == CLASSES[expected[key][1]]
    status = json.loads(done.stdout)
    assert not status["balance"]["unaccounted"] and not status["balance"]["lost_with_functions"]
    assert status["functions"][1]["given"] < status["received"]
