# SPDX-License-Identifier: Apache-2.0
"""A card's library in this process as the control loop drives it."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.errors import VerifyError
from n3ic.model.classifier import Classifier
from n3ic.systems.card.compile import SoftwareCard
from n3ic.systems.card.driver import WIRE_NAME, GraphCounters
from n3ic.systems.card.host.embedded_model import weights_of
from n3ic.systems.card.host.library import CallStatus, CardLibrary
from n3ic.systems.card.software_driver import SoftwareDriver

_SECOND = 10**9
_TOGETHER = 32  # frames after which answers are taken; far fewer than wait in a queue


class HostDriver(SoftwareDriver):
    """An open card; frames that were admitted keep their network when it is removed.

    Args:
        card: the exported card.
        library: its library.
        lengths: bytes of a frame of each graph.
        threads: threads that compute; with 0, the caller's.
    """

    def __init__(
        self, card: SoftwareCard, library: CardLibrary, lengths: Mapping[str, float], threads: int
    ) -> None:
        self._threads = threads
        self._sent = 0
        self._running = library.open(threads)
        self._numbers = {name: i for i, name in enumerate(card.networks)}
        super().__init__(card, lengths)

    def counters(self) -> Mapping[str, GraphCounters]:
        """Return the frames that named each graph; see the base class."""
        self._collect()
        return {
            graph.name: GraphCounters(self._running.asked(i), 0)
            for i, graph in enumerate(self.card.graphs)
        }

    def set_network(self, name: str, model: Classifier | None) -> None:
        """Load or remove a network; see the base class."""
        weights = None if model is None else weights_of(model)
        _check(self._running.load(self._numbers[name], weights), name)

    def set_rate(self, tenant: int, rate: int, burst: int, now: float) -> None:
        """Change a guarantee; see the base class."""
        status = self._running.set_rate(tenant, rate, burst, round(now * _SECOND))
        _check(status, f"the rate of {self.card.tenants[tenant].name}")

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

    def close(self) -> None:
        """Do nothing: the library closes the card when nobody refers to it any more."""

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the library's counters; see the protocol."""
        self._collect()
        tenants = {t.name: self._running.counters(i) for i, t in enumerate(self.card.tenants)}
        return {**tenants, WIRE_NAME: self._running.counters()}

    def _collect(self) -> None:
        """Take all answers that are ready: their frames would be sent now."""
        if not self._threads:
            self._running.wait()
        for tenant in range(len(self.card.tenants)):
            self._running.discard(tenant)


def _check(status: CallStatus, what: str) -> None:
    if status:
        raise VerifyError(f"the card: {what}: {status.name.lower()}")
