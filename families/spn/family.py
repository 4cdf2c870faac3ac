# SPDX-License-Identifier: Apache-2.0
"""The family interface of sum-product networks."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from n3ic.families.spn.network import SpnModel
from n3ic.model.bits import Words
from n3ic.model.classifier import Inference
from n3ic.model.family import Decided, Family
from n3ic.model.graph.operations import Graph
from n3ic.model.passes import Simplified
from n3ic.util.display import TextTable


class SpnFamily(Family):
    """Sum-product networks."""

    name: ClassVar[str] = SpnModel.family
    summary: ClassVar[str] = "leaves, products and sums: the likelihood of a flow"

    @property
    def model(self) -> type[SpnModel]:
        """The class of the family's models."""
        return SpnModel

    def graph(self, model: SpnModel) -> Graph:
        """Compile a network to integer operations."""
        from n3ic.families.spn.graph import spn_graph

        return spn_graph(model)

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Make inputs that decide entries and weights, boundary inputs, then random ones."""
        from n3ic.families.spn.vectors import spn_vectors

        return spn_vectors(network.source, count, seed)

    def decided(self, model: SpnModel, inputs: Words, inference: Inference) -> Decided:
        """Count the table entries and weights that some inputs decide."""
        from n3ic.families.spn.vectors import spn_coverage

        coverage = spn_coverage(model, inputs)
        return Decided("entries and weights", coverage.total, coverage.decided, coverage.undecided)

    def summary_of(self, model: SpnModel) -> tuple[TextTable, tuple[str, ...]]:
        """Describe a model's nodes, arithmetic and scores."""
        features, leaves, products, sums, _ = model.shape
        low, high = model.score_bounds
        kind = f"{model.arithmetic.name}, {model.arithmetic.fraction} fraction bits"
        rows = (
            ("input", f"{features} features, {model.input.n_cuts} cuts"),
            (
                "leaves",
                f"{leaves:,}, tables of {sum(len(n.table) for n in model.leaves):,} entries",
            ),
            ("products", f"{products:,}"),
            ("sums", f"{sums:,}"),
            ("arithmetic", kind),
            ("error", f"at most {model.error_bound:,.1f} steps, proven"),
            ("scores", f"{low:,} to {high:,}"),
            ("parameters", f"{model.weight_bytes:,} B, input cuts {model.input_bytes:,} B"),
            ("indices, biases", "{index_bytes:,} B, {bias_bytes:,} B".format(**model.memory)),
            ("in total", f"{model.total_bytes:,} B"),
        )
        return TextTable(model.name, ("sum-product network", ""), rows, left=2), ()

    def random(self, rng: np.random.Generator) -> SpnModel:
        """Make a network of 6 features and 2 classes, each with a root."""
        from n3ic.families.spn.random_models import random_spn

        return random_spn(rng)


FAMILY = SpnFamily()
