# SPDX-License-Identifier: Apache-2.0
"""Counts what one inference of the micro-C reads, from ``n3ic_tables.h``."""

from __future__ import annotations

from n3ic.exporters.nfp.estimate import Accesses
from n3ic.exporters.nfp.graph.bit_tables.blob import GROUP_WORDS, TablesBlob
from n3ic.exporters.nfp.graph.bit_tables.indices import index_parts
from n3ic.model.classifier import Classifier
from n3ic.model.graph.bit_tables import BitTables


def from_bits(model: Classifier, own: BitTables, built: TablesBlob) -> Accesses:
    """Count an inference of packed input bits: ``n3ic_address()``, then ``n3ic_run()``."""
    bits = sum(len(t.bits) for t in own.tables)
    done = _sums(model, own, built)
    words = 2 + (GROUP_WORDS - 2) * built.groups + bits
    # Each bit is read once; each word of indices is written, read and copied.
    return Accesses(done.words + words, done.accesses + bits + 3 * built.index_words)


def from_features(model: Classifier, own: BitTables, built: TablesBlob) -> Accesses:
    """Count an inference of features: ``n3ic_encode()``, then ``n3ic_run()``."""
    parts = index_parts(model.input, own.tables)
    ored = sum(1 if p.clamp is None else len(p.indices) for p in parts)
    done = _sums(model, own, built)
    # Each feature is read once; each word of indices is cleared, then read and written per mark.
    accesses = len(parts) + built.index_words * (1 + 2 * ored)
    return Accesses(done.words + 2 + built.encoding_words, done.accesses + accesses)


def _sums(model: Classifier, own: BitTables, built: TablesBlob) -> Accesses:
    """Count ``n3ic_run()``."""
    sums, classes = len(own.bias), len(model.classes)
    words = 2 + GROUP_WORDS * built.groups + sums + built.row_words
    # A single sum stays in a register; several are read and written by each table that adds.
    added = 0 if sums == 1 else sum(2 * len(t.held) for t in own.tables)
    return Accesses(words, built.index_words + classes + added)
