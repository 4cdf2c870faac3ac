# SPDX-License-Identifier: Apache-2.0
"""The core for a graph: look-up tables that are added up have their own, in fewer LUTs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.graph.exporter import NetfpgaGraphExporter
from n3ic.exporters.netfpga.tables.exporter import EXPORTER as TABLES
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.options import Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit
from n3ic.targets.figures import Figure, Report

_UNROLLED = {option.name: option.default for option in TABLES.options}


class NetfpgaKernelsExporter(NetfpgaGraphExporter):
    """The pipeline of a graph, or the unrolled core of look-up tables."""

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that the core fits the device."""
        core, own = self._core(model, options)
        return core.check(model, own)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write Verilog and README."""
        core, own = self._core(model, options)
        core.write(model, own, out)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Simulate the core on packed inputs, then the parts around it under traffic."""
        core, own = self._core(model, options)
        return core.run(directory, model, own, words)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Compare the core with the model; see the base class."""
        core, own = self._core(model, options)
        return core.decode(directory, model, own)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Simulate the input stage on integer features; return None if packets hold input bits."""
        core, own = self._core(model, options)
        return core.encode(directory, model, own, features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report simulated clocks, counted or synthesised logic, and the rate of inputs."""
        core, own = self._core(model, options)
        return core.report(model, own, directory)

    def estimate(self, model: Classifier, options: Options) -> tuple[Figure, ...]:
        """Estimate the logic of one core, and its latency."""
        core, own = self._core(model, options)
        return core.estimate(model, own)

    def _core(self, model: Classifier, options: Options) -> tuple[Exporter[Any], Options]:
        """The exporter of a model's core, and the options that it takes."""
        if bit_tables(graph_of(model)) is None:
            return _PIPELINE, options
        return TABLES, {**_UNROLLED, **options}


_PIPELINE = NetfpgaGraphExporter()
EXPORTER = NetfpgaKernelsExporter()
