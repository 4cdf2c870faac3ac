# SPDX-License-Identifier: Apache-2.0
"""Decodes a program's map value to a graph, and compares it with the model's.

Each root's entries are read down to the leaves: a node by an input bit is a choice, and the nodes
by the number of a field's set bits together are a look-up.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError, VerifyError
from n3ic.exporters.xdp.decode import NETWORK, read_value
from n3ic.exporters.xdp.network.sums import Structure
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Graph
from n3ic.targets.decoded_graphs import DecodedGraph, compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.forest import forest_of

_GROUP = 4  # packed bits are read in groups of so many, the last one filled up


def decode_directory(directory: Path, model: Classifier) -> tuple[Decoded, ...]:
    """Decode the graph in ``answer/network.bin``, and compare it with the model's.

    Raises:
        VerifyError: the file cannot be read, has the wrong size, or holds another graph.
    """
    structure, value = read_value(directory, model)
    try:
        graph = _Reader(structure, value, model).graph()
    except ModelError as error:
        raise VerifyError(f"{NETWORK}: {error}") from error
    shunt = int.from_bytes(value["shunt"], "little")
    decoded = DecodedGraph(NETWORK, graph, None, shunt, value["model"].hex())
    return (compared(model, decoded, _as_trees(graph_of(model))),)


def _as_trees(graph: Graph) -> Graph:
    """A graph as the sums of trees that are written."""
    forest = forest_of(graph)
    builder = forest.builder
    pairs = [(builder.total(each.trees), each.start) for each in forest.sums]
    return builder.build([builder.offset(total, start) for total, start in pairs])


class _Reader:
    """Reads the entries of a map value into a builder of the model's input.

    Args:
        structure: the structure over packed bits.
        value: the map value, by member.
        model: gives the input.
    """

    def __init__(self, structure: Structure, value: dict[str, bytes], model: Classifier) -> None:
        self.structure = structure
        self.start = np.frombuffer(value["start"], dtype="<i8").tolist()
        self.entries: NDArray[np.uint32] = np.frombuffer(value["entries"], dtype="<u4")
        self.input = model.input
        self.first_count = -(-model.input.n_bits // _GROUP) * _GROUP  # of the numbers of set bits
        self.builder = GraphBuilder(model.input)
        self.known: dict[int, int] = {}

    def graph(self) -> Graph:
        """The graph of all walks."""
        root, scores = 0, []
        for start, walks in zip(self.start, self.structure.walks, strict=True):
            trees = []
            for steps in walks:
                trees.append(self._value(root, steps))
                root += 1
            scores.append(self.builder.offset(self.builder.total(trees), start))
        return self.builder.build(scores)

    def _entry(self, at: int) -> tuple[int, int, int]:
        """What an entry reads or adds, the number of the next one, and what a value must reach."""
        if 2 * at + 1 >= len(self.entries):
            raise VerifyError(f"{NETWORK}: a walk leads to entry {at:,}, which does not exist")
        word, following = self.entries[2 * at : 2 * at + 2].tolist()
        return word, following >> 8, 256 - (following & 255)

    def _value(self, at: int, steps: int) -> int:
        """The builder's value of the tree below an entry, which a walk reaches with steps left."""
        word, following, reached = self._entry(at)
        if following == at and reached == 256:
            return self.builder.constant(word - (word >> 31 << 32))
        if not steps:
            raise VerifyError(f"{NETWORK}: a walk ends at entry {at:,}, which is no leaf")
        if at not in self.known:
            if word >= self.first_count:
                field, table = self._table(at, steps)
                self.known[at] = self.builder.lookup(field, table)
            elif reached != 1:
                raise VerifyError(f"{NETWORK}: entry {at:,} compares a bit with {reached}")
            else:
                zero, one = (self._value(following + side, steps - 1) for side in (0, 1))
                self.known[at] = self.builder.choose(word, zero, one)
        return self.known[at]

    def _table(self, at: int, steps: int) -> tuple[int, list[int]]:
        """The field whose set bits the nodes below an entry count, and the leaf of each number."""
        number = self._entry(at)[0] - self.first_count
        if number >= len(self.structure.counted):
            raise VerifyError(f"{NETWORK}: entry {at:,} reads a value that does not exist")
        first, width = self.structure.counted[number]
        table = []
        for count in range(width + 1):
            here = at
            for _ in range(steps + 1):
                word, following, reached = self._entry(here)
                if following == here and reached == 256:
                    break
                if word - self.first_count != number:
                    raise VerifyError(f"{NETWORK}: entry {here:,} below a look-up reads {word:,}")
                here = following + (count >= reached)
            else:
                raise VerifyError(f"{NETWORK}: a walk down a look-up at {at:,} has no leaf")
            table.append(word - (word >> 31 << 32))
        return self.input.offsets.index(first), table
