# SPDX-License-Identifier: Apache-2.0
"""Look-up tables are found in the graph of any family that adds up look-ups by bits."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.families.tables.graph import tables_graph
from n3ic.families.tables.random_models import random_tables
from n3ic.model.bits import pack
from n3ic.model.graph.bit_tables import BitTables, bit_tables, entry_widths
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.evaluate import scores
from n3ic.model.inputs import Field, InputSpec
from tests.support.random_graphs import Recorder, graph_model

SPEC = InputSpec((Field.thermometer("a", (3, 9)), Field.binary("b", 3)))


def added(tables: BitTables, bits):
    """The scores of some rows, table by table."""
    out = np.tile(tables.bias, (len(bits), 1))
    for table in tables.tables:
        out += table.entries[(bits[:, table.bits] << np.arange(len(table.bits))).sum(axis=1)]
    return out


@pytest.mark.parametrize("seed", range(12))
def test_the_tables_of_the_family_are_found_as_the_model_has_them(seed):
    rng = np.random.default_rng(seed)
    shape = {"classes": 2 + seed % 4, "inputs": (1, 8), "widths": (1, 8), "tables": 1 + 5 * seed}
    model = random_tables(rng, **shape)
    table_sum = bit_tables(tables_graph(model))
    assert [table.bits for table in table_sum.tables] == [table.bits for table in model.tables]
    for own, table in zip(model.tables, table_sum.tables, strict=True):
        assert (table.entries == own.entries).all()
        assert table.held == tuple(np.flatnonzero(own.held))
        assert table.width <= own.width
        half = 1 << (table.width - 1)
        assert -half <= own.entries.min() and own.entries.max() < half
        assert table.width == 1 or own.entries.min() < -half // 2 or own.entries.max() >= half // 2
    assert entry_widths(model, table_sum) == tuple(table.width for table in model.tables)
    assert (table_sum.bias == model.bias).all()
    assert (table_sum.sum_bounds == model.sum_bounds).all()
    assert not table_sum.beyond


def test_entries_are_as_wide_as_they_need_where_a_model_states_no_width_for_them():
    model = random_tables(np.random.default_rng(0), tables=3, widths=(8, 8))
    few, wide = (
        BitTables(tables, np.zeros(1, dtype=np.int64))
        for all_tables in [bit_tables(tables_graph(model)).tables]
        for tables in (
            all_tables[:2],
            (replace(all_tables[0], entries=300 + all_tables[0].entries), *all_tables[1:]),
        )
    )
    assert entry_widths(model, few) == tuple(table.width for table in few.tables)
    assert entry_widths(model, wide)[0] == 10
    stateless = graph_model(3, operations=3, bits=4, classes=2)
    own = bit_tables(stateless.asked)
    assert entry_widths(stateless, own) == tuple(table.width for table in own.tables)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [Recorder, GraphBuilder])
def test_the_tables_of_any_family_give_its_scores(seed, kind):
    model = graph_model(seed, operations=15, bits=5, classes=2 + seed % 3)
    graph = model.ask(kind)
    table_sum = bit_tables(graph)
    bits = np.random.default_rng(seed).random((100, model.input.n_bits)) < 0.5
    own = added(table_sum, bits)
    wanted = scores(graph, pack(bits))
    assert (own == wanted[:, -own.shape[1] :]).all()
    assert len(model.classes) > 2 or own.shape[1] == 1


def test_a_look_up_that_is_added_twice_and_one_of_several_sums():
    b = GraphBuilder(SPEC)
    x, y = b.select((0, 4), (1, 2, 3, 4)), b.select((0, 4), (7, 2, 3, 4))
    twice = b.add(b.offset(b.add(x, x), 3), b.constant(2))
    table_sum = bit_tables(b.build([twice, b.add(x, y), b.constant(9)]))
    assert table_sum.bias.tolist() == [5, 0, 9]
    assert [table.held for table in table_sum.tables] == [(0, 1), (0, 1)]
    both = bit_tables(b.build([x, y]))
    assert [table.held for table in both.tables] == [(0, 1)]
    assert both.tables[0].entries.T.tolist() == [[1, 2, 3, 4], [7, 2, 3, 4]]


def test_other_graphs_have_none():
    assert bit_tables(graph_model(1, operations=3, depth=2, bits=3).ask(GraphBuilder)) is None
    assert bit_tables(graph_model(1).ask(GraphBuilder)) is None
    b = GraphBuilder(SPEC)
    assert bit_tables(b.build([b.constant(0), b.constant(4)])) is None
    mixed = b.add(b.select((1,), (4, 5)), b.lookup(0, (1, 2, 3)))
    assert bit_tables(b.build([b.constant(0), mixed])) is None


def test_what_kernels_do_not_take_is_said():
    def beyond(entries, start=0, count=1):
        b = GraphBuilder(SPEC)
        one = [b.select((1,), entries, shaped=True) for _ in range(count)]
        return bit_tables(b.build([b.constant(0), b.offset(b.total(one), start)])).beyond

    assert beyond((-128, 127)) == ""
    assert beyond((0, 128)) == "entries of 0 to 128 in look-ups by bits, not -128 to 127"
    assert "a constant of 536,870,913" in beyond((0, 1), (1 << 29) + 1)
    assert beyond((0, 1), count=4097) == "4,097 look-ups by bits are added, not up to 4,096"


def test_a_table_of_zeros_keeps_its_place():
    model = random_tables(np.random.default_rng(0), tables=5, classes=3, inputs=(2, 2))
    tables = [
        replace(table, bits=(3, 1), entries=table.entries * (i not in (1, 2)))
        for i, table in enumerate(model.tables)
    ]
    table_sum = bit_tables(tables_graph(replace(model, tables=tuple(tables))))
    entries = [table.entries.tolist() for table in table_sum.tables]
    assert entries == [table.entries.tolist() for table in tables]
