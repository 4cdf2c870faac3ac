# SPDX-License-Identifier: Apache-2.0
"""The target ``xdp`` for families that give graphs: the same programs, with walks down trees."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from n3ic.errors import ExportError
from n3ic.exporters.xdp import exporter
from n3ic.exporters.xdp.graph.bit_tables.decode import decode_directory as decode_tables
from n3ic.exporters.xdp.graph.decode import decode_directory
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import TABLES, kernel_of
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Report
from n3ic.targets.forest import WRITTEN, forest_of
from n3ic.targets.operations import unwritten

_WINDOW_CHECK = 30  # instructions


class XdpGraphExporter(exporter.XdpExporter):
    """C for the kernel that sums the leaves of trees, or the entries of look-up tables."""

    graph_exporter: ClassVar[str] = ""

    @cached_property
    def folder(self) -> Path:
        """The folder of the target ``xdp``, whose device and templates apply here too."""
        return Path(exporter.__file__).resolve().parent

    def input_limit(self, model: Classifier) -> str:
        """The name of the device's limit of an inference packet's input bits."""
        return "input_bits" if kernel_of(model) == TABLES else "graph_input_bits"

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check operations and sizes of the graph, then as for networks; see the base class."""
        if kernel_of(model) == TABLES:
            return super().check(model, options)
        graph = graph_of(model)
        if problems := unwritten(graph, WRITTEN):
            return Fit(problems=problems)
        try:
            forest_of(graph)
        except ExportError as error:
            return Fit(problems=(Problem(str(error)),))
        fit = super().check(model, options)
        if fit.problems or model.meter is None:
            return fit
        followed = structure_of([model]).followed
        windows = _WINDOW_CHECK * exporter.window_checks(model.meter, self.device.limits)
        most = int(self.device.limits["followed"])
        if windows and followed + windows > most:
            text = (
                f"the verifier follows {followed:,} instructions of walks and {windows:,} of "
                f"{len(model.meter.windows)} windows: {most:,} are allowed together"
            )
            return replace(fit, problems=(Problem(text),))
        return fit

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the map values; see the base class."""
        read = decode_tables if kernel_of(model) == TABLES else decode_directory
        return read(directory, model)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report what the programs compute besides what the base class does."""
        report = super().report(model, options, directory)
        way = (
            "add up entries of look-up tables" if kernel_of(model) == TABLES else "walk down trees"
        )
        return replace(report, notes=(f"The programs {way}.", *report.notes))


EXPORTER = XdpGraphExporter()
