# SPDX-License-Identifier: Apache-2.0
"""Simulate a card: its control loop over a card in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np

from n3ic.systems.card.control.loop import ControlLoop
from n3ic.systems.card.control.scenario import Failure, Scenario
from n3ic.systems.card.simulation.baselines import SharingPolicy, placement
from n3ic.systems.card.simulation.device import DeviceEvent, VirtualTimeCard
from n3ic.systems.card.simulation.packets import packets_of
from n3ic.systems.card.simulation.trace import CardTrace, GraphTrace

_PROGRESS_STEPS = 100


def simulate(
    scenario: Scenario,
    policy: SharingPolicy,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> CardTrace:
    """Simulate a card.

    Args:
        scenario: board, tasks, tenants and their loads.
        policy: how the card is shared.
        seed: random seed; the same seed gives the same packets under every policy.
        progress: called with the completed fraction, 0 to 1.

    Raises:
        MissingDependencyError: no C compiler is installed.
    """
    return _Simulation(scenario, policy, seed).run(progress)


class _Simulation:
    """A card, its control loop, and what is to happen at which cycle."""

    def __init__(self, scenario: Scenario, policy: SharingPolicy, seed: int) -> None:
        self.scenario, self.policy, self.seed = scenario, policy, seed
        self.packets = {g.name: packets_of(scenario, g, seed) for g in scenario.graphs}
        placed = placement(policy, scenario)
        self.card = VirtualTimeCard(scenario, policy, placed, self.packets)
        chains = [p.chain for p in placed]
        self.control = ControlLoop(scenario, self.card, chains, adapts=policy.adapts)
        self.busy = [self.card.busy()]
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self.now = 0.0

    def run(self, progress: Callable[[float], None]) -> CardTrace:
        scenario, end = self.scenario, self.card.cycle(self.scenario.seconds)
        bin_ = max(1, self.card.cycle(scenario.seconds / scenario.bins))
        for i in range(1, scenario.bins + 1):
            self._at(min(i * bin_, end), lambda: self.busy.append(self.card.busy()))
        for i in range(1, _PROGRESS_STEPS + 1):
            self._at(end * i // _PROGRESS_STEPS, partial(progress, i / _PROGRESS_STEPS))
        for failure in scenario.failures:
            self._at(self.card.cycle(failure.at), partial(self._fail, failure))
        if self.policy.adapts:
            self._at(self.card.cycle(scenario.board.monitor), self._monitor)
            for tenant in scenario.tenants:
                if tenant.arrives > 0:
                    self._at(self.card.cycle(tenant.arrives), partial(self._deploy, tenant.name))
        while self._agenda and self._agenda[0][0] <= end:
            cycle, _, action = heapq.heappop(self._agenda)
            self._reach(cycle)
            action()
        return self._trace(bin_ * scenario.region_area)

    def _at(self, cycle: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (cycle, next(self._numbers), action))

    def _reach(self, cycle: int) -> None:
        """Run the card to a cycle, with the control loop where it is needed."""
        while True:
            event, self.now, which = self.card.run(cycle)
            if event == DeviceEvent.REACHED:
                return
            if event == DeviceEvent.USE:
                self.control.use(self.scenario.graphs[which].name, self.now)
            else:
                self.control.restart(which, self.now)

    def _monitor(self) -> None:
        self.control.step(self.now)
        self._at(self.card.cycle(self.now + self.scenario.board.monitor), self._monitor)

    def _deploy(self, tenant: str) -> None:
        self.control.deploy(tenant, self.now)

    def _fail(self, failure: Failure) -> None:
        self.card.jam(failure.region)
        if failure.kind == "lost":
            self.control.lose(failure.region, self.now)

    def _trace(self, area_cycles: float) -> CardTrace:
        scenario, counts = self.scenario, self.card.counts()
        regions, tenants = (np.diff(a, axis=0) for a in zip(*self.busy, strict=True))
        return CardTrace(
            scenario,
            self.policy,
            self.seed,
            {name: GraphTrace(own, **counts[name]) for name, own in self.packets.items()},
            regions / area_cycles,
            tenants / (area_cycles * scenario.regions),
            tuple(self.control.events),
        )
