# SPDX-License-Identifier: Apache-2.0
"""Indices of look-up tables: from intervals of features, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from n3ic.exporters.nfp.graph.bit_tables.indices import IndexPart, index_parts, packing
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model.family import graph_of
from n3ic.model.graph.bit_tables import BitTable, bit_tables
from n3ic.model.inputs import Field, InputSpec

BOTH_KINDS = InputSpec(
    (
        Field.thermometer("a", (5, 9, 12)),
        Field.binary("b", 6),
        Field.thermometer("a", (3, 9)),
        Field.thermometer("c", (1, 2**32 - 1)),
    )
)


def added(model: TablesModel) -> tuple[BitTable, ...]:
    """The tables that the model's graph adds up."""
    own = bit_tables(graph_of(model))
    assert own is not None
    return own.tables


def indices_of_features(
    parts: Sequence[IndexPart], values: Mapping[str, np.ndarray], tables: int
) -> np.ndarray:
    """The indices of the tables by intervals of features, as a target finds them."""
    rows = len(next(iter(values.values())))
    out = np.zeros((rows, tables), dtype=np.uint8)
    for part in parts:
        value = values[part.feature]
        if part.clamp is None:
            out |= part.indices[np.searchsorted(part.cuts, value, side="right")]
        else:
            clamped = np.clip(value, 0, part.clamp)
            for k, row in enumerate(part.indices):
                out |= np.where(((clamped >> k) & 1)[:, None] == 1, row, np.uint8(0))
    return out


@pytest.mark.parametrize("seed", range(4))
def test_intervals_give_the_indices_of_the_bits(seed: int) -> None:
    spec = BOTH_KINDS
    model = random_tables(np.random.default_rng(seed), spec=spec, tables=5, inputs=(1, 4))
    edges = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 63, 64, 2**32 - 2, 2**32 - 1]
    values = {f: np.random.default_rng(seed).choice(edges, 300) for f in spec.features}
    parts = index_parts(model.input, added(model))
    assert all((np.diff(p.cuts) > 0).all() for p in parts)
    wanted = model.indices(spec.encode_words(values))
    assert (indices_of_features(parts, values, 5) == wanted).all()


def test_cuts_that_no_table_reads_are_left_out() -> None:
    table = Table((7, 1), np.zeros((4, 1), dtype=np.int8), 4)  # 7 is bit 4 of b, 1 is a >= 9
    model = TablesModel(BOTH_KINDS, (table,), np.zeros(1, dtype=np.int32), ("x", "y"))
    a, b = index_parts(model.input, added(model))
    assert (a.feature, a.cuts, a.indices.tolist()) == ("a", (9,), [[0], [2]])
    assert (b.feature, b.cuts, b.clamp) == ("b", (), 63)
    assert b.indices[:, 0].tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("features", [3, 20])
def test_packed_indices_are_found_again(features: int) -> None:
    model = random_tables(
        np.random.default_rng(17), tables=20, inputs=(1, 8), widths=(1, 8), features=features
    )
    how = packing(added(model))
    indices = model.indices(tables_vectors(model, 0))
    words = how.pack(indices)
    assert words.shape == (len(indices), how.n_words) and words.dtype == np.uint32
    assert (how.unpack(words) == indices).all()
    for t in range(len(model.tables)):
        assert how.shift[t] + len(model.tables[t].bits) <= 32
        field = (words[:, how.word[t]] >> np.uint32(how.shift[t])) & np.uint32(how.mask[t])
        assert (field == indices[:, t]).all()
