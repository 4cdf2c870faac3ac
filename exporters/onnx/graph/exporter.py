# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations as ONNX graphs, exact in int64; look-up tables in int32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx import exporter as binary
from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.exporter import FILE, OnnxExporter
from n3ic.exporters.onnx.graph.build import WRITTEN, build, operators_text
from n3ic.exporters.onnx.graph.decode import decode
from n3ic.exporters.onnx.graph.tables_build import build_tables
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import BitTables, bit_tables
from n3ic.model.graph.operations import Round, Times, operands
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.operations import place, unwritten


class OnnxGraphExporter(Exporter[Classifier]):
    """Writes the operations of a model, grouped by kind and depth, or its look-up tables.

    Any ONNX runtime executes the graph; the input is bits or integer features.
    """

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graph of standard operators on integers"
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = OnnxExporter.options
    family: ClassVar[str] = ""

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return Device.from_toml(Path(binary.__file__).with_name("device.toml"))

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that the constants fit one file, and that a division rounds down."""
        tables = _tables(model)
        problems = _graph_problems(model) if tables is None else ()
        if tables and tables.beyond:
            problems = (Problem(tables.beyond),)
        size, limit = _size(model, tables), int(self.device.limits["file_bytes"])
        if size >= limit // 2:  # the estimate leaves out names and nodes
            text = f"the graph takes about {size:,} bytes, half of an ONNX file ({limit:,}) is"
            missing = size - limit // 2
            problems += (Problem(f"{text} allowed", memory="file", missing_bytes=missing),)
        return Fit(problems=problems)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        features, tables = options["input"] == "features", _tables(model)
        graph = graph_of(model)
        proto = (
            build(model, graph, features=features)
            if tables is None
            else build_tables(model, tables, features=features)
        )
        (out / FILE).write_bytes(model_proto.to_bytes(proto))
        values: dict[str, bool | str] = {
            "operators": operators_text(graph) if tables is None else "",
            "one_sum": tables is not None and len(tables.bias) == 1,
            "option_features": features,
        }
        binary.write_readme(self.folder, out, model, **values)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Run the graph in onnxruntime."""
        return binary.run_graph(directory, model, words)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Run the graph's input stage; return None if the graph takes bits."""
        if options["input"] != "features":
            return None
        return binary.encode(directory, model, features)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode every constant of the graph; see the base class."""
        return (compared(model, decode(directory / FILE, model)),)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report size and operations."""
        size, tables = (directory / FILE).stat().st_size, _tables(model)
        figures = [Figure("memory.file", size, "byte", "measured", f"size of {FILE}")]
        if tables is None:
            name, count = "the model's operations of one kind and depth", len(graph_of(model).steps)
            figures += [
                Figure("operations", count, "step", "measured", "count of the network's steps")
            ]
        else:
            name, count = "look-up tables", len(tables.tables)
            entries = sum(table.entries.size for table in tables.tables)
            figures += [
                Figure("memory.entries", entries, "byte", "measured", "int8, counted"),
                Figure("operations", count, "look-up", "measured", "tables of the graph, counted"),
            ]
        figures += binary.cut_figures(model, options)
        notes = (
            f"Operators compute {name} together.",
            "The graph is for checks, hosts and other tools; its speed depends on the runtime.",
        )
        return Report(tuple(figures), notes)


def _tables(model: Classifier) -> BitTables | None:
    """The look-up tables that a model's graph adds up; None for other graphs."""
    return bit_tables(graph_of(model))


def _graph_problems(model: Classifier) -> tuple[Problem, ...]:
    """Operations that no node computes."""
    graph = graph_of(model)
    problems = unwritten(graph, WRITTEN)
    # ONNX divides towards 0, which is down only from 0 on.
    signed = [
        i
        for i, step in graph.places(Times) + graph.places(Round)
        if graph.bounds[i][0] < 0 or any(graph.bounds[k][0] < 0 for k in operands(step))
    ]
    if signed:
        text = f"{place(graph, signed[0])}, whose exact product may be negative"
        problems += (Problem(f"{text}: ONNX rounds it otherwise"),)
    return problems


def _size(model: Classifier, tables: BitTables | None) -> int:
    """The approximate size of the constants in bytes: entries, or tables and operand indices."""
    if tables is not None:
        return sum(table.entries.size for table in tables.tables)
    return 8 * sum(len(getattr(s, "table", (0, 0))) + 2 for s in graph_of(model).steps)


EXPORTER = OnnxGraphExporter()
