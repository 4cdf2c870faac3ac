# SPDX-License-Identifier: Apache-2.0
"""The core for a graph: look-up tables that are added up have their own, in LUTs or block RAM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.netfpga.graph.bit_tables.exporter import EXPORTER as TABLES
from n3ic.exporters.netfpga.graph.exporter import NetfpgaGraphExporter
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.operations import place

_OF_TABLES = {
    option.name: option.default
    for option in TABLES.options
    if option.name not in {each.name for each in NetfpgaGraphExporter.options}
}


class NetfpgaKernelsExporter(NetfpgaGraphExporter):
    """The pipeline of a graph, or a core of look-up tables."""

    options: ClassVar[tuple[Option, ...]] = TABLES.options

    def options_for(self, model: Classifier) -> tuple[Option, ...]:
        """The options of the model's core."""
        options: tuple[Option, ...] = _core(model).options
        return options

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that the core takes the options and fits the device."""
        core = _core(model)
        others = [name for name, value in _OF_TABLES.items() if options[name] != value]
        if core is not TABLES and others:
            graph = graph_of(model)
            problem = Problem(
                f"{place(graph, graph.scores[-1])}: --{others[0]} {options[others[0]]} is for "
                "scores that add up look-ups by bits; other graphs have one style, the pipeline"
            )
            return Fit(problems=(problem,))
        return core.check(model, options)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write Verilog and README."""
        _core(model).write(model, options, out)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Simulate the core on packed inputs, then the parts around it under traffic."""
        return _core(model).run(directory, model, options, words)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Compare the core with the model; see the base class."""
        return _core(model).decode(directory, model, options)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Simulate the input stage on integer features; return None if packets hold input bits."""
        return _core(model).encode(directory, model, options, features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report simulated clocks, counted or synthesised logic, and the rate of inputs."""
        return _core(model).report(model, options, directory)

    def estimate(self, model: Classifier, options: Options) -> tuple[Figure, ...]:
        """Estimate the logic of one core, and its latency."""
        return _core(model).estimate(model, options)


def _core(model: Classifier) -> Exporter[Any]:
    """The exporter of a model's core."""
    return _PIPELINE if bit_tables(graph_of(model)) is None else TABLES


_PIPELINE = NetfpgaGraphExporter()
EXPORTER = NetfpgaKernelsExporter()
