# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs, is exact before it is timed, and says what it measured."""

import itertools
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import VerifyError
from n3ic.exporters.xdp import bench, libbpf, veth_bench
from n3ic.exporters.xdp import links as links_of_xdp
from n3ic.exporters.xdp.network import kernel_run as kernel_network
from n3ic.meter.packet import LINK_ETHERNET, Packet, parse
from n3ic.model.random_models import random_model

pytestmark = pytest.mark.usefixtures("kernel", "compile_bpf")

NAMESPACE = Path("/proc/thread-self/ns/net")


@pytest.mark.exhaustive
def test_every_network_is_checked_and_timed():
    model = random_model((40, 8, 2), np.random.default_rng(0))
    # A repeat is a call of the kernel, which waits; 60,000 flows are made beforehand.
    figures = bench.bench_xdp(model, rounds=3, repeat=20_000, packets=2000)
    assert figures.timings[0].name == "bits"
    assert [t.aim for t in figures.timings] == [None, 75.0, 65.0, None]
    assert all(t.verified < 100_000 and t.value_bytes < 32 << 10 for t in figures.timings[1:])
    shown = bench.render(figures)
    (title, columns, rows), *_ = shown.tables
    assert "measured" in title and all(len(row) == len(columns) for row in rows)
    _, columns, rows = shown.tables[1]
    assert all(len(row) == len(columns) for row in rows)
    aims = [3 * [few] + ["5"] for few in ("20", "20", "12", "12")]
    assert [row[7] or row[11] for row in rows] == list(itertools.chain(*aims))
    assert shown.data["timings"][1]["shape"] == "256-32-16-2"
    assert (len(figures.wire) == 6) != bool(figures.skipped)
    assert len(shown.tables) == 3 + bool(figures.wire)
    assert figures.verdicts[0].median == 0 < len(figures.verdicts) == 5
    ways = [(m.decides, m.table, (m.clock, m.locked, m.flows)) for m in figures.meters]
    clocks = (
        *(("kernel", True, 1000), ("coarse", True, 1000), ("coarse", False, 1000)),
        ("coarse", True, 60_000),
    )
    assert ways == list(itertools.product((False, True), ("lru", "buckets"), clocks))


def test_the_packet_that_is_metered_is_of_a_flow():
    frame = bench._OF_A_FLOW
    assert isinstance(parse(LINK_ETHERNET, frame, len(frame), 0), Packet)


def test_a_program_that_is_wrong_is_not_timed(monkeypatch):
    def damaged(structure, model):
        value = bytearray(value_bytes(structure, model))
        value[-4000:] = bytes(4000)
        return bytes(value)

    value_bytes = bench.value_bytes
    monkeypatch.setattr(bench, "value_bytes", damaged)
    monkeypatch.setattr(kernel_network.BpfNetwork, "differences", None)
    with pytest.raises(VerifyError, match="does not give"):
        bench.bench_xdp(random_model((256, 8, 2), np.random.default_rng(0)), rounds=1, repeat=1)


def links():
    """Links but for those of tests that run beside this one."""
    return [name for _, name in socket.if_nameindex() if not name.startswith("n3x")]


@pytest.fixture(scope="module")
def metering(kernel, compile_bpf):
    return [bench._Metering.build(decides=True, table="lru")]


@pytest.mark.slow
def test_programs_at_the_end_of_a_link_see_every_packet_and_nothing_is_left(metering):
    before, allowed = links(), os.sched_getaffinity(0)
    generator, timings, skipped = bench._wire(metering, packets=20_000)
    if skipped:
        pytest.skip(skipped)
    names = ("only drops", "meters, decides at each 16th packet")
    assert [(t.mode, t.name) for t in timings] == list(itertools.product(veth_bench.MODES, names))
    assert generator > 0
    assert all(t.lost < 0.01 and t.median > 0 for t in timings)
    assert [t.ratio for t in timings[::2]] == [1, 1]
    assert links() == before
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.slow
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_generator_leaves_no_link(metering, monkeypatch, stop):
    before, outside = links(), NAMESPACE.readlink()
    allowed, seen = os.sched_getaffinity(0), []

    def stopped(program, frame, interface, packets):
        seen.extend(links())
        raise stop

    monkeypatch.setattr(libbpf.BpfProgram, "live_run", stopped)
    try:
        with pytest.raises(stop):
            assert not bench._wire(metering, packets=10)[2]
    except AssertionError:
        pytest.skip("needs the right to make network namespaces and links")
    assert "n3icgen0" in seen
    assert links() == before
    assert NAMESPACE.readlink() == outside
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.slow
def test_without_the_right_to_make_links_the_reason_is_said(metering, monkeypatch):
    def refused(*command):
        raise libbpf.BpfError("ip link: Operation not permitted")

    before = links()
    monkeypatch.setattr(links_of_xdp, "run_ip", refused)
    assert bench._wire(metering, packets=10) == (0.0, (), "ip link: Operation not permitted")
    monkeypatch.setattr(links_of_xdp.shutil, "which", lambda name: None)
    assert links() == before
    monkeypatch.setattr(veth_bench, "compile_program", lambda *given: b"")
    assert "iproute2" in bench._wire(metering, packets=10)[2]
    result = bench.XdpBench("cpu", "kernel", 1.0, (), (), 5.0, *bench._wire(metering, packets=10))
    shown = bench.render(result)
    assert len(shown.tables) == 2
    assert "iproute2" in shown.notes[-1]
