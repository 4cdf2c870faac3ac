"""The meter's specification: data that survives JSON, and refuses what no target could compute."""

import json
from dataclasses import replace

import pytest

from n3ic.errors import ModelError
from n3ic.model.metering import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
)

SPEC = MeterSpec(
    registers=(
        Register("packets", "count", guard=Guard("forward"), width=16),
        Register("octets", "sum", "wire_length", Guard("forward", protocols=(6, 17)), 24),
        Register("span", "last", "time", width=32),
        Register("least", "min", "payload_length", Guard(payload="some"), 16),
        Register("flags", "or", "tcp_flags", Guard(flags_set=2, flags_clear=4), 8),
    ),
    features=(
        MeteredFeature("packets", "packets", unit="packet"),
        MeteredFeature("mean", program=(Step("quotient", "octets", "packets", 2),)),
        MeteredFeature("mix", program=(Step("add", "octets", "span"), Step("shift", "$0", "", 3))),
    ),
    windows=(Window("same_source", 100, ("source",)),),
    decision=Decision(packets=8, after=10**6, repeat=True),
)


def test_it_survives_json():
    assert MeterSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC


def test_meters_agree_where_they_compute_the_features_that_count_alike():
    alone = SPEC.only(["mean"])
    assert alone.feature_names == ["mean"]
    assert [r.name for r in alone.registers] == ["packets", "octets"]
    wider = tuple(
        replace(r, width=r.width + 1) if r.name == "octets" else r for r in SPEC.registers
    )
    for other, agreed in (
        (SPEC.only(["packets", "mean"]), {"packets", "mean"}),
        (replace(SPEC, windows=()), {"packets", "mean", "mix"}),
        (replace(SPEC, registers=wider), {"packets", "same_source"}),
        (replace(SPEC, idle_timeout=7), set()),
    ):
        assert {n for n in SPEC.feature_names if SPEC.agrees(other, [n])} == agreed
        assert {n for n in SPEC.feature_names if other.agrees(SPEC, [n])} == agreed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(version=2), "version 2, this n3ic reads 1"),
        (lambda d: d.update(key="ports"), "key: expected five-tuple"),
        (lambda d: d.update(idle_timeout=0), "time-outs"),
        (lambda d: d.update(idle_timeout=1.5), "idle_timeout: expected an integer, got 1.5"),
        (lambda d: d.update(cache_flows=True), "cache_flows: expected an integer, got True"),
        (lambda d: d.update(more=1), "more: unknown key"),
        (lambda d: d.pop("registers"), "registers"),
        (lambda d: d["registers"][0].update(width=65), "1 to 64 bits"),
        (lambda d: d["registers"][0].update(name="packets; evil"), "identifier"),
        (lambda d: d["registers"][1].update(name="packets"), "two registers have one name"),
        (lambda d: d["registers"][0].update(field="ttl"), "a count has no field"),
        (lambda d: d["registers"][1]["guard"].update(direction="up"), "direction: expected"),
        (lambda d: d["features"][0].update(register="none"), "'none' is no register"),
        (lambda d: d["features"][2]["program"][1].update(left="$1"), "no register and no earlier"),
        (lambda d: d["features"][1]["program"][0].update(operation="div"), "expected add"),
        (lambda d: d["windows"][0].update(same=["colour"]), "expected source"),
        (lambda d: d["windows"][0].update(flows=0), "1 to 65,536"),
        (lambda d: d["windows"][0].update(name="mean"), "two features have one name"),
    ],
)
def test_what_no_target_could_read_is_refused(change, message):
    data = json.loads(json.dumps(SPEC.to_dict()))
    change(data)
    with pytest.raises(ModelError, match=message):
        MeterSpec.from_dict(data)


def test_a_comparison_that_could_leave_64_bits_is_refused():
    wide = tuple(replace(r, width=64) if r.name == "octets" else r for r in SPEC.registers)
    with pytest.raises(ModelError, match="does not fit; use narrower registers"):
        replace(SPEC, registers=wide)
    with pytest.raises(ModelError, match="the last step"):
        replace(
            SPEC,
            features=(
                MeteredFeature(
                    "q", program=(Step("quotient", "octets", "packets", 1), Step("shift", "$0"))
                ),
            ),
        )


def test_connections_end_flows_of_connections_only():
    with pytest.raises(ModelError, match="not the flows of a host-pair"):
        replace(SPEC, key="host-pair")
    pair = replace(SPEC, key="host-pair", ends=())
    with pytest.raises(ModelError, match="no source_port"):
        replace(pair, windows=(Window("w", 10, ("source_port",)),))
