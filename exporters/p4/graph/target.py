# SPDX-License-Identifier: Apache-2.0
"""The base classes of both P4 targets of graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import ExportError
from n3ic.exporters.p4.graph.bit_tables.pipeline import added_tables_of
from n3ic.exporters.p4.graph.bit_tables.target import P4TablesTarget
from n3ic.exporters.p4.graph.trees import forest_tables
from n3ic.exporters.p4.shared.sums import NetworkT, P4SumsTarget
from n3ic.exporters.p4.shared.target import P4Program
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.operations import Graph, Operation
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Report
from n3ic.targets.operations import unwritten
from n3ic.targets.packets import PacketLayout

_LOW, _HIGH = -(1 << 30), 1 << 30  # differences of two scores keep their sign in 32 bits


class P4KernelsTarget(P4Program[Classifier]):
    """A P4 target of graphs, which has a form of its own for sums of look-up tables.

    Attributes:
        of_tables: writes sums of look-up tables.
        of_graphs: writes other graphs.
    """

    family: ClassVar[str] = ""
    of_tables: ClassVar[P4TablesTarget]
    of_graphs: ClassVar[P4GraphTarget[Any]]

    @cached_property
    def device(self) -> Device:
        """The device of binary networks."""
        return self.of_graphs.device

    def kernel(self, model: Classifier) -> P4SumsTarget[Classifier, Any]:
        """What writes a model."""
        return self.of_graphs if added_tables_of(model) is None else self.of_tables

    def of_features(self, model: Classifier) -> bool:
        """A look-up by interval and a tree are searches among bits that follow each other."""
        return added_tables_of(model) is None

    def artefacts(self, model: Classifier, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts by file name."""
        return self.kernel(model).artefacts(model, packets)

    def commands(self, directory: Path) -> str:
        """Table entries as commands, if there are any."""
        return self.of_graphs.commands(directory)

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check the model as what writes it does."""
        return self.kernel(model).check(model, options)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the graph from each artefact, and compare it with the model's."""
        return self.kernel(model).decode(directory, model, options)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report what the model takes."""
        return self.kernel(model).report(model, options, directory)


class P4GraphTarget(P4SumsTarget[Classifier, NetworkT]):
    """A P4 target of graphs.

    Attributes:
        written: the operations that it writes.
    """

    written: ClassVar[Collection[type[Operation]]]
    family: ClassVar[str] = ""
    graph_exporter: ClassVar[str] = ""

    @abstractmethod
    def first(self, model: Classifier, trees: int) -> NetworkT:
        """Convert the first trees of a model, for the nearest one that fits."""

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check operations and the range of scores, then as for look-up tables."""
        graph = graph_of(model)
        if problems := (*unwritten(graph, self.written), *_range_problems(graph)):
            return Fit(problems=problems)
        try:
            fit = super().check(model, options)
        except ExportError as error:
            return Fit(problems=(Problem(str(error)),))
        return fit

    def nearest(self, model: Classifier, network: NetworkT) -> str:
        """Describe the largest forest of the first trees that fits; empty if none does."""
        try:
            number = len(forest_tables(graph_of(model)).trees)
        except ExportError:
            return ""
        low, high = 0, number
        while high - low > 1:  # the first `low` trees fit, the first `high` do not
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits(self.first(model, middle)) else (low, middle)
        return f"the first {low:,} of its {number:,} trees" if low else ""

    def nearest_input(self, model: Classifier, bits: int) -> str:
        """Describe the first trees that ask no more bits."""
        try:
            trees = forest_tables(graph_of(model)).trees
        except ExportError:
            return ""
        asked: set[int] = set()
        for i, tree in enumerate(trees):
            asked.update(tree.bits)
            if len(asked) > bits:
                return f"the first {i:,} of its {len(trees):,} trees" if i else ""
        return f"the {len(asked):,} bits that its trees ask, without --no-simplify"


def _range_problems(graph: Graph) -> tuple[Problem, ...]:
    """Refuse scores whose differences might leave 32 bits."""
    for c, index in enumerate(graph.scores):
        low, high = graph.bounds[index]
        if low < _LOW or high >= _HIGH:
            text = f"the score of class {c} reaches {low:,} to {high:,}"
            return (Problem(f"{text}: P4 programs compare scores from -2^30 to 2^30 - 1"),)
    return ()
