#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what n3icd spends on a decided flow: JSON to a file, IPFIX, and figures for Prometheus.

n3icd is stopped while flows are decided, so that the ring of events is full, and goes on. Printed
is its processor time until all are written, by flow, of several rounds. Needs root, clang, gcc and
libbpf. It runs in namespaces of its own.

Usage: scripts/xdp_events.py [--rounds 5] [--flows 20000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import n3ic
from n3ic.exporters.xdp.bench import spread_model
from n3ic.meter.standard import standard_spec

PACKETS = 8  # the packet at which a flow is decided
SOURCES = 200  # so that no source is above its budget of new flows
LINKS = "n3events0", "n3events1"
_STEP_S = 0.2


def exported(folder: Path) -> Path:
    """Export a network of 256 bits with the standard meter, and build its n3icd."""
    spec = standard_spec(packets=PACKETS)
    units = [(feature.name, feature.unit) for feature in spec.features]
    model = spread_model(units, (1 << 8, 1 << 15, 1 << 31), np.random.default_rng(0))
    n3ic.export(replace(model, meter=spec), "xdp", folder / "export", verify=False)
    wanted = ("daemon/n3icd", "daemon/idle.o", "meter/meter.o")
    subprocess.run(["make", "-s", "-C", folder / "export", *wanted], check=True)
    return folder / "export"


def frame(number: int) -> bytes:
    """A UDP packet of a flow, between documentation addresses."""
    source = bytes([192, 0, 2, number % SOURCES + 1])
    ip = bytes.fromhex("4500003a000000004011 0000") + source + bytes([192, 0, 2, 250])
    port = number // SOURCES % 65_000 + 1
    udp = port.to_bytes(2, "big") + bytes.fromhex("003500260000")
    return bytes.fromhex("020000000001 020000000002 0800") + ip + udp + b"x" * 30


def processor_s(pid: int) -> float:
    """Seconds that a process has been on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def measure(
    export: Path, folder: Path, flows: int, collector: tuple[str, int]
) -> tuple[int, float]:
    """Decide flows while n3icd stands still; return how many it wrote, and seconds for each."""
    log, conf = folder / "flows.json", folder / "n3icd.conf"
    log.unlink(missing_ok=True)
    given = {
        "object": export / "meter" / "meter.o",
        "idle-object": export / "daemon" / "idle.o",
        "pack": export / "daemon" / "n3icd.pack",
        "pins": folder / "bpf" / "n3ic",
        "socket": folder / "n3icd.sock",
        "control": folder / "n3icd.control",
        "updates": folder / "updates",
        "records": folder / "records",
        "json": log,
        "prometheus": folder / "prometheus",
        "ipfix": f"{collector[0]}:{collector[1]}",
    }
    conf.write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
    command = [str(word) for word in (export / "daemon" / "n3icd", conf, LINKS[0])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as daemon:
        assert daemon.stderr is not None  # noqa: S101 - a pipe was asked for
        try:
            if not any("room for" in line for line in daemon.stderr):
                raise SystemExit("n3icd did not start")
            daemon.send_signal(signal.SIGSTOP)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
                wire.bind((LINKS[1], 0))
                for number in range(flows):
                    for _ in range(PACKETS):
                        wire.send(frame(number))
            before, size = processor_s(daemon.pid), -1
            daemon.send_signal(signal.SIGCONT)
            while log.stat().st_size != size:
                size = log.stat().st_size
                time.sleep(_STEP_S)
            spent = processor_s(daemon.pid) - before
        finally:
            daemon.send_signal(signal.SIGCONT)
            daemon.terminate()
            daemon.communicate(timeout=60)
    subprocess.run([*command[:1], "--remove", *command[1:]], check=True, capture_output=True)
    with log.open("rb") as lines:
        written = sum(1 for _ in lines)
    return written, spent / max(1, written)


def main() -> None:
    """Print a line per round, and the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flows", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        words = ("unshare", "--net", "--mount", sys.executable, *sys.argv, "--inside")
        os.execvp(words[0], words)  # noqa: S606 - this script again
    links = f"ip link set lo up; ip link add {LINKS[0]} type veth peer name {LINKS[1]}"
    for link in LINKS:
        links += f"; sysctl -qw net.ipv6.conf.{link}.disable_ipv6=1; ip link set {link} up"
    subprocess.run(["sh", "-ec", links], check=True)
    with (
        tempfile.TemporaryDirectory() as name,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector,
    ):
        folder = Path(name)
        (folder / "bpf").mkdir()
        subprocess.run(["mount", "-t", "bpf", "bpf", folder / "bpf"], check=True)
        try:
            collector.bind(("127.0.0.1", 0))
            export = exported(folder)
            rounds = [
                measure(export, folder, arguments.flows, collector.getsockname())
                for _ in range(arguments.rounds)
            ]
        finally:
            subprocess.run(["umount", folder / "bpf"], check=True)
    median = statistics.median(seconds for _, seconds in rounds)
    if arguments.json:
        print(json.dumps({"seconds_a_flow": [s for _, s in rounds], "flows": rounds[0][0]}))
        return
    for written, seconds in rounds:
        print(f"{written:,} flows, {seconds * 1e6:.1f} us of processor time each")
    print(f"median: {median * 1e6:.1f} us, {1 / median:,.0f} flows/s of one core")


if __name__ == "__main__":
    main()
