# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as steps of a match-action pipeline, for the P4 templates, and their entries.

All indices are computed at once, then every table is looked up, then a tree adds the entries. The
tables do not depend on each other, so a device may put many of them into one stage.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from n3ic.exporters.p4.shared.pipeline import MODEL_BITS
from n3ic.exporters.p4.shared.stored_tables import StoredTables, stored
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
from n3ic.model.graph.bit_tables import BitTables, bit_tables, entry_widths
from n3ic.targets.packets import SCORE_BITS


@dataclass(frozen=True)
class TablesPipeline(StoredTables):
    """A model as the templates need it.

    Attributes:
        input_bits: number of input bits.
        pad_bits: number of bits that pad the input to whole bytes.
        classes: number of classes.
        model_id: number in answers: the start of the model's digest, never 0.
        shunts: whether the program has a shunting threshold.
        shunt: smallest margin that is not shunted.
    """

    input_bits: int
    pad_bits: int
    classes: int
    model_id: int
    shunts: bool
    shunt: int

    @property
    def signature(self) -> str:
        """The properties on which the tables of a v1model program depend, hashed.

        These are the number of input bits and classes, and each table's input bits, entry width and
        sums; an ``s`` is added for a shunting threshold.
        """
        wiring = [[t.inputs, t.width, [c.sum for c in t.columns]] for t in self.tables]
        text = json.dumps([self.input_bits, self.classes, wiring], separators=(",", ":"))
        digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
        return f"{self.input_bits}_{len(self.tables)}_{digest}" + ("s" if self.shunts else "")

    @property
    def longest(self) -> int:
        """Bits of the longest index."""
        return max(len(t.inputs) for t in self.tables)

    @property
    def statements(self) -> int:
        """Number of bits of indices, and of additions."""
        return sum(len(t.inputs) for t in self.tables) + self.additions


def added_tables_of(model: Classifier) -> BitTables | None:
    """The look-up tables that a model's graph adds up.

    None if it does not, if they are large, or if each of two classes has a sum of its own.
    """
    tables = bit_tables(graph_of(model))
    if tables is None or tables.beyond or (len(model.classes) == 2 == len(tables.bias)):
        return None
    return tables


def tables_pipeline(
    model: Classifier, tables: BitTables, *, shunts: bool = False
) -> TablesPipeline:
    """Convert a model to a pipeline.

    Args:
        model: the model, for what all models share.
        tables: the look-up tables that its graph adds up.
        shunts: whether to include a threshold even if the model's is 0.
    """
    n = model.input.n_bits
    classes = len(model.classes)
    return TablesPipeline(
        **vars(stored(tables, entry_widths(model, tables), classes)),
        input_bits=n,
        pad_bits=-n % 8,
        classes=classes,
        # 0 in an answer means that no model answered, so the id must not be 0.
        model_id=int(model.digest[: MODEL_BITS // 4], 16) or 1,
        shunts=shunts or model.shunt > 0,
        shunt=model.shunt,
    )


def tables_entries(network: TablesPipeline, shunt_port: int | None = None) -> Steps:
    """Compute a model's entries in three steps: clear the number, entries, set the number.

    The entries of a table are in the order of their indices.

    Args:
        network: the look-up tables.
        shunt_port: port for shunted packets; None if they leave like all others.
    """
    entries: list[DefaultEntry] = [
        MatchEntry(
            f"t{t.index}",
            f"t{t.index}_entry",
            tuple(ActionParameter(f"entry{c.sum}", t.width, c.stored[i]) for c in t.columns),
            ActionParameter(f"t{t.index}_index", len(t.inputs), i),
        )
        for t in network.tables
        for i in range(t.size)
    ]
    offsets = tuple(
        ActionParameter(f"offset{t.score}", SCORE_BITS, t.offset % (1 << SCORE_BITS))
        for t in network.totals
    )
    entries.append(DefaultEntry("offsets", "add_offsets", offsets))
    threshold = network.shunt if network.shunts else None
    clear, setting = model_entries(network.model_id, network.signature)
    return clear, (*entries, *shunting_entries(threshold, shunt_port)), setting
