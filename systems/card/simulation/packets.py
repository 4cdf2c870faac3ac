# SPDX-License-Identifier: Apache-2.0
"""Packets of a simulation: when they arrive, and what becomes of them."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

from n3ic.systems.card.control.scenario import Scenario, SimGraph

NEVER = 2**64 - 1

PACKET = np.dtype(
    [
        *((name, np.uint64) for name in ("arrived", "admitted", "paid", "departed")),
        ("bytes", np.uint32),
        *((name, np.uint8) for name in ("decides", "fate", "beyond", "begun", "finished")),
    ],
    align=True,
)
"""``struct device_packet`` of ``device.h``. Times are in clock cycles, or :data:`NEVER`."""

Packets = np.ndarray[Any, np.dtype[np.void]]


class Fate(IntEnum):
    """What became of a packet."""

    COMING = 0
    QUEUED = 1
    INSIDE = 2
    LEFT = 3
    DROPPED = 4
    CUT_OFF = 5


def packets_of(scenario: Scenario, graph: SimGraph, seed: int) -> Packets:
    """Generate the packets of a graph, in the order of time.

    Args:
        scenario: the card and its load.
        graph: one of its graphs.
        seed: random seed; each graph has a stream of its own, under every policy the same.
    """
    hz = scenario.board.clock_hz
    arrivals = [(math.ceil(p.time * hz - 1e-6), p.bytes) for p in scenario.packets(graph, seed)]
    out = np.zeros(len(arrivals), PACKET)
    for name, values in zip(("arrived", "bytes"), zip(*arrivals, strict=True), strict=False):
        out[name] = values
    for name in ("admitted", "paid", "departed"):
        out[name] = NEVER
    rng = np.random.default_rng([seed, 1, scenario.graphs.index(graph)])
    out["decides"] = rng.random(len(out)) < graph.deciding
    return out
