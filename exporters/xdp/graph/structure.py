# SPDX-License-Identifier: Apache-2.0
"""The part of a graph of integer operations that is compiled into the program.

Each class's score is a start value plus one leaf of each of its trees. Nodes and leaves are entries
of 8 bytes in the map. The program has compiled in how many steps the walk down each tree takes and
how many entries there are; a walk that is at a leaf stays there. So a swap of the map's value
changes tests, leaves and the shape of the trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.groups import MAX_CUTS
from n3ic.exporters.xdp.network.sums import (
    LayerPlan,
    Structure,
    outline_of,
    within_reach,
)
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.inputs import InputSpec
from n3ic.targets.forest import Forest, Tree, WalkNode, forest_of

ENTRY = 8  # bytes
MAX_STEPS = 1 << 14  # of all walks, which the verifier follows one by one
MAX_COUNTER_BYTES = 32_768  # of a value for each CPU
_MARGINS = 256  # counters of margins


def graph_structure(models: Sequence[Classifier], *, bits: bool = False) -> Structure:
    """Compute the structure that the graphs of several models share.

    Args:
        models: one or more models of families that give graphs, with the same number of classes.
        bits: whether the features are the packed input bits.

    Raises:
        ExportError: a graph exceeds the limits of XDP programs, or the numbers of classes differ.
    """
    counts = sorted({len(model.classes) for model in models})
    if len(counts) > 1:
        raise ExportError(f"graphs of {counts[0]} and {counts[1]} classes cannot share a program")
    forests = [forest_of(graph_of(model)) for model in models]
    specs = [InputSpec.raw(m.input.n_bits) if bits else m.input for m in models]
    outline = outline_of(specs, bits, searched=True)
    by_model = [_depths(forest) for forest in forests]
    walks = tuple(
        tuple(_rooms([max(each) for each in zip_longest(*of_class, fillvalue=0)]))
        for of_class in zip(*by_model, strict=True)
    )
    if (steps := sum(map(sum, walks))) > MAX_STEPS:
        trees = sum(map(len, walks))
        raise ExportError(
            f"walks down {trees:,} trees take {steps:,} steps, the verifier follows {MAX_STEPS:,}"
        )
    trees = sum(map(len, walks))
    entries = max(trees + 2 * sum(_inner(forest)) for forest in forests)
    counted = sorted({each for forest in forests for each in _counted(forest)}) if bits else ()
    structure = Structure(
        outline.features,
        outline.selectors,
        (LayerPlan(counts[0], 32),),
        bits,
        touched=((),) * len(outline.selectors),
        walks=walks,
        entries=ENTRY << (max(2, entries) - 1).bit_length(),
        counted=tuple(counted),
    )
    rows = sum(s.rows for s in structure.selectors)
    room = MAX_COUNTER_BYTES // 8 - _MARGINS - counts[0] - 1
    if not bits and rows > room:
        raise ExportError(
            f"the cuts make {rows:,} intervals, whose decisions a CPU counts: {room:,} are allowed"
        )
    return within_reach(structure)


def _depths(forest: Forest) -> list[list[int]]:
    """Return the depths of each class's trees, the deepest first."""
    known: dict[Tree, int] = {}
    return [
        sorted((forest.depth(tree, known) for tree in each.trees), reverse=True)
        for each in forest.sums
    ]


def _rooms(depths: Sequence[int]) -> Iterable[int]:
    """Round depths up, so that few loops serve all trees and other trees fit."""
    deepest = max(depths, default=0)
    step = max(2, -(-deepest // 4))
    return (min(deepest, -(-depth // step) * step) for depth in depths)


def _inner(forest: Forest) -> Iterable[bool]:
    return (isinstance(node, WalkNode) for node in forest.nodes().values())


def _counted(forest: Forest) -> Iterable[tuple[int, int]]:
    """Yield the first bit and the width of the fields that look-ups read.

    Raises:
        ExportError: a field has too many cuts.
    """
    spec = forest.builder.input
    tests = {n.test - spec.n_bits for n in forest.nodes().values() if isinstance(n, WalkNode)}
    for start, field in zip(spec.offsets, spec.fields, strict=True):
        if not any(start <= test < start + field.width for test in tests):
            continue
        if field.width > MAX_CUTS:
            raise ExportError(
                f"a look-up by {field.feature!r}: {field.width} cuts, XDP programs count {MAX_CUTS}"
            )
        yield start, field.width
