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
from n3ic.systems.cluster.networks.pipeline import NetworkPipeline, layout
from scripts.fcsn.network_runs import compiled, random_items, scores_digest

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


def main() -> None:
    """Compute the items of the request in parts, several times, and time each run."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    request = json.loads(sys.argv[1])
    network = compiled(request["network"])
    pipeline = NetworkPipeline(tuple(request["ends"]), (), tuple(request["replicas"]))
    rows, items = request["rows"], random_items(network, request["items"])
    with threadpool_limits(1):
        _run(network, pipeline, comm, rows, items[: rows * comm.size])
        seconds = []
        for _ in range(request["repeats"]):
            comm.Barrier()
            began = time.perf_counter()
            scores = _run(network, pipeline, comm, rows, items)
            seconds.append(max(comm.allgather(time.perf_counter() - began)))
    tiles = {tag: tile for some in comm.allgather(scores) for tag, tile in some.items()}
    if comm.rank == 0:
        digest = scores_digest(np.concatenate([tiles[tag] for tag in sorted(tiles)]))
        sys.stdout.write(json.dumps({"seconds": seconds, "scores": digest}) + "\n")


def _run(
    network: IntegerNetwork,
    pipeline: NetworkPipeline,
    comm: Comm,
    rows: int,
    items: NDArray[np.generic],
) -> dict[int, NDArray[np.int32]]:
    """Compute this rank's part of its tiles of ``rows`` items; the last part returns their scores.

    Ranks are the nodes of a ring without its coordinator; those of the first part make the items.
    """
    from mpi4py import MPI

    node = comm.rank + 1
    number = pipeline.part_of(node)
    first, last = pipeline.ends[number : number + 2]
    part, given, gives = network.part(first, last), layout(network, first), layout(network, last)
    scores, sent = {}, MPI.REQUEST_NULL
    for tag, at in enumerate(range(0, len(items), rows)):
        if pipeline.taker(number, tag) != node:
            continue
        block = items[at : at + rows]
        if number:
            octets = np.empty((len(block), given.bytes), dtype=np.uint8)
            comm.Recv(octets, pipeline.taker(number - 1, tag) - 1)
            results = part.compute(given.unpack(octets))
        else:
            results = part.compute([block])
        if number + 1 < pipeline.parts:
            sent.Wait()  # one message is on its way while the next rows are computed
            octets = gives.pack(results)
            sent = comm.Isend(octets, pipeline.taker(number + 1, tag) - 1)
        else:
            scores[tag] = results[0].reshape(len(block), -1).astype(np.int32)
    sent.Wait()
    return scores


if __name__ == "__main__":
    main()
