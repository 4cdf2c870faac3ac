# SPDX-License-Identifier: Apache-2.0

# ruff: noqa: T201 - its output is what the test reads
"""VGG-11 over four processes and a card, and in one process; test_cluster_tap.py runs it."""

import sys
import time

import numpy as np
import torch

from n3ic.systems.cluster.launch import RingOptions
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.networks.card_step import network_with_card
from n3ic.systems.cluster.networks.compile import compile_module
from n3ic.systems.cluster.networks.operations import Convolution, Dense
from n3ic.systems.cluster.udp import FaultInjection
from scripts.fcsn.networks import settled, vgg11

KINDS = {"convolution": Convolution, "dense": Dense}


def main(kind: str, width: int, items: int) -> None:
    shape = (64, 3, 32, 32)
    torch.manual_seed(0)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    network = compile_module(settled(vgg11(width), shape), images)
    given = network.encode(images[:items].numpy())
    began = time.monotonic()
    want = network.scores(given)
    one = time.monotonic() - began
    steps = [i for i, s in enumerate(network.steps) if isinstance(s.operation, KINDS[kind])]
    step = steps[min(2, len(steps) - 1)]
    options = RingOptions(timing=LinkTiming(limit=120), faults=FaultInjection(0.01, 1))
    with network_with_card(network, step, 4, options=options) as running:
        began = time.monotonic()
        scores = running.scores(given)
        taken = time.monotonic() - began
    right = np.array_equal(scores, want)
    print(f"step {step}: {right}, {taken:.2f} s, one process {one:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
