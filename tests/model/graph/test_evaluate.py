# SPDX-License-Identifier: Apache-2.0
"""The evaluator, the normal form and the bounds, against a scalar interpreter of what was asked."""

import time

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.model.bits import pack, unpack
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.evaluate import scores
from n3ic.model.graph.operations import (
    Add,
    Choose,
    Constant,
    Graph,
    LogAdd,
    Lookup,
    Offset,
    Popcount,
    Round,
    Scale,
    Select,
    Times,
    bounds_of,
    operands,
)
from n3ic.model.inputs import Field, InputSpec
from tests.support.random_graphs import (
    ARITHMETICS,
    Recorder,
    codes,
    graph_model,
    interpreted,
    values_of,
)

MIXED = InputSpec((Field.thermometer("a", (3, 9)), Field.binary("b", 3)))


@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.slow] if n > 2 else []) for n in range(8)]
)
def test_both_forms_give_the_scores_of_the_interpreter_within_their_bounds(arithmetic, seed):
    model = graph_model(seed, arithmetic, operations=20 + 10 * seed)
    asked, made = model.ask(Recorder), model.ask(GraphBuilder)
    words = codes(model.input, np.random.default_rng(seed), 100)
    bits = unpack(words, model.input.n_bits)
    wanted = np.array([interpreted(asked, row) for row in bits.tolist()])
    assert len({*map(tuple, wanted.tolist())}) > 1
    assert (scores(asked, words) == wanted).all()
    assert (scores(made, words) == wanted).all()
    assert len(made.steps) < len(asked.steps)
    for graph in (asked, made):
        for row in bits[:100].tolist():
            for value, (low, high) in zip(values_of(graph, row), graph.bounds, strict=True):
                assert low <= value <= high
    again = model.ask(GraphBuilder)
    assert (again.steps, again.scores) == (made.steps, made.scores)


@pytest.mark.parametrize("seed", range(4))
def test_look_ups_by_bits_give_the_scores_of_the_interpreter_within_their_bounds(seed):
    model = graph_model(seed, operations=9, depth=seed % 2, bits=6, classes=2 + seed % 3)
    asked, made = model.ask(Recorder), model.ask(GraphBuilder)
    bits = np.random.default_rng(seed).random((150, model.input.n_bits)) < 0.5
    if seed % 2:  # choices that are decided above are left out
        bits = model.input.ordered(bits)
    wanted = np.array([interpreted(asked, row) for row in bits.tolist()])
    for graph in (asked, made):
        assert graph.count(Select) > 5
        assert (scores(graph, pack(bits)) == wanted).all()
        for row in bits[:50].tolist():
            for value, (low, high) in zip(values_of(graph, row), graph.bounds, strict=True):
                assert low <= value <= high


def test_the_normal_form_of_a_look_up_by_bits():
    builder = GraphBuilder(MIXED)
    wide = builder.select((4, 0, 2), (1, 1, 5, 5, 1, 1, 5, 5))
    assert builder.steps[wide] == Select((0,), (1, 5))
    assert builder.select((0,), (1, 5)) == wide
    assert builder.steps[builder.select((3, 1), (7, 7, 7, 7))] == Constant(7)
    shaped = builder.select((3, 1), (7, 7, 7, 7), shaped=True)
    assert builder.steps[shaped] == Select((3, 1), (7, 7, 7, 7))
    assert builder.select((3, 1), (7, 7, 7, 7), shaped=True) != shaped
    with pytest.raises(ModelError, match="bit 5 of 5"):
        builder.select((1, 5), (1, 2, 3, 4))


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_of_the_normal_form_is_needless(seed):
    """Each branch of each choice that a score reads is taken by some code, if sums are left out."""
    model = graph_model(seed, operations=1, depth=7, classes=2, fields=3, cuts=6)
    made, asked = model.ask(GraphBuilder), model.ask(Recorder)
    assert made.count(Choose) < asked.count(Choose)
    bins = np.stack(np.meshgrid(*(np.arange(f.width + 1) for f in model.input.fields)), -1)
    bits = np.concatenate(
        [
            np.arange(f.width) < of[:, None]
            for f, of in zip(model.input.fields, bins.reshape(-1, 3).T, strict=True)
        ],
        axis=1,
    )
    taken = set()
    for row in bits.tolist():
        at = made.scores[1]
        while isinstance(step := made.steps[at], Choose):
            branch = step.one if row[step.bit] else step.zero
            taken.add((at, branch))
            at = branch
    assert taken == {(i, k) for i, step in made.places(Choose) for k in operands(step)}
    assert len({*made.steps}) == len(made.steps)
    assert (scores(made, pack(bits)) == [interpreted(asked, row) for row in bits.tolist()]).all()
    # Every leaf is reached, so the bounds of a single tree are exact.
    values = scores(made, pack(bits))[:, 1]
    assert made.bounds[made.scores[1]] == (values.min(), values.max())


