# SPDX-License-Identifier: Apache-2.0
"""Builds the ns-3 simulation and runs it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path

from n3ic.datasets.ns3_tomography.trace import SUFFIX, ProbeTrace, from_stream, join
from n3ic.errors import DataError, MissingDependencyError, N3icError, UsageError
from n3ic.options import Option
from n3ic.util.cache import Cache

CACHE = "ns3_tomography"
MODULES = ("ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point")
PACKAGES = "libns3-dev g++ pkg-config"
_BUILD_TIMEOUT = 1800
_FLAGS = ("-std=c++17", "-O2")

Note = Callable[[str], object]


@dataclass(frozen=True)
class Simulation:
    """Options of the simulation.

    Attributes:
        duration: seconds that are recorded.
        link: speed of every link, Mb/s.
        load: mean offered load of the ToR switches' uplinks, 1 for their capacity.
        incast: servers that answer one request at once.
        queue: full packets that an output queue of a switch holds.
        size: mean bytes of one answer (exponential).
        other_pod: share of the answers that come from the other pod.
        other_tor: share of the answers that come from the pod's other ToR.
        focus: requests of the first server relative to another server's.
        interval: milliseconds between two probes of a server; 0 for 10 ms at 100 Mb/s and in
            inverse proportion to the link speed.
        warmup: seconds before the first record.
        seed: seed of ns-3's generator.
        run: substream of the seed.
    """

    duration: float = 10.0
    link: float = 100.0
    load: float = 0.55
    incast: int = 16
    queue: int = 64
    size: float = 80_000.0
    other_pod: float = 0.8
    other_tor: float = 0.15
    focus: float = 2.0
    interval: float = 0.0
    warmup: float = 1.0
    seed: int = 1
    run: int = 1

    def __post_init__(self) -> None:
        def require(ok: bool, name: str, rule: str) -> None:
            if not ok:
                option = name.replace("_", "-")
                raise UsageError(f"--{option}: expected {rule}, got {getattr(self, name)!r}")

        require(0 < self.duration <= 1e6, "duration", "seconds above 0")
        require(0 < self.link <= 1e6, "link", "Mb/s above 0")
        require(0 <= self.load < 2, "load", "a share in [0, 2)")
        require(1 <= self.incast <= 1000, "incast", "1 to 1000 servers")
        require(1 <= self.queue <= 1_000_000, "queue", "1 to 1,000,000 packets")
        require(1 <= self.size <= 1e9, "size", "1 to 1e9 bytes")
        require(0 <= self.other_pod <= 1, "other_pod", "a share in [0, 1]")
        require(
            self.other_tor >= 0 and 0 < self.other_pod + self.other_tor <= 1,
            "other_tor",
            "a share whose sum with --other-pod is more than 0 and at most 1",
        )
        require(0 <= self.focus <= 1000, "focus", "a factor in [0, 1000]")
        require(0 <= self.interval < 4000, "interval", "milliseconds in [0, 4000)")
        require(0 <= self.warmup <= 1000, "warmup", "seconds in [0, 1000]")
        require(1 <= self.seed < 2**31, "seed", "a number in 1..2^31-1")
        require(1 <= self.run < 2**31, "run", "a number in 1..2^31-1")

    def arguments(self) -> list[str]:
        """The options as arguments of the program."""
        return [f"--{name.replace('_', '-')}={value!r}" for name, value in asdict(self).items()]


# Simulation checks the ranges, because some of them depend on each other.
OPTIONS = (
    Option("duration", "seconds that are recorded", Simulation.duration),
    Option("link", "speed of every link, Mb/s", Simulation.link),
    Option("load", "mean offered load of the ToR uplinks, 0 to 2", Simulation.load),
    Option("incast", "servers that answer a request at once", Simulation.incast),
    Option("queue", "full packets that an output queue holds", Simulation.queue),
    Option("size", "mean bytes of an answer", Simulation.size),
    Option("other-pod", "share of the answers from the other pod", Simulation.other_pod),
    Option("other-tor", "share of the answers from the pod's other ToR", Simulation.other_tor),
    Option("focus", "requests of the first server, relative to another's", Simulation.focus),
    Option("interval", "ms between probes; 0: 1000 / link (10 at 100 Mb/s)", Simulation.interval),
    Option("warmup", "seconds before the first record", Simulation.warmup),
    Option("seed", "seed of ns-3's generator", Simulation.seed),
    Option("run", "substream of the seed", Simulation.run),
    Option("runs", "independent runs in one file", 1, minimum=1),
    Option("jobs", "runs simulated at once; 0: one per core", 0, minimum=0),
)


def ns3_version() -> str:
    """The version of ns-3 that is installed.

    Raises:
        MissingDependencyError: ns-3, the compiler or pkg-config is missing; the error names the
            packages.
    """
    for tool in ("g++", "pkg-config"):
        if shutil.which(tool) is None:
            raise MissingDependencyError(_missing(f"{tool} is not installed"))
    process = _call(["pkg-config", "--modversion", MODULES[0]])
    if process.returncode:
        raise MissingDependencyError(_missing("ns-3 is not installed"))
    return process.stdout.strip()


def _missing(problem: str) -> str:
    return (
        f"the network simulation needs ns-3 and a C++ compiler, and {problem}; "
        f"on Debian or Ubuntu: apt install {PACKAGES} (training needs none "
        "of it: the trace of a simulation is bundled)"
    )


def _call(command: list[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise N3icError(f"{command[0]} failed: {error}") from error


def source_digest() -> str:
    """SHA-256 of the simulation's source."""
    source = files(__package__).joinpath("sim", "tomography.cc").read_bytes()
    return hashlib.sha256(source).hexdigest()


