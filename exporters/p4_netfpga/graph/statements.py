# SPDX-License-Identifier: Apache-2.0
"""Graphs for SimpleSumeSwitch: each operation is a statement, and its numbers are constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4.graph.target import P4GraphTarget
from n3ic.exporters.p4.graph.trees import forest_tables
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.shared.target import PROGRAM, compile_switch, read_artefact
from n3ic.exporters.p4_netfpga import exporter as binary
from n3ic.exporters.p4_netfpga.exporter import (
    NOT_COMPILED,
    P4NetfpgaExporter,
    resource_figures,
    scaled_resources,
)
from n3ic.exporters.p4_netfpga.graph.decoding import decode_program
from n3ic.exporters.p4_netfpga.graph.levels import STATEMENTS, GraphStatements, graph_statements
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.operations import Graph, Operation
from n3ic.options import Option, Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Placement
from n3ic.targets.figures import Figure, Report
from n3ic.targets.forest import WRITTEN
from n3ic.targets.packets import PacketLayout


class P4NetfpgaStatementsExporter(P4GraphTarget[GraphStatements]):
    """SimpleSumeSwitch: the program is the model."""

    name: ClassVar[str] = "p4-netfpga"
    summary: ClassVar[str] = "P4_16 for the NetFPGA-SUME (SimpleSumeSwitch), numbers as constants"
    options: ClassVar[tuple[Option, ...]] = P4NetfpgaExporter.options
    budget: ClassVar[Mapping[str, str]] = P4NetfpgaExporter.budget
    written: ClassVar[Collection[type[Operation]]] = WRITTEN
    crossed: ClassVar[int] = P4NetfpgaExporter.crossed

    @property
    def sibling(self) -> Path:
        """Folder of the target's exporter for binary networks."""
        return Path(binary.__file__).resolve().parent

    def pipeline(self, model: Classifier, *, shunts: bool = False) -> GraphStatements:
        """Convert a model to statements, level by level."""
        return graph_statements(model, written_graph(model), shunts=shunts)

    def first(self, model: Classifier, trees: int) -> GraphStatements:
        """Convert the first trees of a model."""
        return graph_statements(model, forest_tables(graph_of(model)).first(trees))

    def needs(self, network: GraphStatements) -> dict[str, float]:
        """Scale the paper's LUTs and BRAMs by bit operations, and add the reference NIC."""
        return scaled_resources(network.bit_operations, self.device.paper)

    def placement(self, network: GraphStatements) -> Placement:
        """Place the numbers in the code."""
        return Placement("numbers of the operations", "constants", network.constant_bytes)

    def texts(
        self, model: Classifier, network: GraphStatements, packets: PacketLayout
    ) -> dict[str, str]:
        """Render the program and the README."""
        return {
            PROGRAM: self.render("n3ic_sume.p4.j2", model, network, packets),
            "README.md": self.render("README_sume.md.j2", model, network, packets),
        }

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the operations from the program, and compare them with the model's."""
        source = read_artefact(directory / PROGRAM)
        port = packet_layout(model, options).shunt_port
        return (decode_program(source, model, written_graph(model), port),)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report resources and latency, scaled from the paper's figures."""
        network = self.pipeline(model, shunts=packet_layout(model, options).shunts)
        source = read_artefact(directory / PROGRAM)
        switch = compile_switch(source, model)
        memory = "constants in the code without a memory of their own"
        counted = "counted in n3ic's reading of the program; no P4 compiler ran"
        figures = (
            Figure("memory.numbers", network.constant_bytes, "byte", "measured", memory),
            Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
            Figure(
                "operations",
                len(network.statements),
                "statement",
                "measured",
                "choices, look-ups and sums",
            ),
            Figure("phv", switch.metadata_bits + switch.header_bits, "bit", "estimated", counted),
            Figure(
                "stages",
                len(network.levels) + 2,
                "stage",
                "estimated",
                "levels of statements that wait for each other, the masks and the scores",
            ),
            *resource_figures(self.needs(network), self.device.paper),
            self.scaled_latency(network.bit_operations),
        )
        return Report(
            figures,
            (
                NOT_COMPILED,
                "Each operation is a statement.",
                "The paper's figures are of a binary network; synthesis folds choices among "
                "constants, so expect fewer LUTs.",
            ),
        )


def written_graph(model: Classifier) -> Graph:
    """A model's graph, as sums of trees if it has operations that are no statements.

    Raises:
        ExportError: it is no sum of trees, or exceeds their limits.
    """
    graph = graph_of(model)
    return graph if graph.kinds <= {*STATEMENTS} else forest_tables(graph).graph


EXPORTER = P4NetfpgaStatementsExporter()
