# SPDX-License-Identifier: Apache-2.0
"""Windows over recent flows in the kernel: exact for equal keys, for keys whose hashes agree, and
for flows that two CPUs decide at the same time."""

import itertools
import os
import random
import struct
import threading
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from n3ic.exporters.xdp import source
from n3ic.exporters.xdp.layout import table_entries
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.replay import replay
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import Decision, Window
from tests.support.metering import load, network, replayed
from tests.support.siphash import apart

pytestmark = pytest.mark.usefixtures("clang", "kernel")

SECRET = bytes(range(100, 116))
SPEC = replace(
    standard_spec(packets=1),
    windows=(
        Window("source", 100, ("source",)),
        Window("destination", 100, ("destination", "protocol")),
        Window("service", 7, ("source", "destination_port")),
        Window("pair", 1, ("source", "destination")),
        Window("ports", 64, ("source_port", "protocol")),
        Window("all", 100, ("source", "destination", "source_port", "destination_port")),
    ),
)
GROUPS, HEADS = 128, 256  # of windows over 100 flows
WINDOW = np.dtype(
    [
        *((name, np.uint16) for name in ("at", "begun", "free")),
        ("first", np.uint16, HEADS),
        ("ring", np.uint16, GROUPS),
        ("pad", np.uint16),
        (
            "group",
            np.dtype(
                [("addresses", np.uint64), ("ends", np.uint64)]
                + [(name, np.uint16) for name in ("flows", "next", "before", "head")]
            ),
            GROUPS,
        ),
    ]
)


@pytest.fixture(scope="module")
def image(clang):
    """A function that compiles the program, each form once."""

    @cache
    def build(table="buckets", per_cpu=False):
        structure = structure_of([network(SPEC)])
        files = source.meter_program(SPEC, structure, per_cpu=per_cpu, table=table)
        return source.compile_program(files, source.METER)

    return build


def frame(ends, ports, protocol=17):
    """A UDP or TCP frame between two addresses of IPv4 or IPv6."""
    body = struct.pack(">HHIIBBHI", *ports, 0, 0, 0x50, 16, 0, 0)
    if len(ends[0]) == 4:
        total = 20 + len(body)
        head = b"\x08\0" + struct.pack(">BBHIBBH", 0x45, 0, total, 0, 64, protocol, 0)
    else:
        head = b"\x86\xdd" + struct.pack(">IHBB", 6 << 28, len(body), protocol, 64)
    return bytes(12) + head + b"".join(ends) + body


def head_of(address):
    """Where a window by source looks for an address of IPv4 first, as windows.h has it."""
    one, other = (word | 1 for word in struct.unpack("<QQ", SECRET))
    words = int.from_bytes(address, "little") * one + (4 << 40) * other
    return words % 2**64 // (2**64 // HEADS)


def crowded(count):
    """Addresses of one head."""
    addresses = (struct.pack(">I", 0x0A000000 + i) for i in range(1 << 20))
    return [
        a for _, a in zip(range(count), (a for a in addresses if head_of(a) == 5), strict=False)
    ]


def windows_of(programs, name="recent"):
    """The windows of a loaded program, the addresses' numbers before them."""
    value = programs.maps[name].lookup(0)
    return np.frombuffer(value, WINDOW, offset=8)


def groups_of(window, head):
    """Groups whose keys have one hash."""
    numbers, n = [0], int(window["first"][head])
    while n:
        assert window["group"]["before"][n] == numbers[-1]
        numbers.append(n)
        n = int(window["group"]["next"][n])
    return numbers[1:]


def check(window):
    """A window's groups are those of its ring, and each is found by its hash once."""
    ring = window["ring"][window["ring"] != 0]
    group = window["group"]
    assert np.bincount(ring, minlength=GROUPS).tolist() == group["flows"].tolist()
    numbers = [n for head in range(HEADS) for n in groups_of(window, head)]
    assert sorted(numbers) == sorted(set(ring.tolist()))
    assert len(np.unique(group[numbers][["addresses", "ends"]])) == len(numbers)


