# SPDX-License-Identifier: Apache-2.0
"""The compiled meter equals the reference, record by record, on whatever comes."""

import ctypes
import os
import random
import resource
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icError
from n3ic.kernel import build
from n3ic.meter.compiled import CompiledMeter, Frames, _built, _library
from n3ic.meter.packet import LINK_EACH
from n3ic.meter.source import FOLDER, _steps_read, meter_source, state_members
from n3ic.meter.standard import standard_spec
from n3ic.model.meter_spec import (
    Decision,
    Guard,
    MeteredFeature,
    MeterSpec,
    Register,
    Step,
    Window,
)
from tests.support import conversations
from tests.support.generated import FIELDS, edge_frames, random_frames, random_spec
from tests.support.metered_models import page_schedule

TUNNELS = ("gre", "vxlan", "gtp")

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)


@pytest.mark.first_case
@pytest.mark.parametrize("after", [7, 0, 1])
def test_a_schedule_decides_where_the_reference_does(after, equal):
    decision = Decision(after=after, schedule=(3, 4, 5))
    spec = replace(standard_spec(), tick_ns=1, decision=decision)
    rows = equal(spec, 1, random_frames(random.Random(1), 1500))
    assert {(row[8], row[9]) for row in rows} >= {(4, "packets"), (5, "packets")}
    assert ("after" in {row[9] for row in rows}) == bool(after)


@pytest.mark.first_case
@pytest.mark.parametrize("points", [page_schedule(), conversations.SIXTEEN_POINTS])
def test_points_in_powers_decide_where_the_reference_does(points, equal):
    spec = standard_spec(schedule=points)
    rows = equal(spec, 1, conversations.flows_of((1, 2, 99, 100, 101, 10_003)))
    assert {row[8] for row in rows if row[9] == "packets"} == {*points}


@pytest.mark.first_case
@pytest.mark.parametrize(
    "seed", [pytest.param(i, marks=[pytest.mark.slow] if i > 4 else []) for i in range(8)]
)
def test_random_specifications_on_random_traffic(seed, equal):
    r = random.Random(seed)
    spec = random_spec(r)
    assert equal(spec, 1, random_frames(r, 600))


def test_the_first_frames_are_those_in_front():
    frames = [(bytes([i]) * (i + 1), 100 + i, 1000 * i) for i in range(5)]
    first, alone = Frames.of(frames).first(3), Frames.of(frames[:3])
    assert [*first.each()] == frames[:3]
    assert [*Frames.of(frames).each()] == frames
    assert bytes(first.data[:6]) == bytes(alone.data)
    for name in ("offset", "captured", "length", "time"):
        assert np.array_equal(getattr(first, name), getattr(alone, name)), name


def test_steps_that_count_are_those_that_the_last_one_reads():
    of_others, nothing = Step("add", "a", "b"), Step("sub", "$0", "$0")
    assert _steps_read((of_others, of_others, Step("max", "$0", "b"))) == {0, 2}
    assert _steps_read((of_others, nothing)) == {1}
    assert _steps_read((of_others, nothing, Step("add", "$1", "a"))) == {1, 2}
    assert _steps_read((of_others, Step("add", "$0", "a"), of_others)) == {2}


def test_a_meter_may_keep_nothing_of_a_flow(equal):
    """Neither registers, nor features beside those of windows."""
    spec = MeterSpec((), (), windows=(Window("same", 9, ("source",)),), decision=Decision(1))
    assert len(equal(spec, 1, random_frames(random.Random(5), 100))) > 9


