# SPDX-License-Identifier: Apache-2.0
"""The target ``p4`` for families that give graphs."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from n3ic.exporters.p4.graph import tree_tables
from n3ic.exporters.p4.graph.bit_tables import exporter as bit_tables
from n3ic.exporters.p4.graph.bit_tables.target import P4TablesTarget
from n3ic.exporters.p4.graph.target import P4GraphTarget, P4KernelsTarget
from n3ic.exporters.p4.table_program import TableProgram
from n3ic.options import Option, Options
from n3ic.targets.capabilities import VerificationDefaults


class P4GraphExporter(P4KernelsTarget):
    """v1model: an exact table for each look-up table, else a ternary one for each tree."""

    name: ClassVar[str] = "p4"
    summary: ClassVar[str] = "P4_16 for bmv2 (v1model), look-up tables and trees in tables"
    options: ClassVar[tuple[Option, ...]] = TableProgram.options
    verification: ClassVar[VerificationDefaults] = TableProgram.verification
    crossed: ClassVar[int] = TableProgram.crossed
    of_tables: ClassVar[P4TablesTarget] = bit_tables.EXPORTER
    of_graphs: ClassVar[P4GraphTarget[Any]] = tree_tables.EXPORTER

    def for_options(self, options: Options) -> P4GraphExporter:
        """The exporter for the architecture that the options name."""
        chosen = copy.copy(self)
        chosen.__dict__.pop("device", None)  # it is that of the chosen exporters
        chosen.__dict__["of_tables"] = self.of_tables.for_options(options)
        chosen.__dict__["of_graphs"] = self.of_graphs.for_options(options)
        return chosen


EXPORTER = P4GraphExporter()
