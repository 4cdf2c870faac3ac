# SPDX-License-Identifier: Apache-2.0
"""Builds an export's ``n3ic-dpdk``, runs it on captures and reads its output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.host.compilation import Sources
from n3ic.exporters.host.flows import flow_rows
from n3ic.meter.compiled import ASIDE, STAMPS
from n3ic.model.classifier import Classifier
from n3ic.targets.artefacts import files_of
from n3ic.targets.capabilities import MeteredCapture
from n3ic.util.files import read_regular
from n3ic.util.process import run_tool

PROGRAM = "n3ic-dpdk"
WORKERS = 2  # in the run where an lcore distributes the packets in software
_BUILD_S, _RUN_S = 300, 600
_MAX_BYTES = 64 << 20
MEGABYTES = 512  # of memory that DPDK takes
_WORDS = ("-m", f"{MEGABYTES}", "--no-pci", "--no-telemetry", "--no-shconf", "--log-level=4")


def meter_capture(directory: Path, model: Classifier, capture: Path) -> MeteredCapture:
    """Return the flows and counters of a capture, which the application reads by ``net_pcap``.

    The flows are those of a run with one worker. If flows do not depend on each other, a second
    run, with two workers behind a distributing lcore, must give the same flows in any order.

    Raises:
        MissingDependencyError: DPDK, make or a C compiler is not installed.
        VerifyError: the program does not compile, fails, or finds other flows with two workers.
    """
    with built(directory) as program:
        result = _run(program, model, capture, 1)
        if _apart(model, result.counters):
            two = _run(program, model, capture, WORKERS)
            lost, more = (
                Counter(row[1:] for row in a.flows) - Counter(row[1:] for row in b.flows)
                for a, b in ((result, two), (two, result))
            )
            if lost or more:
                flow = next(iter(lost or more))
                raise VerifyError(
                    f"{PROGRAM}: {lost.total() + more.total()} flows differ between one worker and "
                    f"{WORKERS}, such as {flow[0]}:{flow[1]} to {flow[2]}:{flow[3]}"
                )
    return result


def _apart(model: Classifier, counters: Mapping[str, int]) -> bool:
    """Return whether a flow's record is independent of the other flows that its worker sees."""
    shared = model.meter is None or model.meter.windows or model.meter.sources.features
    order = ("evicted", "flow cache full", *STAMPS)
    return not shared and not any(counters.get(name, 0) for name in order)


def _run(program: Path, model: Classifier, capture: Path, workers: int) -> MeteredCapture:
    with tempfile.TemporaryDirectory(prefix="n3ic-dpdk-") as name:
        decisions, statistics_path = Path(name, "decisions.csv"), Path(name, "statistics.json")
        # DPDK splits device arguments at commas, so link to the capture by a name without any.
        plain = Path(name, "capture.pcap")
        plain.symlink_to(capture.resolve())
        command = [
            *(str(program), *eal_words(workers), f"--vdev=net_pcap0,rx_pcap={plain}"),
            *("--", "--until-end", "--tap", "--decisions", str(decisions)),
            *("--stats-json", str(statistics_path)),
        ]
        try:
            done = run_tool(command, seconds=_RUN_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VerifyError(f"{PROGRAM}: {error}") from error
        if done.returncode:
            text = done.stderr.decode(errors="replace")
            raise VerifyError(f"{PROGRAM} ended {done.returncode}: {text[-500:].strip()}")
        try:
            statistics = json.loads(read_regular(statistics_path, _MAX_BYTES))
            rows = flow_rows(model, decisions.read_bytes())
        except (OSError, ValueError) as error:
            raise VerifyError(f"{PROGRAM}: its output cannot be read: {error}") from error
    return MeteredCapture(rows, _counters(statistics))


def _counters(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Return the counters of the meter, after a check that no packet was lost.

    Raises:
        VerifyError: packets were lost on the way, or the actions do not add up to the packets.
    """
    received, losses = statistics["received"], 0
    for part in (*statistics["lcores"], *(p["losses"] for p in statistics["ports"])):
        losses += sum(n for name, n in part.items() if name in _LOSSES)
    if losses or sum(statistics["actions"].values()) != received:
        raise VerifyError(f"{PROGRAM}: of {received} packets, {losses} were lost")
    meter = statistics["meter"]
    names = ("packets", "late", "evicted", "forgotten", *STAMPS, *ASIDE)
    return {name: int(meter[name]) for name in names if meter[name] or name in STAMPS}


_LOSSES = (
    "port_full", "ring_full", "worker_full", "decision_not_written", "end_not_received", "imissed",
    "ierrors",
)  # fmt: skip


def eal_words(workers: int, *, huge_pages: bool = False) -> tuple[str, ...]:
    """Return EAL arguments for ``workers`` workers on this process's CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    lcores = workers + 1 + (workers > 1)  # one controls; with several workers, one distributes
    placed = ",".join(f"{i}@{cpus[i % len(cpus)]}" for i in range(lcores))
    return (f"--lcores={placed}", *(() if huge_pages else ("--no-huge",)), *_WORDS)


@contextmanager
def built(directory: Path) -> Iterator[Path]:
    """Build an export's application and yield the path of the program.

    Raises:
        MissingDependencyError: DPDK, make or a C compiler is not installed.
        VerifyError: the program does not compile.
    """
    require_dpdk()
    names = [n for n in files_of(directory) if n.endswith((".c", ".h", "Makefile"))]
    sources = tuple((name, (directory / name).read_bytes()) for name in names)
    with tempfile.TemporaryDirectory(prefix="n3ic-dpdk-") as name:
        path = Path(name) / PROGRAM
        path.write_bytes(_program(sources))
        path.chmod(0o700)
        yield path


def require_dpdk(tools: Sequence[str] = ("make", "pkg-config")) -> None:
    """Check that DPDK and the tools that build its programs are installed.

    Raises:
        MissingDependencyError: something is missing; the text names it.
    """
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        done = subprocess.run(["pkg-config", "--exists", "libdpdk"], check=False)
        missing = ["libdpdk"] * bool(done.returncode)
    if missing:
        raise MissingDependencyError(
            f"{missing[0]} is not installed: apt-get install dpdk dpdk-dev libpcap-dev make "
            "pkg-config gcc"
        )


@lru_cache(maxsize=2)  # one export meters several captures
def _program(sources: Sources) -> bytes:
    with tempfile.TemporaryDirectory(prefix="n3ic-dpdk-") as name:
        for file, text in sources:
            (Path(name) / file).parent.mkdir(exist_ok=True)
            (Path(name) / file).write_bytes(text)
        try:
            done = run_tool(("make", "-j2", PROGRAM), seconds=_BUILD_S, cwd=Path(name))
        except (OSError, subprocess.TimeoutExpired) as error:
            raise VerifyError(f"make: {error}") from error
        if done.returncode:
            output = done.stderr.decode(errors="replace")
            raise VerifyError(f"{PROGRAM} does not compile: {output[-2000:]}")
        return (Path(name) / PROGRAM).read_bytes()