def hostile(r, count):
    """Flows of few and of many keys, from addresses that share a head, in runs and at random."""
    same = crowded(140)
    alike = [a + bytes(12) for a in same[:20]]  # as words, equal to those of IPv4
    frames = []
    for i in range(count):
        pool = same if i // 200 % 2 else same[: r.choice([1, 2, 30])]
        if r.random() < 0.3:
            ends = r.choice(alike), r.choice([*alike, bytes(15) + b"\1"])
        else:
            ends = r.choice(pool), r.choice([b"\xc0\0\2\1", r.choice(same)])
        ports = i + 1024, r.choice([53, 53, 80, 443])
        if r.random() < 0.5:
            ends, ports = ends[::-1], (r.choice([53, 54]), i + 1024)
        one = frame(ends, ports, r.choice([6, 17]))
        frames.append((one, len(one), i))
    return frames


@pytest.mark.slow
def test_keys_that_are_equal_or_hash_alike_are_counted_exactly(image):
    """Against the reference meter, with each window full and turned over many times."""
    model = network(SPEC)
    frames = hostile(random.Random(3), 600)
    with load(model, image=image(), table="buckets", secret=SECRET) as programs:
        events = replayed(programs, model, frames)
        windows = windows_of(programs)
        assert len(events) == 600
        for window in windows:
            check(window)
        assert windows[-1]["begun"] == 100  # it was full, and no more
        assert len(groups_of(windows[2], 5)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("per_cpu", [False, True])
def test_a_cpu_of_its_own_counts_as_the_reference_does(image, per_cpu):
    model = network(SPEC)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        made = image(per_cpu=per_cpu)
        with load(model, image=made, table="buckets", secret=SECRET) as programs:
            replayed(programs, model, hostile(random.Random(4), 300))
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.slow
@pytest.mark.parametrize("table", [pytest.param("lru", marks=pytest.mark.slow), "buckets"])
def test_flows_of_two_cpus_enter_one_after_the_other(table):
    """All share a destination: its window counts 1, 2, ... 100, and 100 from then on."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    spec = replace(SPEC, decision=Decision(packets=1, repeat=True))
    model = network(spec)
    hosts = [b"\x0a\0\0\1", b"\x0a\0\0\2"]
    packets, flows = 2000, 4096  # their events fit the ring
    every = (frame((hosts[i % 2], b"\xc0\0\2\1"), (1024 + i // 2, 53)) for i in itertools.count())
    buckets = table_entries("buckets", flows)
    frames = [*itertools.islice(apart(every, SECRET, buckets), 2 * packets // 100)]

    def sent(cpu, frames):
        os.sched_setaffinity(0, {cpu})  # of this thread
        for one in frames:
            programs.program.test_run(one, repeat=100)

    with load(model, clock="kernel", table=table, flows=flows, secret=SECRET) as programs:
        parts = ([f for f in frames if host in f] for host in hosts)
        threads = [
            threading.Thread(target=sent, args=args) for args in zip(cpus, parts, strict=False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        events = programs.events()
        for window in windows_of(programs):
            check(window)
    columns = dict(zip(spec.feature_names, events["features"].T, strict=True))
    full = 2 * packets - 99
    assert sorted(columns["destination"]) == [*range(1, 100), *[100] * full]
    assert sorted(columns["pair"]) == [1] * 2 * packets
    assert int(columns["source"].max()) <= 100


@pytest.mark.slow
def test_a_cpu_has_windows_over_as_many_flows_as_all_of_them():
    """More than a value of a per-CPU map holds."""
    spec = replace(SPEC, windows=(Window("w", 1024, ("source",)),))
    model = network(spec)
    with load(model, per_cpu=True) as programs:
        assert programs.maps["recent_of_cpus"].entries >= os.cpu_count()
        frames = [(f, len(f), i) for i, f in enumerate(
            frame((b"\x0a\0\0\1", b"\x0a\0\0\2"), (1000 + i, 53)) for i in range(50)
        )]  # fmt: skip
        assert len(replay(programs, frames)) == 50
