# SPDX-License-Identifier: Apache-2.0
"""Look-up tables on v1model: one match-action table each, with entries that change at run time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4 import exporter as binary
from n3ic.exporters.p4.decoding import from_p4runtime
from n3ic.exporters.p4.graph.bit_tables.decoding import decode_entries, program_wiring
from n3ic.exporters.p4.graph.bit_tables.pipeline import TablesPipeline, tables_entries
from n3ic.exporters.p4.graph.bit_tables.target import P4TablesTarget, tables_figures
from n3ic.exporters.p4.interpreter.commands import SetDefault, TableAdd
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.shared.target import PROGRAM, compile_switch, read_artefact
from n3ic.exporters.p4.table_entries import ControlIds, Steps, p4runtime_requests
from n3ic.exporters.p4.table_program import COMMANDS, TableProgram, tofino_figures
from n3ic.exporters.p4.waiting import waiting_tables
from n3ic.model.classifier import Classifier
from n3ic.options import Options
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Placement
from n3ic.targets.figures import Figure, Report

P4RUNTIME_UPDATE = "p4runtime_update.json"


class P4TablesExporter(TableProgram[Classifier], P4TablesTarget):
    """v1model: the program depends on the indices, and the entries are the model."""

    name: ClassVar[str] = "p4"
    summary: ClassVar[str] = "P4_16 for bmv2 (v1model), one match-action table each"
    budget: ClassVar[Mapping[str, str]] = {
        "statements": "{need:,.0f} bits of indices and additions, p4c compiles {limit:,.0f} "
        "in minutes",
        "tables": "{need:,.0f} tables, p4c compiles {limit:,.0f} in minutes",
        "classes": "{need:,.0f} classes, at most {limit:,.0f}",
    }

    @property
    def sibling(self) -> Path:
        """The folder of the exporter of binary networks."""
        return Path(binary.__file__).resolve().parent

    def needs(self, network: TablesPipeline) -> dict[str, float]:
        """Count statements, tables and classes."""
        # Arg max takes 2 classes - 1; the others are load_input, indices, offsets, model,
        # model_again and result.
        tables = len(network.tables) + len(network.levels) + 2 * network.classes + 5
        return {
            "statements": network.statements,
            "tables": tables,
            "classes": network.classes,
        }

    def placement(self, network: TablesPipeline) -> Placement:
        """Place entries and offsets in action data."""
        _, entries, _ = tables_entries(network)
        size = sum(entry.data_bytes for entry in entries)
        return Placement("entries and offsets", "table entries", size)

    def entries(self, network: TablesPipeline, port: int | None = None) -> Steps:
        """Entries of the look-up tables, and offsets."""
        return tables_entries(network, port)

    def further_files(self, entries: Steps, ids: ControlIds) -> dict[str, str]:
        """P4Runtime's requests for a switch that holds entries already."""
        return {P4RUNTIME_UPDATE: p4runtime_requests(entries, ids, update=True)}

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the indices from the program, and the entries from each form of them."""
        source = read_artefact(directory / PROGRAM)
        wiring = program_wiring(source, "meta")
        port = packet_layout(model, options).shunt_port
        text = read_artefact(directory / P4RUNTIME_UPDATE)
        entries_of = {
            **self.common_entries(directory, source, model),
            P4RUNTIME_UPDATE: from_p4runtime(text, P4RUNTIME_UPDATE, source, update=True),
        }
        decoded = []
        for name, entries in entries_of.items():
            read = decode_entries(name, entries, wiring, model, len(self.tables(model).bias), port)
            decoded.append(compared(model, read))
        return tuple(decoded)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report entries, operations, PHV bits, stages and tables."""
        source = read_artefact(directory / PROGRAM)
        program = compile_switch(source, model)
        network = self.pipeline(model, shunts=packet_layout(model, options).shunts)
        memory = {"entries": 0, "offsets": 0}
        count = 0
        filled = set[str]()  # tables already counted: those of the model's number are set twice
        for command in program.read(read_artefact(directory / COMMANDS)):
            if isinstance(command, SetDefault | TableAdd):
                action = program.tables[command.table].actions[command.action]
                size = sum(-(-p.type.width // 8) for p in action.parameters)
                if isinstance(command, TableAdd):
                    memory["entries"] += size
                    count += 1
                elif command.table == "offsets":
                    memory["offsets"] += size
                if isinstance(command, SetDefault):
                    filled.add(command.table)
        counted = "action data of commands.txt, each parameter in whole bytes"
        figures = (
            *(
                Figure(f"memory.{n}", size, "byte", "measured", counted)
                for n, size in memory.items()
            ),
            Figure(
                "table.entries", count + len(filled), "entry", "measured", "count of commands.txt"
            ),
            *tables_figures(network, source, program),
            *tofino_figures(program, waiting_tables(source)),
        )
        return Report(
            figures,
            (
                "Scores are sums of look-up tables, an exact match-action table each.",
                *self.remarks,
                "PHV bits are the width of the program's headers and metadata: an index and a "
                "partial sum per table.",
            ),
        )


EXPORTER = P4TablesExporter()