def test_each_field_of_the_packets_of_both_directions(equal):
    """Segments that repeat and skip sequence numbers, the last ones across their end."""
    talk = conversations.Frames()
    near = 2**32 - 150
    for time, (out, flags, sequence, size) in enumerate(
        [
            (True, 2, near, 0), (False, 18, 500, 0), (True, 16, near + 1, 100),
            (False, 24, 501, 7), (True, 16, near + 1, 100), (True, 16, near + 51, 100),
            (True, 24, 1, 10), (True, 16, 21, 10), (True, 16, 22, 3), (True, 4, 9999, 0),
            (False, 16, 600, 2047), (False, 16, 2647, 2048), (False, 17, 600, 40),
            (True, 17, 31, 0), (True, 16, 32, 0), (False, 20, 7, 5),
        ]
    ):  # fmt: skip
        talk.tcp(9 + time * time, out, (1000, 80), flags, sequence % 2**32, 0, size)
    talk.udp(300, False, (1000, 80), b"12345")
    talk.udp(301, True, (1000, 80), b"")
    registers = [Register(field, "last", field) for field in FIELDS]
    registers += [Register(f"gap_{k}", "nth", "gap", packet=k) for k in (1, 2, 3)]
    features = (MeteredFeature("n", "ttl"),)
    decision = Decision(1, repeat=True)
    spec = MeterSpec(tuple(registers), features, ends=(), decision=decision, tick_ns=10**9)
    rows = equal(spec, 1, [(frame, len(frame), int(time)) for time, frame in talk.all])
    columns = {
        field: [row[10][i] for row in rows if row[9] == "packets"] for i, field in enumerate(FIELDS)
    }
    assert rows[-1][10][-3:] == (0, 1, 0)  # the first packet has no gap
    tcp = slice(len(columns["gap"]) - 2)
    assert columns["tcp_repeated"][tcp] == [0, 0, 0, 0, 100, 50, 0, 0, 3, 0, 0, 0, 41, 0, 0, 0]
    assert columns["tcp_skipped"][tcp] == [0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 92, 0, 0, 0, 0, 0]
    assert {1, 2041, 2048, 2058, 2148} <= {*columns["directed_payload_length"]}
    tagged = [(f[:12] + b"\x81\0\0\2" + f[12:], len(f) + 4, int(time)) for time, f in talk.all]
    again = [row[10] for row in equal(spec, 1, tagged) if row[9] == "packets"]
    assert [row[FIELDS.index("tcp_repeated")] for row in again] == columns["tcp_repeated"]


def test_a_flow_starts_from_zeros_whatever_its_memory_holds(tmp_path):
    registers = tuple(Register(f"n{width}", "count", width=width) for width in (64, 63, 32, 8))
    spec = MeterSpec(registers, (MeteredFeature("n", "n8"),))
    for name, text in meter_source(spec).items():
        (tmp_path / name).write_text(text)
    program = (
        '#include "flow.h"\n'
        "size_t started(uint8_t *bytes) {\n"
        "    flow_start((struct flow_state *)bytes);\n"
        "    return sizeof(struct flow_state);\n"
        "}\n"
    )
    (tmp_path / "started.c").write_text(program)
    build.compile_shared(build.find_compiler(), tmp_path / "started.c", tmp_path / "started.so")
    memory = (ctypes.c_uint64 * 64)(*[2**64 - 1] * 64)
    size = ctypes.CDLL(str(tmp_path / "started.so")).started(memory)
    assert size >= 21 and bytes(memory) == bytes(size) + b"\xff" * (512 - size)


@pytest.mark.parametrize("key", ["host-pair", "source-host"])
def test_flows_of_hosts(key, equal):
    """Their keys have no ports and no protocol, in the records and in windows too."""
    registers = Register("n", "count"), Register("back", "count", "", Guard("reverse"))
    windows = (Window("same", 5, ("source",)),)
    features = (MeteredFeature("n", "n"),)
    decision = Decision(packets=2, repeat=True)
    spec = MeterSpec(
        registers, features, key=key, windows=windows, ends=(), decision=decision, tick_ns=1
    )
    rows = equal(spec, 1, random_frames(random.Random(4), 300))
    assert {row[2:5] for row in rows} == {(0, 0, 0)}
    assert any(row[10][1] for row in rows) == (key == "host-pair")


def test_every_link_type(equal):
    r = random.Random(1)
    spec = random_spec(r)
    frames = random_frames(r, 200)
    links = (0, 1, 9, 50, 51, 101, 104, 113, 276, 7)
    for link in links:
        equal(spec, link, frames)
        equal(spec, link, [(frame[14:], max(0, n - 14), t) for frame, n, t in frames])
    numbered = [
        (links[i % 10].to_bytes(4, "big") + frame, min(n, 60) + 4, t)
        for i, (frame, n, t) in enumerate(frames)
    ]
    equal(spec, LINK_EACH, [*numbered, (bytes(3), 60, frames[-1][2])])


