# SPDX-License-Identifier: Apache-2.0
"""The kernel of all graphs: micro-C that follows the steps of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.exporters.nfp.estimate import Accesses
from n3ic.exporters.nfp.graph import blob, counts
from n3ic.exporters.nfp.graph.decode import decode_words
from n3ic.exporters.nfp.graph.program import MAX_SLOTS, compiled
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.targets.decoded_graphs import DecodedGraph
from n3ic.targets.device import Problem
from n3ic.targets.figures import Figure
from n3ic.targets.operations import place


@dataclass(frozen=True, eq=False)
class MicroCSteps:
    """Micro-C that follows the steps of a graph.

    Attributes:
        model: the model.
    """

    name: ClassVar[str] = "the steps of a graph"
    state: ClassVar[str] = "bits and values"
    source: ClassVar[str] = "n3ic_graph.h"
    held: ClassVar[str] = "weights"
    folder: ClassVar[Path] = Path(__file__).resolve().parent
    hidden_words: ClassVar[int] = 0
    model: Classifier

    @cached_property
    def built(self) -> blob.GraphBlob:
        """The words of ``weights.bin``."""
        return blob.build(self.model)

    @property
    def state_words(self) -> int:
        """Words of a thread's state: input bits, a word of scratch memory, and values."""
        return self.model.input.n_words + 1 + self.built.value_words * self.built.program.slots

    @property
    def cuts(self) -> int:
        """Number of cuts in the words."""
        return sum(len(field.cuts) for field in self.model.input.fields)

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take."""
        graph = graph_of(self.model)
        if (slots := compiled(graph).slots) <= MAX_SLOTS:
            return ()
        text = f"{place(graph, graph.scores[-1])}: {slots:,} values are live at once"
        return (Problem(f"{text}, a step names {MAX_SLOTS:,}"),)

    @property
    def size_text(self) -> str:
        """What takes how many bytes, in words."""
        graph, parts = graph_of(self.model), self.built.sections
        largest = max(parts, key=lambda name: parts[name])
        return (
            f"{place(graph, graph.scores[-1])}: {len(graph.steps):,} operations take "
            f"{self.built.size:,} bytes, {parts[largest]:,} of them {largest}"
        )

    def values(self) -> dict[str, Any]:
        """Values for the templates."""
        return {"values": self.built.program.slots, "value_words": self.built.value_words}

    def from_bits(self) -> Accesses:
        """Count what an inference of packed input bits reads."""
        return counts.from_bits(self.model, self.built)

    def from_features(self) -> Accesses:
        """Count what an inference of features reads."""
        return counts.from_features(self.model, self.built)

    def decoded(self, artefact: str, words: Words) -> DecodedGraph:
        """Decode the graph in the words of a weights file."""
        return decode_words(artefact, words, self.model)

    def encoded(self, answers: NDArray[np.uint32], features: Mapping[str, Any]) -> Words:
        """The packed input bits in the micro-C's answers to features."""
        start = 2 + len(self.model.classes)  # after the class, the margin and the scores
        return np.ascontiguousarray(answers[:, start : start + self.model.input.n_words])

    def figures(self) -> list[Figure]:
        """Count the steps, and the trees if there are any."""
        program = self.built.program
        figures = [
            Figure(
                "operations", len(program.steps), "step", "measured", "count of the micro-C's steps"
            )
        ]
        if blocks := program.blocks:
            trees, nodes = sum(len(b.depths) for b in blocks), sum(len(b.words) for b in blocks)
            what = "trees whose leaves are constants, descended node by node"
            figures.append(Figure("trees", trees, "tree", "measured", what))
            figures.append(
                Figure("nodes", nodes, "node", "measured", "of those trees, leaves included")
            )
        return figures

    @property
    def estimate_note(self) -> str:
        """What latency and throughput are estimates of, in words."""
        return (
            "Latency and throughput are estimates for a row that takes the longest way down "
            "each tree: from packed bits, as those of a binary network, and from features "
            "(features.latency). The cycles of a word are those fitted to the paper's binary "
            "network; the paper measured no trees."
            + (" A product takes more of them." if self.built.program.wide else "")
        )
