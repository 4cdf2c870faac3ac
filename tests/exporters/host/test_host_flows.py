# SPDX-License-Identifier: Apache-2.0
"""flow-exec: packets in, verdicts out, the same as by every other way."""

from __future__ import annotations

import csv
import gzip
import io
import random
import shutil
import signal
import struct
import subprocess
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import n3ic
from n3ic.errors import (
    DataError,
    MissingDependencyError,
    N3icWarning,
    UsageError,
    VerifyError,
)
from n3ic.exporters.host import bench, packet_bench
from n3ic.exporters.host.exporter import EXPORTER
from n3ic.exporters.host.sources import TEMPLATES
from n3ic.kernel import build
from n3ic.meter.capture import Capture, libpcap
from n3ic.meter.compiled import STAMPS
from n3ic.meter.packet import LINK_EACH, parse
from n3ic.meter.source import FOLDER
from n3ic.meter.standard import standard_spec
from n3ic.meter.verdicts import predict_capture
from n3ic.model import passes
from n3ic.model.meter_spec import Decision, MeteredFeature, MeterSpec, Register, Window
from n3ic.model.network import BinaryModel
from n3ic.targets.fuzz_traffic import Frame, fuzz_captures, fuzz_frames, pcap, pcapng
from n3ic.targets.meter_verification import check_metering, flow_columns, reference_flows
from tests.support.conversations import SIXTEEN_POINTS, flows_of
from tests.support.damaged_captures import damaged_capture
from tests.support.flow_programs import compiled, compiled_flows, exported
from tests.support.link_frames import FRAMES, check_option, damaged, pcapng_of, with_check
from tests.support.metered_models import metered_network

try:
    libpcap()
except MissingDependencyError as error:
    pytest.skip(str(error), allow_module_level=True)

OPTIONS = EXPORTER.parse_options({}, verify=True)
ETHERNET = 1
TIMEOUT_S = 600


def small_spec(**changes: object) -> MeterSpec:
    """A specification that runs into all its limits within a few packets."""
    registers = (
        Register("packets", "count", width=3),
        Register("bytes", "sum", "wire_length", width=20),
        Register("least", "min", "gap"),
        Register("flags", "or", "tcp_flags", width=8),
        Register("first", "first", "payload_length", width=16),
    )
    features = tuple(MeteredFeature(f"f {r.name}", r.name) for r in registers)
    spec = MeterSpec(
        registers,
        features,
        windows=(Window("same", 7, ("source", "destination_port")),),
        idle_timeout=500,
        active_timeout=3000,
        cache_flows=30,
        decision=Decision(3, 900, repeat=True),
    )
    return replace(spec, **changes)


STANDARD = metered_network(standard_spec(packets=6))
SMALL = metered_network(small_spec())