def test_link_headers_cut_at_each_byte(equal):
    """VLAN tags, PPPoE, PPP and MPLS in front of IPv4 and IPv6, in Ethernet and by themselves."""
    ends = bytes.fromhex("04000050 00000001 00000001 50180400 00000000")
    v4 = bytes.fromhex("45000028 00000000 4006 0000 0a000001 0a000002") + ends
    v6 = bytes.fromhex("60000000 0014 06 40") + bytes(15) + b"\1" + bytes(15) + b"\2" + ends
    label, tag = b"\0\1\0\x40", b"\x81\0\0\2"
    kinds = {"v4": b"\x08\0", "v6": b"\x86\xdd", "mpls": b"\x88\x47", "multicast": b"\x88\x48"}
    numbers = {"v4": b"\0\x21", "v6": b"\0\x57", "mpls": b"\2\x81", "multicast": b"\2\x83"}
    packets = {
        "v4": v4,
        "v6": v6,
        "mpls": b"\0\1\1\x40" + v4,
        "multicast": label + b"\0\1\1\x40" + v6,
    }
    ppp = [numbers[kind] + packet for kind, packet in packets.items()]
    ppp += [b"\x21" + v4, b"\x57" + v6, b"\xff\3\0\x21" + v4, b"\xff\3\x57" + v6, b"\xc0\x21" + v4]
    sessions = [code + b"\0\1\0\x40" + packet for code in (b"\x11\0", b"\x11\1") for packet in ppp]
    framed = [kinds[kind] + packet for kind, packet in packets.items()]
    framed += [b"\x88\x64" + packet for packet in sessions]
    framed += [tags * tag + kinds["v4"] + v4 for tags in (1, 2, 3)]
    framed += [kinds["mpls"] + labels * label + b"\0\1\1\x40" + v4 for labels in (7, 8)]
    framed += [kinds["mpls"] + b"\0\1\1\x40\x50" + v4[1:], b"\x08\6" + v4]
    by_link = {1: [bytes(12) + frame for frame in framed], 113: [bytes(14) + f for f in framed]}
    by_link |= {
        104: [b"\x0f\0" + frame for frame in framed],
        276: [f[:2] + bytes(18) + f[2:] for f in framed],
    }
    by_link |= {
        9: ppp,
        50: ppp,
        51: sessions,
        101: [v4, v6, b"\x50"],
        0: [bytes(4) + v4, bytes(4) + v6],
    }
    frames = [
        (link.to_bytes(4, "big") + frame[:captured], len(frame) + 4, 0)
        for link, some in by_link.items()
        for frame in some
        for captured in [*range(len(frame) - len(v4) + 2), len(frame)]
    ]
    # An impossible length on the wire counts from 0.
    frames += [((101).to_bytes(4, "big") + v4, length, 0) for length in range(9)]
    registers = Register("wire", "last", "wire_length"), Register("n", "count")
    decision = Decision(packets=1, repeat=True)
    spec = MeterSpec(registers, (MeteredFeature("n", "n"),), decision=decision)
    assert len(equal(spec, LINK_EACH, frames)) > 80


def test_headers_at_the_limits_of_what_is_read_at_once(equal):
    spec = replace(standard_spec(), decision=Decision(packets=1, repeat=True))
    assert len(equal(spec, 1, edge_frames())) > 500


