# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``host``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.model.classifier import Classifier
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import frame_lengths, software_card, unplanned_card
from n3ic.systems.card.control.run import RunningCard
from n3ic.systems.card.description import Card
from n3ic.systems.card.export import IDLE_GIVEN_AWAY, CardCheck, CardTarget
from n3ic.systems.card.host.changes import change_running
from n3ic.systems.card.host.driver import HostDriver
from n3ic.systems.card.host.embedded_model import CYCLES_A_STEP, bytes_of, is_compiled_in, steps_of
from n3ic.systems.card.host.library import CardLibrary
from n3ic.systems.card.host.verify import shape_of, verify_card
from n3ic.systems.card.host.write import QUEUE, write_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.resources import Amount


class HostCards(CardTarget):
    """Cards as C11 that runs the networks of several tenants, with ``card-exec``."""

    name: ClassVar[str] = "host"
    beyond: ClassVar[str] = IDLE_GIVEN_AWAY
    queue: ClassVar[int] = QUEUE
    products: ClassVar[tuple[str, ...]] = (
        "card-exec",
        "libn3ic_card.a",
        "card_exec.o",
        "n3ic_card.o",
        "card_plan.o",
        "network_*.o",
        "task_*.o",
    )

    def joint_needs(self, card: Card) -> Mapping[str, Mapping[str, Amount]]:
        """Count the constants and steps of networks that are compiled in; see the base class."""
        networks = unplanned_card(card, self.name).networks
        return {t: _compiled_in_needs(m) for t, m in networks.items() if is_compiled_in(m)}

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the C of a card, its networks' weights and the README; see the base class."""
        write_card(software_card(plan, self.name), plan, out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Compile the card and send it frames of all graphs; see the base class."""
        return verify_card(software_card(plan, self.name), directory, packets)

    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Change the ``card-exec`` that reads the FIFO ``to``; see the base class."""
        return change_running(software_card(plan, self.name), change, Path(to))

    def open_card(self, plan: CardPlan, directory: Path, threads: int) -> RunningCard:
        """Compile the card's library, and open it in this process; see the base class."""
        card = software_card(plan, self.name)
        library = CardLibrary(directory, shape_of(card))
        return HostDriver(card, library, frame_lengths(plan, card), threads)


def _compiled_in_needs(model: Classifier) -> dict[str, Amount]:
    steps = steps_of(model)
    source = f"{steps:,} steps of one row, {CYCLES_A_STEP} cycles each"
    return {
        "l2": Amount(bytes_of(model), "measured", "count of the C's integers"),
        "cycles": Amount(CYCLES_A_STEP * steps, "estimated", source),
    }


CARDS = HostCards()
