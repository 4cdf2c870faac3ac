# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as ONNX graphs, exact in int32."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx.exporter import FILE
from n3ic.exporters.onnx.integers import IntegerOnnxExporter
from n3ic.exporters.onnx.tables.build import build
from n3ic.exporters.onnx.tables.decode import decode
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.readback import compared
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.figures import Figure


class OnnxTablesExporter(IntegerOnnxExporter[TablesModel]):
    """Writes ``Gather`` and ``ReduceSum``, and reads the tables back."""

    family: ClassVar[str] = TablesModel.family

    def build(self, model: TablesModel, *, features: bool) -> Any:
        """Build the graph of a model, as a ModelProto."""
        return build(model, features=features)

    def size(self, model: TablesModel) -> int:
        """Return the size of all entries in bytes, at one byte per entry and sum."""
        return sum(table.entries.size for table in model.tables)

    def decode(self, directory: Path, model: TablesModel, options: Options) -> tuple[Decoded, ...]:
        """Decode bits, entries, biases and cuts of the graph, and compare them with the model's."""
        return (compared(model, decode(directory / FILE, model.input)),)

    def figures(self, model: TablesModel) -> tuple[Figure, ...]:
        """Count entries and look-ups."""
        size, count = self.size(model), len(model.tables)
        return (
            Figure("memory.entries", size, "byte", "measured", "int8, counted"),
            Figure("operations", count, "look-up", "measured", "tables of the graph, counted"),
        )


EXPORTER = OnnxTablesExporter()
