# SPDX-License-Identifier: Apache-2.0
"""Bounds on a packet's latency in the card, however much the other tenants send."""

from __future__ import annotations

from n3ic.systems.card.control.loads import OVERHEAD_BYTES
from n3ic.systems.card.control.scenario import Scenario, SimGraph


def latency_bound(scenario: Scenario, graph: SimGraph, longest: int) -> float:
    """Compute the longest time in the card for a packet of a graph that keeps to its bucket.

    At a task, a packet waits behind at most as many packets as the task has credits, plus the burst
    of its own graph. At each pass of the scheduler it also waits behind one packet of every other
    graph. Fair queueing by virtual start times never serves a flow that keeps to its rate later
    than that.

    Args:
        scenario: the scenario; its regions must serve the rates that all graphs are entitled to.
        graph: the graph whose packets are bounded.
        longest: length of the longest frame of any graph, in bytes.

    Returns:
        The bound in nanoseconds.

    References:
        Goyal, Vin and Cheng, "Start-time Fair Queuing" (SIGCOMM 1996), theorem 4.
    """
    board, graphs = scenario.board, len(scenario.graphs)
    cycles = float(board.fixed)
    for name in graph.flow.tasks():
        task = scenario.tasks[name]
        ahead = task.credits + graphs + graph.burst
        # Every packet ahead is taken to be as long as the longest frame: lengths of others are not
        # bounded by this graph.
        wait = ahead * (task.busy(longest, board.clock_hz) + board.schedule_interval)
        cycles += board.schedule + wait + task.latency
    # The output port is first come, first served, so it adds one frame of each graph and the burst.
    wire = (graphs + graph.burst) * (longest + OVERHEAD_BYTES) * board.wire
    return cycles / board.clock_hz * 1e9 + wire * 1e9
