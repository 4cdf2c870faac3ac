# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in C11: their tables and steps, and one source that runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from n3ic.exporters.host.embedded_model import EmbeddedModelExporter
from n3ic.exporters.host.graph.decode import decode_directory
from n3ic.exporters.host.graph.program import LEAST_ROWS, WRITTEN, Program, needs_64_bits, program
from n3ic.exporters.host.sources import compiled_in, readme
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Logarithms
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


class HostGraphExporter(EmbeddedModelExporter[Classifier]):
    """Self-contained C11 that computes a model's operations, with ``bnn-exec``."""

    family: ClassVar[str] = ""

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that a block's values fit the stack, and place the tables in a memory."""
        graph = graph_of(model)
        if refused := (*unwritten(graph, WRITTEN), *_unread_fields(model.input)):
            return Fit(problems=refused)
        steps, fit = program(graph), super().check(model, options)
        fit = replace(fit, problems=(*fit.problems, *_out_of_range(graph)))
        scratch = steps.scratch_bytes(LEAST_ROWS)
        if scratch <= MAX_SCRATCH:
            return fit
        text = f"{steps.slots:,} values live at once take {scratch:,} bytes of the stack"
        problem = Problem(f"{text}, {MAX_SCRATCH:,} are allowed", missing_bytes=scratch)
        return replace(fit, problems=(problem, *fit.problems))

    def source(self, model: Classifier) -> str:
        """Write the tables and the steps, and the code that runs them."""
        return _source(model)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Decode the constants of ``bnn.c``; see the base class."""
        return decode_directory(directory, model)

    def readme(self, model: Classifier) -> str:
        """Write the README of an export."""
        return readme(TEMPLATES, model, values=_values_text(graph_of(model)))

    def memory(self, model: Classifier) -> dict[str, int]:
        """Count the bytes of the C's constants, by what they hold."""
        return _memory(model, program(graph_of(model)))

    def references(self, model: Classifier) -> dict[str, Callable[[Words], Any]]:
        """The model's own scores, and those of its graph, in numpy."""
        graph = graph_of(model)
        return super().references(model) | {
            "numpy (the graph)": lambda words: graph_scores(graph, words)
        }

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report counted bytes and steps; verification measures the time of a flow."""
        steps = program(graph_of(model))
        figures = self.memory_figures(model)
        figures.append(
            Figure("operations", len(steps.steps), "step", "measured", "count of the C's steps")
        )
        if steps.trees:
            leaves = "trees whose leaves are constants, several rows at a time"
            figures.append(Figure("trees", len(steps.trees), "tree", "measured", leaves))
            figures.append(Figure("nodes", len(steps.nodes), "node", "measured", "of those trees"))
        note = (
            f"Rows are computed {steps.block} at a time; a row alone takes longer. `n3ic verify` "
            "measures the time on one core, from packed bits to classes, margins and scores."
        )
        return Report(tuple(figures), (note,))


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


def _values_text(graph: Graph) -> str:
    """What scores stand for, in words."""
    return "integers" if graph.arithmetic is None else graph.arithmetic.text


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
