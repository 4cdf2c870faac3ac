# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as ONNX graphs, exact in int64."""

from __future__ import annotations

from typing import Any, ClassVar

from n3ic.exporters.onnx.integers import IntegerOnnxExporter
from n3ic.exporters.onnx.spn.build import build
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.operations import operations
from n3ic.targets.figures import Figure


class OnnxSpnExporter(IntegerOnnxExporter[SpnModel]):
    """Writes the operations of a sum-product network, grouped by kind and depth."""

    family: ClassVar[str] = SpnModel.family

    def build(self, model: SpnModel, *, features: bool) -> Any:
        """Build the graph of a model, as a ModelProto."""
        return build(model, features=features)

    def size(self, model: SpnModel) -> int:
        """Return the approximate size of the graph in bytes: int64 tables and operand indices."""
        network = operations(model)
        return 8 * sum(len(getattr(step, "table", (0, 0))) + 2 for step in network.steps)

    def readme(self, model: SpnModel) -> dict[str, bool]:
        """Say whether the README describes sums in the domain of logarithms."""
        return {"log": isinstance(model.arithmetic, LogArithmetic)}

    def figures(self, model: SpnModel) -> tuple[Figure, ...]:
        """Count the network's steps."""
        steps = len(operations(model).steps)
        return (Figure("operations", steps, "step", "measured", "count of the network's steps"),)


EXPORTER = OnnxSpnExporter()
