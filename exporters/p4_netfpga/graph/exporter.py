# SPDX-License-Identifier: Apache-2.0
"""The target ``p4-netfpga`` for families that give graphs."""

from __future__ import annotations

from typing import Any, ClassVar

from n3ic.exporters.p4.graph.bit_tables.target import P4TablesTarget
from n3ic.exporters.p4.graph.target import P4GraphTarget, P4KernelsTarget
from n3ic.exporters.p4_netfpga.exporter import P4NetfpgaExporter
from n3ic.exporters.p4_netfpga.graph import statements
from n3ic.exporters.p4_netfpga.graph.bit_tables import exporter as bit_tables
from n3ic.options import Option


class P4NetfpgaGraphExporter(P4KernelsTarget):
    """SimpleSumeSwitch: look-up tables as constant words, else a statement an operation."""

    name: ClassVar[str] = "p4-netfpga"
    summary: ClassVar[str] = "P4_16 for the NetFPGA-SUME (SimpleSumeSwitch), numbers as constants"
    options: ClassVar[tuple[Option, ...]] = P4NetfpgaExporter.options
    crossed: ClassVar[int] = P4NetfpgaExporter.crossed
    of_tables: ClassVar[P4TablesTarget] = bit_tables.EXPORTER
    of_graphs: ClassVar[P4GraphTarget[Any]] = statements.EXPORTER


EXPORTER = P4NetfpgaGraphExporter()
