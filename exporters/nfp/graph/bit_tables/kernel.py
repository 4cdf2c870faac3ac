# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in micro-C: threads that add up entries of a blob, one load per table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.nfp import runner
from n3ic.exporters.nfp.estimate import Accesses
from n3ic.exporters.nfp.graph.bit_tables import blob, counts
from n3ic.exporters.nfp.graph.bit_tables.decode import decode_words
from n3ic.exporters.nfp.graph.bit_tables.indices import index_parts, packing
from n3ic.model.bits import Words, pack
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTables
from n3ic.targets.decoded_graphs import DecodedGraph
from n3ic.targets.device import Problem
from n3ic.targets.figures import Figure

MAX_FEATURES = 1 << 15  # a part names its feature in 15 bits


@dataclass(frozen=True, eq=False)
class MicroCBitTables:
    """Micro-C that adds up look-up tables.

    Attributes:
        model: the model.
        tables: the tables that its graph adds up; see :func:`takes`.
    """

    name: ClassVar[str] = "look-up tables"
    state: ClassVar[str] = "bits and indices"
    source: ClassVar[str] = "n3ic_tables.h"
    held: ClassVar[str] = "entries"
    folder: ClassVar[Path] = Path(__file__).resolve().parent
    model: Classifier
    tables: BitTables

    @cached_property
    def built(self) -> blob.TablesBlob:
        """The words of ``weights.bin``."""
        return blob.build(self.model, self.tables)

    @property
    def _serving_words(self) -> int:
        """Words of packed inputs, or of the indices that replace them."""
        return max(self.model.input.n_words, self.built.index_words)

    @property
    def state_words(self) -> int:
        """Words of a thread's state: inputs or indices, and as many words of scratch memory."""
        return 2 * self._serving_words

    @property
    def hidden_words(self) -> int:
        """Words of indices in an answer."""
        return self.built.index_words

    @property
    def cuts(self) -> int:
        """Number of cuts in the words."""
        return sum(len(part.cuts) for part in index_parts(self.model.input, self.tables.tables))

    def problems(self) -> tuple[Problem, ...]:
        """What it does not take: nothing more than :func:`takes` says."""
        return ()

    @property
    def size_text(self) -> str:
        """What takes how many bytes, in words."""
        return (
            f"{len(self.tables.tables)} tables, their indices and the input stage take "
            f"{self.built.size} bytes"
        )

    def values(self) -> dict[str, Any]:
        """Values for the templates."""
        return {
            "tables": len(self.tables.tables),
            "sums": len(self.tables.bias),
            "index_words": self.built.index_words,
            "max_words": self._serving_words,
        }

    def from_bits(self) -> Accesses:
        """Count what an inference of packed input bits reads."""
        return counts.from_bits(self.model, self.tables, self.built)

    def from_features(self) -> Accesses:
        """Count what an inference of features reads."""
        return counts.from_features(self.model, self.tables, self.built)

    def decoded(self, artefact: str, words: Words) -> DecodedGraph:
        """Decode the graph in the words of a weights file."""
        return decode_words(artefact, words, self.model)

    def encoded(self, answers: NDArray[np.uint32], features: Mapping[str, Any]) -> Words:
        """Read the input bits from the indices in the micro-C's answers to features.

        The micro-C computes no input bits: it maps features directly to indices, each bit of which
        is an input bit. Input bits that no table reads are taken from the model.

        Raises:
            VerifyError: two indices disagree on an input bit, or the scores are not the model's.
        """
        model, tables = self.model, self.tables.tables
        start = 2 + len(model.classes) + model.input.n_words
        indices = packing(tables).unpack(answers[:, start:])
        bits = np.array(model.input.encode(features))
        assigned = np.zeros(model.input.n_bits, dtype=np.bool_)
        for table, index in zip(tables, indices.T, strict=True):
            for j, bit in enumerate(table.bits):
                values = (index >> j & 1).astype(np.bool_)
                if assigned[bit] and (bits[:, bit] != values).any():
                    raise VerifyError(f"input stage: two indices disagree on input bit {bit}")
                assigned[bit], bits[:, bit] = True, values
        words = pack(bits)
        if (runner.answered(model, answers).scores != model.scores(words)).any():
            raise VerifyError("input stage: features give other scores than the indices say")
        return words

    def figures(self) -> list[Figure]:
        """Count the loads."""
        what = f"count of the words of entries of {len(self.tables.tables)} tables"
        return [Figure("lookups", self.built.row_words, "load", "measured", what)]

    @property
    def estimate_note(self) -> str:
        """What latency and throughput are estimates of, in words."""
        return (
            "Latency and throughput are estimates: from packed bits, as those of a binary "
            "network, and from features (features.latency), the shorter way, which makes no "
            "input bits. The cycles of a word are those fitted to the paper's binary network; "
            "the paper measured no look-up tables."
        )


def takes(model: Classifier, tables: BitTables) -> bool:
    """Whether the words have room for the entries, sums and features of look-up tables."""
    few = len(tables.bias) <= blob.MAX_SUMS and len(model.input.features) <= MAX_FEATURES
    return few and not tables.beyond
