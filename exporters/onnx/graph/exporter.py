# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations as ONNX graphs, exact in int64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx.exporter import FILE
from n3ic.exporters.onnx.graph.build import WRITTEN, build, operators_text
from n3ic.exporters.onnx.graph.decode import decode
from n3ic.exporters.onnx.integers import IntegerOnnxExporter
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.operations import Round, Times, operands
from n3ic.options import Options
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure
from n3ic.targets.operations import place, unwritten


class OnnxGraphExporter(IntegerOnnxExporter[Classifier]):
    """Writes the operations of a model, grouped by kind and depth."""

    family: ClassVar[str] = ""

    def build(self, model: Classifier, *, features: bool) -> Any:
        """Build the graph of a model, as a ModelProto."""
        return build(model, graph_of(model), features=features)

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that the constants fit one file, and that a division rounds down."""
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
        fit = super().check(model, options)
        return replace(fit, problems=(*problems, *fit.problems))

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode every constant of the graph; see the base class."""
        return (compared(model, decode(directory / FILE, model)),)

    def size(self, model: Classifier) -> int:
        """Return the approximate size of the graph in bytes: int64 tables and operand indices."""
        return 8 * sum(len(getattr(s, "table", (0, 0))) + 2 for s in graph_of(model).steps)

    def readme(self, model: Classifier) -> dict[str, Any]:
        """Say by which operators the graph computes."""
        return {"operators": operators_text(graph_of(model))}

    def figures(self, model: Classifier) -> tuple[Figure, ...]:
        """Count the model's steps."""
        steps = len(graph_of(model).steps)
        return (Figure("operations", steps, "step", "measured", "count of the network's steps"),)


EXPORTER = OnnxGraphExporter()
