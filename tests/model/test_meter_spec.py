# SPDX-License-Identifier: Apache-2.0
"""The meter's specification: data that survives JSON, and refuses what no target could compute."""

import hashlib
import json
from dataclasses import replace

import pytest

from n3ic.errors import ModelError
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
    log_code,
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


def test_a_meter_spec_survives_json():
    assert MeterSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC


def test_what_is_unusual_of_a_register_survives_json_and_no_more_is_written():
    registers = (
        Register("a", "nth", "ip_length", packet=3, scale="log"),
        Register("b", "within", "gap", low=5, high=9),
    )
    spec = MeterSpec(registers, (MeteredFeature("f", "a"),), tunnels=("vxlan",))
    assert MeterSpec.from_json(spec.to_json(), "x") == spec
    nth, within = spec.to_dict()["registers"]
    assert {*nth} - {*within} == {"packet", "scale"}
    assert {*within} - {*nth} == {"low", "high"}
    assert spec.to_dict()["tunnels"] == ("vxlan",)


def test_bits_of_a_sequence_are_those_up_to_its_last_packet():
    def bits(*registers):
        return MeterSpec((*N, *registers), F).state_bits - 32

    def nth(packet, **more):
        return Register(f"p{packet}{len(more)}", "nth", "ttl", packet=packet, width=8, **more)

    assert bits() == 0
    assert bits(nth(3)) == bits(nth(1), nth(3)) == bits(nth(3), nth(1)) == 24
    assert bits(nth(3), nth(2, scale="log")) == 24 + 16
    assert bits(nth(3), nth(2, guard=Guard("forward"))) == 24 + 16
    assert bits(nth(3), Register("s", "sum", "ttl", width=5)) == 24 + 5


def test_a_schedule_survives_json_and_changes_no_other_specification():
    points = replace(SPEC, decision=Decision(after=9, schedule=(3, 8, 20)))
    assert MeterSpec.from_json(points.to_json(), "x") == points
    assert points.to_dict()["decision"]["schedule"] == (3, 8, 20)
    assert str(points).endswith(
        "decided at packet 3, at packet 8, at packet 20, after 9e-06 s, at the end, "
        "idle time-out 60 s"
    )
    # the digest that SPEC had before there were schedules
    assert SPEC.digest == "88383ee3befdcf14c4f8eebcb079e8c511cdb0ec5f6b0ce2b4dfc1a0cb1de037"


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


N = (Register("n", "count"),)


def refused(make):
    try:
        make()
    except ModelError:
        return True
    return False


