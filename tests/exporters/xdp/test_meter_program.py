# SPDX-License-Identifier: Apache-2.0
"""The metering program in the kernel: flows, registers, windows, verdicts, policies."""

import os
import random
import socket
import struct
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.unsw_nb15.meter import one_tap
from n3ic.errors import UsageError
from n3ic.exporters.xdp import source
from n3ic.exporters.xdp.layout import KEY, OPTIONS, SLOTS_PER_FLOW, TAGS, WAYS, bucket_type
from n3ic.exporters.xdp.network.rows import bit_counts
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.values import value_bytes
from n3ic.exporters.xdp.program import END, MeterPrograms
from n3ic.exporters.xdp.replay import difference, replay, replayable, traffic
from n3ic.exporters.xdp.resident import NO_VLAN, SlotRule
from n3ic.meter.capture import Capture
from n3ic.meter.compiled import ENDS
from n3ic.meter.packet import LINK_ETHERNET, parse
from n3ic.meter.reference import ReferenceMeter
from n3ic.meter.sequences import sequence_spec, with_sequence
from n3ic.meter.siphash import siphash
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import unpack
from n3ic.model.meter_spec import Decision, Register
from n3ic.targets.base import exporter as target
from tests.support.conversations import SIXTEEN_POINTS, flows_of
from tests.support.flooding import FAMILIES
from tests.support.generated import edge_frames, large_spec, random_frames, random_spec
from tests.support.metering import load, network, replayed, set_policy
from tests.support.siphash import bucket_of, udp_key

ABORTED, DROP, PASS, REDIRECT = 0, 1, 2, 4
STANDARD = standard_spec(packets=8)
TUNNELS = ("gre", "vxlan", "gtp")

pytestmark = pytest.mark.usefixtures("clang", "kernel")


@pytest.fixture(scope="module", params=[pytest.param("lru", marks=pytest.mark.slow), "buckets"])
def standard(request, clang, kernel):
    """The standard meter's network, its program's object file, and the flow table in it."""
    model = network(STANDARD, shunt=2)
    files = source.meter_program(
        STANDARD, structure_of([model]), per_cpu=False, table=request.param
    )
    return model, source.compile_program(files, source.METER), request.param


@pytest.fixture
def loaded(standard):
    model, image, table = standard
    with load(model, image=image, table=table) as programs:
        yield model, programs


def udp(*, host=1, port=53, sender=1000, tags=b"", length=60):
    """A sound UDP frame from 10.0.0.HOST."""
    body = sender.to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(4)
    head = bytes([0x45, 0, 0, 20 + len(body), 0, 0, 0, 0, 64, 17, 0, 0])
    ends = bytes([10, 0, 0, host, 192, 168, 0, 1])
    return (bytes(12) + tags + b"\x08\x00" + head + ends + body).ljust(length, b"\0")


def long(value):
    """A case of the long tests."""
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "table"),
    [
        (123, "buckets"),
        *(pytest.param(seed, "lru", marks=pytest.mark.slow) for seed in (34, 47)),
        pytest.param(6, "buckets", marks=pytest.mark.slow),
    ],
)
def test_flows_are_the_reference_meters_and_scores_the_models(seed, table):
    """Random specifications and random traffic, cut and damaged frames included."""
    r = random.Random(seed)
    spec = replace(random_spec(r), cache_flows=4000)
    model = network(spec, seed)
    with load(model, table=table) as programs:
        assert len(replayed(programs, model, random_frames(r, 200))) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tunnels", "table"),
    [
        (TUNNELS, "buckets"),
        *(pytest.param((one,), "lru", marks=pytest.mark.slow) for one in TUNNELS),
    ],
)
def test_tunnels_are_opened_as_by_the_reference_meter(tunnels, table):
    r = random.Random(1)
    spec = replace(random_spec(r), cache_flows=4000, tunnels=tunnels)
    model = network(spec)
    frames = random_frames(r, 300, tunnels=TUNNELS)
    with load(model, table=table) as programs:
        assert len(replayed(programs, model, frames)) > 10
    opened = [parse(1, data, n, time, tunnels) for data, n, time in frames]
    assert sum(p != parse(1, *f) for p, f in zip(opened, frames, strict=True)) > 10


