# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``nfp``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from n3ic.exporters.nfp.exporter import MODELLED
from n3ic.systems.card.compile import software_card
from n3ic.systems.card.export import CardCheck, CardTarget
from n3ic.systems.card.nfp.image import NfpCardImage, image_of
from n3ic.systems.card.nfp.verify import verify_card
from n3ic.systems.card.nfp.write import write_card
from n3ic.systems.card.plan import CardPlan


class NfpCards(CardTarget):
    """Micro-C that runs the networks of several tenants, with islands as regions."""

    name: ClassVar[str] = "nfp"
    fixed: ClassVar[str] = (
        "contexts read a firmware's networks for every request, and CLS has no second copy to "
        "swap to"
    )

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write the micro-C of a card and what runs it on a host; see the base class."""
        write_card(self._card(plan), MODELLED, out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Run each island's micro-C on the host; see the base class."""
        return verify_card(self._card(plan), directory, packets)

    def _card(self, plan: CardPlan) -> NfpCardImage:
        return image_of(plan, software_card(plan, self.name), self.exporter.device)


CARDS = NfpCards()
