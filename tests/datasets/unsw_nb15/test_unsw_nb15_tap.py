"""How the published columns stand to a meter at one tap, and what is converted to it."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from n3ic.data.table import Tap
from n3ic.datasets.unsw_nb15 import SYNTHETIC, USECASE
from n3ic.datasets.unsw_nb15.catalogue import BY_NAME, CATALOGUE, COLUMNS, NEEDS, with_derived
from n3ic.datasets.unsw_nb15.windows import causal_windows
from n3ic.errors import DataError
from n3ic.meter.packet import Packet
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.standard import standard_spec
from n3ic.training.input_choice import candidates

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
            assert not any(BY_NAME[n].leaks for n in needs), name


def test_the_default_recipe_reads_what_one_tap_computes_and_no_published_counter(table):
    names = candidates(table, USECASE.recipes["default"])
    assert {BY_NAME[n].tap for n in names} == {"exact", "approximate"}
    assert all(BY_NAME[n].usable for n in names)
    assert not any(n.startswith(("ct_", "sloss", "dloss", "sjit", "djit")) for n in names)
    assert not {"dur", "spkts", "sbytes", "rate", "sload", "sinpkt", "swin", "service"} & set(names)
    assert {"tap_dur", "tap_spkts", "tap_sbytes", "tap_rate", "tap_sload", "tap_sinpkt"} < {*names}


def test_the_published_recipe_reads_the_columns_of_the_literature(table):
    names = candidates(table, USECASE.recipes["published"])
    assert len(names) == 52
    assert {"ct_srv_dst", "sloss", "spkts", "sjit_ratio", "src_less_dst"} < {*names}
    assert not any(n.startswith("tap_") for n in names)
    assert not any(BY_NAME[n].leaks or BY_NAME[n].tap == "payload" for n in names)
    ours, default = USECASE.recipes["published"], USECASE.recipes["default"]
    assert (ours.training, ours.bits) == (default.training, default.bits)
    assert len(candidates(table, USECASE.recipes["paper"])) == 30


def metered(packets):
    """What the standard meter gives for packets of one UDP flow: (time, from source?, length)."""
    hosts = (b"\x0a\0\0\1", 4000), (b"\x0a\0\0\2", 53)
    (record,) = ReferenceMeter(standard_spec()).run(
        Packet(
            time=time,
            wire_length=length,
            ip_length=length,
            payload_length=length - 28,
            source=hosts[not forward][0],
            destination=hosts[forward][0],
            protocol=17,
            ttl=64,
            tcp_flags=0,
            tcp_window=0,
            source_port=hosts[not forward][1],
            destination_port=hosts[forward][1],
        )
        for time, forward, length in packets
    )
    return record.features


def published(packets):
    """What argus gives where each packet is counted again when it leaves the router."""
    twice = sorted((time + late, side, n) for time, side, n in packets for late in (0, TRANSIT))
    out = {"dur": twice[-1][0] - twice[0][0]}
    for letter, side in (("s", True), ("d", False)):
        times = [time for time, of, _ in twice if of is side]
        gaps = max(len(times) - 1, 1)
        out[f"{letter}pkts"] = len(times)
        out[f"{letter}bytes"] = sum(n for _, of, n in twice if of is side)
        out[f"{letter}inpkt"] = (times[-1] - times[0]) // gaps if times else 0
    return {name: np.array([value], dtype=np.int64) for name, value in out.items()}


@pytest.mark.parametrize(
    "packets",
    [
        [(0, True, 66)],
        [(0, True, 66), (900, False, 120)],
        [(0, True, 60), (2_000, True, 500), (5_000, False, 1500), (9_000, False, 1500),
         (70_000, True, 77), (500_000, False, 40), (900_000, True, 1499)],
    ],
)  # fmt: skip
def test_converted_columns_are_those_of_the_meter_at_one_tap(packets):
    meter, rows = metered(packets), with_derived(published(packets))
    got = {n: int(rows[f"tap_{n}"][0]) for n in ("spkts", "dpkts", "sbytes", "dbytes")}
    assert got == {n: meter[n] for n in got}
    several = len(packets) > 1
    for name in ("dur", "sinpkt", "dinpkt"):
        value = int(rows[f"tap_{name}"][0])
        assert abs(value - meter[name]) <= TRANSIT * several * 4, name
        assert bool(value) == bool(meter[name]), name
    for name in ("rate", "sload", "dload"):
        assert int(rows[f"tap_{name}"][0]) == pytest.approx(meter[name], rel=0.01, abs=1), name


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


def raw(hosts, times):
    """Flows between hosts, of which only what windows read is there."""
    table = SYNTHETIC.load().rows(np.arange(len(hosts)))
    columns = {n: np.full(len(hosts), 6) for n in ("proto", "sport", "dsport", "stime")}
    columns |= {name: np.array([h[i] for h in hosts]) for i, name in enumerate(("srcip", "dstip"))}
    columns["ltime"] = np.array(times)
    more = tuple(BY_NAME[n] for n in columns if n not in table.features)
    return replace(table, features=table.features | columns, catalogue=table.catalogue + more)


def test_causal_windows_count_earlier_rows_alone_and_forget_after_100():
    hosts = [(1, 2), (1, 3), (2, 1), (1, 2)] + [(7, 8)] * 99 + [(1, 9)]
    got = causal_windows(raw(hosts, range(len(hosts))))
    assert got["ct_src"][:4].tolist() == [1, 2, 1, 3]
    assert got["ct_dst"][:4].tolist() == [1, 1, 1, 2]
    assert got["ct_src_dst"][:4].tolist() == [1, 1, 1, 2]
    assert got["ct_src"][-2:].tolist() == [99, 1]
    more = causal_windows(raw([*hosts, (1, 2)], range(len(hosts) + 1)))
    assert all((more[n][:-1] == got[n]).all() for n in got)  # later rows change nothing


def test_windows_are_refused_without_addresses_or_order(table):
    with pytest.raises(DataError, match="addresses and times of the raw files"):
        causal_windows(table)
    with pytest.raises(DataError, match="order of their last times"):
        causal_windows(raw([(1, 2), (1, 2)], [2, 1]))
