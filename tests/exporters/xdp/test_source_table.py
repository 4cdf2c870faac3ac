# SPDX-License-Identifier: Apache-2.0
"""Features by source in the kernel: one table for all CPUs, equal to the reference meter's."""

import os
import random
import struct
import threading
from dataclasses import replace

import numpy as np
import pytest

from n3ic.exporters.xdp.replay import replay, replayable
from n3ic.meter.sources import OPEN_SECRET, table_bytes
from n3ic.meter.standard import standard_spec
from tests.support.metering import load, network, replayed
from tests.support.sourced_traffic import frames_of_sources, sourced

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clang", "kernel")]

SPEC = replace(standard_spec(schedule=(1, 2, 5), idle_timeout_us=20_000), cache_flows=4000)
FRAMES = frames_of_sources(random.Random(5), 900, 300)
COUNTS = [("ports", "u8"), ("hosts", "u8"), ("flows", "u4"), ("answered", "u4")]
WAY = [
    *((name, np.uint64) for name in ("network", "used", "begun")),
    *((name, np.dtype(COUNTS)) for name in ("now", "before")),
    *((name, np.uint32) for name in ("address_bytes", "pad")),
]
SET = np.dtype([("busy", "u4"), ("pad", "u4"), ("used", "u8"), ("way", WAY, 8)])


@pytest.mark.parametrize("table", ["buckets", "lru"])
@pytest.mark.parametrize(("window", "entries"), [(12, 8), (16, 16), (0, 1024)])
def test_the_program_has_the_reference_meters_sources(table, window, entries):
    model = network(sourced(SPEC, window, entries))
    with load(model, table=table, secret=OPEN_SECRET) as programs:
        assert len(replayed(programs, model, FRAMES)) > 1500
        assert (programs.counters()["forgotten"] > 100) == (entries < 1024)
        sets = programs.maps["source_sets"]
        size = sets.entries * sets.value_bytes
        assert size == table_bytes(model.meter.sources) == entries // 8 * SET.itemsize


def test_one_feature_alone_is_exact():
    model = network(sourced(SPEC, 12, 16, slice(2, 3)))
    with load(model, secret=OPEN_SECRET) as programs:
        assert len(replayed(programs, model, FRAMES)) > 1500


def test_another_secret_gives_other_sketches_and_the_same_counts():
    model, source_features = network(sourced(SPEC, 12)), []
    for secret in (OPEN_SECRET, bytes(range(16))):
        with load(model, secret=secret) as programs:
            source_features.append(replay(programs, replayable(FRAMES))["features"][:, -4:])
    assert np.array_equal(source_features[0][:, :2], source_features[1][:, :2])
    assert not np.array_equal(source_features[0][:, 2:], source_features[1][:, 2:])


def test_no_flow_of_a_source_is_lost_between_two_cpus():
    """Each packet begins a flow: its RST ends it, and the SYN of the next one begins another."""
    cpus, packets = sorted(os.sched_getaffinity(0)), 100_000
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    spec = replace(sourced(SPEC, 40), windows=())

    def sent(programs, cpu, port):
        os.sched_setaffinity(0, {cpu})  # of this thread
        body = struct.pack(">HHIIBBHI", port, 80, 0, 0, 0x50, 0x06, 0, 0)
        head = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0)
        frame = bytes(12) + b"\x08\0" + head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + body
        programs.program.test_run(frame.ljust(60, b"\0"), repeat=packets)

    with load(network(spec), clock="kernel", table="buckets", events=False) as programs:
        threads = [
            threading.Thread(target=sent, args=(programs, cpu, 1000 + i))
            for i, cpu in enumerate(cpus[:2])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ways = np.frombuffer(programs.maps["source_sets"].values(), SET)["way"].ravel()
        (source,) = ways[ways["used"] > 0]
        counters = programs.counters()
    assert counters["started"] > packets
    uncounted = counters["started"] - int(source["now"]["flows"])
    assert 0 <= uncounted <= counters["contended"] < packets // 10
