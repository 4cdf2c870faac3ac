# SPDX-License-Identifier: Apache-2.0
"""The target ``p4``: a v1model program for bmv2, with the weights in its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.p4.decoding import (
    decode_entries,
    from_tutorial,
    popcount_field,
)
from n3ic.exporters.p4.interpreter import Switch
from n3ic.exporters.p4.interpreter.commands import SetDefault
from n3ic.exporters.p4.lanes import LaneSize, lane_layers, statements, tables
from n3ic.exporters.p4.shared.decoding import check_popcount_masks
from n3ic.exporters.p4.shared.options import packet_layout
from n3ic.exporters.p4.shared.pipeline import MatchActionPipeline, pipeline_of
from n3ic.exporters.p4.shared.target import (
    PROGRAM,
    P4Target,
    compile_switch,
    program_figures,
    read_artefact,
)
from n3ic.exporters.p4.table_entries import Steps, network_entries
from n3ic.exporters.p4.table_program import (
    COMMANDS,
    TUTORIAL,
    TableProgram,
    tofino_figures,
)
from n3ic.exporters.p4.waiting import waiting_tables
from n3ic.model.network import BinaryModel
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Placement, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.packets import PacketLayout
from n3ic.targets.shape_search import Shape, nearest_shape


class P4Exporter(TableProgram[BinaryModel], P4Target):
    """v1model: the program depends on the shape, and the tables hold the network."""

    name: ClassVar[str] = "p4"
    summary: ClassVar[str] = "P4_16 for bmv2 (v1model), weights in tables changed at run time"
    graph_exporter: ClassVar[str] = "n3ic.exporters.p4.graph.exporter:EXPORTER"
    budget: ClassVar[Mapping[str, str]] = {
        "statements": "{need:,.0f} popcount statements, p4c compiles {limit:,.0f} in minutes",
        "tables": "{need:,.0f} tables, p4c compiles {limit:,.0f} in minutes",
    }
    sharing: ClassVar[str] = "one after the other in one program"

    def width_problems(self, model: BinaryModel) -> list[Problem]:
        """List fields that are too wide for p4c, and too many classes."""
        widest, classes = (int(self.device.limits[name]) for name in ("field_bits", "classes"))
        sizes = [
            max(layer.n_inputs, layer.n_outputs if index < len(model.hidden) else 0)
            for index, layer in enumerate(model.layers)
        ]
        problems = [
            Problem(
                f"layer {index} needs a field of {size} bits, p4c allows {widest}",
                layer=index,
                nearest=self.nearest(model.shape),
            )
            for index, size in enumerate(sizes)
            if size > widest
        ]
        if len(model.classes) > classes:
            text = f"{len(model.classes)} classes, at most {classes}"
            problems.append(Problem(text, layer=len(model.hidden)))
        return problems

    def nearest(self, shape: Shape) -> str:
        """Describe the nearest shape whose program p4c accepts."""
        return nearest_shape(shape, self.fits, widest=int(self.device.limits["field_bits"]))

    def needs(self, shapes: Sequence[Shape], masked: int = 0) -> dict[str, float]:
        """Count the popcount statements and tables, which determine the run time of p4c."""
        return {
            "statements": sum(statements(shape) for shape in shapes),
            "tables": sum(tables(shape) for shape in shapes),
        }

    def placements(self, model: BinaryModel) -> tuple[Placement, ...]:
        """Place the weights, thresholds and biases in the action data of table entries."""
        steps = network_entries(pipeline_of(model))
        size = sum(entry.data_bytes for step in steps for entry in step)
        return (Placement("weights, thresholds and biases", "table entries", size),)

    def render(
        self, name: str, model: BinaryModel, network: Any, packets: PacketLayout, **more: Any
    ) -> str:
        """Render a template of the target, with the layers' counters in lanes."""
        layers = lane_layers(network.layers)
        return super().render(name, model, network, packets, layers=layers, **more)

    def entries(self, network: MatchActionPipeline, port: int | None = None) -> Steps:
        """Weights, thresholds and biases as default actions."""
        return network_entries(network, port)

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode the network from each form of its entries, and check the popcount masks."""
        source = read_artefact(directory / PROGRAM)
        check_popcount_masks(source, [popcount_field(*size) for size in pairwise(model.shape)])
        entries_of = {
            **self.common_entries(directory, source, model),
            TUTORIAL: from_tutorial(read_artefact(directory / TUTORIAL), TUTORIAL),
        }
        port = packet_layout(model, options).shunt_port
        return tuple(
            decode_entries(name, entries, model, port) for name, entries in entries_of.items()
        )

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report entries, operations, PHV bits and tables; bmv2 has no meaningful latency."""
        source = read_artefact(directory / PROGRAM)
        program = compile_switch(source, model)
        figures = (
            *memory_figures(read_artefact(directory / COMMANDS), program),
            *program_figures(model, source, program, _popcount(model)),
            *tofino_figures(program, waiting_tables(source)),
            self.latency(model, "; bmv2 is a software switch and far slower"),
        )
        return Report(
            figures,
            (
                *self.remarks,
                "PHV bits are the width of the program's headers and metadata. The neurons of a "
                "layer share popcount stages, and parts of its input take turns in them.",
            ),
        )


def _popcount(model: BinaryModel) -> tuple[int, str]:
    """Count the popcount stages, and say how."""
    stages = sum(LaneSize(*size).popcount_stages for size in pairwise(model.shape))
    return stages, "ceil(log2 L) for each part of L bits of a layer's input, one after the other"


def memory_figures(commands: str, program: Switch) -> tuple[Figure, ...]:
    """Count the bytes of action data by kind, and the entries, in the commands."""
    totals = {"weights": 0, "masks": 0, "thresholds": 0, "biases": 0}
    kinds = {"weights": "weights", "mask": "masks", "threshold": "thresholds", "bias": "biases"}
    filled = set[str]()  # tables already counted: those of the model's number are set twice
    for command in program.read(commands):
        if isinstance(command, SetDefault):
            filled.add(command.table)
            parameters = program.tables[command.table].actions[command.action].parameters
            for parameter in parameters if command.table.startswith("l") else ():
                kind = kinds[parameter.name.rpartition(".")[2].rstrip("0123456789")]
                totals[kind] += -(-parameter.type.width // 8)
    source = "action data of commands.txt, each parameter in whole bytes"
    memory = (
        Figure(f"memory.{kind}", size, "byte", "measured", source)
        for kind, size in totals.items()
        if size or kind != "masks"
    )
    entries = Figure("table.entries", len(filled), "entry", "measured", "count of commands.txt")
    return (*memory, entries)


EXPORTER = P4Exporter()