@pytest.mark.slow
def test_the_standard_meter_with_thirty_packets_is_exact():
    r = random.Random(3)
    spec = replace(with_sequence(standard_spec(schedule=(4, 30)), 30), cache_flows=4000, tick_ns=1)
    model = network(spec)
    with load(model) as programs:
        assert len(replayed(programs, model, random_frames(r, 300))) > 10


@pytest.mark.slow
def test_a_long_sequence_alone_is_exact():
    """Of registers that read no time: all arguments of the function that counts are passed."""
    r = random.Random(4)
    spec = replace(sequence_spec((32,)), cache_flows=4000, tick_ns=1)
    spec = replace(
        spec, registers=spec.registers[:40], features=spec.features[:40], idle_timeout=10**6
    )
    model = network(spec)
    with load(model) as programs:
        assert len(replayed(programs, model, random_frames(r, 300))) > 10


@pytest.mark.slow
def test_the_largest_specification_opens_tunnels_within_the_verifiers_limit():
    r = random.Random(2)
    spec = large_spec(r, "five-tuple", registers=64, features=52, windows=204, flows=100)
    model = network(replace(spec, tunnels=TUNNELS))
    with load(model, table="buckets") as programs:
        assert len(replayed(programs, model, random_frames(r, 300, tunnels=TUNNELS))) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "table", "windows", "flows"),
    [
        ("five-tuple", "buckets", 204, 100),  # of all combinations the most for the verifier
        ("host-pair", "lru", 20, 1024),
        ("source-host", "buckets", 20, 1024),
    ],
)
def test_the_largest_specifications_load_and_are_exact(key, table, windows, flows):
    """64 registers and 256 features, windows among them: what a specification holds at most."""
    r = random.Random(2)
    given = {"registers": 64, "features": 256 - windows, "windows": windows, "flows": flows}
    spec = large_spec(r, key, **given)
    model = network(spec)
    assert not target("xdp").check(model, target("xdp").parse_options({})).problems
    with load(model, table=table) as programs:
        assert len(replayed(programs, model, random_frames(r, 300))) > 10


@pytest.mark.slow
def test_the_standard_meter_is_exact(loaded):
    model, programs = loaded
    events = replayed(programs, model, traffic(STANDARD, 600, seed=1))
    assert {int(e["why"]) for e in events} >= {0, 3, 4, 7}  # packets, rst, idle, capture
    assert (events["verdict"] == -1).any()
    assert (events["verdict"] >= 0).any()


@pytest.mark.slow
def test_the_meter_of_a_data_set_is_exact():
    """One that compiles to other pointers than the standard one, with constants and a minimum."""
    spec = replace(one_tap(), cache_flows=4000, decision=Decision(packets=4))
    model = network(spec)
    with load(model) as programs:
        assert len(replayed(programs, model, traffic(spec, 600, seed=1))) > 10


@pytest.mark.slow
def test_points_in_powers_decide_where_the_reference_meter_does():
    model = network(standard_spec(schedule=SIXTEEN_POINTS))
    with load(model, table="buckets") as programs:
        events = replayed(programs, model, flows_of((1, 2, 99, 100, 101, 10_003)))
    assert {int(e["packets"]) for e in events if e["why"] == 0} == {*SIXTEEN_POINTS}


