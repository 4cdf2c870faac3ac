# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``host``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import CardCheck, CardTarget
from n3ic.systems.card.host.changes import change_running
from n3ic.systems.card.host.verify import verify_card
from n3ic.systems.card.host.write import write_card
from n3ic.systems.card.plan import CardPlan


class HostCards(CardTarget):
    """Cards as C11 that runs the networks of several tenants, with ``card-exec``."""

    name: ClassVar[str] = "host"
    products: ClassVar[tuple[str, ...]] = (
        "card-exec",
        "libn3ic_card.a",
        "card_exec.o",
        "n3ic_card.o",
        "card_plan.o",
    )

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the C of a card, its networks' weights and the README; see the base class."""
        write_card(software_card(plan, self.name), plan, out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Compile the card and send it frames of all graphs; see the base class."""
        return verify_card(software_card(plan, self.name), directory, packets)

    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Change the ``card-exec`` that reads the FIFO ``to``; see the base class."""
        return change_running(software_card(plan, self.name), change, Path(to))


CARDS = HostCards()
