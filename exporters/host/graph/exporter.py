# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in C11: their tables and steps, and one source that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from n3ic.exporters.host.embedded_model import EmbeddedModelExporter
from n3ic.exporters.host.graph.bit_tables.kernel import BitTablesKernel
from n3ic.exporters.host.graph.decode import decode_directory
from n3ic.exporters.host.graph.program import LEAST_ROWS, WRITTEN, Program, needs_64_bits, program
from n3ic.exporters.host.sources import compiled_in, readme
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Logarithms
from n3ic.model.graph.bit_tables import bit_tables
from n3ic.model.graph.evaluate import scores as graph_scores
from n3ic.model.graph.operations import Graph, LogAdd, Round, Scale, Times, operands
from n3ic.model.inputs import InputSpec
from n3ic.options import Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import c_string
from n3ic.targets.operations import place, unwritten

TEMPLATES = Path(__file__).resolve().parent / "templates"
MAX_SCRATCH = 1 << 20  # bytes of stack that one call may use


class GraphKernel(Protocol):
    """Code that computes a model's graph.

    Attributes:
        name: what it computes, in words.
        compiled: what its constants are, in words.
    """

    name: ClassVar[str]
    compiled: ClassVar[str]

    @property
    def block(self) -> int:
        """Rows that it computes at a time."""

    @property
    def values(self) -> str:
        """What the scores are, in words."""

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take."""

    def source(self) -> str:
        """Write its constants, and the code that reads them."""

    def memory(self) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""

    def decode(self, directory: Path) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``, and compare them with the model's."""

    def figures(self) -> list[Figure]:
        """What it reports beside the bytes."""


def kernel_of(model: Classifier) -> GraphKernel:
    """The kernel for a model: for look-up tables their own, else the steps of its graph."""
    tables = bit_tables(graph_of(model))
    return StepsKernel(model) if tables is None else BitTablesKernel(model, tables)


class HostGraphExporter(EmbeddedModelExporter[Classifier]):
    """Self-contained C11 that computes a model's operations, with ``bnn-exec``."""

    family: ClassVar[str] = ""

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check what the kernel takes, and place the tables in a memory."""
        problems = kernel_of(model).problems()
        return Fit(problems=problems) if problems else super().check(model, options)

    def source(self, model: Classifier) -> str:
        """Write the constants, and the kernel that reads them."""
        return kernel_of(model).source()

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``; see the base class."""
        return kernel_of(model).decode(directory)

    def readme(self, model: Classifier) -> str:
        """Write the README of an export."""
        kernel = kernel_of(model)
        return readme(TEMPLATES, model, values=kernel.values, compiled=kernel.compiled)

    def memory(self, model: Classifier) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        return kernel_of(model).memory()

    def references(self, model: Classifier) -> dict[str, Callable[[Words], Any]]:
        """The model's own scores, and those of its graph, in numpy."""
        graph = graph_of(model)
        return super().references(model) | {
            "numpy (the graph)": lambda words: graph_scores(graph, words)
        }

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report counted bytes and steps; verification measures the time of a flow."""
        kernel = kernel_of(model)
        note = (
            f"The kernel computes {kernel.name}, {kernel.block} rows at a time; a row alone takes "
            "longer. `n3ic verify` measures the time on one core, from packed bits to classes, "
            "margins and scores."
        )
        return Report((*self.memory_figures(model), *kernel.figures()), (note,))


@dataclass(frozen=True, eq=False)
class StepsKernel:
    """C that follows the steps of a graph.

    Attributes:
        model: the model.
    """

    name: ClassVar[str] = "the steps of a graph"
    compiled: ClassVar[str] = "tables"
    model: Classifier

    @property
    def _graph(self) -> Graph:
        return graph_of(self.model)

    @property
    def _program(self) -> Program:
        return program(self._graph)

    @property
    def block(self) -> int:
        """Rows that it computes at a time."""
        return self._program.block

    @property
    def values(self) -> str:
        """What the scores are, in words."""
        return "integers" if self._graph.arithmetic is None else self._graph.arithmetic.text

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take: operations, fields, operands, or a block beyond the stack."""
        graph = self._graph
        if refused := (*unwritten(graph, WRITTEN), *_unread_fields(graph.input)):
            return refused
        steps = self._program
        scratch = steps.scratch_bytes(LEAST_ROWS)
        text = f"{steps.slots:,} values live at once take {scratch:,} bytes of the stack"
        problem = Problem(f"{text}, {MAX_SCRATCH:,} are allowed", missing_bytes=scratch)
        return (*([problem] if scratch > MAX_SCRATCH else []), *_out_of_range(graph))

    def source(self) -> str:
        """Write the tables and the steps, and the code that runs them."""
        return _source(self.model)

    def memory(self) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        return _memory(self.model, self._program)

    def decode(self, directory: Path) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``, and compare them with the model's."""
        return decode_directory(directory, self.model)

    def figures(self) -> list[Figure]:
        """Count the steps, and the trees whose leaves are constants."""
        steps = self._program
        counts = [
            Figure("operations", len(steps.steps), "step", "measured", "count of the C's steps")
        ]
        if steps.trees:
            leaves = "trees whose leaves are constants, several rows at a time"
            counts.append(Figure("trees", len(steps.trees), "tree", "measured", leaves))
            counts.append(Figure("nodes", len(steps.nodes), "node", "measured", "of those trees"))
        return counts


