# SPDX-License-Identifier: Apache-2.0
"""Graphs are equal whatever the order of their operations, and any other number is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from n3ic.model.family import graph_of
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.comparison import graph_difference
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Operation,
    Scale,
    Select,
    Times,
    moved,
    operands,
)
from n3ic.model.inputs import Field, InputSpec
from tests.support.random_graphs import ARITHMETICS, graph_family, graph_model

SPEC = InputSpec((Field.thermometer("a", (3, 9)), Field.thermometer("b", (5,))))


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


@pytest.fixture(params=[*ARITHMETICS, "forest", "look-ups", "trees of look-ups"])
def graph(request: pytest.FixtureRequest) -> Graph:
    if "look-ups" in request.param:
        depth = 2 * request.param.startswith("trees")
        return graph_of(graph_model(3, operations=5, depth=depth, bits=4))
    if request.param == "forest":
        return graph_of(graph_model(1, operations=6, depth=4))
    return graph_of(graph_model(2, request.param))


def reordered(graph: Graph, seed: int) -> Graph:
    """The same operations in another order, their operands, too."""
    rng = np.random.default_rng(seed)
    place: dict[int, int] = {}
    steps: list[Operation] = []
    while len(steps) < len(graph.steps):
        ready = [
            i
            for i, step in enumerate(graph.steps)
            if i not in place and all(k in place for k in operands(step))
        ]
        i = int(rng.choice(ready))
        step = moved(graph.steps[i], place.__getitem__)
        if isinstance(step, Add | LogAdd | Times) and rng.random() < 0.5:
            step = replace(step, a=step.b, b=step.a)
        if isinstance(step, Select):
            step = by_other_bits(step, rng)
        place[i] = len(steps)
        steps.append(step)
    scores = [place[i] for i in graph.scores]
    return Graph(graph.input, tuple(steps), tuple(scores), graph.arithmetic)


def by_other_bits(step: Select, rng: np.random.Generator) -> Select:
    """The same look-up by its bits in another order."""
    order = rng.permutation(len(step.bits)).tolist()
    table = [
        step.table[sum((number >> j & 1) << old for j, old in enumerate(order))]
        for number in range(len(step.table))
    ]
    return Select(tuple(step.bits[old] for old in order), tuple(table))


def others(graph: Graph) -> Iterator[tuple[Any, Graph]]:
    """Graphs of which one number is another one."""
    for i, step in enumerate(graph.steps):
        changed: list[Operation] = []
        if isinstance(step, Constant):
            changed.append(Constant(step.value + 1))
        elif isinstance(step, Offset | Scale):
            changed.append(replace(step, by=step.by + 1))
        elif isinstance(step, Choose):
            changed.append(replace(step, bit=(step.bit or 2) - 1))
            changed.append(Choose(step.bit, step.one, step.zero))
        elif isinstance(step, Lookup):
            for k in range(len(step.table)):
                entries = tuple(e + (j == k) for j, e in enumerate(step.table))
                changed.append(Lookup(step.field, entries))
        elif isinstance(step, Select):
            for k in range(len(step.table)):
                entries = tuple(e + (j == k) for j, e in enumerate(step.table))
                changed.append(Select(step.bits, entries))
            stray = next(b for b in range(graph.input.n_bits) if b not in step.bits)
            changed += [Select((*step.bits[:j], stray, *step.bits[j + 1 :]), step.table)
                        for j in range(len(step.bits))]  # fmt: skip
        for other in changed:
            yield other, replace(graph, steps=(*graph.steps[:i], other, *graph.steps[i + 1 :]))
    yield "scores", replace(graph, scores=graph.scores[::-1])
    if isinstance(graph.arithmetic, Logarithms):
        table = graph.arithmetic.table
        least = replace(graph.arithmetic, table=(*table[:-1], table[-1] - 1))
        yield "entry", replace(graph, arithmetic=least)
        yield "fewer", replace(graph, arithmetic=replace(graph.arithmetic, table=table[:-1]))
    if isinstance(graph.arithmetic, FixedPoint):
        fraction = graph.arithmetic.fraction + 1
        yield "fraction", replace(graph, arithmetic=FixedPoint(fraction))


def test_the_order_of_operations_has_no_effect(graph: Graph) -> None:
    for seed in range(3):
        assert graph_difference(graph, reordered(graph, seed)) == ""


@pytest.mark.first_case
def test_every_other_number_is_found(graph: Graph) -> None:
    differences = [(change, graph_difference(graph, other)) for change, other in others(graph)]
    assert len(differences) > 10
    assert [change for change, difference in differences if not difference] == []


def test_sums_are_equal_however_they_are_added() -> None:
    one, other = GraphBuilder(SPEC), GraphBuilder(SPEC)
    for b, step in ((one, 1), (other, -1)):
        tree = b.choose(0, b.constant(4), b.choose(2, b.constant(7), b.constant(-1)))
        parts = [b.lookup(0, (1, 5, 2)), tree, b.lookup(1, (3, 9)), b.lookup(0, (0, 4, 4)), tree]
        total = b.constant(2)
        for part in parts[::step]:
            total = b.add(total, part)
        b.scores = (b.constant(0), total)  # type: ignore[attr-defined]
    graphs = [b.build(b.scores) for b in (one, other)]  # type: ignore[attr-defined]
    assert graphs[0].steps != graphs[1].steps
    assert graph_difference(*graphs) == ""


def test_graphs_of_other_numbers_of_scores_differ() -> None:
    b = GraphBuilder(SPEC)
    scores = [b.constant(0), b.lookup(0, (1, 5, 2)), b.constant(3)]
    two, three = b.build(scores[:2]), b.build(scores)
    assert graph_difference(two, three) == "3 scores, the model has 2"
    assert graph_difference(three, two) == "2 scores, the model has 3"


def test_a_difference_names_the_operation() -> None:
    def made(entry: int, bit: int) -> Graph:
        b = GraphBuilder(SPEC)
        tree = b.choose(bit, b.constant(4), b.constant(1))
        return b.build([b.constant(0), b.add(b.lookup(0, (1, entry, 2)), tree)])

    own = made(5, 2)
    assert graph_difference(own, made(6, 2)) == (
        "the score of class 1 lacks a look-up of 3 entries by a"
    )
    assert graph_difference(own, made(5, 1)) == (
        "the score of class 1 lacks a choice by bit 2, of b"
    )
    shifted = replace(own, steps=(*own.steps, Offset(own.scores[1], 1)))
    other = replace(shifted, scores=(own.scores[0], len(own.steps)))
    assert graph_difference(own, other) == "the score of class 1 adds other values"


def test_constants_of_look_ups_by_bits_and_bits_that_decide_nothing_make_no_difference() -> None:
    def made(*tables: tuple[tuple[int, ...], tuple[int, ...]], start: int) -> Graph:
        b = GraphBuilder(SPEC)
        total = b.total([b.select(bits, table, shaped=True) for bits, table in tables])
        return b.build([b.constant(0), b.offset(total, start)])

    own = made(((0, 2), (1, 5, 2, 9)), ((1,), (3, -4)), start=10)
    wide = made(((2, 1, 0), (0, 1, 0, 1, 4, 8, 4, 8)), ((1,), (0, -7)), start=14)
    assert graph_difference(own, wide) == ""
    # Tables of the same bits are added up.
    parts = made(((0, 2), (1, 0, 2, 0)), ((2, 0), (0, 0, 5, 9)), ((1,), (3, -4)), start=10)
    assert graph_difference(own, parts) == ""
    other = made(((0, 2), (1, 5, 2, 8)), ((1,), (3, -4)), start=10)
    assert graph_difference(own, other) == (
        "the score of class 1 lacks a look-up by the bits 0, 2, of a, b"
    )
    assert graph_difference(own, made(((0, 2), (1, 5, 2, 9)), ((1,), (3, -4)), start=11)) == (
        "the score of class 1 adds other values"
    )


def test_a_look_up_that_is_added_to_a_lone_operation_is_compared() -> None:
    def made(entry: int) -> Graph:
        b = GraphBuilder(SPEC)
        known = b.threshold(b.add(b.lookup(0, (0, 3, 7)), b.lookup(1, (0, 2))), 4)
        return b.build([b.constant(0), b.add(known, b.lookup(0, (0, 4, entry)))])

    assert graph_difference(made(9), made(9)) == ""
    assert graph_difference(made(9), made(8)) == (
        "the score of class 1 lacks a look-up of 3 entries by a"
    )
