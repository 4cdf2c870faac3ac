# SPDX-License-Identifier: Apache-2.0
"""Refusals of operations that a target does not write, by name and place."""

from __future__ import annotations

from collections.abc import Collection

from n3ic.model.graph.operations import (
    Choose,
    Graph,
    Lookup,
    Operation,
    Popcount,
    Select,
    in_words,
    with_article,
)
from n3ic.targets.device import Problem


def unwritten(graph: Graph, written: Collection[type[Operation]]) -> tuple[Problem, ...]:
    """The kinds of operations of a graph that a target does not write, each with its first place.

    Args:
        graph: the operations of a model.
        written: the kinds that the target writes.
    """
    problems = []
    for kind in sorted(graph.kinds - {*written}, key=in_words):
        places = graph.places(kind)
        more = f", the first of {len(places):,}" if len(places) > 1 else ""
        text = f"{place(graph, places[0][0])}{more}: this target writes no {in_words(kind)}"
        problems.append(Problem(text))
    return tuple(problems)


def place(graph: Graph, index: int) -> str:
    """Where an operation stands in a graph, in words: its index, and what it reads of the input."""
    step = graph.steps[index]
    if isinstance(step, Select):
        read = ", ".join(dict.fromkeys(map(graph.input.feature_of, step.bits)))
        bits = f"{len(step.bits)} bit{'s' if len(step.bits) > 1 else ''}"
        return f"step {index:,}, a look-up of {bits} by {read}"
    if isinstance(step, Popcount):
        return f"step {index:,}, a popcount of {step.counted:,} bits"
    read = ""
    if isinstance(step, Choose):
        read = f" by {graph.input.feature_of(step.bit)}"
    if isinstance(step, Lookup):
        read = f" by {graph.input.fields[step.field].feature}"
    return f"step {index:,}, {with_article(type(step))}{read}"
