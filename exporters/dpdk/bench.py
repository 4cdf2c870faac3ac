# SPDX-License-Identifier: Apache-2.0
"""Measures packets per second of one core, beside DPDK's own testpmd on the same packets.

Both programs replay a capture that ``net_pcap`` holds in memory (in huge pages, if enough are
free), and discard the packets. They take turns in one run. Seconds are CPU time of the core, so
other load on the machine does not count.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError, VerifyError
from n3ic.exporters.dpdk.application import (
    MEGABYTES,
    built,
    eal_words,
    meter_capture,
    require_dpdk,
)
from n3ic.exporters.host.flows import run_flow_exec
from n3ic.meter.compiled import Frames
from n3ic.meter.packet import LINK_ETHERNET
from n3ic.model.classifier import Classifier
from n3ic.targets.base import Exporter
from n3ic.targets.bench_tools import write_pcap
from n3ic.targets.figures import Bench

FLOWS, PACKETS, BYTES = 2048, 16, 64  # concurrent flows; packets per flow; bytes per packet
ROUNDS, SECONDS = 3, 4
MODES = ("io", "5tswap")  # of testpmd: forwards only; swaps addresses and ports
_MBUFS = 65_535  # some of them hold the capture
_WORKERS = ("rte-worker-1\n", "lcore-worker-1\n")  # name of the worker thread, by DPDK version
_TIMEOUT_S = 120
_RECEIVED = re.compile(rb"RX-packets: (\d+)")


def bench_dpdk(tool: Exporter[Any], model: Classifier) -> Bench:
    """Measure the application and testpmd, after a check that flow-exec finds the same flows.

    Raises:
        UsageError: the model has no meter.
        MissingDependencyError: DPDK, testpmd, make or a C compiler is not installed.
        VerifyError: a program does not build or run, or n3ic-dpdk finds other flows than flow-exec.
    """
    if model.meter is None:
        raise UsageError("the model has no meter: there is no application to measure")
    require_dpdk(("make", "pkg-config", "dpdk-testpmd"))
    with tempfile.TemporaryDirectory(prefix="n3ic-bench-") as name:
        directory, capture = Path(name, "export"), Path(name, "packets.pcap")
        directory.mkdir()
        tool.write(model, {}, directory)
        write_pcap(capture, LINK_ETHERNET, connections(FLOWS))
        ours = meter_capture(directory, model, capture)
        if ours != run_flow_exec(directory / "host", model, capture):
            raise VerifyError("n3ic-dpdk finds other flows than flow-exec")
        huge_pages = has_huge_pages()
        words = _words(capture, huge_pages)
        load = os.getloadavg()[0]
        with built(directory) as program:
            rounds = [
                (
                    *(_testpmd(words, mode) for mode in MODES),
                    *_application(program, words, Path(name, "statistics.json")),
                )
                for _ in range(ROUNDS)
            ]
    *of_programs, decided = (median(column) for column in zip(*rounds, strict=True))
    ratios = [median(each[i] / each[0] for each in rounds) for i in range(len(of_programs))]
    programs = (*(f"dpdk-testpmd, {mode}" for mode in MODES), "n3ic-dpdk, decisions included")
    rows = tuple(
        (program, f"{rate / 1e6:.2f}", f"{ratio:.2f}")
        for program, rate, ratio in zip(programs, of_programs, ratios, strict=True)
    )
    notes = (
        f"{FLOWS:,} connections of {PACKETS} packets of {BYTES} bytes, repeated by net_pcap from "
        f"{'huge pages' if huge_pages else 'memory without huge pages'}; "
        f"{decided:.3f} decisions per packet",
        f"medians of {ROUNDS} rounds of {SECONDS} s each; load of the machine before: {load:.1f}",
    )
    title = "packets per second of one core"
    rates = dict(zip(("testpmd", "testpmd 5tswap", "n3ic-dpdk"), of_programs, strict=True))
    data = rates | {"ratio": ratios[-1], "huge_pages": huge_pages, "decisions": decided,
            "load": load}  # fmt: skip
    return Bench(((title, ("program", "Mpps", "ratio"), rows),), notes, data)


def connections(flows: int) -> Frames:
    """Frames of TCP connections that run side by side, from SYN to the second FIN."""
    count = flows * PACKETS
    flow, step = np.tile(np.arange(flows), PACKETS), np.repeat(np.arange(PACKETS), flows)
    frame = np.zeros((count, BYTES), dtype=np.uint8)
    frame[:, 12], frame[:, 14], frame[:, 22], frame[:, 23] = 8, 0x45, 64, 6  # IPv4, TTL, TCP
    frame[:, 16:18] = _octets(np.full(count, BYTES - 14, dtype=np.uint16))
    client = (0x0A000000 + flow).astype(np.uint32), (1024 + flow % 60_000).astype(np.uint16)
    server = (0xC0A80000 + flow % 250).astype(np.uint32), np.full(count, 443, dtype=np.uint16)
    back = step % 2 == 1
    for at, (mine, theirs) in ((0, (client, server)), (1, (server, client))):
        address, port = 26 + 4 * at, 34 + 2 * at
        frame[:, address : address + 4] = _octets(np.where(back, theirs[0], mine[0]))
        frame[:, port : port + 2] = _octets(np.where(back, theirs[1], mine[1]))
    flags = np.array([2, 18, *(16,) * (PACKETS - 4), 17, 17], dtype=np.uint8)
    frame[:, 46], frame[:, 47] = 0x50, flags[step]
    length = np.full(count, BYTES, dtype=np.uint32)
    number = np.arange(count, dtype=np.uint64)
    return Frames(frame.reshape(-1), number * BYTES, length, length, number)


def _octets(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    swapped = numbers.astype(numbers.dtype.newbyteorder(">"))
    return swapped.view(np.uint8).reshape(len(numbers), -1)


def has_huge_pages(proc: Path = Path("/proc")) -> bool:
    """Whether DPDK can have its memory in huge pages: enough are free, and mounted."""
    mounts = (proc / "mounts").read_text(encoding="utf-8")
    memory = dict(re.findall(r"(\w+): +(\d+)", (proc / "meminfo").read_text(encoding="utf-8")))
    free_kb = int(memory.get("HugePages_Free", 0)) * int(memory.get("Hugepagesize", 0))
    return " hugetlbfs " in mounts and free_kb >= MEGABYTES << 10


def _words(capture: Path, huge_pages: bool) -> list[str]:
    """Return the EAL arguments of both programs."""
    device = f"--vdev=net_pcap0,rx_pcap={capture},infinite_rx=1"
    return [*eal_words(1, huge_pages=huge_pages), device, "--"]


def _testpmd(words: Sequence[str], mode: str) -> float:
    """Return packets per second of CPU time of testpmd's forwarding lcore, between its reports."""
    command = ["dpdk-testpmd", *words, f"--total-num-mbufs={_MBUFS}", f"--forward-mode={mode}"]
    samples = []
    with subprocess.Popen(
        [*command, "--auto-start", "--stats-period=1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        timer = Timer(_TIMEOUT_S, process.kill)
        timer.start()
        try:
            for line in process.stdout or ():
                match = _RECEIVED.search(line)
                if match:
                    samples.append((int(match[1]), _worker_ns(process.pid)))
                if len(samples) > SECONDS:
                    break
        finally:
            timer.cancel()
            process.kill()
    if len(samples) <= SECONDS or samples[-1][1] == samples[0][1]:
        raise VerifyError("dpdk-testpmd did not run: try `dpdk-testpmd --no-huge --no-pci`")
    (first, begin), (last, end) = samples[0], samples[-1]
    return (last - first) / (end - begin) * 1e9


def _worker_ns(pid: int) -> int:
    """Return the nanoseconds of CPU time that the one worker lcore has used."""
    threads = Path("/proc", str(pid), "task").iterdir()
    (thread,) = (t for t in threads if (t / "comm").read_text() in _WORKERS)
    return int((thread / "schedstat").read_text().split()[0])


def _application(program: Path, words: Sequence[str], statistics_path: Path) -> tuple[float, float]:
    """Return packets per second of the worker's CPU time, and decisions per packet."""
    options = (
        "--seconds",
        str(SECONDS),
        "--stats-json",
        str(statistics_path),
        "--mbufs",
        str(_MBUFS),
    )
    command = [str(program), *words, *options]
    done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise VerifyError(f"n3ic-dpdk: {done.stderr.decode(errors='replace')[-500:]}")
    statistics = json.loads(statistics_path.read_bytes())
    (worker,) = statistics["lcores"]
    decided = sum(v["flows"] for v in statistics["verdicts"].values())
    return worker["received"] / worker["processor_ns"] * 1e9, decided / worker["received"]
