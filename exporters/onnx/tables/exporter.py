# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as ONNX graphs, exact in int32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx import exporter as binary
from n3ic.exporters.onnx import graph
from n3ic.exporters.onnx.exporter import FILE, OnnxExporter
from n3ic.exporters.onnx.tables.build import build
from n3ic.exporters.onnx.tables.decode import decode
from n3ic.families.tables.decoded import compared
from n3ic.families.tables.network import TablesModel
from n3ic.model.bits import Words
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report

_FOLDER = Path(__file__).resolve().parent


class OnnxTablesExporter(Exporter[TablesModel]):
    """Writes a graph that any ONNX runtime executes; the input is bits or integer features."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graph of Gather and ReduceSum on integers"
    family: ClassVar[str] = TablesModel.family
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = OnnxExporter.options

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return Device.from_toml(Path(binary.__file__).with_name("device.toml"))

    def check(self, model: TablesModel, options: Options) -> Fit:
        """Check that the entries fit one file, whose other half is for names, nodes and indices."""
        size, limit = _entries(model), int(self.device.limits["file_bytes"]) // 2
        if size < limit:
            return Fit()
        text = f"{size:,} entries of a byte, half of an ONNX file ({limit:,} bytes) holds them"
        return Fit(problems=(Problem(text, memory="file", missing_bytes=size - limit),))

    def write(self, model: TablesModel, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        features = options["input"] == "features"
        (out / FILE).write_bytes(graph.to_bytes(build(model, features=features)))
        binary.write_readme(_FOLDER, out, model, option_features=features)

    def run(self, directory: Path, model: TablesModel, options: Options, words: Words) -> Execution:
        """Run the graph in onnxruntime."""
        return binary.run_graph(directory, model, words)

    def decode(self, directory: Path, model: TablesModel, options: Options) -> tuple[Decoded, ...]:
        """Decode bits, entries, biases and cuts of the graph, and compare them with the model's."""
        return (compared(model, decode(directory / FILE, model.input)),)

    def encode(
        self, directory: Path, model: TablesModel, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Run the graph's input stage; return None if the graph takes bits."""
        if options["input"] != "features":
            return None
        return binary.encode(directory, model, features)

    def report(self, model: TablesModel, options: Options, directory: Path) -> Report:
        """Report size and look-ups."""
        size, count = (directory / FILE).stat().st_size, len(model.tables)
        return Report(
            (
                Figure("memory.file", size, "byte", "measured", f"size of {FILE}"),
                Figure("memory.entries", _entries(model), "byte", "measured", "int8, counted"),
                Figure("operations", count, "look-up", "measured", "tables of the graph, counted"),
            ),
            ("The graph is for checks, hosts and other tools; its speed depends on the runtime.",),
        )


def _entries(model: TablesModel) -> int:
    """Number of entries of all sums."""
    return sum(table.entries.size for table in model.tables)


EXPORTER = OnnxTablesExporter()