def _unread_fields(spec: InputSpec) -> tuple[Problem, ...]:
    """Fields that the C does not read: it compares each feature with one list of cuts."""
    return tuple(
        Problem(f"field {i}, {field.feature}: the C reads one thermometer field of each feature")
        for i, field in enumerate(spec.fields)
        if field.kind != "thermometer" or spec.features[i : i + 1] != (field.feature,)
    )[:1]


def _out_of_range(graph: Graph) -> tuple[Problem, ...]:
    """Operands that the C's instructions do not take: negative or long factors, far logarithms."""
    problems = []
    if isinstance(graph.arithmetic, Logarithms) and needs_64_bits(graph):
        low, high = min(lo for lo, _ in graph.bounds), max(hi for _, hi in graph.bounds)
        problems.append(f"values reach {low:,} to {high:,}: logarithms have 32 bits in C")
    for i, step in enumerate(graph.steps):
        read = [graph.bounds[k] for k in operands(step)]
        if isinstance(step, Times | Scale):
            factors = [*read, (step.by, step.by)] if isinstance(step, Scale) else read
            if any(low < 0 or high >= 1 << 32 for low, high in factors):
                problems.append(f"{place(graph, i)}: factors are in 0..2^32-1 in C")
        if isinstance(step, Round) and read[0][0] < 0:
            problems.append(f"{place(graph, i)}: a rounded value is 0 or more in C")
        if isinstance(step, LogAdd):
            span = max(high for _, high in read) - min(low for low, _ in read)
            if span >= 1 << 31:
                problems.append(
                    f"{place(graph, i)}: operands that differ by {span:,} exceed 32 bits"
                )
    return tuple(map(Problem, problems[:1]))


def _memory(model: Classifier, steps: Program) -> dict[str, int]:
    """Bytes of the C's constants, by content."""
    log_add = _log_add(graph_of(model))
    return {
        "tables": steps.value_bytes * len(steps.tables),
        # One more entry, 0, serves all differences beyond the table.
        "log_add": steps.value_bytes * (len(log_add) + 1) if log_add else 0,
        "trees": (8 + steps.value_bytes) * len(steps.nodes) + 8 * len(steps.trees),
        "steps": (16 + steps.value_bytes) * len(steps.steps),  # four words and one value
        "cuts": 4 * sum(len(f.cuts) for f in model.input.fields),  # whole words, for speed
    }


def _log_add(graph: Graph) -> tuple[int, ...]:
    return graph.arithmetic.table if isinstance(graph.arithmetic, Logarithms) else ()


def _source(model: Classifier) -> str:
    """Return the network's part of ``bnn.c``."""
    graph = graph_of(model)
    steps = program(graph)
    spec = model.input
    parts = []
    for i, (start, field) in enumerate(zip(spec.offsets, spec.fields, strict=True)):
        # A field may cross words: a part is its share of one word.
        for word in range(start // 32, (start + field.width - 1) // 32 + 1):
            low, high = max(start - 32 * word, 0), min(start + field.width - 32 * word, 32)
            parts.append({"field": i, "word": word, "mask": (1 << high) - (1 << low)})
    values = {
        "shape": model.shape_text,
        "digest": model.digest,
        "inputs": spec.n_bits,
        "words": spec.n_words,
        "shunt": model.shunt,
        "fraction": graph.arithmetic.fraction if graph.arithmetic else 0,
        "wide": needs_64_bits(graph),
        "plain": graph.arithmetic is None,
        "nodes": steps.nodes,
        "leaves": [node.leaf for node in steps.nodes],
        "trees": steps.trees,
        "reads_bins": steps.reads_bins,
        "log_add": _log_add(graph),
        "block": steps.block,
        "slots": steps.slots,
        "fields": [
            {"name": c_string(f.feature), "scale": repr(f.scale), "first": start, "width": f.width}
            for start, f in zip(spec.offsets, spec.fields, strict=True)
        ],
        "cuts": [f"{cut}u" for f in spec.fields for cut in f.cuts],
        "classes": [c_string(name) for name in model.classes],
        "parts": parts,
        "program": steps.steps,
        "tables": steps.tables,
        "scores": steps.scores,
    }
    return compiled_in(TEMPLATES, "graph_tables.c.j2", values, "graph.c.j2")
