# SPDX-License-Identifier: Apache-2.0
"""A card's library in this process as the control loop drives it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from n3ic.errors import VerifyError
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.driver import Chain, GraphCounters
from n3ic.systems.card.host.embedded_model import weights_of
from n3ic.systems.card.host.library import CardLibrary

WIRE_NAME = "(wire)"  # as card-exec names the frames that name no graph
_SECOND = 10**9
_TOGETHER = 32  # frames after which answers are taken; far fewer than wait in a queue


class HostDriver:
    """An open card; see :class:`~n3ic.systems.card.driver.RunningCard`.

    A region holds the networks of its chain. A network that no region holds is removed, so frames
    that need it are refused. Frames that were admitted before keep their network.

    Args:
        card: the exported card.
        library: its library.
        lengths: bytes of a frame of each graph, which turn packets into bytes per second.
        threads: threads that compute; with 0, the caller's.
    """

    def __init__(
        self, card: SoftwareCard, library: CardLibrary, lengths: Mapping[str, float], threads: int
    ) -> None:
        self._card = card
        self._lengths = lengths
        self._threads = threads
        self._sent = 0
        self._running = library.open(threads)
        self._numbers = {name: i for i, name in enumerate(card.networks)}
        self._regions: dict[int, frozenset[str]] = {}
        self._loaded = frozenset(card.networks)
        self._rates = [t.rate for t in card.tenants]
        self._change_networks()

    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the frames that named each graph; none of them waits for a chain."""
        self._collect()
        return {
            graph.name: GraphCounters(self._running.asked(i), 0)
            for i, graph in enumerate(self._card.graphs)
        }

    def set_rates(self, rates: Mapping[str, float], now: float) -> None:
        """Set the tenants' token buckets; who is guaranteed nothing gets a byte per second."""
        for number, tenant in enumerate(self._card.tenants):
            own = [g.name for g in self._card.graphs if g.tenant == number]
            wanted = math.ceil(sum(rates[name] * self._lengths[name] for name in own))
            self._rates[number] = max(1, wanted)
            status = self._running.set_rate(
                number, self._rates[number], tenant.burst, round(now * _SECOND)
            )
            if status:
                raise VerifyError(f"the card: the rate of {tenant.name}: {status.name.lower()}")

    def load(self, region: int, chain: Chain, ready: float) -> None:
        """Load the networks of a chain; see the protocol. It is ready at once."""
        self._regions[region] = frozenset(chain) & self._numbers.keys()
        self._change_networks()

    def unload(self, region: int) -> None:
        """Remove the networks that no other region holds; see the protocol."""
        self._regions.pop(region, None)
        self._change_networks()

    def send(self, frame: bytes, now: float) -> None:
        """Submit a frame as one from the wire; see the protocol."""
        self._running.submit(frame, round(now * _SECOND))
        self._sent += 1
        if self._sent % _TOGETHER == 0:
            self._collect()

    def finish(self) -> None:
        """Wait for all answers, and drop them; see the protocol."""
        self._running.wait()
        self._collect()

    def guaranteed(self) -> Mapping[str, int]:
        """Return the rates of the token buckets; see the protocol."""
        return {t.name: r for t, r in zip(self._card.tenants, self._rates, strict=True)}

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the library's counters; see the protocol."""
        self._collect()
        tenants = {t.name: self._running.counters(i) for i, t in enumerate(self._card.tenants)}
        return {**tenants, WIRE_NAME: self._running.counters()}

    def _collect(self) -> None:
        """Take all answers that are ready: their frames would be sent now."""
        if not self._threads:
            self._running.wait()
        for tenant in range(len(self._card.tenants)):
            self._running.discard(tenant)

    def _change_networks(self) -> None:
        wanted = frozenset[str]().union(*self._regions.values())
        for name in sorted(self._loaded ^ wanted):
            weights = weights_of(self._card.networks[name]) if name in wanted else None
            status = self._running.load(self._numbers[name], weights)
            if status:
                raise VerifyError(f"the card: {name}: {status.name.lower()}")
        self._loaded = wanted
