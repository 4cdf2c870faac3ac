# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``p4``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.errors import CardError
from n3ic.exporters.p4.exporter import EXPORTER
from n3ic.exporters.p4.shared.target import read_artefact
from n3ic.model.network import BinaryModel, binary_network
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.compile import SoftwareCard, software_card, unplanned_card
from n3ic.systems.card.description import Card
from n3ic.systems.card.export import CardCheck, CardTarget
from n3ic.systems.card.p4.changes import make_change
from n3ic.systems.card.p4.image import image_of
from n3ic.systems.card.p4.resources import joint_needs
from n3ic.systems.card.p4.verify import verify_card
from n3ic.systems.card.p4.write import CHANGES, COMMANDS, PROGRAM, change_files, write_card
from n3ic.systems.card.plan import CardPlan
from n3ic.systems.card.resources import Amount


class P4Cards(CardTarget):
    """A P4_16 program for bmv2 that runs the networks of several tenants."""

    name: ClassVar[str] = "p4"
    families: ClassVar[tuple[str, ...]] = (BinaryModel.family,)
    inputs: ClassVar[bool] = False

    def joint_needs(self, card: Card) -> Mapping[str, Mapping[str, Amount]]:
        """Divide the program's resources among its networks; see the base class."""
        return joint_needs(image_of(unplanned_card(card, self.name)))

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the program of a card, its entries and the README; see the base class."""
        card = software_card(plan, self.name)
        self._check_card(card)
        write_card(card, out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Send packets of all graphs through the program in the interpreter; see the base class."""
        card = software_card(plan, self.name)
        source, commands = (read_artefact(directory / n) for n in (PROGRAM, COMMANDS))
        changes = {
            name: read_artefact(directory / CHANGES / name)
            for graph in card.graphs
            for name in change_files(graph)
        }
        return verify_card(card, source, commands, packets, changes)

    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Change the switch at ``thrift:PORT``, or write commands into a new file ``to``."""
        return make_change(software_card(plan, self.name), change, to)

    def _check_card(self, card: SoftwareCard) -> None:
        """Check that p4c accepts the card's program.

        Raises:
            CardError: A layer is too wide, or there are too many shapes.
        """
        models = [binary_network(card.networks[g.tasks[0]]) for g in image_of(card).groups]
        problems = [str(p) for model in models for p in EXPORTER.width_problems(model)]
        needs = EXPORTER.needs([m.shape for m in models]) if not problems else {}
        problems += [
            EXPORTER.budget[what].format(need=need, limit=EXPORTER.device.limits[what])
            for what, need in needs.items()
            if need > EXPORTER.device.limits[what]
        ]
        if problems:
            raise CardError(f"the card's {len(models)} shapes of networks: {'; '.join(problems)}")


CARDS = P4Cards()