@pytest.mark.parametrize(
    ("make", "accepted", "too_small_or_large"),
    [
        (lambda v: Guard(protocols=(v,)), (0, 255), (-1, 256)),
        (lambda v: Guard(protocols=(6,) * v), (256,), (257,)),
        (lambda v: Guard(flags_set=v), (0, 255), (-1, 256)),
        (lambda v: Guard(flags_clear=v), (0, 255), (-1, 256)),
        (lambda v: Register("n" * v, "count"), (1, 64), (0, 65)),
        (lambda v: Register("n", "count", width=v), (1, 64), (0, 65, True)),
        (lambda v: Window("w", v, ("source",)), (1, 65536), (0, 65537)),
        (lambda v: Decision(packets=v), (0, 2**48 - 1), (-1, 2**48)),
        (lambda v: Decision(after=v), (0, 2**48 - 1), (-1, 2**48)),
        (lambda v: Decision(schedule=(v,)), (1, 2**48 - 1), (-1, 0, 2**48)),
        (lambda v: Decision(schedule=(3, v)), (4,), (3, 2)),
        (lambda v: Decision(schedule=tuple(range(1, v + 1))), (0, 1, 16), (17,)),
        (lambda v: Decision(v, schedule=(3,)), (0,), (1,)),
        (lambda v: Decision(repeat=v, schedule=(3,)), (False,), (True,)),
        (lambda v: replace(SPEC, idle_timeout=v), (1, 2**48 - 1), (0, 2**48)),
        (lambda v: replace(SPEC, active_timeout=v), (0, 2**48 - 1), (-1, 2**48)),
        (lambda v: replace(SPEC, cache_flows=v), (1, 2**24), (0, 2**24 + 1)),
        (lambda v: replace(SPEC, tick_ns=v), (1, 10**9), (0, 10**9 + 1)),
        (lambda v: program(Step("shift", "n", "", v)), (0, 63), (-1, 64)),
        (lambda v: program(Step("add", "n", "", v)), (0, 2**32 - 1), (-1, 2**32)),
        (lambda v: program(Step("quotient", "one", "n", v)), (1, 2**64 - 1), (0, 2**64)),
        (lambda v: registers_of(v), (1, 128), (129,)),
        (lambda v: features_of(v), (1, 256), (0, 257)),
        (lambda v: program(*[Step("add", "n", "n")] * v), (1, 64), (65,)),
        (lambda v: Register("n", "nth", "ttl", packet=v), (1, 32), (-1, 0, 33)),
        (lambda v: Register("n", "sum", "ttl", packet=v), (0,), (-1, 1, 32, 33)),
        (lambda v: Register("n", "within", "ttl", low=v, high=9), (0, 9), (-1, 10)),
        (lambda v: Register("n", "within", "time", high=v), (0, 2**48 - 1), (-1, 2**48)),
        (lambda v: Register("n", "sum", "ttl", high=v), (0,), (-1, 1)),
        (lambda v: Register(v, "count"), ("n", "ü"), ("", 5, "a b", "1n")),
        (lambda v: MeterSpec((*N, *many("f", v, "first", "ttl")), F), (0, 64), (65,)),
        (lambda v: MeterSpec((*N, *guarded(v)), F), (0, 64), (65,)),
        (lambda v: MeterSpec((*N, *many("w", 63, "sum", "ttl", 64), *last(v)), F), (32,), (33,)),
        (lambda v: replace(SPEC, tunnels=v), ((), ("gre", "gtp")), (("gtp", "gre"), ("gre",) * 2)),
    ],
)
def test_the_edges_of_what_may_be_said(make, accepted, too_small_or_large):
    assert [v for v in accepted if refused(lambda v=v: make(v))] == []
    assert [v for v in too_small_or_large if not refused(lambda v=v: make(v))] == []


F = (MeteredFeature("f", "n"),)


def many(name, count, update, field, width=8):
    return tuple(Register(f"{name}{i}", update, field, width=width) for i in range(count))


def guarded(count):
    """Gaps of as many guards; a guard that two share counts once."""
    gaps = [Register(f"g{i}", "max", "gap", Guard(protocols=(i,)), 8) for i in range(count)]
    return (*gaps, *(replace(gap, name="again") for gap in gaps[:1]))


def last(width):
    """With 63 registers of 64 bits and one of 32: 4096 bits if this one has 32."""
    return (Register("z", "max", "time", width=width),)


def program(*steps, registers=None):
    given = registers or (Register("n", "count"), Register("one", "count", width=1))
    return MeterSpec(registers=given, features=(MeteredFeature("f", program=steps),))


def registers_of(count):
    registers = tuple(Register(f"r{i}", "count") for i in range(count))
    return MeterSpec(registers=registers, features=(MeteredFeature("f", "r0"),))


def features_of(count):
    return MeterSpec(N, tuple(MeteredFeature(f"f{i}", "n") for i in range(count)))


