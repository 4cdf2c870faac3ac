# SPDX-License-Identifier: Apache-2.0
"""What drivers of software share: networks by region, and token buckets of tenants."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from n3ic.model.classifier import Classifier
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.control.regions import Costs
from n3ic.systems.card.control.scenario import Scenario
from n3ic.systems.card.driver import Chain, GraphCounters
from n3ic.systems.card.frames import traffic

_WINDOW = 0.1  # seconds of a monitoring window
_HOLD = 1.0  # seconds that a chain serves before another takes its region


class SoftwareDriver(ABC):
    """A card in software; see :class:`~n3ic.systems.card.control.run.RunningCard`.

    A region holds the networks of its chain. A network that no region holds, or that no tenant uses
    who is there, is removed, so frames that need it are refused.

    Args:
        card: the exported card, whose networks are all loaded.
        lengths: bytes of a frame of each graph, which turn packets into bytes per second.
    """

    simulated = False

    def __init__(self, card: SoftwareCard, lengths: Mapping[str, float]) -> None:
        self.card = card
        self._lengths = lengths
        self._regions: dict[int, frozenset[str]] = {}
        self._used = self._loaded = frozenset(card.networks)
        self._rates = [t.rate for t in card.tenants]
        self._began: float | None = None
        self._change_networks()

    @abstractmethod
    def set_network(self, name: str, model: Classifier | None) -> None:
        """Load a network, or (with None) remove it."""

    @abstractmethod
    def set_rate(self, tenant: int, rate: int, burst: int, now: float) -> None:
        """Set a tenant's token bucket, which keeps what it holds."""

    @abstractmethod
    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the counters of each graph; no frame waits for a chain."""

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Set the tenants' token buckets; who is not there gets a byte per second."""
        for number, tenant in enumerate(self.card.tenants):
            own = [g.name for g in self.card.graphs if g.tenant == number]
            wanted = math.ceil(sum(rates.get(n, 0.0) * self._lengths[n] for n in own))
            self._rates[number] = max(1, wanted)
            self.set_rate(number, self._rates[number], tenant.burst, now)
        there = (g for g in self.card.graphs if g.name in rates)
        self._used = frozenset(b.task for g in there for b in g.branches)
        self._change_networks()

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Load the networks of a chain; see the protocol. It is ready at once."""
        self._regions[region] = frozenset(chain) & self.card.networks.keys()
        self._change_networks()

    def unload(self, region: int) -> None:
        """Remove the networks that no other region holds; see the protocol."""
        self._regions.pop(region, None)
        self._change_networks()

    def fitted(self, scenario: Scenario) -> Scenario:
        """Set the times of software, where networks are loaded at once."""
        board = replace(scenario.board, monitor=_WINDOW, hold=_HOLD, costs=Costs(0.0, 0.0))
        return replace(scenario, board=board)

    def requests(self, count: int) -> Mapping[str, Sequence[bytes]]:
        """Make frames; see the protocol."""
        out: dict[str, list[bytes]] = {g.name: [] for g in self.card.graphs}
        for request in traffic(self.card, count):
            out[self.card.graphs[request.graph].name].append(request.frame)
        return out

    def wait(self, until: float) -> float:
        """Sleep until a second, if it is not past; see the protocol."""
        if self._began is None:
            self._began = time.monotonic()
        left = until - (time.monotonic() - self._began)
        if left > 0:
            time.sleep(left)
        return time.monotonic() - self._began

    def guaranteed(self) -> Mapping[str, int]:
        """Return the rates of the token buckets; see the protocol."""
        return {t.name: r for t, r in zip(self.card.tenants, self._rates, strict=True)}

    def _change_networks(self) -> None:
        wanted = self._used.intersection({n for names in self._regions.values() for n in names})
        for name in sorted(self._loaded ^ wanted):
            self.set_network(name, self.card.networks[name] if name in wanted else None)
        self._loaded = wanted
