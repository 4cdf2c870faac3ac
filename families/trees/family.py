# SPDX-License-Identifier: Apache-2.0
"""The family interface of decision trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from n3ic.families.trees.network import TreesModel
from n3ic.model.bits import Words, pack, unpack
from n3ic.model.classifier import Inference
from n3ic.model.family import Decided, Family
from n3ic.model.graph.operations import Graph
from n3ic.model.passes import Simplified
from n3ic.util.display import TextTable


class TreesFamily(Family):
    """Decision trees, forests and boosted trees."""

    name: ClassVar[str] = TreesModel.family
    foreign_suffixes: ClassVar[tuple[str, ...]] = (".json", ".ubj", ".txt")
    summary: ClassVar[str] = "trees that compare features with cuts and sum their leaves' integers"

    @property
    def model(self) -> type[TreesModel]:
        """The class of the family's models."""
        return TreesModel

    def simplified(self, model: TreesModel) -> Simplified[TreesModel]:
        """Remove nodes with equal sides, constant trees, and input bits that no node asks."""
        from n3ic.families.trees.simplify import simplified

        return simplified(model)

    def graph(self, model: TreesModel) -> Graph:
        """Write trees as choices between constants, whose values are added."""
        from n3ic.families.trees.graph import trees_graph

        return trees_graph(model)

    def imported(self, path: Path) -> TreesModel:
        """Read a model file that XGBoost or LightGBM saved."""
        from n3ic.families.trees.readers.files import read_trees_file

        return read_trees_file(path)

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Make inputs that pass both edges of every node, extremes, then random ones."""
        from n3ic.families.trees.vectors import trees_vectors

        source, own = network.source.input, network.model
        own_bits = unpack(trees_vectors(own, count, seed), own.input.n_bits)
        bits = np.zeros((len(own_bits), source.n_bits), dtype=np.bool_)
        bits[:, list(network.source_bits)] = own_bits
        for start, field in zip(source.offsets, source.fields, strict=True):
            if field.kind == "thermometer":  # a bit that nothing asks follows those above it
                part = bits[:, start : start + field.width][:, ::-1]
                bits[:, start : start + field.width] = np.maximum.accumulate(part, axis=1)[:, ::-1]
        return pack(bits)

    def decided(self, model: TreesModel, inputs: Words, inference: Inference) -> Decided:
        """Count the leaves that some inputs reach, and the nodes that they pass on both sides."""
        from n3ic.families.trees.vectors import decided_by

        return decided_by(model, inputs)

    def summary_of(self, model: TreesModel) -> tuple[TextTable, tuple[str, ...]]:
        """Describe a model's trees, and the bytes of their parts."""
        low, high = model.score_bounds
        sizes = model.sizes + 1
        rows = [
            ("input", f"{len(model.input.features)} features, {model.input.n_cuts} cuts"),
            ("input bits", f"{model.input.n_bits}, {len(np.unique(model.bits))} of them asked"),
            ("trees", f"{len(sizes):,} of {sizes.min():,} to {sizes.max():,} leaves"),
            ("depth", f"at most {model.depth} nodes on the way to a leaf"),
            ("nodes", f"{len(model.bits):,}, {model.node_bytes:,} B"),
            ("leaves", f"{len(model.leaves):,}, {model.leaf_bytes:,} B"),
            ("sums", f"{len(model.bias)}, biases {', '.join(str(b) for b in model.bias)}"),
            ("scores", f"{low:,} to {high:,}"),
            ("biases", f"{model.bias_bytes:,} B"),
            ("cuts", f"{model.input_bytes:,} B"),
            ("total", f"{model.total_bytes:,} B"),
        ]
        return TextTable(model.name, ("decision trees", ""), tuple(rows), left=2), ()

    def random(self, rng: np.random.Generator) -> TreesModel:
        """Make a model of 12 trees of up to 16 leaves and 2 classes."""
        from n3ic.families.trees.random_models import random_trees

        return random_trees(rng)


FAMILY = TreesFamily()
