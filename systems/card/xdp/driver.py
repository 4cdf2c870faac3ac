# SPDX-License-Identifier: Apache-2.0
"""A card's program in the kernel as the control loop drives it."""

from __future__ import annotations

from collections.abc import Mapping

from n3ic.model.classifier import Classifier
from n3ic.systems.card.driver import WIRE_NAME, GraphCounters
from n3ic.systems.card.software_driver import SoftwareDriver
from n3ic.systems.card.xdp.image import XdpCardImage
from n3ic.systems.card.xdp.program import CardProgram

_SHORTEST = 14  # minimum bytes of a frame for a test run


class XdpDriver(SoftwareDriver):
    """A loaded program, which runs on the frames that it is given, without an interface.

    Its clock is the kernel's.

    Args:
        image: the exported card.
        program: its program.
        lengths: bytes of a frame of each graph.
    """

    def __init__(
        self, image: XdpCardImage, program: CardProgram, lengths: Mapping[str, float]
    ) -> None:
        self._image = image
        self._program = program
        super().__init__(image.card, lengths)

    def counters(self) -> Mapping[str, GraphCounters]:
        """Divide each tenant's frames evenly among its graphs, which are not counted alone."""
        out = {}
        for number in range(len(self.card.tenants)):
            own = [g.name for g in self.card.graphs if g.tenant == number]
            offered = sum(self._program.counters(number).values()) / len(own) if own else 0.0
            out.update({name: GraphCounters(offered, 0) for name in own})
        return out

    def set_network(self, name: str, model: Classifier | None) -> None:
        """Put a network into its slot, or empty the slot; see the base class."""
        slot = self._image.slots[name]
        if model is None:
            self._program.remove_network(slot)
        else:
            self._program.set_network(slot, self._image.value(name))

    def set_rate(self, tenant: int, rate: int, burst: int, now: float) -> None:
        """Change a bucket in its map; see the base class."""
        self._program.set_rate(tenant, rate, burst)

    def send(self, frame: bytes, now: float) -> None:
        """Run the program on a frame; see the protocol. The kernel takes no shorter ones."""
        self._program.send(frame.ljust(_SHORTEST, b"\0"))

    def finish(self) -> None:
        """Do nothing: a frame is answered when it is sent."""

    def close(self) -> None:
        """Unload the program; see the protocol."""
        self._program.object.close()

    def tenant_counters(self) -> Mapping[str, Mapping[str, int]]:
        """Return the program's counters; see the protocol."""
        names = [*(t.name for t in self.card.tenants), WIRE_NAME]
        return {name: self._program.counters(i) for i, name in enumerate(names)}
