# SPDX-License-Identifier: Apache-2.0
"""The weight blob of a graph: its steps, trees, tables and input stage as 32-bit words.

Layout, in words (``weights.bin`` holds them little-endian):

- 0..22, header: magic ``N3NG`` (0x474E334E), layout version, number of words, steps, input bits,
  fields of the input stage, word of the first field, features; SHA-256 of the model file (8 words);
  classes, slots of values, words of a value (1 or 2), word of the scores, words of the log-add
  table, word of its first entry, fraction bits of the arithmetic.
- steps, two words and a value each: kind (bits 0 to 6), bit 7 if the result is added to the value
  instead of set, slot of the value (from bit 8); slot of the first and of the second operand (from
  bit 16). The value is a constant or a factor; of a choice, the input bit; of a look-up, the word
  of its table; of trees, the word of their block, and the second operand is the number of trees.
- scores: the slot of each class's score.
- trees, a block for each step: a word for each node, the roots first; see :class:`.program.Block`.
  Of trees that vote for several classes, the slot of each class comes first, and vectors of a value
  for each class come last; a leaf has the place of its vector, counted from the first node on.
- tables: of a field, its first bit and from bit 16 on its number of bits less 1; then a value for
  each number of bits that are set. Of input bits, how many they are; the number of each in 16 bits,
  the lower half first, the least significant bit of the index first; then a value for each index.
- log-add: an entry for each distance.
- input: five words for each field, then the cuts, as in a network's blob (:mod:`..blob`).
- in layout version 2, for a model that shunts flows: the smallest margin that is not shunted.

A value of two words has the lower half first. Values are in two's complement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from n3ic.exporters.nfp.graph.program import GraphProgram, GraphStep, StepKind, compiled
from n3ic.exporters.nfp.graph.sections import SectionedWords, halves
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import Logarithms
from n3ic.model.graph.operations import Graph, Lookup, Select

MAGIC = int.from_bytes(b"N3NG", "little")
VERSION = 1
SHUNT_VERSION = 2
HEADER_WORDS = 23
STEP_WORDS = 2  # without the value
FIELD_WORDS = 5
ADDS = 1 << 7


@dataclass(frozen=True, eq=False)
class GraphBlob(SectionedWords):
    """The words of a graph and the positions of its parts.

    Attributes:
        program: the steps.
    """

    program: GraphProgram

    @property
    def value_words(self) -> int:
        """Words of a value."""
        return 2 if self.program.wide else 1


@lru_cache(maxsize=4)  # an export asks for the same blob several times
def build(model: Classifier) -> GraphBlob:
    """Build the blob of a model of a family that gives graphs; deterministic."""
    graph = graph_of(model)
    program = compiled(graph)
    width = 2 if program.wide else 1
    tables = dict.fromkeys(step.lookup for step in program.steps if step.lookup is not None)
    log_add = graph.arithmetic.table if isinstance(graph.arithmetic, Logarithms) else ()
    sizes = {
        "header": HEADER_WORDS,
        "steps": (STEP_WORDS + width) * len(program.steps),
        "scores": len(program.scores),
        "trees": sum(len(_block_words(step)) for step in program.steps),
        "tables": sum(len(_read(graph, lookup)) + width * len(lookup.table) for lookup in tables),
        "log_add": len(log_add),
        "input": FIELD_WORDS * len(model.input.fields)
        + sum(len(f.cuts) for f in model.input.fields),
        "shunt": 1 if model.shunt else 0,
    }
    starts, total = {}, 0
    for name, size in sizes.items():
        starts[name], total = total, total + size
    trees = _trees(program, starts["trees"])
    contents = {
        "header": _header(model, graph, program, starts, total),
        "scores": list(program.scores),
        "trees": [word for step in program.steps for word in _block_words(step)],
        "log_add": list(log_add),
        "input": _fields(model, starts["input"]),
        "shunt": [model.shunt] if model.shunt else [],
    }
    contents["tables"], places = _tables(graph, list(tables), starts["tables"], width)
    contents["steps"] = []
    for i, step in enumerate(program.steps):
        by = trees.get(i, step.by if step.lookup is None else places[step.lookup])
        contents["steps"] += [*_operands(step), *_value(by, width)]
    words = np.array([word for name in sizes for word in contents[name]], np.uint32)
    written = {name: starts[name] for name, size in sizes.items() if size}
    return GraphBlob(words, written, program)


def _header(
    model: Classifier, graph: Graph, program: GraphProgram, starts: dict[str, int], total: int
) -> list[int]:
    arithmetic = graph.arithmetic
    log_add = len(arithmetic.table) if isinstance(arithmetic, Logarithms) else 0
    return [
        *(MAGIC, SHUNT_VERSION if model.shunt else VERSION, total, len(program.steps)),
        *(model.input.n_bits, len(model.input.fields), starts["input"], len(model.input.features)),
        *np.frombuffer(bytes.fromhex(model.digest), "<u4").tolist(),
        *(len(program.scores), program.slots, 2 if program.wide else 1, starts["scores"]),
        *(log_add, starts["log_add"] if log_add else 0, arithmetic.fraction if arithmetic else 0),
    ]


def _operands(step: GraphStep) -> list[int]:
    b = len(step.block.depths) if step.block is not None else step.b
    return [step.kind | (ADDS if step.adds else 0) | step.to << 8, step.a | b << 16]


def _value(value: int, width: int) -> list[int]:
    """The words of a value, in two's complement."""
    return [value >> 32 * k & 0xFFFFFFFF for k in range(width)]


def _trees(program: GraphProgram, start: int) -> dict[int, int]:
    """The first word of each step's block, by step."""
    places = {}
    for i, step in enumerate(program.steps):
        if step.block is not None:
            places[i] = start
            start += len(_block_words(step))
    return places


def _block_words(step: GraphStep) -> tuple[int, ...]:
    """The words of a step's trees: of those that vote, slots, nodes and vectors."""
    if step.block is None:
        return ()
    nodes = step.block.words
    if step.kind == StepKind.VOTES:  # a leaf names its vector from the first node on
        nodes = tuple(word + len(nodes) if word >> 31 else word for word in nodes)
    return (*step.classes, *nodes, *step.block.vectors)


def _tables(
    graph: Graph, lookups: list[Lookup | Select], start: int, width: int
) -> tuple[list[int], dict[Lookup | Select, int]]:
    """The words of the tables, and the first word of each."""
    words: list[int] = []
    places = {}
    for lookup in lookups:
        places[lookup] = start + len(words)
        words += _read(graph, lookup)
        words += [word for entry in lookup.table for word in _value(entry, width)]
    return words, places


def _read(graph: Graph, lookup: Lookup | Select) -> list[int]:
    """The words that say by which bits a table is read."""
    if isinstance(lookup, Lookup):
        spec = graph.input
        return [spec.offsets[lookup.field] | (spec.fields[lookup.field].width - 1) << 16]
    return [len(lookup.bits), *halves(lookup.bits)]


def _fields(model: Classifier, start: int) -> list[int]:
    spec = model.input
    fields: list[int] = []
    cuts: list[int] = []
    for field in spec.fields:
        ordered = field.kind == "thermometer"
        first = start + FIELD_WORDS * len(spec.fields) + len(cuts) if ordered else 0
        fields += [
            *(spec.features.index(field.feature), int(ordered), field.width, field.clamp, first)
        ]
        cuts += field.cuts
    return fields + cuts
