# SPDX-License-Identifier: Apache-2.0
"""Cards on the target ``netfpga``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from n3ic.model.network import BinaryModel
from n3ic.systems.card.changes import CardChange
from n3ic.systems.card.control.run import RunningCard
from n3ic.systems.card.export import IDLE_GIVEN_AWAY, CardCheck, CardTarget
from n3ic.systems.card.netfpga.bounds import ADDED, added_latency
from n3ic.systems.card.netfpga.changes import change_text, operations_of
from n3ic.systems.card.netfpga.compile import image_of, taking_turns
from n3ic.systems.card.netfpga.control import RECONFIGURATION_SECONDS
from n3ic.systems.card.netfpga.driver import NetfpgaDriver
from n3ic.systems.card.netfpga.image import NetfpgaCardImage
from n3ic.systems.card.netfpga.verify import verify_card
from n3ic.systems.card.netfpga.write import write_card, write_readme
from n3ic.systems.card.plan import CardPlan
from n3ic.targets.figures import Figure
from n3ic.util.files import free_path, write_atomic


class NetfpgaCards(CardTarget):
    """Cards in Verilog, with an executor for each shape of networks in a region."""

    name: ClassVar[str] = "netfpga"
    beyond: ClassVar[str] = IDLE_GIVEN_AWAY
    queue: ClassVar[int] = 1 << NetfpgaCardImage.seq_w
    families: ClassVar[tuple[str, ...]] = (BinaryModel.family,)
    # The bench counts 2^31 clocks.
    run_seconds: ClassVar[tuple[float, float, float]] = (1e-5, 0.02, 10.0)
    failures: ClassVar[frozenset[str]] = frozenset()  # no region can hold another one's chain

    def card_image(self, plan: CardPlan) -> NetfpgaCardImage:
        """Return the card of a plan; see :mod:`~n3ic.systems.card.netfpga.control` for changes.

        The image is what :meth:`write_card` writes and what a change starts from.

        Raises:
            CardError: The target does not support a task or a flow.
        """
        return image_of(plan, self.exporter.options, self._clock_hz)

    def taking_turns(self, plan: CardPlan) -> frozenset[str]:
        """Return the networks that share an executor; see the base class."""
        return taking_turns(plan, self.exporter.options, self._clock_hz)

    def write_card(self, plan: CardPlan, out: Path) -> None:
        """Write Verilog, memory files and README of a card; see the base class."""
        image = self.card_image(plan)
        write_card(image, out)
        write_readme(image, self.exporter.device.clock_mhz, out)

    def verify_card(self, plan: CardPlan, directory: Path, packets: int) -> CardCheck:
        """Simulate a card with all its graphs' packets in random order; see the base class."""
        image = self.card_image(plan)
        card_run = verify_card(directory, image, packets)
        graphs = {g.name: n for g, n in zip(image.graphs, card_run.requests, strict=True)}
        figures = [
            Figure(f"latency.{g.name}", most, "clock", "simulated", card_run.simulator)
            for g, (_, most) in zip(image.graphs, card_run.latency, strict=True)
        ]
        # The simulation cannot show a worst case, so the bound is stated beside what was seen.
        figures += [
            Figure(f"added.{g.name}", added_latency(image, g), "clock", "estimated", ADDED)
            for g in image.graphs
        ]
        return CardCheck(
            card_run.simulator, card_run.packets, card_run.inferences, graphs, tuple(figures)
        )

    def open_card(self, plan: CardPlan, directory: Path, threads: int) -> RunningCard:
        """Compile a card's Verilog, and simulate it; see the base class."""
        return NetfpgaDriver(plan, self.card_image(plan), directory, self._clock_hz)

    @property
    def _clock_hz(self) -> float:
        return 1e6 * self.exporter.device.clock_mhz

    def change_card(self, plan: CardPlan, change: CardChange, to: str) -> str:
        """Write the control plane's operations into a new file ``to``; see the base class."""
        image = self.card_image(plan)
        clocks = round(RECONFIGURATION_SECONDS * self._clock_hz)
        operations = operations_of(image, change, clocks)
        write_atomic(free_path(to, replace=False), change_text(image, change, operations))
        return f"{to}: {len(operations):,} operations for cfg_* and wr_* of the card"


CARDS = NetfpgaCards()
