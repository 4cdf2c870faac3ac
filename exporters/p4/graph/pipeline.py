# SPDX-License-Identifier: Apache-2.0
"""A graph's trees as steps of a match-action pipeline, for the P4 templates, and their entries.

All keys are made at once, then every table is looked up, then a tree adds the leaves. The tables do
not depend on each other, so a device may put many of them into one stage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from n3ic.exporters.p4.graph.trees import ForestTables, JointTree, forest_tables
from n3ic.exporters.p4.shared.pipeline import MODEL_BITS
from n3ic.exporters.p4.shared.stored_tables import Level, Total, levels_of
from n3ic.exporters.p4.table_entries import (
    ActionParameter,
    DefaultEntry,
    MatchEntry,
    Steps,
    model_entries,
    shunting_entries,
)
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.targets.packets import SCORE_BITS

LEAF_BITS = (8, 16, 24, 32)  # widths of leaves: action data is whole bytes


@dataclass(frozen=True)
class BitRun:
    """Neighbouring input bits of a key.

    Attributes:
        start: the first input bit.
        place: its place in the key, no higher.
        length: number of bits.
    """

    start: int
    place: int
    length: int

    @property
    def mask(self) -> int:
        """The bits of the key that it gives."""
        return ((1 << self.length) - 1) << self.place


@dataclass(frozen=True)
class KeyField:
    """The input bits by which tables are looked up, the lowest first."""

    index: int
    bits: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of bits."""
        return len(self.bits)

    @property
    def runs(self) -> tuple[BitRun, ...]:
        """The bits as runs of neighbours."""
        runs: list[BitRun] = []
        for place, bit in enumerate(self.bits):
            if runs and runs[-1].start + runs[-1].length == bit:
                runs[-1] = BitRun(runs[-1].start, runs[-1].place, runs[-1].length + 1)
            else:
                runs.append(BitRun(bit, place, 1))
        return tuple(runs)


@dataclass(frozen=True)
class LeafTable:
    """A ternary table whose entries are the leaves of a tree.

    Attributes:
        index: its number.
        key: its key.
        tree: the tree.
    """

    index: int
    key: KeyField
    tree: JointTree

    @property
    def scores(self) -> tuple[int, ...]:
        """The classes to whose scores its leaves are added."""
        return self.tree.scores

    @property
    def size(self) -> int:
        """Entries that it has room for: a power of two, so that another tree may fit."""
        return 1 << max(1, (self.tree.count - 1).bit_length())


@dataclass(frozen=True)
class ForestPipeline:
    """A model as the templates need it.

    Attributes:
        forest: its trees.
        keys: the keys, each of one table or more.
        tables: its tables.
        levels: levels of the tree of sums, in order.
        totals: the last step of each score.
        leaf_bits: bits of a leaf, which is stored with an excess of half its range.
        sum_bits: bits of a sum of stored leaves; at 32, the sum wraps as the score does.
        input_bits: number of input bits.
        pad_bits: number of bits that pad the input to whole bytes.
        classes: number of classes.
        model_id: number in answers: the start of the model's digest, never 0.
        shunts: whether the program has a shunting threshold.
        shunt: smallest margin that is not shunted.
    """

    forest: ForestTables
    keys: tuple[KeyField, ...]
    tables: tuple[LeafTable, ...]
    levels: tuple[Level, ...]
    totals: tuple[Total, ...]
    leaf_bits: int
    sum_bits: int
    input_bits: int
    pad_bits: int
    classes: int
    model_id: int
    shunts: bool
    shunt: int

    @property
    def signature(self) -> str:
        """The properties on which the tables of a v1model program depend, hashed.

        These are the number of input bits and classes, the width of a leaf, the keys, and each
        table's key, size and scores; an ``s`` is added for a shunting threshold.
        """
        keys = [key.bits for key in self.keys]
        tables = [[t.key.index, t.size, t.scores] for t in self.tables]
        parts = [self.input_bits, self.classes, self.leaf_bits, keys, tables]
        text = json.dumps(parts, separators=(",", ":"))
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
        return f"{self.input_bits}_{len(self.tables)}_{digest}" + ("s" if self.shunts else "")

    @property
    def additions(self) -> int:
        """Number of additions: one for each table and score, of which the last adds the offset."""
        return sum(len(t.scores) for t in self.tables)

    @property
    def statements(self) -> int:
        """Number of runs of bits in keys, and of additions."""
        return sum(len(key.runs) for key in self.keys) + self.additions

    @property
    def entries(self) -> int:
        """Number of entries of the tables."""
        return sum(t.tree.count for t in self.tables)

    @property
    def key_bits(self) -> int:
        """Bits of the keys of all entries."""
        return sum(t.tree.count * t.key.width for t in self.tables)

    @property
    def leaf_bytes(self) -> int:
        """Bytes of the leaves of all entries."""
        return sum(t.tree.count * len(t.scores) for t in self.tables) * self.leaf_bits // 8

    @property
    def longest(self) -> int:
        """Bits of the longest key."""
        return max((key.width for key in self.keys), default=0)

    @property
    def stages(self) -> int:
        """Levels of the tree of sums, and the offsets."""
        return len(self.levels) + 1


