# SPDX-License-Identifier: Apache-2.0
"""Trees on v1model: a ternary table each, with leaves that change at run time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4 import exporter as binary
from n3ic.exporters.p4.graph.decoding import decode_entries, from_runtime, program_keys
from n3ic.exporters.p4.graph.pipeline import ForestPipeline, forest_entries, forest_pipeline
from n3ic.exporters.p4.graph.target import P4GraphTarget
from n3ic.exporters.p4.interpreter.commands import SetDefault, TableAdd
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.shared.target import PROGRAM, compile_switch, read_artefact
from n3ic.exporters.p4.table_entries import Steps
from n3ic.exporters.p4.table_program import (
    COMMANDS,
    TUTORIAL,
    TableProgram,
    tofino_figures,
)
from n3ic.exporters.p4.waiting import waiting_tables
from n3ic.model.classifier import Classifier
from n3ic.model.graph.operations import Operation
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Placement
from n3ic.targets.figures import Figure, Report
from n3ic.targets.forest import WRITTEN
from n3ic.targets.packets import SCORE_BITS


class P4TreesExporter(TableProgram[Classifier], P4GraphTarget[ForestPipeline]):
    """v1model: the program depends on the keys of the trees, and the entries are their leaves."""

    name: ClassVar[str] = "p4"
    summary: ClassVar[str] = "P4_16 for bmv2 (v1model), one ternary table for each tree"
    budget: ClassVar[Mapping[str, str]] = {
        "statements": "{need:,.0f} parts of keys and additions, p4c compiles {limit:,.0f} "
        "in minutes",
        "tables": "{need:,.0f} tables, p4c compiles {limit:,.0f} in minutes",
        "entries": "{need:,.0f} leaves are as many table entries, {limit:,.0f} load in minutes",
        "classes": "{need:,.0f} classes, at most {limit:,.0f}",
    }
    written: ClassVar[Collection[type[Operation]]] = WRITTEN

    @property
    def sibling(self) -> Path:
        """The folder of the exporter of binary networks."""
        return Path(binary.__file__).resolve().parent

    def pipeline(self, model: Classifier, *, shunts: bool = False) -> ForestPipeline:
        """Convert a model to keys, tables, levels of additions and offsets."""
        return forest_pipeline(model, shunts=shunts)

    def first(self, model: Classifier, trees: int) -> ForestPipeline:
        """Convert the first trees of a model."""
        return forest_pipeline(model, first=trees)

    def needs(self, network: ForestPipeline) -> dict[str, float]:
        """Count statements, tables, entries and classes."""
        # Arg max takes 2 classes - 1; the others are load_input, indices, offsets, model,
        # model_again and result.
        tables = len(network.tables) + len(network.levels) + 2 * network.classes + 5
        return {
            "statements": network.statements,
            "tables": tables,
            "entries": network.entries,
            "classes": network.classes,
        }

    def placement(self, network: ForestPipeline) -> Placement:
        """Place leaves and offsets in action data."""
        size = network.leaf_bytes + SCORE_BITS // 8 * network.classes
        return Placement("leaves and offsets", "table entries", size)

    def entries(self, network: ForestPipeline, port: int | None = None) -> Steps:
        """Leaves as ternary entries, and offsets."""
        return forest_entries(network, port)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the keys from the program, and the trees from each form of the entries."""
        source = read_artefact(directory / PROGRAM)
        program = program_keys(source)
        entries_of = {
            **self.common_entries(directory, source, model),
            TUTORIAL: from_runtime(read_artefact(directory / TUTORIAL), TUTORIAL, program),
        }
        port = packet_layout(model, options).shunt_port
        return tuple(
            decode_entries(name, entries, program, model, port)
            for name, entries in entries_of.items()
        )

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report entries, keys, PHV bits, stages and tables."""
        source = read_artefact(directory / PROGRAM)
        program = compile_switch(source, model)
        network = forest_pipeline(model, shunts=packet_layout(model, options).shunts)
        commands = program.read(read_artefact(directory / COMMANDS))
        leaves = [c for c in commands if isinstance(c, TableAdd)]
        keyed = {c.table for c in leaves}
        defaults = {c.table for c in commands if isinstance(c, SetDefault)}
        size = {
            table: sum(
                -(-p.type.width // 8) for p in program.tables[table].actions[action].parameters
            )
            for table, action in {(c.table, c.action) for c in leaves}
        }
        counted = "counted in n3ic's reading of the program; no P4 compiler ran"
        of_commands = "count of commands.txt"
        data = "action data of commands.txt, each parameter in whole bytes"
        widths = {table: program.tables[table].keys[0].sized for table in keyed}
        figures = (
            Figure("memory.leaves", sum(size[c.table] for c in leaves), "byte", "measured", data),
            Figure("memory.offsets", SCORE_BITS // 8 * network.classes, "byte", "measured", data),
            Figure("table.entries", len(leaves) + len(defaults), "entry", "measured", of_commands),
            Figure(
                "table.key_bits",
                sum(widths[c.table] for c in leaves),
                "bit",
                "measured",
                f"{of_commands}: the width of each ternary entry's key, which a TCAM holds with a "
                "mask of as many bits",
            ),
            Figure("key.longest", max(widths.values(), default=0), "bit", "measured", of_commands),
            Figure(
                "key.fields",
                len(network.keys),
                "field",
                "measured",
                "different keys; trees that ask the same bits share one",
            ),
            Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
            Figure(
                "operations",
                network.statements,
                "statement",
                "measured",
                "runs of input bits in keys, and additions of leaves and offsets",
            ),
            Figure("phv", program.metadata_bits + program.header_bits, "bit", "estimated", counted),
            Figure(
                "stages.sum",
                network.stages,
                "stage",
                "estimated",
                "levels of the tree of sums, and the offsets; all look-ups are independent",
            ),
            Figure("tables", len(program.tables), "table", "estimated", counted),
            Figure("tables.ternary", len(keyed), "table", "measured", of_commands),
            *tofino_figures(program, waiting_tables(source)),
        )
        return Report(
            figures,
            (
                "Scores are sums of trees, a ternary match-action table each.",
                *self.remarks,
                "PHV bits are the width of the program's headers and metadata: the key of each "
                "tree, and a partial sum for each tree and score.",
                "What the TCAM of a switch holds was not compared.",
            ),
        )


EXPORTER = P4TreesExporter()