def test_a_meter_is_built_into_the_cache_and_found_there(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
    path = _built(meter_source(spec))
    assert path.is_relative_to(tmp_path) and path.read_bytes()[:4] == b"\x7fELF"
    path.write_bytes(b"found")
    assert _built(meter_source(spec)).read_bytes() == b"found"


def test_registers_are_as_wide_as_they_need_and_gaps_of_one_guard_are_kept_once():
    """A flow of the standard meter fits three lines of a cache, one direction's part two."""
    members = state_members(standard_spec())
    assert sum(m.bytes for m in members) < 3 * 64
    assert [m.name for m in members if m.name.startswith("before")] == ["before0", "before1"]
    spec = standard_spec()
    for i, register in enumerate(spec.registers):
        (member,) = [m for m in members if m.name == f"r{i}"]
        assert register.width <= 8 * member.bytes


def test_a_register_takes_the_fewest_bytes_of_a_type_of_c():
    widths = {1: 1, 8: 1, 9: 2, 16: 2, 17: 4, 32: 4, 33: 8, 64: 8}
    registers = tuple(Register(f"n{width}", "count", width=width) for width in widths)
    spec = MeterSpec(registers, (MeteredFeature("n", "n1"),))
    members = {m.name: m.bytes for m in state_members(spec)}
    assert [members[f"r{i}"] for i in range(len(widths))] == [*widths.values()]


def test_more_flows_than_one_batch_and_more_fragments_than_are_remembered(equal):
    spec = MeterSpec(
        (Register("n", "count"),), (MeteredFeature("n", "n"),), idle_timeout=5000, tick_ns=1
    )
    frames = []
    for i in range(6000):
        ports = (i % 3000).to_bytes(2, "big") + b"\0\x35"
        identification = i.to_bytes(2, "big")
        for offset, body in ((b"\x20\0", ports + bytes(12)), (b"\0\2", bytes(8))):
            header = b"\x45\0" + (20 + len(body)).to_bytes(2, "big") + identification + offset
            packet = header + b"\x40\x11\0\0" + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + body
            frames.append((bytes(12) + b"\x08\0" + packet, 60, i))
    late = [frames[1], frames[-1]]  # one of a datagram that is forgotten, one that is not
    equal(spec, 1, [*frames, *late])


def test_a_field_that_lies_beyond_its_bits_leaves_no_product_beyond_64(equal):
    registers = Register("size", "max", "wire_length", width=64), Register("n", "count", width=8)
    product = Step("quotient", "size", "n", amount=2**46)
    features = MeteredFeature("q", program=(product,)), MeteredFeature("size", "size")
    frame = random_frames(random.Random(0), 1)[0][0]
    rows = equal(MeterSpec(registers, features), 1, [(frame, 2**32 - 1, 0)])
    assert rows[0][-1][1] == 2**17 - 1


def test_a_register_beside_itself_makes_no_comparison_that_compilers_refuse(equal):
    features = tuple(
        MeteredFeature(op, program=(Step(op, "n", "n"),)) for op in ("add", "sub", "min", "max")
    )
    spec = MeterSpec((Register("n", "count"),), features)
    assert "s->r0 > (uint64_t)s->r0" not in meter_source(spec)["flow.h"]
    r = random.Random(0)
    assert {row[-1] for row in equal(spec, 1, random_frames(r, 100))} >= {(2, 0, 1, 1)}


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_that_of_the_flows_and_not_of_the_cache():
    spec = replace(standard_spec(), cache_flows=1 << 24)  # of 4 GiB
    before = resident()
    with CompiledMeter(spec, 1) as meter:
        meter.count(random_frames(random.Random(0), 100))
        assert resident() - before < 512 << 20


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limits")
@pytest.mark.parametrize("of", ["windows", "cache"])
def test_a_meter_that_has_no_memory_is_an_error(of):
    windows = tuple(Window(f"w{i}", 1 << 16, ("source",)) for i in range(64))  # of 6 MB each
    spec = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
    spec = replace(spec, windows=windows) if of == "windows" else replace(spec, cache_flows=1 << 24)
    _library(spec)  # built before memory is short
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), before[1]))
    try:
        with pytest.raises(N3icError, match="no memory for a flow cache"):
            CompiledMeter(spec, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limits")
def test_records_that_find_no_memory_are_an_error():
    registers = tuple(Register(f"n{i}", "count") for i in range(100))
    spec = MeterSpec(
        registers,
        (MeteredFeature("n", "n0"),),
        cache_flows=16,
        decision=Decision(packets=1, repeat=True),
    )
    frame = random_frames(random.Random(0), 1)[0][0]
    frames = Frames.of([(frame, 60, 0)] * 70_000)  # more than 60 MB of records
    with CompiledMeter(spec, 1) as meter:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), before[1]))
        try:
            meter.count_frames(frames)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        with pytest.raises(N3icError, match="no memory for the flow records"):
            meter.records()


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")
@pytest.mark.parametrize("windows", [False, True])
def test_compilers_find_nothing_to_warn_of(tmp_path, windows):
    spec = standard_spec()
    spec = spec if windows else replace(spec, windows=(), tunnels=TUNNELS)
    for name, text in meter_source(spec).items():
        (tmp_path / name).write_text(text)
    flags = ("-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    done = subprocess.run(["gcc", *flags, "meter.c"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc with its sanitizers")
