# SPDX-License-Identifier: Apache-2.0
"""Counts what one inference of the micro-C reads, from ``n3ic_graph.h``."""

from __future__ import annotations

from n3ic.exporters.nfp.estimate import Accesses
from n3ic.exporters.nfp.graph.blob import FIELD_WORDS, STEP_WORDS, GraphBlob
from n3ic.exporters.nfp.graph.program import GraphStep, StepKind
from n3ic.model.bits import word_count
from n3ic.model.classifier import Classifier
from n3ic.model.graph.operations import Select

# Values that a step reads, by its kind.
_OPERANDS = {
    StepKind.CHOOSE: 1, StepKind.ADD: 2, StepKind.OFFSET: 1, StepKind.LOG_ADD: 2,
    StepKind.TIMES: 2, StepKind.SCALE: 1, StepKind.ROUND: 1,
}  # fmt: skip


def from_bits(model: Classifier, built: GraphBlob) -> Accesses:
    """Count an inference of packed input bits: ``n3ic_run()``."""
    classes, width = len(model.classes), built.value_words
    words = 2 + classes  # number of steps, place and slots of the scores
    accesses = classes * (1 + width)
    for step in built.program.steps:
        own = _of_step(step, width)
        words += STEP_WORDS + width + own.words
        if step.kind == StepKind.VOTES:  # it reads and writes a value for each class and tree
            accesses += own.accesses
            continue
        # The value is written; if the step adds to it, it is also read.
        accesses += own.accesses + width * (_OPERANDS.get(step.kind, 0) + 1 + step.adds)
    return Accesses(words, accesses)


def from_features(model: Classifier, built: GraphBlob) -> Accesses:
    """Count an inference of features: ``n3ic_encode()``, then ``n3ic_run()``."""
    fields, run = model.input.fields, from_bits(model, built)
    searches = sum(len(field.cuts).bit_length() for field in fields)
    # Each feature is read once; each word of bits is cleared, and read and written for each field.
    bits = model.input.n_words + sum(2 * _words(field.width) for field in fields)
    # Of a field of raw bits, the word of the first cut is not read.
    read = sum(FIELD_WORDS - (field.kind != "thermometer") for field in fields)
    return Accesses(run.words + 2 + read + searches, run.accesses + len(fields) + bits)


def _of_step(step: GraphStep, width: int) -> Accesses:
    """Count what a step reads beside itself and the values."""
    if step.block is not None:  # each node asks a bit
        comparisons, trees = sum(step.block.depths), len(step.block.depths)
        if step.classes:  # a slot and a value for each class
            values = trees * len(step.classes)
            return Accesses(comparisons + trees + 2 * values, comparisons + 2 * width * values)
        return Accesses(comparisons + len(step.block.depths), comparisons)
    if isinstance(step.lookup, Select):  # how many bits, the number of each, and an entry
        count = len(step.lookup.bits)
        return Accesses(1 + count + width, count)
    if step.lookup is not None:
        return Accesses(1 + width, _words(len(step.lookup.table) - 1))
    # Log-add: size and place of the table, and an entry. Products: the fraction.
    words = {StepKind.LOG_ADD: 3, StepKind.TIMES: 1, StepKind.ROUND: 1}.get(step.kind, 0)
    return Accesses(words, int(step.kind == StepKind.CHOOSE))


def _words(bits: int) -> int:
    """The most words in which neighbouring bits lie."""
    return word_count(bits - 1) + 1