@pytest.mark.parametrize(
    ("register", "top", "field_top", "largest"),
    [
        (Register("r", "count", width=5), 31, 1, 31),
        (Register("r", "sum", "ttl", width=32), 2**32 - 1, 255, 2**32 - 1),
        (Register("r", "min", "ttl", width=16), 65535, 255, 65535),
        (Register("r", "max", "wire_length"), 2**32 - 1, 2**17 - 1, 2**17 - 1),
        (Register("r", "max", "ip_length", width=8), 255, 255, 255),
        (Register("r", "first", "time", width=64), 2**64 - 1, 2**48 - 1, 2**48 - 1),
        (Register("r", "last", "gap", width=40), 2**40 - 1, 2**40 - 1, 2**40 - 1),
        (Register("r", "or", "tcp_flags"), 2**32 - 1, 255, 255),
        (Register("r", "last", "tcp_window"), 2**32 - 1, 65535, 65535),
        (Register("r", "max", "payload_length"), 2**32 - 1, 2**17 - 1, 2**17 - 1),
        (Register("r", "max", "ip_length"), 2**32 - 1, 2**17 - 1, 2**17 - 1),
        (Register("r", "max", "gap", width=64), 2**64 - 1, 2**48 - 1, 2**48 - 1),
        (Register("r", "max", "protocol"), 2**32 - 1, 255, 255),
        (Register("r", "max", "directed_wire_length"), 2**32 - 1, 4095, 4095),
        (Register("r", "max", "directed_ip_length"), 2**32 - 1, 4095, 4095),
        (Register("r", "max", "directed_payload_length"), 2**32 - 1, 4095, 4095),
        (Register("r", "nth", "tcp_repeated", packet=1), 2**32 - 1, 2**17 - 1, 2**17 - 1),
        (Register("r", "last", "tcp_skipped"), 2**32 - 1, 2**31 - 1, 2**31 - 1),
        (Register("r", "within", "time", width=16, high=9), 65535, 1, 65535),
        (Register("r", "nth", "gap", width=16, packet=2, scale="log"), 65535, 367, 367),
        (Register("r", "max", "ttl", scale="log"), 2**32 - 1, 47, 47),
        (Register("r", "max", "gap", width=8, scale="log"), 255, 255, 255),
    ],
)
def test_what_a_register_can_hold(register, top, field_top, largest):
    assert (register.top, register.field_top, register.largest) == (top, field_top, largest)


def test_a_raw_field_has_its_own_width_whatever_becomes_of_it():
    assert Register("r", "count").raw_top == 1
    assert Register("r", "within", "ip_length", high=3).raw_top == 2**17 - 1
    assert Register("r", "max", "gap", width=8, scale="log").raw_top == 2**48 - 1


def test_a_code_is_the_exponent_and_three_bits_behind_the_leading_one():
    for value in range(1, 5000):
        if value < 8:
            assert log_code(value) == value
        else:
            exponent = len(f"{value:b}") - 1
            assert log_code(value) == 8 * (exponent - 2) + int(f"{value:b}"[1:4], 2)
    assert log_code(0) == 0
    assert [log_code(v) for v in (2**48 - 1, 2**47, 2**47 - 1)] == [367, 360, 359]


WIDE = (
    Register("a", "count", width=63),
    Register("b", "count", width=8),
    Register("c", "count", width=64),
)


@pytest.mark.parametrize(
    ("steps", "largest"),
    [
        ((Step("add", "b", "b"),), 510),
        ((Step("add", "a", "a"),), 2**64 - 2),
        ((Step("add", "a", "a"), Step("add", "$0", "", 1)), 2**64 - 1),
        ((Step("sub", "b", "a"),), 255),
        ((Step("min", "a", "b"),), 255),
        ((Step("max", "a", "b"),), 2**63 - 1),
        ((Step("max", "b", "", 300),), 300),
        ((Step("min", "b", "", 7),), 7),
        ((Step("shift", "a", "", 60),), 7),
        ((Step("quotient", "b", "b", 9),), 9 * 255),
        ((Step("add", "b", "b"), Step("shift", "$0", "", 1), Step("add", "$0", "$1")), 765),
        ((Step("max", "c", "c"),), 2**64 - 1),
        ((Step("min", "c", "c"),), 2**64 - 1),
        ((Step("sub", "c", "c"),), 2**64 - 1),
        ((Step("shift", "c"),), 2**64 - 1),
    ],
)
def test_the_largest_value_of_a_program(steps, largest):
    spec = program(*steps, registers=WIDE)
    assert spec.largest(spec.features[0]) == largest


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((Step("add", "a", "a"), Step("add", "$0", "", 2)), "could exceed 64 bits"),
        ((Step("add", "b", "b", 1),), "a second operand or an amount, got both"),
        ((Step("shift", "b", "b", 1),), "a shift has one operand"),
        ((Step("quotient", "b", "b", 1), Step("add", "b", "b")), "is the last step"),
        ((Step("quotient", "a", "b", 3),), "does not fit"),
        ((Step("quotient", "b", "a", 1),), "does not fit"),
        ((Step("add", "b", "$0"),), "no register and no earlier step"),
        ((Step("add", "b", "$"),), r"step 0: '\$' is no register and no earlier step"),
        ((Step("add", "b", "$b"),), r"'\$b' is no register and no earlier step"),
        ((Step("add", "b", "0"),), "'0' is no register and no earlier step"),
        ((Step("quotient", "b", "", 1),), "'' is no register and no earlier step"),
    ],
)
def test_programs_that_no_target_computes(steps, message):
    with pytest.raises(ModelError, match=message):
        program(*steps, registers=WIDE)