def test_no_frame_makes_the_sanitizers_complain(tmp_path):
    r = random.Random(3)
    spec = replace(random_spec(r), tunnels=TUNNELS)
    for name, text in meter_source(spec).items():
        (tmp_path / name).write_text(text)
    shutil.copy(FOLDER / "fuzz.c", tmp_path)
    built = subprocess.run(
        [
            "gcc", "-std=c11", "-g", "-O1", "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror", "fuzz.c", "-o", "fuzz",
        ],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    blob = b"".join(
        np.array([len(f), n], dtype="<u4").tobytes() + np.uint64(t).tobytes() + f
        for f, n, t in random_frames(r, 20_000, tunnels=TUNNELS)
    )
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=1"}
    ran = subprocess.run(
        [tmp_path / "fuzz"], input=blob, capture_output=True, env=environment, timeout=600
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert int(ran.stdout) > 0


def test_a_jump_is_more_than_a_day_for_both(equal):
    """Time stamps in nanoseconds; the specification counts in microseconds."""
    day = 86_400 * 10**9
    spec = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
    frame = random_frames(random.Random(0), 1)[0][0]
    times = (1000, 500, 1000 + day, 1000 + 2 * day + 1000, 2000, 9 * day)
    equal(spec, 1, [(frame, 60, time) for time in times])


def test_extension_headers_of_ipv6_are_skipped_by_their_size(equal):
    """A header of 16 bytes; ports of 7 and 8 stand behind it."""
    ends = bytes(15) + b"\1" + bytes(15) + b"\2"
    body = b"\x11\1" + bytes(14) + b"\0\7\0\x08\0\x08\0\0"
    frame = bytes(12) + b"\x86\xdd\x60\0\0\0\0\x18\x3c\x40" + ends + body + bytes(8)
    spec = MeterSpec((Register("n", "count"),), (MeteredFeature("n", "n"),))
    ((_, _, protocol, *ports, _, _, _, packets, _, _, _),) = equal(spec, 1, [(frame, 86, 0)])
    assert (protocol, ports, packets) == (17, [7, 8], 1)


def test_packets_without_a_whole_tcp_header_have_no_flags_and_no_window(equal):
    ip = b"\x45\0\0\x28\0\0\0\0\x40"
    ends = b"\0\0" + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + b"\0\1\0\2"
    header = bytes(8) + b"\x50\x12\x03\x04"  # of TCP, behind its ports
    frames = []
    for number, (protocol, captured) in enumerate([(6, 12), (6, 11), (17, 12), (1, 12)]):
        frame = bytes(12) + b"\x08\0" + ip + bytes([protocol]) + ends + header[:captured]
        frames.append((frame, 54, number))
    registers = Register("flags", "or", "tcp_flags", width=8), Register("win", "max", "tcp_window")
    features = MeteredFeature("flags", "flags"), MeteredFeature("win", "win")
    decision = Decision(packets=1, repeat=True)
    rows = equal(MeterSpec(registers, features, decision=decision), 1, frames)
    assert sorted(row[-1] for row in rows)[-1] == (0x12, 0x0304)
    alone = equal(MeterSpec(registers, features, decision=decision), 1, frames[1:])
    assert {row[-1] for row in alone} == {(0, 0)}