@pytest.mark.slow
@pytest.mark.parametrize("after", [long(0), 20])
def test_a_schedule_decides_where_the_reference_meter_does(after):
    """At some packets and at the end; a time takes the place of the first of them."""
    decision = Decision(after=after, schedule=(3, 5, 6, 40))
    standard = standard_spec()
    spec = replace(
        standard, tick_ns=1, cache_flows=4000, idle_timeout=2000, decision=decision,
        registers=(*standard.registers, Register("octets", "sum", "ip_length", width=32)),
    )  # fmt: skip
    model = network(spec)
    with load(model) as programs:
        events = replayed(programs, model, traffic(spec, 800, seed=8))
    reasons = {(int(e["why"]), int(e["packets"])) for e in events}
    assert {(0, 5), (0, 6)} <= reasons  # by packets
    assert ({1} <= {why for why, _ in reasons}) == bool(after)
    assert (0, 3) in reasons
    for number in np.unique(events["number"]):
        flow = events[events["number"] == number]
        assert flow["new_packets"].tolist() == np.diff(flow["packets"], prepend=0).tolist()
        octets = flow["registers"][:, -1].astype(np.int64)
        assert flow["new_octets"].tolist() == np.diff(octets, prepend=0).tolist()


@pytest.mark.first_case
@pytest.mark.parametrize("name", ["443-git.pcap", "6in4tunnel.pcap", "fuzz-2006-09-29-28586.pcap"])
def test_captures_are_exact(loaded, real_data, name):
    model, programs = loaded
    path = real_data / "pcaps" / name
    if not path.exists():
        pytest.skip(f"no {name} here")
    with Capture(path) as capture:
        frames = [(f, n, t // STANDARD.tick_ns) for f, n, t in capture.packets()][:2000]
    replayed(programs, model, frames)


@pytest.mark.slow
def test_headers_at_the_limits_of_what_is_read_at_once_are_exact():
    spec = replace(standard_spec(), decision=Decision(packets=1, repeat=True))
    model = network(spec)
    with load(model) as programs:
        assert len(replayed(programs, model, edge_frames())) > 500


def test_the_coarse_clock_moves_with_the_kernels_ticks(standard):
    """It is called at the first packet of a tick, and may then still tell the time of the last."""
    model, image, table = standard
    coarse, us = 6, STANDARD.tick_ns  # CLOCK_MONOTONIC_COARSE has no name in Python
    step = time.clock_getres(coarse)
    seen = set()
    with load(model, image=image, table=table, clock="coarse") as programs:
        for _ in range(30):
            before = time.clock_gettime(coarse)
            programs.program.test_run(udp())
            after = time.clock_gettime(coarse)
            _, flows = programs.flows()
            last = int(flows["last"][0]) * us / 1e9
            assert before - 2 * step < last < after + step
            seen.add(last)
            time.sleep(step)
    assert len(seen) > 10


@pytest.mark.slow
def test_windows_of_one_cpu_are_its_own_flows(standard):
    model, _, table = standard
    with load(model, per_cpu=True, table=table) as programs:
        frames = replayable(traffic(STANDARD, 300, seed=2))
        events = replay(programs, frames)
        mismatch = difference(model, STANDARD, frames, events)
        # A test run may move between CPUs; all but the windows is the same on any.
        assert mismatch == "" or "features" in mismatch


def test_counters_say_what_the_network_said(loaded):
    model, programs = loaded
    events = replayed(programs, model, traffic(STANDARD, 400, seed=3))
    tally = programs.tally(0)
    decided = events["verdict"] >= 0
    assert tally["class"].tolist() == np.bincount(events["class"][decided], minlength=3).tolist()
    assert tally["shunted"] == (~decided).sum()
    margins = np.minimum(events["margin"], 255)
    assert tally["margin"].tolist() == np.bincount(margins, minlength=256).tolist()
    columns = {n: events["features"][:, i] for i, n in enumerate(STANDARD.feature_names)}
    counts = bit_counts(programs.structure, model, tally["row"])
    want = unpack(model.encode(columns), model.input.n_bits).sum(axis=0)
    assert counts.tolist() == want.tolist()


def test_who_ends_flows_writes_over_nothing_of_the_packets(loaded):
    """Some kernels let a packet interrupt the run that ends flows, on its CPU."""
    _, programs = loaded
    for frame, length, at in replayable(traffic(STANDARD, 100, seed=4)):
        programs.program.test_run(programs.replayed(frame, length, at))
    maps = programs.maps
    before = [maps[name].each_cpu(0) for name in ("scratches", "counted", "tallies")]
    decided = int(programs.tally(0)["class"].sum() + programs.tally(0)["shunted"])
    flow_count, counters = programs.held(), programs.counters()
    programs.end_all()
    assert [maps[name].each_cpu(0) for name in ("scratches", "counted", "tallies")] == before
    after, tally = programs.counters(), programs.tally(0)
    ended = after["decided: capture"]
    assert ended > 0
    changed = {
        "decided: capture": ended,
        "flows_decided": counters["flows_decided"] + ended,
        "removed": counters["removed"] + flow_count,
    }
    assert after == counters | changed
    assert int(tally["class"].sum() + tally["shunted"]) == decided + ended


def test_hostile_bytes_change_nothing_but_a_counter(loaded):
    """Whatever the parser is given, the packet passes, is counted, and makes at most a flow."""
    _, programs = loaded
    r = random.Random(5)
    sound = [f for f, _, _ in traffic(STANDARD, 60, seed=6)]
    for i in range(3000):
        frame = bytearray(r.choice(sound))
        for _ in range(r.randint(1, 6)):
            frame[r.randrange(12, len(frame))] = r.choice([0, 1, 44, 60, 255, r.randrange(256)])
        frame = bytes(frame[: r.randint(14, len(frame))])
        run = programs.program.test_run(programs.replayed(frame, len(frame), i), output=True)
        assert run.result == PASS
        assert run.data == frame
    counters = programs.counters()
    _, flows = programs.flows()
    aside = sum(counters[n] for n in counters if " " in n and not n.startswith("decided"))
    assert counters["packets"] == 3000
    assert 0 < aside < 3000
    assert 3000 - aside - counters["late"] >= len(flows)


@pytest.mark.slow
def test_a_full_table_that_drops_counts_it():
    spec = replace(STANDARD, cache_flows=8, when_full="drop-new")
    model = network(spec)
    frames = [(udp(sender=i), 60, i) for i in range(20)]
    with load(model, flows=None) as programs:
        replayed(programs, model, frames, room=False)
        assert programs.counters()["flow cache full"] == 12


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, long(True)])
def test_a_full_bucket_decides_the_flow_seen_longest_ago(again):
    """A table of one bucket is the reference meter with a cache of as many flows."""
    decision = Decision(packets=3, repeat=True) if again else STANDARD.decision
    spec = replace(STANDARD, cache_flows=WAYS, decision=decision)
    model = network(spec)
    r = random.Random(11)
    frames = [(udp(sender=r.randrange(14), length=60 + i % 50), 60, i // 3) for i in range(400)]
    with load(model, flows=WAYS // SLOTS_PER_FLOW, table="buckets") as programs:
        events = replayed(programs, model, traffic(spec, 300, seed=8) + later(frames), room=False)
        evicted = (events["why"] == ENDS.index("evicted")).sum()
        counters = programs.counters()
    assert evicted > 100
    assert counters["decided: evicted"] == evicted
    assert counters["replaced"] >= evicted


def later(frames, by=10**10):
    return [(frame, length, time + by) for frame, length, time in frames]


@pytest.mark.slow
def test_full_buckets_are_each_a_cache_of_their_own():
    """Each bucket's flows are what the reference meter makes of the packets that hash there."""
    spec = replace(STANDARD, cache_flows=WAYS, windows=())
    model = network(spec)
    secret = bytes(range(16))
    r = random.Random(12)
    frames = [(udp(sender=r.randrange(120), length=60 + i % 50), 60, i) for i in range(1500)]
    buckets = 4
    with load(model, flows=16, table="buckets", secret=secret) as programs:
        events = replay(programs, replayable(frames))
        assert programs.room == buckets * WAYS
    parts = [[] for _ in range(buckets)]
    for frame in frames:
        parts[bucket_of(udp_key(frame[0]), secret, buckets)[0]].append(frame)
    wanted = []
    for part in parts:
        meter = ReferenceMeter(spec)
        wanted += meter.run(parse(LINK_ETHERNET, *frame) for frame in part)
    assert sum(w.decided == "evicted" for w in wanted) > 400
    assert sorted(
        (w.first, w.last, w.packets, w.key.source_port, w.decided, w.registers) for w in wanted
    ) == sorted(
        (
            *(int(e[name]) for name in ("first", "last", "packets", "source_port")),
            ENDS[int(e["why"])],
            tuple(e["registers"].tolist()),
        )
        for e in events
    )


def held_in_buckets(programs):
    """Canonical keys in a table of buckets, each with its bucket and its tag."""
    items = list(programs.maps["flows"].items())
    kind = bucket_type(programs.spec)
    out = {}
    tags = np.frombuffer(b"".join(v for _, v in programs.maps["tags"].items()), TAGS)
    for number, bucket in enumerate(np.frombuffer(b"".join(v for _, v in items), kind)):
        for tag, key in zip(tags[number]["tag"], bucket["slot"]["key"], strict=True):
            assert bool(tag) == bool(key["address_bytes"])
            if tag:
                size = int(key["address_bytes"])
                ends = (bytes(key[name][:size]) for name in ("source", "destination"))
                numbers = (int(key[n]) for n in ("source_port", "destination_port", "protocol"))
                out[(*ends, *numbers)] = (number, int(tag))
    return out


@pytest.mark.first_case
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("standard", ["buckets"], indirect=True)
def test_no_keys_crowd_in_buckets(standard, family):
    """Buckets are those of SipHash, and keys that have much in common fill them as others do."""
    model, image, table = standard
    secret, count = bytes(range(16)), 2048
    keys = family(count)
    head = bytes(12) + b"\x86\xdd\x60\0\0\0\0\x08\x11\x40"
    tail = (1024).to_bytes(2, "big") + (53).to_bytes(2, "big") + b"\0\x08\0\0"
    with load(model, image=image, table=table, flows=count, secret=secret) as programs:
        for i, key in enumerate(keys):
            frame = head + bytes(key["source"]) + bytes(key["destination"]) + tail
            programs.program.test_run(programs.replayed(frame, len(frame), i))
        counters = programs.counters()
        places = held_in_buckets(programs)
        buckets = programs.room // WAYS
    assert counters["started"] == count
    assert counters["replaced"] == count - len(places) < count // 50  # by chance 0.8 %
    assert all(bucket_of(key, secret, buckets) == place for key, place in places.items())


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("standard", ["buckets"], indirect=True)
def test_the_kernel_finds_a_key_where_the_published_vector_says(standard, size):
    """The key's message is the bytes 0, 1, 2 and so on, as is the secret."""
    model, image, table = standard
    secret = bytes(range(16))
    message = bytes(range(2 * size + 5))
    key = np.zeros((), dtype=KEY)
    key["source"][:size] = list(message[:size])
    key["destination"][:size] = list(message[size : 2 * size])
    key["source_port"], key["destination_port"] = np.frombuffer(message[-5:-1], "<u2")
    key["protocol"], key["address_bytes"] = message[-1], size
    value = siphash(secret, message)
    bucket = np.zeros((), dtype=bucket_type(STANDARD))
    tags = np.zeros((), dtype=TAGS)
    tags["tag"][3], bucket["slot"]["key"][3] = value & 0xFFFFFFFF | 1, key
    bucket["slot"]["flow"]["fins"][3] = 3  # closed
    ask = struct.pack("=QII", 0, ENDS.index("capture"), 1) + key.tobytes()
    with load(model, image=image, table=table, flows=4096, secret=secret) as programs:
        place = (value >> 32) * (programs.room // WAYS) >> 32
        programs.maps["flows"].update(place, bucket.tobytes())
        programs.maps["tags"].update(place, tags.tobytes())
        end = programs.object.programs[END]
        assert [end.test_run(ask).result for _ in range(2)] == [1, 0]


@pytest.mark.slow
def test_each_load_draws_a_secret_of_its_own(standard):
    model, image, table = standard
    drawn = []
    for _ in range(2):
        with load(model, image=image, table=table) as programs:
            (value,) = np.frombuffer(programs.maps[".rodata.options"].lookup(0), OPTIONS)
            drawn.append(value["secret"].tobytes())
    assert len({bytes(16), *drawn}) == 3


@pytest.mark.slow
def test_a_full_bucket_that_drops_counts_it():
    spec = replace(STANDARD, cache_flows=WAYS, when_full="drop-new")
    model = network(spec)
    frames = [(udp(sender=i % 20), 60, i) for i in range(60)]
    with load(model, flows=WAYS // SLOTS_PER_FLOW, table="buckets") as programs:
        replayed(programs, model, frames, room=False)
        counters = programs.counters()
    assert counters["flow cache full"] == 36
    assert counters["started"] == WAYS


def test_buckets_hold_the_flows_that_a_table_is_made_for(standard):
    """Of as many flows as the table is for, nearly all find room, whatever the seed."""
    model, image, table = standard
    with load(model, image=image, table=table, flows=2048) as programs:
        for i in range(2048):
            programs.program.test_run(programs.replayed(udp(sender=i), 60, i))
        counters = programs.counters()
        keys, _ = programs.flows()
        assert programs.held() == len(keys)
        # The kernel's LRU map keeps up to 128 free entries for each CPU.
        assert len(keys) > (1950 if table == "buckets" else 2048 - 128 * (os.cpu_count() or 1) - 1)
        assert len(np.unique(keys)) == len(keys)
        if table == "buckets":
            assert len(keys) + counters["decided: evicted"] == 2048
        programs.end_all()
        assert programs.held() == len(programs.flows()[0]) == 0


def test_a_flow_table_forgets_what_was_seen_longest_ago(loaded):
    """Where the table evicts, what is left is counted right, and newer flows are kept."""
    _, programs = loaded
    for i in range(8000):
        frame = udp(sender=i % 60000)
        programs.program.test_run(programs.replayed(frame, len(frame), i))
    keys, _ = programs.flows()
    ports = set(keys["source_port"].tolist()) | set(keys["destination_port"].tolist())
    assert 2000 < len(keys) <= programs.room
    assert programs.counters()["started"] == 8000
    assert set(range(7500, 8000)) <= ports


def test_policies_act_by_verdict(loaded):
    _, programs = loaded
    frames = [(udp(sender=7), 60, t) for t in range(12)]

    def actions():
        out = []
        for frame, n, t in frames:
            out.append(programs.program.test_run(programs.replayed(frame, n, t)).result)
        return out

    for verdict in (0, 1, 2, "shunted"):
        set_policy(programs, verdict, "drop")
    # The packet that decides the flow is the first that its verdict acts on.
    assert actions() == [PASS] * 7 + [DROP] * 5
    set_policy(programs, "undecided", "drop")
    set_policy(programs, "aside", "drop")
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    assert programs.program.test_run(programs.replayed(arp, 60, 0)).result == DROP
    new = programs.replayed(udp(sender=8), 60, 13)
    assert programs.program.test_run(new).result == DROP
    set_policy(programs, "undecided", "mark", 0x2323)
    run = programs.program.test_run(programs.replayed(udp(sender=9), 60, 14), output=True)
    assert run.result == PASS
    assert programs.counters()["not_marked"] == 0


def test_packets_are_redirected_to_interfaces_and_cpus(loaded, veth):
    _, programs = loaded
    programs.maps["interfaces"].update(3, socket.if_nametoindex(veth[0]))
    set_policy(programs, "undecided", "interface", 3)
    frame = programs.replayed(udp(), 60, 0)
    assert programs.program.test_run(frame).result == REDIRECT
    set_policy(programs, "undecided", "interface", 4)  # none there
    assert programs.program.test_run(frame).result == PASS
    programs.maps["cpus"].update(1, 192)  # packets of its queue
    for place, result in ((1, REDIRECT), (2, PASS)):
        set_policy(programs, "undecided", "cpu", place)
        assert programs.program.test_run(frame).result == result


def decided_slots(programs, frames):
    for t in range(8):
        for frame in frames:
            programs.program.test_run(programs.replayed(frame, len(frame), t))
    return [int(e["slot"]) for e in sorted(programs.events(), key=lambda e: int(e["number"]))]


def test_a_table_chooses_among_the_resident_models(loaded):
    model, programs = loaded
    structure = programs.structure
    for slot in range(1, 64):
        programs.set_model(slot, value_bytes(structure, model))
    programs.set_rules(
        [
            SlotRule(5, udp_port=53),
            SlotRule(17, vlan=7),
            SlotRule(63, address=bytes([10, 0, 0, 4]), prefix=31),
            SlotRule(9, vlan=NO_VLAN, address=bytes([10, 0, 0, 0]), prefix=24),
        ],
        otherwise=1,
    )
    other = bytearray(udp(host=9, port=99, tags=b"\x81\0\0\x08"))
    other[30:34] = 172, 16, 0, 1
    frames = [
        udp(host=1),
        udp(host=1, port=99, tags=b"\x81\x00\x00\x07"),
        udp(host=5, port=99, tags=b"\x81\x00\x00\x08"),
        udp(host=6, port=99),
        bytes(other),
    ]
    assert decided_slots(programs, frames) == [5, 17, 63, 9, 1]
    programs.set_rules([], otherwise=2)
    assert decided_slots(programs, [udp(host=7)]) == [2]
    assert programs.tally(17)["margin"].sum() == 1


def test_a_slot_without_a_model_decides_nothing(loaded):
    _, programs = loaded
    programs.set_rules([], otherwise=40)
    set_policy(programs, 0, "drop")
    assert decided_slots(programs, [udp()]) == [40]
    assert programs.counters()["no_model"] == 1


def test_rules_and_slots_out_of_range_are_refused(loaded):
    _, programs = loaded
    for wrong in ({"slot": 64}, {"slot": 0, "vlan": 5000}, {"slot": 0, "address": b"abc"}):
        with pytest.raises(UsageError):
            SlotRule(**wrong)
    with pytest.raises(UsageError, match="at most 64 rules"):
        programs.set_rules([SlotRule(0)] * 65)
    with pytest.raises(UsageError, match="slots are 0 to 63"):
        programs.set_model(64, b"")


@pytest.mark.slow
def test_a_swap_under_load_is_never_half_a_model(standard):
    """Models whose numbers all differ: every decision has the scores of the model that it names."""
    spec = replace(STANDARD, decision=Decision(1), windows=())
    one = network(spec, 1)
    table = standard[2]
    two = replace(network(spec, 1), output=replace(one.output, bias=one.output.bias + 1000))
    rng = np.random.default_rng(4)
    two = replace(
        two, hidden=(replace(two.hidden[0], weights=rng.random((16, one.input.n_bits)) < 0.5),)
    )
    structure = structure_of([one, two])
    files = source.meter_program(spec, structure, per_cpu=False, table=table)
    values = [value_bytes(structure, m) for m in (one, two)]
    image = source.compile_program(files, source.METER)
    with MeterPrograms(image, "meter.o", spec, structure, clock="trailer", table=table) as programs:
        programs.set_model(0, values[0])
        stop = threading.Event()
        swaps = []

        def swapping():
            while not stop.is_set():
                swaps.append(1)
                programs.set_model(0, values[len(swaps) % 2])

        thread = threading.Thread(target=swapping)
        thread.start()
        parts = []
        r = random.Random(0)
        try:
            for i in range(60_000):  # on a busy machine, swaps are slow
                if i >= 4000 and len(swaps) > 20:
                    break
                frame = udp(sender=i, length=r.randint(60, 1400), host=r.randint(1, 200))
                programs.program.test_run(programs.replayed(frame, len(frame), i))
                parts.append(programs.events())
        finally:
            stop.set()
            thread.join()
        events = np.concatenate(parts)
    assert len(events) == len(parts) >= 4000
    assert len(swaps) > 20
    columns = {n: events["features"][:, i] for i, n in enumerate(spec.feature_names)}
    total = 0
    for model in (one, two):
        ran = (events["model"] == np.frombuffer(bytes.fromhex(model.digest)[:8], np.uint8)).all(
            axis=1
        )
        some = model.infer(model.encode({n: c[ran] for n, c in columns.items()}))
        assert ran.sum() > 100
        assert (some.scores == events["scores"][ran]).all()
        total += ran.sum()
    assert total == len(events)


def test_no_packet_of_a_flow_is_lost_between_two_cpus(standard):
    """Both directions of one flow, each on a CPU of its own, at the same time."""
    model, image, table = standard
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    there = udp(sender=1000)
    back = bytearray(there)
    back[26:30], back[30:34] = there[30:34], there[26:30]
    back[34:36], back[36:38] = there[36:38], there[34:36]
    packets = 200_000

    def sent(cpu, frame):
        os.sched_setaffinity(0, {cpu})  # of this thread
        programs.program.test_run(bytes(frame), repeat=packets)

    with load(model, image=image, clock="kernel", table=table) as programs:
        threads = [
            threading.Thread(target=sent, args=(cpu, frame))
            for cpu, frame in zip(cpus, (there, back), strict=False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _, flows = programs.flows()
        state = flows["state"][0]
        counters = programs.counters()
        names = [r.name for r in STANDARD.registers]
        counted = [int(state[f"r{names.index(name)}"]) for name in ("spkts", "dpkts")]
        assert len(flows) == 1
        assert counters["packets"] == 2 * packets
        assert sum(counted) + counters["contended"] == 2 * packets
        assert int(flows["packets"][0]) == sum(counted)
        assert min(counted) > packets // 2
        assert counters["decided: packets"] == 1


@pytest.mark.slow
def test_flows_that_compete_for_a_bucket_on_two_cpus_are_all_counted(clang, kernel):
    """More flows than the table holds, from two CPUs: each packet is in one record or counted."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    rounds, hosts = 300, 12

    def sent(cpu, first):
        os.sched_setaffinity(0, {cpu})  # of this thread
        for i in range(rounds):
            programs.program.test_run(udp(host=first + i % hosts), repeat=7)

    model = network(replace(STANDARD, decision=Decision()))
    with load(model, clock="kernel", table="buckets", flows=4) as programs:
        threads = [
            threading.Thread(target=sent, args=args) for args in zip(cpus, (1, 7), strict=False)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        keys, flows = programs.flows()
        counters = programs.counters()
        events = programs.events()
    names = [r.name for r in STANDARD.registers]
    sent, back = (flows["state"][f"r{names.index(name)}"] for name in ("spkts", "dpkts"))
    assert len(np.unique(keys)) == len(keys) == WAYS
    assert counters["packets"] == 2 * 7 * rounds
    assert counters["started"] == counters["inserted"] == counters["replaced"] + WAYS
    assert counters["replaced"] == counters["decided: evicted"] == len(events) > 100
    assert (sent + back).tolist() == flows["packets"].tolist()
    counted = int(events["packets"].sum() + flows["packets"].sum())
    assert counted + counters["contended"] == counters["packets"]
