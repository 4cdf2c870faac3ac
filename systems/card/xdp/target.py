# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``xdp``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from n3ic.errors import MissingDependencyError
from n3ic.exporters.xdp.libbpf import BpfError
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import frame_lengths, software_card
from n3ic.systems.card.control.run import RunningCard
from n3ic.systems.card.export import CardCheck, CardTarget
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.xdp.changes import change_attached
from n3ic.systems.card.xdp.driver import XdpDriver
from n3ic.systems.card.xdp.image import image_of, write_card
from n3ic.systems.card.xdp.program import CardProgram
from n3ic.systems.card.xdp.verify import verify_card


class XdpCards(CardTarget):
    """An XDP program that answers the packets of several tenants."""

    name: ClassVar[str] = "xdp"
    inputs: ClassVar[bool] = False

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the program of a card, its networks and tables; see the base class."""
        write_card(image_of(software_card(plan, self.name)), out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Run frames of all graphs through the program in the kernel; see the base class."""
        return verify_card(image_of(software_card(plan, self.name)), directory, packets)

    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Change the tables of the program on the interface ``to``; see the base class."""
        return change_attached(image_of(software_card(plan, self.name)), change, to)

    def open_card(self, plan: CardPlan, directory: Path, threads: int) -> RunningCard:
        """Load the card's program into the kernel, without an interface; see the base class."""
        card = software_card(plan, self.name)
        try:
            program = CardProgram(directory)
        except BpfError as error:
            raise MissingDependencyError(str(error)) from error
        return XdpDriver(image_of(card), program, frame_lengths(plan, card))


CARDS = XdpCards()