def test_bits_of_a_number_decide_nothing_about_each_other():
    builder = GraphBuilder(MIXED)
    zero, one, two = (builder.constant(v) for v in range(3))
    inner = builder.choose(3, one, two)  # bit 1 of b
    outer = builder.choose(4, zero, inner)  # bit 2 of b
    made = builder.build([zero, outer])
    assert made.count(Choose) == 2
    words = MIXED.encode_words({"a": np.zeros(8), "b": np.arange(8)})
    assert scores(made, words)[:, 1].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]


def test_what_is_decided_above_is_left_out():
    builder = GraphBuilder(MIXED)
    one, two, three = (builder.constant(v) for v in (1, 2, 3))
    low, high = builder.choose(0, one, two), builder.choose(1, two, three)
    assert builder.choose(0, low, high) == builder.choose(0, one, high)
    # Below the first cut, the second is not reached; where the second is, the first is.
    assert builder.choose(0, high, three) == builder.choose(0, two, three)
    assert builder.choose(1, three, low) == builder.choose(1, three, two)
    assert builder.choose(0, one, one) == one
    # The same through a choice of another field.
    other = builder.choose(2, low, three)
    assert builder.choose(0, other, one) == builder.choose(0, builder.choose(2, one, three), one)
    assert builder.choose(0, builder.choose(2, low, one), three) == builder.choose(0, one, three)


@pytest.mark.slow
def test_a_tree_may_be_as_deep_as_the_input_is_wide():
    spec = InputSpec(tuple(Field.thermometer(f"x{i}", (5,)) for i in range(3000)))
    builder = GraphBuilder(spec)
    value = builder.constant(-1)
    for bit in range(3000):
        value = builder.choose(bit, value, builder.constant(bit))
    value = builder.choose(0, builder.constant(-2), value)  # so the last of the chain is not needed
    made = builder.build([builder.constant(0), value])
    assert made.count(Choose) == 3000
    rows = {f"x{i}": np.array([0, 9 * (i in (0, 70)), 9 * (i == 0), 9]) for i in range(3000)}
    assert scores(made, spec.encode_words(rows))[:, 1].tolist() == [-2, 70, 0, 2999]


def test_the_sum_of_nothing_is_nothing():
    builder = GraphBuilder(MIXED)
    assert builder.steps[builder.total([])] == Constant(0)


