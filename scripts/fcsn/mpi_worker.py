# SPDX-License-Identifier: Apache-2.0
"""One MPI rank, started by ``mpiexec -n 2 python -m`` with a request; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from scripts.fcsn.mpi_kernels import prepare
from scripts.fcsn.workloads import GraphSize, KernelProblem

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

_PING_BYTES = (8, 1 << 20)
_PINGS = 300


def main() -> None:
    """Time each problem of the request and the exchange of messages."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    request = json.loads(sys.argv[1])
    result = {
        "ranks": comm.size,
        "library": MPI.Get_library_version().split(",")[0],
        "messages": _messages(comm),
        "kernels": [_timed(_problem(p), comm, request["repeats"]) for p in request["problems"]],
    }
    if comm.rank == 0:
        sys.stdout.write(json.dumps(result) + "\n")


def _problem(data: dict[str, Any]) -> KernelProblem:
    graph = GraphSize(**data.pop("graph"))
    return KernelProblem(**{**data, "shape": tuple(data["shape"]), "graph": graph})


def _timed(problem: KernelProblem, comm: Comm, repeats: int) -> dict[str, Any]:
    """Measure elapsed and processor seconds of each repetition, and a checksum of the result."""
    run = prepare(problem, comm)
    # The first run is not timed: it fills caches and opens connections between ranks.
    out = run()
    seconds, processor = [], []
    for _ in range(repeats):
        comm.Barrier()
        began, spent = time.perf_counter(), time.process_time()
        out = run()
        spent = time.process_time() - spent
        comm.Barrier()
        # A kernel has ended when its slowest rank has.
        seconds.append(max(comm.allgather(time.perf_counter() - began)))
        processor.append(max(comm.allgather(spent)))
    sums = comm.allgather(int(np.rint(out.astype(np.float64)).sum()))
    return {"kernel": problem.kernel, "seconds": seconds, "processor": processor, "sum": sum(sums)}


def _messages(comm: Comm) -> dict[str, float]:
    """Measure one-way latency and throughput of messages between ranks 0 and 1."""
    if comm.size < 2:
        return {}
    times = []
    for size in _PING_BYTES:
        data = np.zeros(size, dtype=np.uint8)
        best = np.inf
        for _ in range(_PINGS):
            comm.Barrier()
            began = time.perf_counter()
            if comm.rank == 0:
                comm.Send(data, 1)
                comm.Recv(data, 1)
            elif comm.rank == 1:
                comm.Recv(data, 0)
                comm.Send(data, 0)
            best = min(best, (time.perf_counter() - began) / 2)
        times.append(best)
    small, large = comm.bcast(times)
    # Not the difference of the two times: on a busy machine the small message may take longer.
    return {"latency": small, "bytes_per_s": _PING_BYTES[1] / large}


if __name__ == "__main__":
    main()