def forest_pipeline(
    model: Classifier, *, shunts: bool = False, first: int | None = None
) -> ForestPipeline:
    """Convert a model to a pipeline.

    Args:
        model: a model of a family that gives a graph.
        shunts: whether to include a threshold even if the model's is 0.
        first: number of trees, the first ones; None for all.

    Raises:
        ExportError: the graph is no sum of trees, or exceeds their limits.
    """
    forest = forest_tables(graph_of(model))
    trees = forest.trees[:first]
    width = _leaf_bits(forest.leaf_range)
    places = {bits: i for i, bits in enumerate(dict.fromkeys(tree.bits for tree in trees))}
    keys = tuple(KeyField(i, bits) for bits, i in places.items())
    tables = tuple(LeafTable(i, keys[places[t.bits]], t) for i, t in enumerate(trees))
    members = [[t.index for t in tables if c in t.scores] for c in range(len(model.classes))]
    excess = 1 << (width - 1)
    totals = tuple(
        Total(c, of[0] if of else None, start - excess * len(of))
        for c, (start, of) in enumerate(zip(forest.starts, members, strict=True))
    )
    most = max(1, *map(len, members)) * ((1 << width) - 1)
    n = model.input.n_bits
    return ForestPipeline(
        forest=forest,
        keys=keys,
        tables=tables,
        levels=levels_of(members),
        totals=totals,
        leaf_bits=width,
        sum_bits=min(SCORE_BITS, most.bit_length()),
        input_bits=n,
        pad_bits=-n % 8,
        classes=len(model.classes),
        # 0 in an answer means that no model answered, so the id must not be 0.
        model_id=int(model.digest[: MODEL_BITS // 4], 16) or 1,
        shunts=shunts or model.shunt > 0,
        shunt=model.shunt,
    )


def _leaf_bits(leaves: Sequence[int]) -> int:
    return next(b for b in LEAF_BITS if all(-(1 << b - 1) <= v < 1 << b - 1 for v in leaves))


def forest_entries(network: ForestPipeline, shunt_port: int | None = None) -> Steps:
    """Compute a model's entries in three steps: clear the number, entries, set the number.

    Args:
        network: the trees.
        shunt_port: port for shunted packets; None if they leave like all others.
    """
    entries: list[DefaultEntry] = []
    excess = 1 << (network.leaf_bits - 1)
    for t in network.tables:
        name, width = f"t{t.index}", t.key.width
        for leaf in network.forest.entries(t.tree):
            data = tuple(
                ActionParameter(f"leaf{c}", network.leaf_bits, value + excess)
                for c, value in zip(t.scores, leaf.leaves, strict=True)
            )
            key = ActionParameter(f"meta.k{t.key.index}", width, leaf.value)
            mask = ActionParameter("mask", width, leaf.mask)
            entries.append(MatchEntry(name, f"{name}_leaf", data, key, mask))
    offsets = tuple(
        ActionParameter(f"offset{t.score}", SCORE_BITS, t.offset % (1 << SCORE_BITS))
        for t in network.totals
    )
    entries.append(DefaultEntry("offsets", "add_offsets", offsets))
    threshold = network.shunt if network.shunts else None
    clear, setting = model_entries(network.model_id, network.signature)
    return clear, (*entries, *shunting_entries(threshold, shunt_port)), setting
