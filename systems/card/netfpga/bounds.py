# SPDX-License-Identifier: Apache-2.0
"""Bounds on the latency that other tenants can add to a packet, whatever they send."""

from __future__ import annotations

from n3ic.systems.card.netfpga.image import (
    CardGraph,
    CoreTask,
    HardwarePass,
    NetfpgaCardImage,
    PacketStage,
)

ADDED = "the most that others can add, whatever they send"
_REQUEST_CLOCKS = 6  # of n3ic_card_memory
_ACCESSES = 2  # most that a task makes for a packet
LONGEST = 48  # beats of a frame of 1,518 bytes: ceil(1518 / 32)


def added_latency(image: NetfpgaCardImage, graph: CardGraph, longest: int = LONGEST) -> int:
    """Compute the maximum clocks that other tenants add to a packet.

    The packet waits behind no other of its own tenant. At the output, each other queue may have one
    turn first. On the way to a region, each other tenant's head packet may go first, and on the way
    back a packet of each other region. In a shared region, as many packets as it has credits may be
    ahead.

    Args:
        image: the card.
        graph: graph of the packet.
        longest: beats of the longest packet that others send.
    """
    others = len(image.tenants)  # queues of the other tenants, and the one without a graph
    clocks = others * longest
    for branch in graph.branches:
        for leg in branch:
            # On the way in, each other tenant may go first twice: when heads are fetched, and when
            # they are sent.
            clocks += 2 * (len(image.tenants) - 1) + len(image.regions) - 1
            clocks += _memory(image, leg)
            if _shared(image, graph, leg.regions):
                clocks += (1 << image.credit_w) * max(_interval(image, r) for r in leg.regions)
    return clocks


def _memory(image: NetfpgaCardImage, leg: HardwarePass) -> int:
    """Return the clocks of other ports' requests before a leg's own to the on-board memory.

    The memory's own time is not among them.
    """
    region = image.regions[leg.regions[0]]
    tasks = (region.tasks[k] for k in leg.tasks)
    own = sum(isinstance(task, PacketStage) and task.pages > 0 for task in tasks)
    # A request of each other port, and one of the card for zeros.
    return own * _ACCESSES * _REQUEST_CLOCKS * len(image.memory_stages)


def _shared(image: NetfpgaCardImage, graph: CardGraph, regions: tuple[int, ...]) -> bool:
    return any(
        set(regions) & set(leg.regions)
        for other in image.graphs
        if other.tenant != graph.tenant
        for branch in other.branches
        for leg in branch
    )


def _interval(image: NetfpgaCardImage, region: int) -> int:
    """Return the clocks between packets of the slowest task of a region."""
    clocks = 1
    for task in image.regions[region].tasks:
        if isinstance(task, CoreTask):
            clocks = max(clocks, task.interval)
    return clocks
