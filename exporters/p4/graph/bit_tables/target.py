# SPDX-License-Identifier: Apache-2.0
"""The base class of both P4 targets of look-up tables."""

from __future__ import annotations

from typing import ClassVar

from n3ic.errors import ExportError
from n3ic.exporters.p4.graph.bit_tables.pipeline import (
    TablesPipeline,
    added_tables_of,
    tables_pipeline,
)
from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.shared.sums import P4SumsTarget
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTables
from n3ic.targets.figures import Figure


class P4TablesTarget(P4SumsTarget[Classifier, TablesPipeline]):
    """A P4 target of graphs that add up look-up tables."""

    family: ClassVar[str] = ""

    def pipeline(self, model: Classifier, *, shunts: bool = False) -> TablesPipeline:
        """Convert a model to tables, levels of additions and offsets."""
        return tables_pipeline(model, self.tables(model), shunts=shunts)

    def tables(self, model: Classifier) -> BitTables:
        """The look-up tables of a model.

        Raises:
            ExportError: its graph is no sum of them.
        """
        tables = added_tables_of(model)
        if tables is None:
            raise ExportError("the model is no sum of look-up tables")
        return tables


def tables_figures(network: TablesPipeline, source: str, switch: Switch) -> tuple[Figure, ...]:
    """Report size, operations, PHV bits, stages and tables of a program."""
    counted = "counted in n3ic's reading of the program; no P4 compiler ran"
    return (
        Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
        Figure(
            "operations",
            network.statements,
            "statement",
            "measured",
            "bits of indices, and additions of entries and offsets",
        ),
        Figure("phv", switch.metadata_bits + switch.header_bits, "bit", "estimated", counted),
        Figure(
            "stages.sum",
            len(network.levels) + 1,
            "stage",
            "estimated",
            "levels of the tree of sums, and the offsets; all look-ups are independent",
        ),
        Figure("tables", len(switch.tables), "table", "estimated", counted),
    )