@pytest.mark.slow
def test_a_forest_of_ten_thousand_choices_is_usable():
    model = graph_model(1, operations=160, depth=6, classes=2, fields=30, cuts=60)
    began = time.process_time()
    made = model.ask(GraphBuilder)
    assert made.count(Choose) > 8000
    words = codes(model.input, np.random.default_rng(0), 2000)
    values = scores(made, words)
    assert time.process_time() - began < 20  # it takes some 2
    few = unpack(words[:: len(words) // 20], model.input.n_bits).tolist()
    assert (values[:: len(words) // 20] == [interpreted(made, row) for row in few]).all()


def refused(*steps, arithmetic=None, wanted, spec=MIXED, read=None):
    with pytest.raises(ModelError, match=wanted):
        Graph(spec, steps, read or (0, len(steps) - 1), arithmetic)


def test_what_cannot_be_computed_is_refused():
    big = Constant(1 << 40)
    refused(Constant(0), Constant(1 << 31), wanted="scores reach 0 to 2,147,483,648, beyond 32")
    refused(Constant(-(1 << 31)), Constant(1), wanted="margins reach 2,147,483,649")
    refused(Constant(0), big, Scale(1, 1 << 23), wanted="the scaling reaches .* beyond 64 bits")
    fixed = ARITHMETICS["fixed"]
    refused(Constant(0), big, Times(1, 1), arithmetic=fixed, wanted="the product reaches .* 64")
    refused(Constant(0), Round(0), wanted="a rounding needs the arithmetic of fixed point")
    refused(Constant(0), Times(0, 0), wanted="a product needs the arithmetic of fixed point")
    refused(Constant(0), LogAdd(0, 0), arithmetic=fixed, wanted="needs the arithmetic of log")
    refused(Constant(0), Add(0, 1), wanted="step 1: a sum reads what is not before it")
    refused(Constant(0), Offset(-1, 1), wanted="step 1: an offset")
    refused(Constant(0), Choose(5, 0, 0), wanted="a choice reads input bit 5 of 5")
    refused(Constant(0), Choose(-1, 0, 0), wanted="a choice reads input bit -1 of 5")
    refused(Constant(0), Lookup(2, (1, 2)), wanted="a look-up reads field 2 of 2")
    refused(Constant(0), Lookup(0, (1, 2)), wanted="of 2 entries reads 'a': expected a field of 1")
    refused(Constant(0), Lookup(1, (1, 2, 3, 4)), wanted="not a binary one of 3 bits")
    refused(Constant(0), Select((0, 5), (1, 2, 3, 4)), wanted="a look-up reads input bit 5 of 5")
    refused(Constant(0), Select((-1,), (1, 2)), wanted="a look-up reads input bit -1 of 5")
    refused(Constant(0), Select((1, 1), (1, 2, 3, 4)), wanted=r"different input bits, not \[1, 1\]")
    refused(Constant(0), Select((), (1,)), wanted="1 to 8 different input bits")
    refused(Constant(0), Select((1,), (1, 2, 3)), wanted="of 1 bits has 3 entries, not 2")
    for bits, wrong in (((-1, 3), -1), ((3, 5), 5), ((4, -2), -2)):
        step = Popcount(bits, (), 0b11, 0b11)
        refused(Constant(0), step, wanted=f"a popcount reads input bit {wrong} of 5")
    refused(Constant(0), Constant(1), read=(0,), wanted="two scores or more")
    refused(Constant(0), Constant(1), read=(0, 2), wanted="two scores or more")


def test_a_builder_refuses_what_the_input_lacks():
    builder = GraphBuilder(MIXED)
    a, b = builder.constant(1), builder.constant(2)
    with pytest.raises(ModelError, match="input bit 5"):
        builder.choose(5, a, b)
    with pytest.raises(ModelError, match="field 7"):
        builder.lookup(7, (1, 2))
    with pytest.raises(ModelError, match="beyond 64 bits"):
        builder.offset(builder.constant((1 << 63) - 1), 1)


def test_values_fill_64_bits_and_no_more():
    most = 2**63 - 1
    assert bounds_of(Offset(0, -most - 1), [(0, 5)], None) == (-most - 1, 4 - most)
    assert bounds_of(Offset(0, most), [(-5, 0)], None) == (most - 5, most)
    for step, read in ((Offset(0, -most - 1), (-1, 5)), (Offset(0, most), (-5, 1))):
        with pytest.raises(ModelError, match="beyond 64 bits"):
            bounds_of(step, [read], None)


@pytest.mark.parametrize("bits", [8, 32])
def test_values_fit_twos_complement_up_to_both_ends(bits):
    half = 1 << (bits - 1)
    spec = InputSpec((Field.binary("x", 1),))
    for low, high, fits in ((-half, half - 1, True), (-half - 1, 0, False), (0, half, False)):
        steps = (Constant(0), Constant(low), Constant(high))
        assert Graph(spec, steps, (0, 0)).fits(bits) is fits


def test_rows_beyond_a_block_have_their_scores():
    model = graph_model(1, operations=4, depth=2)
    graph = model.ask(GraphBuilder)
    few = np.array(pack(np.random.default_rng(0).random((7, model.input.n_bits)) < 0.5))
    many = np.tile(few, (1200, 1))  # 8,400 rows, more than two blocks hold
    assert np.array_equal(scores(graph, many), np.tile(scores(graph, few), (1200, 1)))
