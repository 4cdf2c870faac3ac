# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as ONNX graphs, exact in int64."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx import exporter as binary
from n3ic.exporters.onnx import graph
from n3ic.exporters.onnx.exporter import FILE, OnnxExporter
from n3ic.exporters.onnx.spn.build import build
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.operations import operations
from n3ic.model.bits import Words
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report

_FOLDER = Path(__file__).resolve().parent


class OnnxSpnExporter(Exporter[SpnModel]):
    """Writes a graph that any ONNX runtime executes; the input is bits or integer features."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graph of standard operators on integers"
    family: ClassVar[str] = SpnModel.family
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = OnnxExporter.options

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return Device.from_toml(Path(binary.__file__).with_name("device.toml"))

    def check(self, model: SpnModel, options: Options) -> Fit:
        """Check that tables and operations fit one file."""
        size, limit = _bytes(model), int(self.device.limits["file_bytes"])
        if size < limit // 2:  # the estimate counts no names and nodes: half the file is for them
            return Fit()
        text = f"the graph takes about {size:,} bytes, half of an ONNX file ({limit:,}) is allowed"
        return Fit(problems=(Problem(text, memory="file", missing_bytes=size - limit // 2),))

    def write(self, model: SpnModel, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        features = options["input"] == "features"
        (out / FILE).write_bytes(graph.to_bytes(build(model, features=features)))
        log = isinstance(model.arithmetic, LogArithmetic)
        binary.write_readme(_FOLDER, out, model, log=log, option_features=features)

    def run(self, directory: Path, model: SpnModel, options: Options, words: Words) -> Execution:
        """Run the graph in onnxruntime."""
        return binary.run_graph(directory, model, words)

    def encode(
        self, directory: Path, model: SpnModel, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Run the graph's input stage; return None if the graph takes bits."""
        if options["input"] != "features":
            return None
        return binary.encode(directory, model, features)

    def report(self, model: SpnModel, options: Options, directory: Path) -> Report:
        """Report size and operations."""
        size, steps = (directory / FILE).stat().st_size, len(operations(model).steps)
        return Report(
            (
                Figure("memory.file", size, "byte", "measured", f"size of {FILE}"),
                Figure("operations", steps, "step", "measured", "count of the network's steps"),
            ),
            ("The graph is for checks, hosts and other tools; its speed depends on the runtime.",),
        )


def _bytes(model: SpnModel) -> int:
    """Approximate size of the graph in bytes: int64 tables and operand indices."""
    made = operations(model)
    return 8 * sum(len(getattr(step, "table", (0, 0))) + 2 for step in made.steps)


EXPORTER = OnnxSpnExporter()
