# SPDX-License-Identifier: Apache-2.0
"""The family interface of boosted look-up tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.families.tables.network import TablesModel
from n3ic.model.bits import Bits, Words, pack, unpack
from n3ic.model.classifier import Inference
from n3ic.model.family import Decided, Family
from n3ic.model.passes import Simplified
from n3ic.util.display import TextTable

if TYPE_CHECKING:
    from n3ic.kernel.library import KernelNetwork
    from n3ic.model.graph.operations import Graph

_PRIOR = 30.0  # curvature added to each entry that is learned anew, because further flows are few


class TablesFamily(Family):
    """Boosted look-up tables."""

    name: ClassVar[str] = TablesModel.family
    summary: ClassVar[str] = "small tables of integers, addressed by a few input bits and summed"

    @property
    def model(self) -> type[TablesModel]:
        """The class of the family's models."""
        return TablesModel

    def simplified(self, model: TablesModel) -> Simplified[TablesModel]:
        """Remove constant tables, and index and input bits that change no score."""
        from n3ic.families.tables.simplify import simplified

        return simplified(model)

    def compiled(self, model: TablesModel) -> KernelNetwork | None:
        """Load a model into the compiled kernel; return None if it cannot compute the model."""
        from n3ic.families.tables.kernel import loaded

        return loaded(model)

    def graph(self, model: TablesModel) -> Graph:
        """Write a model's tables as look-ups by bits, and their sums."""
        from n3ic.families.tables.graph import tables_graph

        return tables_graph(model)

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Make inputs that decide every entry, edges, then random ones."""
        from n3ic.families.tables.vectors import tables_vectors

        source = network.source.input
        own_inputs = unpack(tables_vectors(network.model, count, seed), network.model.input.n_bits)
        # Bits that the simplified model does not read change nothing: they are random.
        bits = np.random.default_rng(seed).random((len(own_inputs), source.n_bits)) < 0.5
        bits[:, list(network.source_bits)] = own_inputs
        return pack(bits)

    def decided(self, model: TablesModel, inputs: Words, inference: Inference) -> Decided:
        """Count the entries that some inputs decide."""
        from n3ic.families.tables.vectors import tables_coverage

        coverage = tables_coverage(model, inputs)
        return Decided("entries", coverage.total, coverage.decided, coverage.undecided)

    def summary_of(self, model: TablesModel) -> tuple[TextTable, tuple[str, ...]]:
        """Describe a model's tables by size, and the bytes of their parts."""
        sizes = Counter((len(t.bits), t.width) for t in model.tables)
        low, high = model.score_bounds
        read = len({b for t in model.tables for b in t.bits})
        rows = [
            ("input", f"{len(model.input.features)} features, {model.input.n_cuts} cuts"),
            ("input bits", f"{model.input.n_bits}, {read} of them read by a table"),
        ]
        rows += [
            (
                "tables",
                f"{count:,} of {1 << d} entries of {width} bits, addressed by {d} input bits",
            )
            for (d, width), count in sorted(sizes.items())
        ]
        rows += [
            ("sums", f"{len(model.bias)}, biases {', '.join(str(b) for b in model.bias)}"),
            ("scores", f"{low:,} to {high:,}"),
            ("entries", f"{model.entry_bytes:,} B"),
            ("indices", f"{model.index_bytes:,} B"),
            ("biases", f"{model.bias_bytes:,} B"),
            ("cuts", f"{model.input_bytes:,} B"),
            ("total", f"{model.total_bytes:,} B"),
        ]
        return TextTable(model.name, ("look-up tables", ""), tuple(rows), left=2), ()

    def trained_further(
        self,
        model: TablesModel,
        bits: Bits,
        weights: NDArray[np.float64],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
        *,
        rounds: int,
        seed: int,
    ) -> TablesModel:
        """Learn new entries of the same tables."""
        from n3ic.families.tables.settings import TablesTraining
        from n3ic.families.tables.train import fit_tables

        settings = replace(TablesTraining(), cell_prior=_PRIOR)
        return fit_tables(bits, weights, model.input, model.classes, settings, template=model)

    def random(self, rng: np.random.Generator) -> TablesModel:
        """Make a model of 12 tables of 1 to 5 bits and 2 classes."""
        from n3ic.families.tables.random_models import random_tables

        return random_tables(rng)


FAMILY = TablesFamily()
