# SPDX-License-Identifier: Apache-2.0
"""Finds the trees of a graph whose leaves are all constants."""

from __future__ import annotations

from collections.abc import Collection

from n3ic.model.graph.operations import Choose, Constant, Graph


def choices_of_constants(graph: Graph) -> dict[int, int]:
    """The choices that only choices and constants are below, by index.

    Returns:
        For each, the most choices on a way from it to a constant, itself included.
    """
    depth: dict[int, int] = {}
    for i, step in enumerate(graph.steps):
        if isinstance(step, Choose) and all(
            k in depth or isinstance(graph.steps[k], Constant) for k in (step.zero, step.one)
        ):
            depth[i] = 1 + max(depth.get(step.zero, 0), depth.get(step.one, 0))
    return depth


def roots_of(graph: Graph, choices: Collection[int]) -> tuple[int, ...]:
    """Those of some choices that a score or an operation beyond them reads, in order."""
    return tuple(
        i
        for i in sorted(choices)
        if i in graph.scores or any(k not in choices for k in graph.readers[i])
    )
