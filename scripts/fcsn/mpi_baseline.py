# SPDX-License-Identifier: Apache-2.0
"""Measure MPI on this machine's cores, and extrapolate to more cores."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log2
from pathlib import Path
from typing import Any

from n3ic.errors import ClusterError, MissingDependencyError
from n3ic.systems.cluster.simulation.components import Workload
from scripts.fcsn.workloads import KernelProblem

REPEATS = 15
_SECONDS = 900
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Messages:
    """Measured messages between two ranks of this machine.

    Attributes:
        latency: one-way seconds of a small message.
        bytes_per_s: throughput of a message of a megabyte, its latency included.
    """

    latency: float
    bytes_per_s: float


@dataclass(frozen=True)
class MpiMeasurement:
    """A kernel on MPI ranks.

    Attributes:
        kernel: name of the kernel.
        ranks: number of ranks.
        seconds: seconds of the fastest repetition, which other processes disturbed least.
        median: median seconds of all repetitions.
        processor: processor seconds of the slowest rank without the last barrier, in the best
            repetition; other processes barely affect it.
        checksum: checksum of the result; the same for any number of ranks.
    """

    kernel: str
    ranks: int
    seconds: float
    median: float
    processor: float
    checksum: int


@dataclass(frozen=True)
class Baseline:
    """Measurements of the baseline.

    Attributes:
        library: name of the MPI library.
        messages: messages between two ranks; None with a single rank.
        kernels: one measurement per problem.
    """

    library: str
    messages: Messages | None
    kernels: tuple[MpiMeasurement, ...]


def measure(problems: Sequence[KernelProblem], ranks: int, repeats: int = REPEATS) -> Baseline:
    """Run kernels with MPI on this machine, one core per rank.

    Args:
        problems: problems to compute.
        ranks: number of processes.
        repeats: repetitions of each kernel.

    Raises:
        MissingDependencyError: mpi4py, or mpiexec and its library, are not installed.
        ClusterError: The run failed.
    """
    request = {"problems": [asdict(p) for p in problems], "repeats": repeats}
    result = run_ranks("mpi_worker", request, ranks)
    kernels = tuple(
        MpiMeasurement(
            k["kernel"],
            result["ranks"],
            min(k["seconds"]),
            sorted(k["seconds"])[len(k["seconds"]) // 2],
            min(k["processor"]),
            k["sum"],
        )
        for k in result["kernels"]
    )
    messages = Messages(**result["messages"]) if result["messages"] else None
    return Baseline(result["library"], messages, kernels)


def run_ranks(worker: str, request: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """Run a worker on MPI ranks of this machine, and return what rank 0 prints.

    Args:
        worker: module of this package.
        request: what each rank reads.
        ranks: number of processes.

    Raises:
        MissingDependencyError: mpi4py, or mpiexec and its library, are not installed.
        ClusterError: the run failed, or took too long.
    """
    _check_installed()
    module = f"scripts.fcsn.{worker}"
    command = [*_mpiexec(ranks), sys.executable, "-m", module, json.dumps(request)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # a rank that waits leaves its core to others
    }
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            cwd=_ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"MPI took more than {_SECONDS} s; ask for smaller sizes") from error
    if process.returncode:
        last_lines = (process.stderr.strip() or process.stdout.strip()).splitlines()[-5:]
        raise ClusterError(f"mpiexec ended with {process.returncode}: {' '.join(last_lines)[:500]}")
    result: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return result


def _check_installed() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingDependencyError("MPI needs mpi4py: pip install mpi4py")
    if shutil.which("mpiexec") is None:
        raise MissingDependencyError(
            "MPI needs mpiexec and its library; on Debian: apt-get install openmpi-bin"
        )


def _mpiexec(ranks: int) -> list[str]:
    """Return the command that starts ranks, oversubscribed if there are fewer cores."""
    version = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False)
    # Only Open MPI knows the options below; it refuses to run as root without one.
    if "Open" not in version.stdout:
        return ["mpiexec", "-n", str(ranks)]
    cores = os.cpu_count() or 1
    binding = ["--bind-to", "core"] if ranks <= cores else ["--oversubscribe", "--bind-to", "none"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpiexec", "-n", str(ranks), *binding, *root]


def on_cores(work: Workload, alone: float, ranks: int, messages: Messages) -> tuple[float, float]:
    """Estimate a kernel on more cores, each as fast as the measured one.

    The operations of each stage are divided as the workload says. Data is exchanged by recursive
    doubling, and a barrier stands behind each exchange and each computation. Cores do not slow each
    other down, so the estimate is a bound in MPI's favour.

    Args:
        work: the kernel on ``ranks`` nodes.
        alone: measured seconds on one core.
        ranks: number of cores.
        messages: measured messages between two ranks.

    Returns:
        Seconds of computation, and of messages and barriers.
    """
    whole, steps = work.operations, ceil(log2(ranks))
    computing = sum(float(stage.local.max()) for stage in work.stages) / whole * alone
    bytes_sent, latencies = 0.0, 0
    for stage in work.stages if ranks > 1 else ():
        # A part doubles with each step, until all others have arrived.
        bytes_sent += (ranks - 1) * float(stage.gathered.max()) + 2 * float(stage.halo.max())
        exchanges = steps * int(stage.gathered.any()) + 2 * int(stage.halo.any())
        # A barrier by dissemination takes log2(n) messages, too.
        latencies += exchanges + steps * (bool(exchanges) + int(stage.local.any()))
    return computing, latencies * messages.latency + bytes_sent / messages.bytes_per_s
