# SPDX-License-Identifier: Apache-2.0
"""Bounds on a packet's latency in the card, however much the other tenants send."""

from __future__ import annotations

from n3ic.systems.card.simulation.loads import OVERHEAD_BYTES
from n3ic.systems.card.simulation.scenario import Scenario, SimGraph


def latency_bound(scenario: Scenario, graph: SimGraph, longest: int) -> float:
    """Maximum nanoseconds in the card for a packet of a graph that keeps to its bucket.

    At each task a packet is behind as many others as the task has credits, its own graph's burst
    included, and before each pass of the scheduler behind one packet of every other graph: fair
    queueing from virtual start times serves a flow that keeps to its rate no later than that.

    Args:
        scenario: with regions that serve what all are entitled to.
        graph: whose packets.
        longest: bytes of the longest frame of any graph.

    References:
        Goyal, Vin and Cheng, "Start-time Fair Queuing" (SIGCOMM 1996), theorem 4.
    """
    board, graphs = scenario.board, len(scenario.graphs)
    cycles = float(board.fixed)
    for name in graph.flow.tasks():
        task = scenario.tasks[name]
        ahead = task.credits + graphs + graph.burst
        wait = ahead * (task.busy(longest, board.clock_hz) + board.schedule_interval)
        cycles += board.schedule + wait + task.latency
    wire = (graphs + graph.burst) * (longest + OVERHEAD_BYTES) * board.wire
    return cycles / board.clock_hz * 1e9 + wire * 1e9
