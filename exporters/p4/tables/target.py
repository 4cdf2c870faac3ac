# SPDX-License-Identifier: Apache-2.0
"""The base class of both P4 targets of look-up tables."""

from __future__ import annotations

from typing import ClassVar

from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.shared.sums import P4SumsTarget
from n3ic.exporters.p4.tables.pipeline import TablesPipeline, tables_pipeline
from n3ic.families.tables.network import TablesModel
from n3ic.targets.figures import Figure


class P4TablesTarget(P4SumsTarget[TablesModel, TablesPipeline]):
    """A P4 target of look-up tables."""

    family: ClassVar[str] = TablesModel.family

    def pipeline(self, model: TablesModel, *, shunts: bool = False) -> TablesPipeline:
        """Convert a model to tables, levels of additions and offsets."""
        return tables_pipeline(model, shunts=shunts)


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