def test_a_quotient_is_compared_in_64_bits():
    """Its factor times the left one fits, and so does 2^32 times the right one."""

    def ratio(left, right, factor):
        registers = (Register("l", "count", width=left), Register("r", "count", width=right))
        return program(Step("quotient", "l", "r", factor), registers=registers)

    assert ratio(62, 32, 4)
    for left, right, factor in ((62, 33, 4), (62, 32, 5), (63, 32, 4)):
        with pytest.raises(ModelError, match="does not fit; use narrower registers"):
            ratio(left, right, factor)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Guard(flags_set=6, flags_clear=12), "cannot be required to be both set and clear"),
        (lambda: Register("n", "sum"), "a count has no field, and everything else has one"),
        (lambda: Register("1n", "count"), "identifier"),
        (lambda: Window("w", 1, ()), "each once"),
        (lambda: Window("w", 1, ("source", "source")), "each once"),
        (lambda: MeterSpec(N, (MeteredFeature("f"),)), "either a register or a program"),
        (
            lambda: MeterSpec(N, (MeteredFeature("f", "n", (Step("add", "n", "n"),)),)),
            "either a register or a program",
        ),
        (lambda: MeterSpec(N, (MeteredFeature("f", "n"),), ends=("syn",)), "expected fin, rst"),
        (lambda: Register("n", "count", scale="log"), "a count has no scale"),
        (lambda: Register("n", "within", "gap", high=1, scale="log"), "a within has no scale"),
        (
            lambda: MeterSpec((*N, Register("t", "sum", "tcp_repeated")), F, "host-pair", ends=()),
            "are a connection's, not a host-pair's",
        ),
    ],
)
def test_contradictions_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()


def test_a_specification_in_words():
    assert str(SPEC) == (
        "flows by five-tuple, 5 registers, 4 features, decided repeatedly, at packet 8, after 1 s, "
        "at the end, idle time-out 60 s"
    )
    slow = replace(SPEC, tick_ns=10**6, tunnels=("gre", "gtp"), decision=Decision(after=2500))
    assert str(slow).endswith(
        "features, decided after 2.5 s, at the end, idle time-out 60000 s, in gre, gtp tunnels"
    )
    assert [Decision(repeat=r, schedule=s).again for r, s in ((0, ()), (1, ()), (0, (3,)))] == [
        False, True, True,
    ]  # fmt: skip
    assert str(replace(SPEC, decision=Decision())).endswith(
        "decided at the end, idle time-out 60 s"
    )
    assert SPEC.units == {"packets": "packet", "mean": "", "mix": "", "same_source": "flow"}
    assert SPEC.index["span"] == 2
    default = MeterSpec(N, (MeteredFeature("f", "n"),))
    assert (default.cache_flows, default.tick_ns) == (65536, 1000)
    assert (default.idle_timeout, default.active_timeout) == (60_000_000, 0)
    assert SPEC.digest == hashlib.sha256(SPEC.to_json().encode()).hexdigest()