@pytest.fixture(scope="session")
def standard(
    compiler: build.CCompiler,
    sanitize: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The program of the standard meter, with the sanitizers."""
    return compiled_flows(compiler, STANDARD, tmp_path_factory.mktemp("flows") / "a", *sanitize)


@pytest.fixture(scope="session")
def small(
    compiler: build.CCompiler,
    sanitize: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The program of the small meter, with the sanitizers."""
    return compiled_flows(compiler, SMALL, tmp_path_factory.mktemp("flows") / "b", *sanitize)


def run(program: Path, *arguments: object, given: bytes = b"") -> tuple[int, bytes, str]:
    done = subprocess.run(
        [program, *map(str, arguments)], input=given, capture_output=True, timeout=TIMEOUT_S
    )
    assert b"Sanitizer" not in done.stderr, done.stderr.decode()
    assert b"runtime error" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout, done.stderr.decode()


def predicted(model: BinaryModel, capture: Path, out: Path) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", N3icWarning)  # that it ends early
        predict_capture(model, capture, out)
    return out.read_bytes()


def rows_of(text: bytes) -> list[list[str]]:
    """Cells of the program's table, without the mark before what looks like a formula."""
    table = csv.reader(io.StringIO(text.decode(), newline=""))
    return [[cell.removeprefix("'") for cell in row] for row in table]


# --- the same as by every other way ----------------------------------------------------------


def check_capture(program: Path, model: BinaryModel, capture: Path, scratch: Path) -> int:
    """Compare flow-exec with n3ic predict, byte by byte, and with the reference meter."""
    code, out, errors = run(program, capture)
    if code and "its link type" in errors:
        with pytest.raises(DataError, match="its link type"):
            predicted(model, capture, scratch / "v.csv")
        return 0
    assert (code, out) == (0, predicted(model, capture, scratch / "v.csv")), errors
    code, out, errors = run(program, "-r", "-f", "-b", capture)
    with Capture(capture) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore", N3icWarning)
        frames = [(d, n, t // model.meter.tick_ns) for d, n, t in opened.packets()]
        want = reference_flows(passes.unchanged(model), opened.link, frames)
    header, *rows = rows_of(out)
    assert header == flow_columns(model)
    assert [tuple(row) for row in rows] == list(want.flows)
    assert f"{len(frames)} packets, {len(rows)} flows decided" in errors
    names = ("packets", "late", "evicted", *STAMPS)
    for reason, count in want.counters.items():
        assert reason in names or f"{count} packets ({reason})" in errors
    back, ahead, steps = (want.counters.get(name, 0) for name in STAMPS)
    line = (
        f"time stamps: {back} packets earlier than one before them, {ahead} more than an hour "
        f"ahead, {steps} times the clock was set back\n"
    )
    assert (line if back or ahead or steps else "flows decided") in errors
    return len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_hostile_traffic_gets_the_same_verdicts_by_every_way(
    small: Path, tmp_path: Path, seed: int
) -> None:
    ends = 0
    for made in fuzz_captures(SMALL.meter, seed, 400):
        (tmp_path / made.name).write_bytes(made.data)
        ends += check_capture(small, SMALL, tmp_path / made.name, tmp_path)
    assert ends > 300


@pytest.mark.slow
@pytest.mark.parametrize("link", [0, 1, 9, 51, 101, 104, 113, 276, 7])
def test_every_link_type(small: Path, tmp_path: Path, link: int) -> None:
    r = random.Random(link)
    frames = list(fuzz_frames(r, 200, [0, 1, 100]))
    (tmp_path / "c.pcap").write_bytes(pcap(link, frames, 1000, "<"))
    check_capture(small, SMALL, tmp_path / "c.pcap", tmp_path)
    assert ("its link type is 7, which is unknown" in run(small, tmp_path / "c.pcap")[2]) == (
        link == 7
    )
    bare = [(f[14:], max(0, n - 14), t) for f, n, t in frames]
    (tmp_path / "c.pcap").write_bytes(pcap(link, bare, 1000, ">"))
    check_capture(small, SMALL, tmp_path / "c.pcap", tmp_path)


@pytest.mark.slow
def test_points_in_powers_decide_as_every_other_way(
    compiler: build.CCompiler, tmp_path: Path
) -> None:
    model = metered_network(standard_spec(schedule=SIXTEEN_POINTS))
    program = compiled_flows(compiler, model, tmp_path / "out", "-std=c11", "-O1")
    frames = flows_of((1, 2, 99, 100, 101, 10_003))
    (tmp_path / "c.pcap").write_bytes(pcap(ETHERNET, frames, 1000, "<"))
    check_capture(program, model, tmp_path / "c.pcap", tmp_path)
    rows = csv.DictReader(io.StringIO(run(program, tmp_path / "c.pcap")[1].decode()))
    assert {int(r["packets"]) for r in rows if r["decided"] == "packets"} == {*SIXTEEN_POINTS}


@pytest.mark.slow
def test_a_schedule_decides_as_every_other_way(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = metered_network(small_spec(decision=Decision(after=60, schedule=(3, 4))))
    program = compiled_flows(compiler, model, tmp_path / "out", "-std=c11", "-O0")
    decisions = set()
    for made in fuzz_captures(model.meter, 5, 800):
        (tmp_path / made.name).write_bytes(made.data)
        check_capture(program, model, tmp_path / made.name, tmp_path)
        rows = csv.DictReader(io.StringIO(run(program, tmp_path / made.name)[1].decode()))
        decisions |= {(row["decided"], row["packets"]) for row in rows}
    assert {n for why, n in decisions if why == "packets"} == {"3", "4"}
    assert {n for why, n in decisions if why == "after"} == {"2"}


@pytest.mark.slow
@pytest.mark.parametrize("sanitized", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tunnels_are_opened_by_every_way(
    compiler: build.CCompiler, sanitize: tuple[str, ...], tmp_path: Path, sanitized: bool
) -> None:
    model = metered_network(small_spec(tunnels=("gre", "vxlan", "gtp")))
    flags = sanitize if sanitized else ("-std=c11", "-O0")
    program = compiled_flows(compiler, model, tmp_path / "out", *flags)
    for made in fuzz_captures(model.meter, 2, 600):
        (tmp_path / made.name).write_bytes(made.data)
        check_capture(program, model, tmp_path / made.name, tmp_path)
        closed = [parse(made.link, *frame) for frame in made.frames]
        opened = [parse(made.link, *frame, model.meter.tunnels) for frame in made.frames]
        assert sum(a != b for a, b in zip(opened, closed, strict=True)) > 100


@pytest.mark.slow
def test_links_and_check_sequences_are_read_as_by_every_way(small: Path, tmp_path: Path) -> None:
    path, r = tmp_path / "c.pcap", random.Random(4)
    by_link: dict[int, list[bytes]] = {}
    for link, frame, _ in FRAMES:
        by_link.setdefault(link, []).append(frame)
    for link, frames in by_link.items():
        for order, check in (("<", 0), (">", 4), ("<", 2)):
            path.write_bytes(with_check([*damaged(r, frames, 200)], order, check, link=link))
            assert check_capture(small, SMALL, path, tmp_path)
    numbered = [*enumerate(frame for frames in by_link.values() for frame in frames)]
    for order in "<>":
        interfaces = [
            (link, check_option(r.choice([0, 4, 32, 16]), order))
            for link, frames in by_link.items()
            for _ in frames
        ]
        path.write_bytes(pcapng_of(numbered, interfaces, order))
        assert check_capture(small, SMALL, path, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["host-pair", "source-host"])
def test_other_keys_and_rules(
    compiler: build.CCompiler, sanitize: tuple[str, ...], tmp_path: Path, key: str
) -> None:
    windows = (Window("same", 7, ("source",)),)
    changes = {"key": key, "windows": windows, "ends": (), "fragments": "aside"}
    spec = small_spec(when_full="drop-new", tick_ns=7, decision=Decision(), **changes)
    model = metered_network(spec)
    program = compiled_flows(compiler, model, tmp_path / "out", *sanitize)
    for made in fuzz_captures(spec, 1, 600):
        (tmp_path / made.name).write_bytes(made.data)
        check_capture(program, model, tmp_path / made.name, tmp_path)


@pytest.mark.exhaustive
def test_all_real_captures(real_data: Path, standard: Path, tmp_path: Path) -> None:
    folder = real_data / "pcaps"
    captures = sorted(p for p in folder.iterdir() if p.suffix in (".pcap", ".pcapng"))
    if not captures:
        pytest.skip(f"no captures in {folder}")
    flows = sum(check_capture(standard, STANDARD, path, tmp_path) for path in captures)
    assert flows > 4000


@pytest.mark.slow
def test_margins_below_the_threshold_are_shunted(compiler: build.CCompiler, tmp_path: Path) -> None:
    model = SMALL.with_shunt(4)
    program = compiled_flows(compiler, model, tmp_path / "out", "-std=c11", "-O0")
    (made, *_) = fuzz_captures(model.meter, 5, 600)
    (tmp_path / "c.pcap").write_bytes(made.data)
    check_capture(program, model, tmp_path / "c.pcap", tmp_path)
    assert {row[10] for row in rows_of(run(program, tmp_path / "c.pcap")[1])} > {"shunt"}


# --- captures that are damaged ---------------------------------------------------------------


@pytest.fixture(scope="session")
def dump(
    compiler: build.CCompiler, sanitize: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A program that lists the packets of captures by the reader of flow-exec."""
    out = tmp_path_factory.mktemp("dump") / "dump"
    sources = [Path(__file__).with_name("dump_capture.c"), TEMPLATES / "flow" / "capture.c"]
    return compiled(compiler, out, sources, *sanitize, f"-I{TEMPLATES / 'flow'}", f"-I{FOLDER}")


def listed(capture: Path) -> list[str]:
    """The same list from libpcap."""
    out = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with Capture(capture) as opened:
                out.append("opened")
                for data, length, stamp in opened.packets():
                    link, total = opened.link, 0
                    if link == LINK_EACH:
                        link, data, length = int.from_bytes(data[:4], "big"), data[4:], length - 4
                    for byte in data:
                        total = (total * 31 + byte) & 0xFFFFFFFF
                    out.append(f"{link} {len(data)} {length} {total} {stamp}")
        except DataError:
            return ["refused"]
    return [*out, "early" if warned else "end"]


@pytest.mark.slow
def test_the_readers_are_equal_on_damaged_files(dump: Path, tmp_path: Path) -> None:
    paths = []
    for seed in range(300):
        paths.append(tmp_path / f"{seed}.pcap")
        paths[-1].write_bytes(damaged_capture(random.Random(seed)))
    code, out, errors = run(dump, *paths)
    assert code == 0, errors
    flows: list[list[str]] = []
    for line in out.decode().splitlines():
        if line in ("refused", "opened"):
            flows.append([])
        numbers = line.split()
        if len(numbers) == 6:
            stamp = int(numbers[4]) * 10**9 + int(numbers[5])
            line = " ".join([*numbers[:4], str(min(max(0, stamp), 2**63 - 1))])
        flows[-1].append(line)
    for path, got in zip(paths, flows, strict=True):
        assert got == listed(path), path


@pytest.mark.slow
@pytest.mark.parametrize("order", ["<", ">"])
def test_interfaces_of_two_links_and_sections_of_two_orders(
    small: Path, tmp_path: Path, order: str
) -> None:
    frames = list(fuzz_frames(random.Random(3), 80, [0, 1, 100]))
    bare = [(f[14:], max(0, n - 14), t) for f, n, t in frames]
    other = "><"[order == ">"]
    data = b"".join(
        pcapng(link, some, 1000, each)
        for link, some, each in (
            (ETHERNET, frames[:20], order),
            (101, bare[20:40], order),
            (ETHERNET, frames[40:60], other),
            (228, bare[60:], other),
        )
    )
    for data_of, packets in ((data, 80), (interleaved(frames, bare, order), 80), (data[:-3], 79)):
        (tmp_path / "c.pcapng").write_bytes(data_of)
        assert check_capture(small, SMALL, tmp_path / "c.pcapng", tmp_path) > 20
        assert f"{packets} packets" in run(small, tmp_path / "c.pcapng")[2]
        packed = tmp_path / "c.pcapng.gz"
        packed.write_bytes(gzip.compress(data_of))
        want = run(small, tmp_path / "c.pcapng")[1]
        assert predicted(SMALL, packed, tmp_path / "p.csv") == want
    one_link = [(f[14:] if i % 2 else f, n, t) for i, (f, n, t) in enumerate(frames)]
    (tmp_path / "one.pcapng").write_bytes(pcapng(ETHERNET, one_link, 1000, order))
    assert run(small, tmp_path / "one.pcapng")[1] != want


def interleaved(ethernet: list[Frame], raw: list[Frame], order: str) -> bytes:
    """A section of an Ethernet interface and one of raw IP, whose packets take turns."""
    first, second = (
        blocks(pcapng(link, some, 1000, order))
        for link, some in ((ETHERNET, ethernet[::2]), (101, raw[1::2]))
    )
    one = struct.pack(order + "I", 1)  # the second interface
    turns = [
        x for a, b in zip(first[2:], second[2:], strict=True) for x in (a, b[:8] + one + b[12:])
    ]
    return b"".join([first[0], first[1], second[1], *turns])


def blocks(data: bytes) -> list[bytes]:
    """The blocks of a pcapng section."""
    order = "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    out = []
    while data:
        (size,) = struct.unpack_from(order + "I", data, 4)
        out.append(data[:size])
        data = data[size:]
    return out


@pytest.mark.parametrize("order", ["<", ">"])
def test_times_of_any_size_become_the_same_units(small: Path, tmp_path: Path, order: str) -> None:
    r = random.Random(7)
    frames = [frame for frame, _, _ in fuzz_frames(r, 60, [0])]
    records = b"".join(
        struct.pack(
            order + "IIII",
            r.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
            r.choice([0, 999_999, 2**31, 2**32 - 1]),
            *[len(frame)] * 2,
        )
        + frame
        for frame in frames
    )
    (tmp_path / "c.pcap").write_bytes(pcap(ETHERNET, [], 1, order) + records)
    check_capture(small, SMALL, tmp_path / "c.pcap", tmp_path)
    far = [(f, len(f), r.choice([0, 10**9, 2**63 - 1, 2**63, 2**64 - 1])) for f in frames]
    (tmp_path / "c.pcapng").write_bytes(pcapng(ETHERNET, far, 1, order))
    check_capture(small, SMALL, tmp_path / "c.pcapng", tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no capture: pcap (version 2) or pcapng is expected"),
        (b"a,b\n1,2\n", "no capture: pcap (version 2) or pcapng is expected"),
        (gzip.compress(b"x", mtime=0), "it is packed: unpack it into standard input"),
        (pcap(1, [], 1, "<")[:20], "it is cut short"),
        (b"\x0a\x0d\x0d\x0a" + bytes(30), "no capture"),
    ],
)
def test_what_is_no_capture_is_one_line(
    small: Path, tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "c").write_bytes(data)
    code, out, errors = run(small, tmp_path / "c")
    assert (code, out) == (1, b"")
    assert errors.startswith(f"flow-exec: {tmp_path / 'c'}: {message}")
    assert errors.count("\n") == 1


def test_a_capture_that_ends_early_counts_up_to_there(small: Path, tmp_path: Path) -> None:
    *_, cut = fuzz_captures(SMALL.meter, 0, 50)
    code, out, errors = run(small, given=cut.data)
    assert code == 0
    assert "standard input: the capture ends early: it is cut short; what came" in errors
    assert "49 packets" in errors
    (tmp_path / "c.pcap").write_bytes(cut.data)
    assert run(small, tmp_path / "c.pcap")[1] == out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["/nowhere/x.pcap"], 1, "/nowhere/x.pcap: No such file"),
        (["-c", "0", "x"], 2, "-c 0: expected a number of packets"),
        (["-c", "-1", "x"], 2, "-c -1: expected a number of packets"),
        (["/"], 1, "/: Is a directory"),
        (["-z"], 2, "usage: flow-exec"),
        (["a", "b"], 2, "usage: flow-exec"),
        (["-i", "none-such", "file"], 2, "usage: flow-exec"),
        (["-i", "none-such0"], 1, "none-such0: "),
        (["-i", "x" * 40], 1, "x" * 40),
    ],
)
def test_mistakes_are_one_error(small: Path, arguments: list[str], code: int, message: str) -> None:
    status, out, errors = run(small, *arguments)
    assert (status, out) == (code, b"")
    assert message in errors


def test_a_count_of_packets_ends_it(small: Path, tmp_path: Path) -> None:
    frames = [(f, n, t) for f, n, t in fuzz_frames(random.Random(1), 30, [0, 1])]
    code, out, errors = run(small, "-c", 20, "-", given=pcap(ETHERNET, frames, 1000, "<"))
    assert (code, "20 packets" in errors) == (0, True)
    assert out == run(small, given=pcap(ETHERNET, frames[:20], 1000, "<"))[1]


def test_a_stream_is_answered_as_it_comes_and_ends_cleanly(small: Path) -> None:
    frames = list(fuzz_frames(random.Random(2), 200, [0, 1, 600]))
    data = pcap(ETHERNET, frames, 1000, "<")
    with subprocess.Popen(
        [small], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(data)
        process.stdin.flush()
        first = process.stdout.readline(), process.stdout.readline()
        assert first[0].startswith(b"row,")
        assert first[1].startswith(b"0,")  # while the stream goes on
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        rest, errors = process.stdout.read(), process.stderr.read()
    assert b"200 packets" in errors
    assert b"".join(first) + rest == run(small, given=data)[1]


def test_a_reader_that_stops_is_no_error(small: Path, tmp_path: Path) -> None:
    (tmp_path / "c.pcap").write_bytes(
        pcap(ETHERNET, list(fuzz_frames(random.Random(2), 5000, [0, 600])), 1000, "<")
    )
    with subprocess.Popen(
        [small, tmp_path / "c.pcap"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert b"Sanitizer" not in process.stderr.read()


# --- verification ----------------------------------------------------------------------------


def metered(directory: Path, model: BinaryModel, **arguments: object) -> tuple[str, ...]:
    network_of = passes.unchanged(model)
    given = {"packets": 600, "seed": 3} | arguments
    return check_metering(EXPORTER, directory, network_of, OPTIONS, **given).failures


@pytest.fixture
def artefacts(compiler: object, quick_build: None, tmp_path: Path) -> Path:
    return exported(SMALL, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("flow.h", "v |= x;", "v ^= x;", "register_flags: expected"),
        pytest.param(
            "meter.c", "f->decided_packets = f->packets;", "", "flow", marks=pytest.mark.slow
        ),
        ("meter.c", "m->evicted += ", "(void)", "packets counted as 'evicted'"),
        ("lines.c", "putc('0' + (int)", "putc('1' - (int)", "bits: expected"),
        ("flow_exec.c", "o->margins[i],", "o->margins[0],", "margin: expected"),
    ],
)
def test_a_change_of_any_source_is_found(
    artefacts: Path, file: str, old: str, new: str, message: str
) -> None:
    text = (artefacts / file).read_text()
    assert old in text
    (artefacts / file).write_text(text.replace(old, new))
    failures = metered(artefacts, SMALL, packets=1500 if message == "flow" else 800)
    assert failures[0].startswith("generated traffic 3, ")
    assert message in failures[0]


@pytest.mark.slow
def test_a_reader_that_takes_no_units_from_blocks_is_found(artefacts: Path) -> None:
    text = (artefacts / "capture.c").read_text()
    assert "code == OPTION_RESOLUTION &&" in text
    (artefacts / "capture.c").write_text(text.replace("code == OPTION_RESOLUTION &&", "0 &&"))
    (failure,) = metered(artefacts, SMALL)
    assert failure.startswith("generated traffic 3, raw.pcapng: flow")


@pytest.mark.slow
def test_what_does_not_compile_is_an_error(artefacts: Path) -> None:
    assert metered(artefacts, SMALL) == ()
    (artefacts / "meter.c").write_text("#error no")
    with pytest.raises(VerifyError, match="flow-exec does not compile"):
        metered(artefacts, SMALL)


def test_verify_meters_generated_traffic_and_captures(
    compiler: object, quick_build: None, tmp_path: Path
) -> None:
    n3ic.export(SMALL, "host", tmp_path / "out", verify=False)
    (made, *_) = fuzz_captures(SMALL.meter, 9, 100)
    (tmp_path / "c.pcap.gz").write_bytes(gzip.compress(made.data))
    alone = n3ic.verify(tmp_path / "out", vectors=300)
    verification = n3ic.verify(tmp_path / "out", vectors=300, captures=[tmp_path / "c.pcap.gz"])
    assert alone.ok
    assert verification.ok
    assert verification.packets == alone.packets + 100 == 899 + 100
    assert verification.flows > alone.flows > 100
    assert (
        f"on {verification.flows:,} flows that it metered from {verification.packets:,} packets"
        in str(verification)
    )
    with pytest.raises(DataError, match="not a capture"):
        (tmp_path / "none").write_bytes(b"nothing")
        n3ic.verify(tmp_path / "out", vectors=300, captures=[tmp_path / "none"])
    text = (tmp_path / "out" / "meter.c").read_text()
    (tmp_path / "out" / "meter.c").write_text(text + "\n")
    changed = n3ic.verify(tmp_path / "out", vectors=300)
    assert "meter.c is not what n3ic writes" in str(changed)
    assert not changed.packets


def test_an_export_without_a_meter_takes_no_capture(
    compiler: object, quick_build: None, tmp_path: Path
) -> None:
    n3ic.export(replace(SMALL, meter=None), "host", tmp_path / "out", verify=False)
    assert not list((tmp_path / "out").glob("*flow*"))
    assert "flow-exec" not in (tmp_path / "out" / "Makefile").read_text()
    assert n3ic.verify(tmp_path / "out", vectors=300).packets == 0
    with pytest.raises(UsageError, match="meters no packets, and takes no captures"):
        n3ic.verify(tmp_path / "out", vectors=300, captures=[tmp_path / "c.pcap"])


@pytest.mark.slow
def test_a_simplified_network_reads_the_features_that_it_keeps(
    compiler: object, quick_build: None, tmp_path: Path
) -> None:
    first = SMALL.hidden[0]
    mask = np.zeros_like(first.weights)
    mask[:, 8:12] = True
    masked = replace(first, mask=mask, thresholds=np.full(first.n_outputs, 2))
    model = replace(SMALL, hidden=(masked,))
    assert 0 < len(passes.simplify(model).model.input.features) < len(model.input.features)
    n3ic.export(model, "host", tmp_path / "out", verify=False)
    assert n3ic.verify(tmp_path / "out", vectors=300).ok


@pytest.mark.slow
def test_the_makefile_builds_it(compiler: object, artefacts: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("needs make")
    before = {path.name for path in artefacts.iterdir()}
    flags = "CFLAGS=-O0 -Werror"
    done = subprocess.run(["make", flags], cwd=artefacts, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in artefacts.iterdir()} - before
    assert {"flow-exec", "bnn-exec"} < made
    assert all(EXPORTER.is_product(name) for name in made)
    subprocess.run(["make", "clean"], cwd=artefacts, check=True, capture_output=True)
    assert {path.name for path in artefacts.iterdir()} == before


@pytest.mark.slow
def test_packets_are_timed_after_a_check(artefacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_bench, "median_seconds", lambda work: (work() and 1) or 2)
    rates = packet_bench.bench_packets(SMALL, SMALL.meter, artefacts, 500)
    assert list(rates) == ["flow-exec", "n3ic predict", "the compiled meter alone"]
    result = replace(bench.bench_host(SMALL, passes=1, rows=50, alternatives=False), packets=rates)
    (_, (_, columns, rows)) = bench.render(result).tables
    assert [row[0] for row in rows] == list(rates)
    assert len(columns) == len(rows[0])
    text = (artefacts / "flow_exec.c").read_text()
    (artefacts / "flow_exec.c").write_text(text.replace("o->margins[i],", "o->margins[0],"))
    with pytest.raises(VerifyError, match="other verdicts than n3ic predict"):
        packet_bench.bench_packets(SMALL, SMALL.meter, artefacts, 500)


@pytest.mark.first_case
@pytest.mark.parametrize("model", [STANDARD, SMALL])
def test_the_report_tells_what_the_flow_cache_takes(
    compiler: build.CCompiler, tmp_path: Path, model: BinaryModel
) -> None:
    directory = exported(model, tmp_path / "out")
    source = Path(__file__).with_name("flow_cache_bytes.c")
    words = [*compiler.command, "-std=c11", f"-I{directory}", source, "-o", tmp_path / "bytes"]
    subprocess.run(words, check=True, timeout=TIMEOUT_S)
    cache_bytes = int(run(tmp_path / "bytes")[1])
    figures = EXPORTER.report(model, OPTIONS, directory).figures
    (figure,) = (f.value for f in figures if f.name == "memory.flow_cache")
    assert figure == cache_bytes
