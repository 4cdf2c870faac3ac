# SPDX-License-Identifier: Apache-2.0
"""How the published columns stand to a meter at one tap, and what is converted to it."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from n3ic.data.table import Tap
from n3ic.datasets.unsw_nb15 import SYNTHETIC, USECASE
from n3ic.datasets.unsw_nb15.catalogue import (
    BY_NAME,
    CATALOGUE,
    COLUMNS,
    HANDSHAKE_TIMES,
    NEEDS,
    WINDOWS,
    with_derived,
)
from n3ic.datasets.unsw_nb15.columns import PROTOCOL_UNASSIGNED, STATES
from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.datasets.unsw_nb15.windows import causal_windows
from n3ic.meter.packet import Packet
from n3ic.meter.reference import ReferenceMeter
from n3ic.runs.experiment import Experiment, train
from n3ic.training.input_choice import candidates
from n3ic.training.recipe import Training

TRANSIT = 8  # microseconds between the two copies of a packet

NEVER = {"artefact", "not causal", "payload", "halved"}


@pytest.fixture(scope="module")
def table():
    return SYNTHETIC.load().rows(np.arange(2000))


def test_every_column_says_how_it_stands_to_one_tap():
    for f in CATALOGUE:
        assert f.tap in get_args(Tap)[1:], f.name
        assert len(f.tap_reason.split()) > 3, f.name
        assert not (f.nic and f.tap in NEVER), f.name
    kinds = {f.name: f.tap for f in COLUMNS}
    assert {kinds[n] for n in kinds if n.startswith("ct_") and "ltm" in n} == {"not causal"}
    assert {kinds[n] for n in ("spkts", "dpkts", "sbytes", "dbytes", "rate")} == {"halved"}
    assert {kinds[n] for n in ("sloss", "sjit", "swin", "dloss", "djit", "dwin")} == {"artefact"}


def test_what_is_derived_from_a_column_that_no_tap_gives_is_not_given_either():
    lost = {"artefact", "not causal", "payload"}
    for name, needs in NEEDS.items():
        if BY_NAME[name].nic:
            assert not {BY_NAME[n].tap for n in needs} & lost, name
        assert BY_NAME[name].leaks == any(BY_NAME[n].leaks for n in needs), name


def test_the_default_recipe_reads_what_one_tap_computes_and_no_published_counter(table):
    names = candidates(table, USECASE.recipes["default"])
    assert {BY_NAME[n].tap for n in names} == {"exact", "approximate"}
    assert all(BY_NAME[n].usable for n in names)
    assert not any(n.startswith(("ct_", "sloss", "dloss", "sjit", "djit")) for n in names)
    assert not {*HANDSHAKE_TIMES} & {*names}  # the distance of the hosts
    assert not {"dur", "spkts", "sbytes", "rate", "sload", "sinpkt", "swin", "service"} & set(names)
    assert {"tap_dur", "tap_spkts", "tap_sbytes", "tap_rate", "tap_sload", "tap_sinpkt"} < {*names}


def test_the_published_recipe_reads_the_columns_of_the_literature(table):
    names = candidates(table, USECASE.recipes["published"])
    assert len([n for n in names if not BY_NAME[n].nic_reason.startswith("a cross")]) == 52
    assert {"ct_srv_dst", "sloss", "spkts", "sjit_ratio", "src_less_dst"} < {*names}
    assert not any(n.startswith("tap_") for n in names)
    assert not any(BY_NAME[n].tap == "payload" for n in names)
    assert {*HANDSHAKE_TIMES} < {*names}  # as in the literature, though they leak
    leaks = {n for n in names if BY_NAME[n].leaks}
    assert leaks == {n for n in names if {n, *NEEDS.get(n, ())} & {*HANDSHAKE_TIMES}}
    ours, default = USECASE.recipes["published"], USECASE.recipes["default"]
    assert ours.bits == default.bits
    assert default.training.bounded_by < 0.5  # shunting needs its margins
    assert replace(ours.training, gce_q=default.training.gce_q) == default.training
    assert len(candidates(table, USECASE.recipes["paper"])) == 30


SYN, ACK, FIN, RST = 2, 16, 1, 4
HANDSHAKE = [(0, True, 60, SYN), (4_000, False, 60, SYN | ACK), (9_000, True, 52, ACK)]


def metered(packets, protocol):
    """What the meter gives for packets of a flow: (time, from source?, length, TCP flags)."""
    hosts = (b"\x0a\0\0\1", 4000), (b"\x0a\0\0\2", 53)
    (record,) = ReferenceMeter(one_tap()).run(
        Packet(
            time=time,
            wire_length=max(60, length + 14),
            ip_length=length,
            payload_length=length - 28,
            source=hosts[not forward][0],
            destination=hosts[forward][0],
            protocol=protocol,
            ttl=64,
            tcp_flags=flags,
            tcp_window=0,
            source_port=hosts[not forward][1],
            destination_port=hosts[forward][1],
        )
        for time, forward, length, flags in packets
    )
    return record.features


def published(packets, protocol, state):
    """What argus gives where each packet is counted again when it leaves the router."""
    twice = sorted((time + late, *rest) for time, *rest in packets for late in (0, TRANSIT))
    out = {"dur": twice[-1][0] - twice[0][0], "proto": protocol, "state": STATES[state]}
    for letter, side in (("s", True), ("d", False)):
        times = [time for time, of, *_ in twice if of is side]
        sizes = [size for _, of, size, _ in twice if of is side]
        gaps = max(len(times) - 1, 1)
        out[f"{letter}pkts"] = len(times)
        out[f"{letter}bytes"] = sum(sizes)
        out[f"{letter}mean"] = (2 * sum(sizes) + len(times)) // max(1, 2 * len(times))
        out[f"{letter}inpkt"] = (times[-1] - times[0]) // gaps if times else 0
    return {name: np.array([value], dtype=np.int64) for name, value in out.items()}


TIMES = {"tap_dur", "tap_sinpkt", "tap_dinpkt"}
RATES = {"tap_rate", "tap_sload", "tap_dload"}


@pytest.mark.parametrize(
    ("packets", "protocol", "state"),
    [
        ([(0, True, 66, 0)], 17, "int"),
        ([(0, True, 66, 0), (900, False, 120, 0)], 17, "con"),
        ([(0, True, 66, 0), (900, False, 121, 0), (950, True, 67, 0)], 250, "con"),
        ([(0, True, 60, 0), (2_000, True, 500, 0), (5_000, False, 1500, 0),
          (9_000, False, 1500, 0), (70_000, True, 77, 0), (500_000, False, 40, 0),
          (900_000, True, 1499, 0)], 17, "con"),
        ([(0, True, 60, SYN)], 6, "req"),
        ([(0, True, 60, SYN), (1_000_000, True, 60, SYN), (1_004_000, False, 60, SYN | ACK)],
         6, "acc"),
        ([(0, True, 60, SYN), (4_000, False, 40, RST | ACK)], 6, "rst"),
        ([(0, True, 60, SYN), (9_000, True, 52, ACK)], 6, "con"),  # the answers go elsewhere
        ([(0, True, 52, ACK), (9_000, False, 1500, ACK)], 6, "con"),
        ([*HANDSHAKE, (20_000, True, 700, ACK), (60_000, False, 1400, ACK)], 6, "con"),
        ([*HANDSHAKE, (20_000, True, 700, FIN | ACK), (59_999_900, False, 52, ACK)], 6, "fin"),
        ([*HANDSHAKE, (20_000, True, 700, FIN), (30_000, False, 52, FIN), (40_000, True, 40, RST)],
         6, "rst"),
    ],
)  # fmt: skip
def test_converted_columns_are_those_of_the_meter_at_one_tap(packets, protocol, state):
    code = min(protocol, PROTOCOL_UNASSIGNED)
    meter, rows = metered(packets, protocol), with_derived(published(packets, code, state))
    for name, value in meter.items():
        got = int(rows[name][0])
        if name in TIMES:
            assert abs(got - value) <= TRANSIT * (len(packets) > 1) * 4, name
        elif name in RATES:
            assert got == pytest.approx(value, rel=0.01, abs=2), name
        else:
            assert got == value, name


def test_the_meter_computes_what_the_default_recipe_reads_in_its_units(table):
    names = candidates(table, USECASE.recipes["default"])
    assert {*table.meter.feature_names} == {*names}
    assert table.meter.units == {name: BY_NAME[name].unit for name in names}


def test_odd_counters_are_rounded_up_and_nothing_overflows():
    top = {f.name: (1 << f.bits) - 1 for f in COLUMNS}
    for value in ("least", "odd", "most"):
        names = ("dur", "spkts", "dpkts", "sbytes", "dbytes", "sinpkt", "dinpkt")
        of = {n: {"least": 0, "odd": 3, "most": top[n] - 1}[value] for n in names}
        rows = with_derived({n: np.array([v], dtype=np.int64) for n, v in of.items()})
        for name in (n for n in rows if n.startswith("tap_")):
            assert 0 <= rows[name][0] < 1 << BY_NAME[name].bits, (name, value)
        assert rows["tap_spkts"][0] == -(-of["spkts"] // 2)
        assert rows["tap_pkts"][0] == -(-of["spkts"] // 2) + -(-of["dpkts"] // 2)


def raw(hosts, times, protocol=6):
    """The columns that windows read, of flows between hosts."""
    columns = {n: np.full(len(hosts), 7) for n in ("sport", "dsport")}
    columns |= {name: np.array([h[i] for h in hosts]) for i, name in enumerate(("srcip", "dstip"))}
    return columns | {"ltime": np.array(times), "proto": np.full(len(hosts), protocol)}


def test_causal_windows_count_earlier_rows_alone_and_forget_after_100():
    hosts = [(1, 2), (1, 3), (2, 1), (1, 2)] + [(7, 8)] * 99 + [(1, 9)]
    got = causal_windows(raw(hosts, range(len(hosts))))
    assert got["tap_ct_src"][:4].tolist() == [1, 2, 1, 3]
    assert got["tap_ct_dst"][:4].tolist() == [1, 1, 1, 2]
    assert got["tap_ct_src_dst"][:4].tolist() == [1, 1, 1, 2]
    assert got["tap_ct_src"][-2:].tolist() == [99, 1]
    more = causal_windows(raw([*hosts, (1, 2)], range(len(hosts) + 1)))
    assert all((more[n][:-1] == got[n]).all() for n in got)  # later rows change nothing


def test_windows_are_those_of_the_meter(table):
    r = np.random.default_rng(0)
    rows = {n: r.integers(0, 4, 500) for n in ("srcip", "dstip", "sport", "dsport")}
    rows |= {"proto": r.choice([1, 6, 17], 500), "ltime": r.integers(0, 50, 500)}
    order = np.argsort(rows["ltime"], kind="stable")
    ports = rows["proto"] != 1
    packets = (
        Packet(
            time=60_000_001 * i, source=bytes([10, 0, 0, rows["srcip"][k]]),
            destination=bytes([10, 0, 0, rows["dstip"][k]]), protocol=int(rows["proto"][k]),
            source_port=int(rows["sport"][k] * ports[k]),
            destination_port=int(rows["dsport"][k] * ports[k]),
            wire_length=60, ip_length=40, payload_length=0, ttl=64, tcp_flags=0, tcp_window=0,
        )
        for i, k in enumerate(order)
    )  # fmt: skip
    records = list(ReferenceMeter(one_tap(windows=True)).run(packets))
    got = causal_windows(rows)
    assert [*got] == [f.name for f in WINDOWS] == [w.name for w in one_tap(windows=True).windows]
    for name, counts in got.items():
        assert counts[order].tolist() == [record.features[name] for record in records], name
    assert causal_windows(table.features) == {}


@pytest.mark.parametrize("name", ["default", "published"])
def test_a_network_carries_the_meter_if_it_computes_all_that_it_reads(table, name):
    training = Training(epochs=1, hidden=(8,))
    recipe = replace(USECASE.recipes[name], training=training, encoding="quantile")
    model = train(Experiment(table, recipe, with_baselines=False)).model
    assert model.meter == (one_tap() if name == "default" else None)
