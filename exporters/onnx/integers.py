# SPDX-License-Identifier: Apache-2.0
"""The base class for families whose graphs compute in integers and have no hidden layers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.onnx import exporter as binary
from n3ic.exporters.onnx import model_proto
from n3ic.exporters.onnx.exporter import FILE, OnnxExporter
from n3ic.model.bits import Words
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter, ModelT
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report


class IntegerOnnxExporter(Exporter[ModelT]):
    """Writes a graph that any ONNX runtime executes; the input is bits or integer features."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graph of standard operators on integers"
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = OnnxExporter.options

    @abstractmethod
    def build(self, model: ModelT, *, features: bool) -> Any:
        """Build the graph of a model, as a ModelProto; see :func:`binary.build`."""

    @abstractmethod
    def size(self, model: ModelT) -> int:
        """Return the approximate size of the graph's constants in bytes."""

    @abstractmethod
    def figures(self, model: ModelT) -> tuple[Figure, ...]:
        """Return the figures of a model, except the size of its file."""

    def readme(self, model: ModelT) -> dict[str, Any]:
        """Return the template values of the README that only this family has."""
        return {}

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return Device.from_toml(Path(binary.__file__).with_name("device.toml"))

    def check(self, model: ModelT, options: Options) -> Fit:
        """Check that the constants fit one file."""
        size, limit = self.size(model), int(self.device.limits["file_bytes"])
        if size < limit // 2:  # the estimate leaves out names and nodes
            return Fit()
        text = f"the graph takes about {size:,} bytes, half of an ONNX file ({limit:,}) is allowed"
        return Fit(problems=(Problem(text, memory="file", missing_bytes=size - limit // 2),))

    def write(self, model: ModelT, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        features = options["input"] == "features"
        (out / FILE).write_bytes(model_proto.to_bytes(self.build(model, features=features)))
        binary.write_readme(self.folder, out, model, **self.readme(model), option_features=features)

    def run(self, directory: Path, model: ModelT, options: Options, words: Words) -> Execution:
        """Run the graph in onnxruntime."""
        return binary.run_graph(directory, model, words)

    def encode(
        self, directory: Path, model: ModelT, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Run the graph's input stage; return None if the graph takes bits."""
        if options["input"] != "features":
            return None
        return binary.encode(directory, model, features)

    def report(self, model: ModelT, options: Options, directory: Path) -> Report:
        """Report size and operations."""
        size = (directory / FILE).stat().st_size
        return Report(
            (
                Figure("memory.file", size, "byte", "measured", f"size of {FILE}"),
                *self.figures(model),
                *binary.cut_figures(model, options),
            ),
            ("The graph is for checks, hosts and other tools; its speed depends on the runtime.",),
        )
