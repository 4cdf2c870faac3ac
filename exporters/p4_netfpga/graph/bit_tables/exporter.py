# SPDX-License-Identifier: Apache-2.0
"""Look-up tables for SimpleSumeSwitch: the entries are constants of the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4.graph.bit_tables.pipeline import TablesPipeline
from n3ic.exporters.p4.graph.bit_tables.target import P4TablesTarget, tables_figures
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.shared.target import PROGRAM, compile_switch, read_artefact
from n3ic.exporters.p4_netfpga import exporter as binary
from n3ic.exporters.p4_netfpga.exporter import (
    NOT_COMPILED,
    P4NetfpgaExporter,
    resource_figures,
    scaled_resources,
)
from n3ic.exporters.p4_netfpga.graph.bit_tables.decoding import decode_program
from n3ic.model.classifier import Classifier
from n3ic.options import Option, Options
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Placement
from n3ic.targets.figures import Figure, Report
from n3ic.targets.packets import SCORE_BITS, PacketLayout


class P4NetfpgaTablesExporter(P4TablesTarget):
    """SimpleSumeSwitch: the program is the model."""

    name: ClassVar[str] = "p4-netfpga"
    summary: ClassVar[str] = "P4_16 for the NetFPGA-SUME (SimpleSumeSwitch), entries as constants"
    options: ClassVar[tuple[Option, ...]] = P4NetfpgaExporter.options
    budget: ClassVar[Mapping[str, str]] = P4NetfpgaExporter.budget
    crossed: ClassVar[int] = P4NetfpgaExporter.crossed

    @property
    def sibling(self) -> Path:
        """Folder of the target's exporter for binary networks."""
        return Path(binary.__file__).resolve().parent

    def needs(self, network: TablesPipeline) -> dict[str, float]:
        """Scale the paper's LUTs and BRAMs by bit operations, and add the reference NIC."""
        return scaled_resources(bit_operations(network), self.device.paper)

    def placement(self, network: TablesPipeline) -> Placement:
        """Place entries and offsets in the code."""
        return Placement("entries and offsets", "constants", _constant_bytes(network))

    def texts(
        self, model: Classifier, network: TablesPipeline, packets: PacketLayout
    ) -> dict[str, str]:
        """Render the program and the README."""
        return {
            PROGRAM: self.render("n3ic_sume.p4.j2", model, network, packets),
            "README.md": self.render("README_sume.md.j2", model, network, packets),
        }

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the tables from the program's constants, and compare them with the model's."""
        source = read_artefact(directory / PROGRAM)
        port = packet_layout(model, options).shunt_port
        sums = len(self.tables(model).bias)
        return (compared(model, decode_program(source, model, sums, port)),)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report resources and latency, scaled from the paper's figures."""
        network = self.pipeline(model, shunts=packet_layout(model, options).shunts)
        source = read_artefact(directory / PROGRAM)
        memory = "constants in the code without a memory of their own"
        figures = (
            Figure("memory.entries", _constant_bytes(network), "byte", "measured", memory),
            *tables_figures(network, source, compile_switch(source, model)),
            *resource_figures(self.needs(network), self.device.paper),
            self.scaled_latency(bit_operations(network)),
        )
        return Report(
            figures,
            (
                NOT_COMPILED,
                "Scores are sums of look-up tables, whose entries are constants.",
                "The paper's figures are of a binary network; synthesis folds selections among "
                "constants, so expect fewer LUTs.",
            ),
        )


def bit_operations(network: TablesPipeline) -> int:
    """Count the bit operations of one inference.

    A bit of an index takes three operations on the index, a selection six on the half that is left
    (mask, complement, shift, two ANDs, OR), and an addition one per bit.
    """
    total = network.additions * network.sum_bits + SCORE_BITS * len(network.totals)
    for table in network.tables:
        total += 3 * len(table.inputs) ** 2
        total += 6 * len(table.columns) * table.width * (table.size - 1)
    return total


def _constant_bytes(network: TablesPipeline) -> int:
    """Bytes of entries and offsets."""
    return -(-network.entry_bits // 8) + SCORE_BITS // 8 * len(network.totals)


EXPORTER = P4NetfpgaTablesExporter()
