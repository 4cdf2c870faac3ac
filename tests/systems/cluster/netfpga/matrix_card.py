# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: T201 - its output is what the test reads
"""Kernels of integers over two processes and a card; test_cluster_tap.py runs it."""

import numpy as np

from n3ic.errors import ClusterError
from n3ic.systems.cluster.convolution import Filters
from n3ic.systems.cluster.fcsn_api import initialise
from n3ic.systems.cluster.kernels import ConvolutionKernel, GemmKernel, SparseKernel
from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.matrices import AggregationKernel
from n3ic.systems.cluster.sparse import Combine
from n3ic.systems.cluster.udp import FaultInjection

CARD = {2: "netfpga"}


def main() -> None:
    rng = np.random.default_rng(0)
    matrix, rows = rng.integers(-128, 128, (37, 29)), rng.integers(-(1 << 31), 1 << 31, (40, 37))
    filters = Filters(rng.integers(-128, 128, (7, 3, 3, 3)), (9, 11, 3), padding=1)
    image = rng.integers(-(1 << 31), 1 << 31, filters.shape)
    graph = (rng.random((230, 230)) < 0.03).astype(int)
    features = rng.integers(-99, 99, (230, 8))
    options = RingOptions(timing=LinkTiming(limit=60), faults=FaultInjection(0.01, 3))
    # One after another: a node's card has one device.
    with initialise(3, options) as cluster:
        cluster.load("gemm", GemmKernel(matrix), simulated=CARD)
        product = cluster.synchronise(cluster.start("gemm", rows))
        print("gemm", np.array_equal(product, rows @ matrix))
    with initialise(3, options) as cluster:
        for kernel in (SparseKernel((3, 3)), SparseKernel((3, 3), sparse=True)):
            try:
                cluster.load("no", kernel, simulated=CARD)
            except ClusterError as error:
                print(error)
        cluster.load("image", ConvolutionKernel(filters))
        cluster.load("strips", ConvolutionKernel(filters), simulated=CARD)
        both = [cluster.synchronise(cluster.start(name, image)) for name in ("image", "strips")]
        print("convolution", np.array_equal(*both))
    with initialise(3, options) as cluster:
        cluster.load("mean", AggregationKernel(graph, Combine.MEAN), simulated=CARD)
        means = cluster.synchronise(cluster.start("mean", features))
        right = np.concatenate([graph @ features, graph.sum(1, keepdims=True)], axis=1)
        print("mean", np.array_equal(means, right))


if __name__ == "__main__":
    main()
