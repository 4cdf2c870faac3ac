# SPDX-License-Identifier: Apache-2.0
"""Measuring MPI on this machine's cores, and what so many more cores would make of it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, log2

from n3ic.errors import ClusterError, MissingDependencyError
from n3ic.systems.cluster.simulation.components import Workload
from n3ic.systems.cluster.simulation.workloads import KernelProblem

REPEATS = 15
_SECONDS = 900


@dataclass(frozen=True)
class Messages:
    """Messages between two ranks of this machine, measured.

    Attributes:
        latency: seconds of a small one, one way.
        bytes_per_s: of a large one.
    """

    latency: float
    bytes_per_s: float


@dataclass(frozen=True)
class MpiMeasurement:
    """A kernel on MPI ranks.

    Attributes:
        kernel: its name.
        ranks: how many.
        seconds: of the fastest repetition, which others on the machine disturbed least.
        median: of all repetitions.
        processor: time of the slowest rank's core, without the last barrier, at best; what others
            do on the machine leaves it nearly alone.
        checksum: of the result; the same for any number of ranks.
    """

    kernel: str
    ranks: int
    seconds: float
    median: float
    processor: float
    checksum: int


@dataclass(frozen=True)
class Baseline:
    """What was measured.

    Attributes:
        library: that MPI is of.
        messages: between two ranks; None with a single one.
        kernels: an entry a problem.
    """

    library: str
    messages: Messages | None
    kernels: tuple[MpiMeasurement, ...]


def measure(problems: Sequence[KernelProblem], ranks: int, repeats: int = REPEATS) -> Baseline:
    """Run kernels with MPI on this machine, a core a rank.

    Args:
        problems: what is computed.
        ranks: processes.
        repeats: of each kernel.

    Raises:
        MissingDependencyError: mpi4py, or mpiexec and its library are not installed.
        ClusterError: the run failed.
    """
    _check_installed()
    request = json.dumps({"problems": [asdict(p) for p in problems], "repeats": repeats})
    command = [*_mpiexec(ranks), sys.executable, "-m", "n3ic.systems.cluster.mpi.worker", request]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # a rank that waits leaves its core to others
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"MPI took more than {_SECONDS} s; ask for smaller sizes") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise ClusterError(f"mpiexec ended with {done.returncode}: {' '.join(said)[:500]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    kernels = tuple(
        MpiMeasurement(
            k["kernel"],
            found["ranks"],
            min(k["seconds"]),
            sorted(k["seconds"])[len(k["seconds"]) // 2],
            min(k["processor"]),
            k["sum"],
        )
        for k in found["kernels"]
    )
    messages = Messages(**found["messages"]) if found["messages"] else None
    return Baseline(found["library"], messages, kernels)


def _check_installed() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingDependencyError("MPI needs mpi4py: pip install 'n3ic[cluster]'")
    if shutil.which("mpiexec") is None:
        raise MissingDependencyError(
            "MPI needs mpiexec and its library; on Debian: apt-get install openmpi-bin"
        )


def _mpiexec(ranks: int) -> list[str]:
    """Start ranks on the cores of this machine, more than it has where that is asked."""
    said = subprocess.run(["mpiexec", "--version"], capture_output=True, text=True, check=False)
    if "Open" not in said.stdout:
        return ["mpiexec", "-n", str(ranks)]
    cores = os.cpu_count() or 1
    binding = ["--bind-to", "core"] if ranks <= cores else ["--oversubscribe", "--bind-to", "none"]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpiexec", "-n", str(ranks), *binding, *root]


def on_cores(work: Workload, alone: float, ranks: int, messages: Messages) -> float:
    """Seconds that a kernel would take on more cores, each as fast as the one that was measured.

    Of its stages, the operations are divided as the workload says; what is exchanged goes round
    the ranks (the ring algorithm of ``MPI_Allgather``); two barriers a stage. Cores do not slow
    each other down, so that this is a bound in MPI's favour.

    Args:
        work: the kernel on so many nodes.
        alone: seconds of one core, measured.
        ranks: cores.
        messages: between two ranks, measured.
    """
    seconds, whole = 0.0, work.operations
    for stage in work.stages:
        seconds += alone * float(stage.local.max()) / whole if whole else 0.0
        if ranks == 1:
            continue
        if stage.gathered.any():
            each = messages.latency + float(stage.gathered.max()) / messages.bytes_per_s
            seconds += (ranks - 1) * each
        if stage.halo.any():
            seconds += 2 * (messages.latency + float(stage.halo.max()) / messages.bytes_per_s)
        if stage.local.any():
            seconds += 2 * ceil(log2(ranks)) * messages.latency
    return seconds