def build(program: Path, note: Note | None = None) -> Path:
    """Compile the simulation.

    Args:
        program: the file to write, in a folder that only the caller uses.
        note: called with a progress message.

    Returns:
        ``program``.

    Raises:
        MissingDependencyError: a tool is missing.
        N3icError: the compiler refused.
    """
    version = ns3_version()
    if note:
        note(f"compiling the simulation against ns-3 {version}")
    flags = _call(["pkg-config", "--cflags", *MODULES]).stdout.split()
    # Only ns-3's libraries are named: they already link to their own dependencies (GSL, SQLite).
    libraries = _call(["pkg-config", "--libs-only-L", "--libs-only-l", *MODULES]).stdout.split()
    with as_file(files(__package__).joinpath("sim", "tomography.cc")) as source:
        command = ["g++", *_FLAGS, *flags, "-o", str(program), str(source), *libraries]
        process = _call(command, _BUILD_TIMEOUT)
    if process.returncode:
        tail = process.stderr.strip()[-2000:]
        raise N3icError(f"the simulation does not compile against ns-3 {version}:\n{tail}")
    return program


def program(stack: ExitStack, note: Note | None = None) -> Path:
    """Return the compiled simulation, from the user's cache folder or newly built.

    The cache finds it by the digest of the source, ns-3's version and the compiler. The cache is
    used only if nobody else can write to it. Without the cache, the program lies in a folder that
    ``stack`` removes.

    Raises:
        MissingDependencyError: a tool is missing.
        N3icError: the compiler refused.
    """
    compiler = _call(["g++", "-dumpfullversion"]).stdout.strip() if shutil.which("g++") else ""
    key = hashlib.sha256(
        "\n".join((source_digest(), ns3_version(), compiler, *_FLAGS)).encode()
    ).hexdigest()
    name = f"tomography-{key[:32]}"
    try:
        cache = Cache.open(CACHE)
        if executable := cache.find(name):
            return executable
        with cache.new_file(name) as out:
            build(out, note)
        return cache.directory / name
    except OSError:  # no cache: the next call compiles again
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-ns3-")))
        return build(scratch / "tomography", note)


