# SPDX-License-Identifier: Apache-2.0
"""A graph as statements of a P4 program without tables, for the templates.

Values are fields of one width, in two's complement. P4-SDNet allows no branch in an action, so an
input bit chooses by a mask, which is all ones or 0. The statements of a level read those of lower
levels only.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from n3ic.errors import ExportError
from n3ic.exporters.p4.shared.pipeline import MODEL_BITS
from n3ic.model.classifier import Classifier
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    Lookup,
    Offset,
    Operation,
    operands,
)
from n3ic.targets.operations import place
from n3ic.targets.packets import SCORE_BITS

STATEMENTS: tuple[type[Operation], ...] = (Constant, Lookup, Choose, Add, Offset)
_LIMIT = 1 << 30  # of values: an offset, the difference of two, fits 32 bits


@dataclass(frozen=True)
class Operand:
    """What a statement reads: the field of a step, or a constant."""

    step: int
    constant: int | None = None


@dataclass(frozen=True)
class Added:
    """A constant that is added where an input bit is set."""

    bit: int
    value: int


@dataclass(frozen=True)
class StepStatement:
    """A statement that sets the field of a step.

    Attributes:
        step: index in the graph.
        kind: ``choose``, ``add`` or ``lookup``.
        reads: the operands of a choice (zero, one) or of an addition.
        bit: the input bit of a choice.
        first: the first entry of a look-up.
        added: what a look-up adds to it.
    """

    step: int
    kind: str
    reads: tuple[Operand, ...] = ()
    bit: int = 0
    first: int = 0
    added: tuple[Added, ...] = ()


@dataclass(frozen=True)
class GraphStatements:
    """A model as the templates need it.

    Attributes:
        graph: the operations.
        width: bits of a value.
        bits: the input bits that statements read, ascending.
        levels: the statements, level by level.
        scores: the value of each class's score.
        input_bits: number of input bits.
        pad_bits: number of bits that pad the input to whole bytes.
        classes: number of classes.
        model_id: number in answers: the start of the model's digest, never 0.
        shunts: whether the program has a shunting threshold.
        shunt: smallest margin that is not shunted.
    """

    graph: Graph
    width: int
    bits: tuple[int, ...]
    levels: tuple[tuple[StepStatement, ...], ...]
    scores: tuple[Operand, ...]
    input_bits: int
    pad_bits: int
    classes: int
    model_id: int
    shunts: bool
    shunt: int

    @property
    def statements(self) -> tuple[StepStatement, ...]:
        """All statements."""
        return tuple(each for level in self.levels for each in level)

    @property
    def constant_bytes(self) -> int:
        """Bytes of the constants of choices, look-ups and sums."""
        read = [op for each in self.statements for op in each.reads if op.constant is not None]
        entries = sum(1 + len(s.added) for s in self.statements if s.kind == "lookup")
        return -(-(len(read) + entries) * self.width // 8)

    @property
    def bit_operations(self) -> int:
        """Count the bit operations of one inference.

        A mask takes three on each of its bits (shift, AND, subtraction), a choice four (complement,
        two ANDs, OR), an entry of a look-up two (AND, addition), and a sum one.
        """
        cost = {"choose": 4, "add": 1, "lookup": 0}
        values = sum(cost[s.kind] + 2 * len(s.added) for s in self.statements)
        return (values + 3 * len(self.bits)) * self.width + 2 * SCORE_BITS * self.classes


def graph_statements(model: Classifier, graph: Graph, *, shunts: bool = False) -> GraphStatements:
    """Convert a model to statements.

    Args:
        model: the model, for what all models share.
        graph: the operations that are written.
        shunts: whether to include a threshold even if the model's is 0.

    Raises:
        ExportError: a value may exceed 31 bits.
    """
    for i, (low, high) in enumerate(graph.bounds):
        if low < -_LIMIT or high >= _LIMIT:
            text = f"{place(graph, i)}, reaches {low:,} to {high:,}"
            raise ExportError(f"{text}: P4 programs compute from -2^30 to 2^30 - 1")
    least, largest = (f(v for b in graph.bounds for v in b) for f in (min, max))
    levels: dict[int, list[StepStatement]] = defaultdict(list)
    level: list[int] = []
    for i, step in enumerate(graph.steps):
        level.append(1 + max((level[k] for k in operands(step)), default=0))
        if isinstance(step, Constant):
            level[i] = 0
        else:
            levels[level[i]].append(_statement(graph, i, step))
    made = tuple(tuple(levels[k]) for k in sorted(levels))
    asked = {s.bit for each in made for s in each if s.kind == "choose"}
    asked |= {added.bit for each in made for s in each for added in s.added}
    n = graph.input.n_bits
    return GraphStatements(
        graph=graph,
        # One bit for the sign, and one for offsets.
        width=max((-least - 1).bit_length() if least < 0 else 0, max(0, largest).bit_length()) + 2,
        bits=tuple(sorted(asked)),
        levels=made,
        scores=tuple(_operand(graph, i) for i in graph.scores),
        input_bits=n,
        pad_bits=-n % 8,
        classes=len(graph.scores),
        # 0 in an answer means that no model answered, so the id must not be 0.
        model_id=int(model.digest[: MODEL_BITS // 4], 16) or 1,
        shunts=shunts or model.shunt > 0,
        shunt=model.shunt,
    )


def _operand(graph: Graph, i: int) -> Operand:
    step = graph.steps[i]
    return Operand(i, step.value if isinstance(step, Constant) else None)


def _statement(graph: Graph, i: int, step: Operation) -> StepStatement:
    if isinstance(step, Choose):
        reads = (_operand(graph, step.zero), _operand(graph, step.one))
        return StepStatement(i, "choose", reads, bit=step.bit)
    if isinstance(step, Add):
        return StepStatement(i, "add", (_operand(graph, step.a), _operand(graph, step.b)))
    if isinstance(step, Offset):
        return StepStatement(i, "add", (_operand(graph, step.a), Operand(-1, step.by)))
    if isinstance(step, Lookup):
        start = graph.input.offsets[step.field]
        pairs = zip(step.table, step.table[1:], strict=False)
        added = (Added(start + k, b - a) for k, (a, b) in enumerate(pairs) if a != b)
        return StepStatement(i, "lookup", first=step.table[0], added=tuple(added))
    raise ExportError(f"{place(graph, i)}: this target does not write it")
