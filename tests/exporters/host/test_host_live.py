# SPDX-License-Identifier: Apache-2.0
"""flow-exec on network interfaces, in a network namespace of the tests' own."""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from n3ic.kernel import build
from n3ic.model import passes
from n3ic.model.meter_spec import Decision, Guard, MeteredFeature, MeterSpec, Register, Window
from n3ic.targets.fuzz_traffic import fuzz_frames
from n3ic.targets.meter_verification import reference_flows
from tests.support.flow_programs import compiled_flows
from tests.support.metered_models import metered_network

SECOND = 1_000_000
TIMEOUT_S = 600
# No register of a time: nobody knows when a packet passes.
REGISTERS = (
    Register("there", "count", guard=Guard("forward")),
    Register("back", "count", guard=Guard("reverse")),
    Register("bytes", "sum", "wire_length"),
    Register("payload", "sum", "payload_length"),
    Register("flags", "or", "tcp_flags", width=8),
    Register("hops", "last", "ttl", width=8),
)
SPEC = MeterSpec(
    REGISTERS,
    tuple(MeteredFeature(r.name, r.name) for r in REGISTERS),
    windows=(Window("same", 20, ("source",)),),
    idle_timeout=10 * SECOND,
    decision=Decision(4, repeat=True),
)
MODEL = metered_network(SPEC)

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for packets of an interface"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs ip (Debian: iproute2)"),
]


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        pytest.skip(f"ip {' '.join(words)}: {done.stderr.strip()}")


@pytest.fixture
def inside() -> Iterator[list[str]]:
    """The command that runs another one beside two joined interfaces, one and two."""
    name = f"n3ic-flows-{os.getpid()}"
    ip("netns", "add", name)
    try:
        command = ["ip", "netns", "exec", name]
        for what in ("default", "all"):
            setting = f"net.ipv6.conf.{what}.disable_ipv6=1"  # no packets but ours
            subprocess.run([*command, "sysctl", "-qw", setting], check=True, timeout=TIMEOUT_S)
        ip("-n", name, "link", "add", "one", "type", "veth", "peer", "name", "two")
        for interface in ("one", "two", "lo"):
            ip("-n", name, "link", "set", interface, "up")
        yield command
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="session")
def program(
    compiler: build.CCompiler,
    sanitize: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    return compiled_flows(compiler, MODEL, tmp_path_factory.mktemp("live") / "a", *sanitize)


Listen = Callable[..., list[str]]


@contextmanager
def listening(command: list[str], program: Path, *arguments: str) -> Iterator[Listen]:
    """The program once it listens; call what is given to interrupt it and to read its lines."""
    process = subprocess.Popen(
        [*command, str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines = [process.stdout.readline().decode()]

    def read(count: int = 0, stop: bool = False, end: bool = False) -> list[str]:
        lines.extend(process.stdout.readline().decode() for _ in range(count))
        if stop:
            process.send_signal(signal.SIGINT)
        if stop or end:
            lines.extend(line.decode() for line in process.stdout)
            lines.extend(line.decode() for line in process.stderr)
            assert process.wait(TIMEOUT_S) == 0, lines
        return lines

    try:
        assert lines[0].startswith("row,"), process.stderr.read().decode()
        yield read
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def send(command: list[str], interface: str, frames: list[bytes]) -> None:
    data = b"".join(struct.pack(">H", len(frame)) + frame for frame in frames)
    script = str(Path(__file__).with_name("send_frames.py"))
    subprocess.run(
        [*command, sys.executable, script, interface], input=data, check=True, timeout=TIMEOUT_S
    )


def frames_for(seed: int, count: int) -> list[bytes]:
    """Frames that an interface takes, tagged ones among them."""
    r = random.Random(seed)
    frames = (bytes([2]) * 12 + frame[12:] for frame, _, _ in fuzz_frames(r, count, [0]))
    return [frame for frame in frames if 34 <= len(frame) <= 1514]


def test_an_interface_gets_the_verdicts_of_a_capture(inside: list[str], program: Path) -> None:
    frames = frames_for(1, 700)
    assert any(frame[12:14] == b"\x81\x00" for frame in frames)
    with listening(inside, program, "-i", "two", "-r", "-f", "-b", "-c", str(len(frames))) as read:
        send(inside, "one", frames)
        lines = read(end=True)
    rows = [row for row in csv.reader(lines[1:]) if len(row) > 10]
    summary = "".join(lines)
    want = reference_flows(passes.unchanged(MODEL), 1, [(f, len(f), 0) for f in frames])
    assert f"{len(frames)} packets, {len(want.flows)} flows decided" in summary
    times = slice(6, 8)
    assert [(*row[: times.start], *row[times.stop :]) for row in rows] == [
        (*row[: times.start], *row[times.stop :]) for row in want.flows
    ]
    for reason, count in want.counters.items():
        assert reason in ("packets", "late", "evicted") or f"{count} packets ({reason})" in summary
    now = time.time() * 1e6
    assert all(now - 600 * SECOND < int(t) < now + SECOND for row in rows for t in row[times])


@pytest.mark.slow
def test_an_idle_flow_is_decided_though_no_packet_comes(inside: list[str], program: Path) -> None:
    (frame, *_) = (f for f in frames_for(2, 50) if f[12:14] == b"\x08\0" and f[23] == 17)
    with listening(inside, program, "-i", "two", "-p") as read:
        send(inside, "one", [frame])
        row = read(1)[-1].split(",")  # after its time-out and a second of grace
        assert row[9] == "idle"
        assert "1 packets, 1 flows decided" in "".join(read(stop=True))


def test_the_loopback_counts_a_packet_once(inside: list[str], program: Path) -> None:
    script = (
        "import socket; a, b = (socket.socket(type=socket.SOCK_DGRAM) for _ in 'ab'); "
        "b.bind(('127.0.0.1', 5353)); [a.sendto(b'x', ('127.0.0.1', 5353)) for _ in range(9)]"
    )
    with listening(inside, program, "-i", "lo", "-c", "9", "-r") as read:
        subprocess.run([*inside, sys.executable, "-c", script], check=True, timeout=TIMEOUT_S)
        rows = [line.split(",") for line in read(3)[1:]]
    assert [row[8:10] for row in rows] == [["4", "packets"], ["8", "packets"], ["9", "capture"]]
    assert rows[-1][3] == "127.0.0.1"


def test_who_may_not_listen_is_told_what_is_needed(
    inside: list[str], program: Path
) -> None:  # fmt: skip
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    done = subprocess.run(
        [*inside, "setpriv", "--bounding-set", "-net_raw", str(program), "-i", "two"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert "two: not permitted: run as root, or with CAP_NET_RAW" in done.stderr
