# SPDX-License-Identifier: Apache-2.0
"""Small cards that several tests simulate."""

from n3ic.systems.card.control.loads import Load
from n3ic.systems.card.control.scenario import (
    Board,
    PlacedChain,
    Scenario,
    SimGraph,
    SimTask,
    SimTenant,
)
from n3ic.systems.card.description import Series

SIZE = 512


def rate_of(gbps, packet_bytes):
    """Packets per second of a bandwidth of frames without preamble and gap."""
    return gbps * 1e9 / (8 * packet_bytes)


def graph(tenant, tasks, gbps, entitled=None, kind="poisson", weight=1.0, **load):
    flow = tasks if isinstance(tasks, Series) else Series(tuple(tasks))
    rate = rate_of(gbps, SIZE)
    due = rate if entitled is None else rate_of(entitled, SIZE)
    return SimGraph(f"{tenant}/g", tenant, flow, Load(rate, kind, SIZE, **load), due, weight)


def figure_4(first, second, seconds=1e-3, **change):
    """SuperNIC's figure 4: four tasks and two of them, on three regions of two."""
    return Scenario(
        Board(),
        {f"t{i}": SimTask(f"t{i}", latency=10, gbps=10) for i in range(1, 5)},
        (SimTenant("u1"), SimTenant("u2")),
        (
            graph("u1", ("t1", "t2", "t3", "t4"), first, 7.27, weight=8),
            graph("u2", ("t2", "t4"), second, 12.72, weight=7),
        ),
        3,
        2.0,
        (PlacedChain(("t1", "t2")), PlacedChain(("t3", "t4")), PlacedChain(("t2", "t4"))),
        seconds,
        **{"bins": 4, **change},
    )
