# SPDX-License-Identifier: Apache-2.0
"""One MPI rank with its part of a network; rank 0 prints JSON. Started as :mod:`.mpi_worker` is."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from n3ic.systems.cluster.networks.network import IntegerNetwork
from n3ic.systems.cluster.networks.pipeline import layout
from scripts.fcsn.network_runs import compiled, random_items, scores_digest

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


def main() -> None:
    """Compute the items of the request in parts, several times, and time each run."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    request = json.loads(sys.argv[1])
    network = compiled(request["network"])
    items = random_items(network, request["items"])
    with threadpool_limits(1):
        _run(network, comm, request["ends"], request["rows"], items[: request["rows"]])
        seconds = []
        for _ in range(request["repeats"]):
            comm.Barrier()
            began = time.perf_counter()
            scores = _run(network, comm, request["ends"], request["rows"], items)
            seconds.append(max(comm.allgather(time.perf_counter() - began)))
    digest = comm.allgather(scores_digest(scores))[-1]
    if comm.rank == 0:
        sys.stdout.write(json.dumps({"seconds": seconds, "scores": digest}) + "\n")


def _run(
    network: IntegerNetwork, comm: Comm, ends: list[int], rows: int, items: NDArray[np.generic]
) -> NDArray[np.int32]:
    """Compute this rank's part of all items, ``rows`` at a time; the last rank has the scores."""
    from mpi4py import MPI

    first, last = ends[comm.rank], ends[comm.rank + 1]
    part, given, gives = network.part(first, last), layout(network, first), layout(network, last)
    scores, sent = [], MPI.REQUEST_NULL
    for at in range(0, len(items), rows):
        block = items[at : at + rows]
        if comm.rank:
            octets = np.empty((len(block), given.bytes), dtype=np.uint8)
            comm.Recv(octets, comm.rank - 1)
            results = part.compute(given.unpack(octets))
        else:
            results = part.compute([block])
        if comm.rank + 1 < comm.size:
            sent.Wait()  # one message is on its way while the next rows are computed
            octets = gives.pack(results)
            sent = comm.Isend(octets, comm.rank + 1)
        else:
            scores.append(results[0].reshape(len(block), -1).astype(np.int32))
    sent.Wait()
    return np.concatenate(scores) if scores else np.zeros((0, 0), dtype=np.int32)


if __name__ == "__main__":
    main()