class _Running:
    """The running programs of all threads, so that all of them can be ended."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._ended = False

    def add(self, process: subprocess.Popen[str]) -> None:
        """Add a program; it is killed at once if the others have already been ended."""
        self._processes.append(process)
        if self._ended:
            process.kill()

    def end(self) -> None:
        """End every program, including those that are added later."""
        self._ended = True
        for process in self._processes:
            process.kill()


def _run(
    executable: Path, simulation: Simulation, note: Note | None, running: _Running
) -> ProbeTrace:
    with ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile(prefix="n3ic-ns3-"))
        process = stack.enter_context(
            subprocess.Popen(
                [str(executable), *simulation.arguments()],
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        )
        # Runs before Popen's own exit, which waits: without this, Ctrl-C would leave a child.
        stack.callback(process.kill)
        running.add(process)
        complaints = _follow(process, note)
        if process.wait():
            raise N3icError(
                f"the simulation ended with code {process.returncode}: "
                f"{' '.join(complaints) or 'it printed no message'}"
            )
        output.seek(0)
        data = output.read()
    facts = {
        "ns3": ns3_version(),
        "simulator_sha256": source_digest(),
        "generator": "n3ic data generate tomography",
    }
    trace = from_stream(data, facts)
    expected = round(simulation.duration * 1e9 / trace.header["interval_ns"])
    if len(trace) < max(1, expected):
        raise DataError(f"the simulation wrote {len(trace)} of {expected} intervals")
    return trace


def _follow(process: subprocess.Popen[str], note: Note | None) -> list[str]:
    """Pass progress on, at most twenty times, and return the last other lines."""
    complaints: list[str] = []
    reported = -1
    assert process.stderr is not None  # noqa: S101 - opened as a pipe
    for line in process.stderr:
        words = line.split()
        if len(words) == 2 and words[0] == "interval" and "/" in words[1]:
            intervals, total = (int(n) for n in words[1].split("/"))
            if note and 20 * intervals // total > reported:
                reported = 20 * intervals // total
                note(f"simulated {intervals:,} of {total:,} intervals")
        elif line.strip():
            complaints = [*complaints, line.strip()][-5:]
    return complaints


def generate(
    simulation: Simulation | None = None,
    out: str | Path | None = None,
    *,
    runs: int = 1,
    jobs: int | None = None,
    note: Note | None = None,
) -> Path:
    """Simulate and write a trace file, whole or not at all.

    Args:
        simulation: its options; None for the defaults.
        out: the file to write; None for ``tomography.tomo.xz``.
        runs: number of independent runs to join, each of ``duration``; they use the substreams
            ``run``, ``run + 1`` and so on of the seed.
        jobs: number of runs at once; None for one per core. The trace does not depend on it.
        note: called with progress messages.

    Raises:
        MissingDependencyError: ns-3, the compiler or pkg-config is missing; the error names the
            packages.
        UsageError: an option or a count is out of range, or ``out`` is a folder or has none.
        N3icError: the program failed, or the file cannot be written.
    """
    simulation = simulation or Simulation()
    for name, count in (("runs", runs), ("jobs", jobs)):
        if count is not None and count < 1:
            raise UsageError(f"--{name}: expected 1 or more, got {count}")
    target = Path(out) if out is not None else Path(f"tomography{SUFFIX}")
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise UsageError(f"{target}: name a file in an existing folder")
    traces = _simulate_runs(
        [replace(simulation, run=simulation.run + i) for i in range(runs)],
        jobs or os.cpu_count() or 1,
        note,
    )
    return join(traces).save(target)


def _simulate_runs(runs: list[Simulation], jobs: int, note: Note | None) -> list[ProbeTrace]:
    """Run simulations, ``jobs`` at a time; if one fails, all others are ended."""
    with ExitStack() as stack:
        executable = program(stack, note)
        running = _Running()
        pool = stack.enter_context(ThreadPoolExecutor(min(jobs, len(runs))))

        def one(run: Simulation) -> ProbeTrace:
            def report(text: str) -> None:
                if note:
                    note(f"run {run.run}: {text}" if len(runs) > 1 else text)

            return _run(executable, run, report, running)

        futures = [pool.submit(one, run) for run in runs]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            running.end()
            raise
