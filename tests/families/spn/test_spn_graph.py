# SPDX-License-Identifier: Apache-2.0
"""The graph of a network: the model's scores, within their bounds."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.graph import spn_graph
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import bits_of_bins, spn_vectors
from n3ic.model.bits import pack
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.evaluate import scores as graph_scores
from n3ic.model.graph.operations import (
    Add,
    Constant,
    LogAdd,
    Lookup,
    Offset,
    Round,
    Scale,
    Times,
    operands,
)
from n3ic.model.inputs import Field, InputSpec

ARITHMETICS = [LogArithmetic.of(6), LogArithmetic.of(0), LinearArithmetic(30), LinearArithmetic(9)]
WIDE = InputSpec(tuple(Field.thermometer(f"x{i}", (5,)) for i in range(60)))
SPEC = InputSpec((Field.thermometer("a", (5, 6)), Field.thermometer("b", (5,))))


def evaluate(made, bins):
    """The scores of bins, of shape ``(rows, classes)``."""
    return graph_scores(made, pack(bits_of_bins(made.input, bins)))


@pytest.mark.first_case
@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: f"{a.name}-{a.fraction}")
@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_they_give_the_scores_of_the_model_within_their_bounds(arithmetic, classes, seed):
    rng = np.random.default_rng(seed)
    model = random_spn(rng, features=5, classes=classes, arithmetic=arithmetic)
    made = spn_graph(model)
    words = spn_vectors(model, 300, seed)
    scores = evaluate(made, model.bins(words))
    assert (scores == model.scores(words)).all()
    for c, step in enumerate(made.scores):
        low, high = made.bounds[step]
        assert low <= scores[:, c].min()
        assert scores[:, c].max() <= high
    assert spn_graph(model).steps == made.steps


def test_weights_and_biases_sink_into_the_tables():
    model = random_spn(np.random.default_rng(3), classes=3)
    assert spn_graph(replace(model, bias=[-5, -6, -7])).count(Offset) == 0


def test_constants_of_a_sum_sink_into_a_table():
    """Constants are added first, as the shallowest, and then to one feature's table."""
    rows = {0: ([64] * 3, [10, 20, 98]), 1: ([32] * 2, [9, 119])}
    leaves = [Leaf(field, table) for field, both in rows.items() for table in both]
    pairs = ((0, 2), (0, 2), (1, 2), (0, 3))
    nodes = (*leaves, *(Product(pair) for pair in pairs), Sum((4, 5, 6, 7), [30, 40, 50, 8]))
    model = SpnModel(SPEC, nodes, LinearArithmetic(7), (8, -1), [0, 0], ("x", "y"))
    made = spn_graph(model)
    assert (made.count(Add), made.count(Offset)) == (1, 0)
    bins = np.array([[i, j] for i in range(3) for j in range(2)])
    assert (evaluate(made, bins) == model.scores(pack(bits_of_bins(SPEC, bins)))).all()


def test_a_constant_sinks_into_the_factor_that_nothing_else_reads():
    """The first factor is read twice, so the weight of the sum would cost an operation there."""
    spec = InputSpec(tuple(Field.thermometer(name, (5,)) for name in "abcd"))
    leaves = tuple(Leaf(field, [-1 - field, -9]) for field in range(4))
    nodes = (*leaves, Product((0, 1)), Product((2, 3)), Product((4, 5)))
    model = SpnModel(
        spec, (*nodes, Sum((6,), [-7])), LogArithmetic.of(2), (7, 4), [-3, 0], ("x", "y")
    )
    made = spn_graph(model)
    assert (made.count(Add), made.count(Offset)) == (3, 0)
    bins = np.array([[i >> j & 1 for j in range(4)] for i in range(16)])
    assert (evaluate(made, bins) == model.scores(pack(bits_of_bins(spec, bins)))).all()


def test_parts_that_several_read_are_made_once_and_stay_as_they_are():
    log = LogArithmetic.of(2)
    nodes = (
        Leaf(0, [-1, -2, -3]),
        Leaf(1, [-4, -9]),
        Product((0, 1)),
        Leaf(0, [-7, -2, -5]),
        Leaf(1, [-3, -1]),
        Product((3, 4)),
        Sum((2, 5), [-3, -4]),
        Sum((2, 5), [-8, -1]),
        Sum((2, 5), [-8, -1]),
    )
    model = SpnModel(SPEC, nodes, log, (6, 7, 8), [0, -1, -1], ("x", "y", "z"))
    made = spn_graph(model)
    assert made.count(Add) == 2
    assert made.count(LogAdd) == 2  # the last two sums are one
    bins = np.array([[i, j] for i in range(3) for j in range(2)])
    wanted = model.scores(pack(bits_of_bins(SPEC, bins)))
    assert (evaluate(made, bins) == wanted).all()


def test_what_depends_on_one_feature_is_a_table():
    linear = LinearArithmetic(8)
    nodes = (
        Leaf(0, [100, 100, 56]),
        Leaf(0, [3, 3, 250]),
        Sum((0, 1), [200, 56]),
        Leaf(1, [128, 128]),
        Product((2, 3)),
    )
    made = spn_graph(SpnModel(SPEC, nodes, linear, (4, CONSTANT), [0, 9], ("x", "y")))
    assert made.count(Round) == made.count(Times) == 0
    assert made.count(Lookup) == 1


def test_a_term_that_is_always_too_small_is_dropped():
    log = LogArithmetic.of(0)
    reach = len(log.table)
    nodes = (Leaf(0, [-1, -2, -3]), Leaf(1, [-1, 0]), Product((0, 1)))
    nodes += (Leaf(0, [0, -2, -9]), Leaf(1, [0, -1]), Product((3, 4)))
    for gap, count in ((reach + 3, 1), (reach + 4, 0)):
        model = SpnModel(
            SPEC, (*nodes, Sum((2, 5), [0, -gap])), log, (6, CONSTANT), [0, -9], ("x", "y")
        )
        made = spn_graph(model)
        assert made.count(LogAdd) == count
        bins = np.array([[i, j] for i in range(3) for j in range(2)])
        wanted = model.scores(pack(bits_of_bins(SPEC, bins)))
        assert (evaluate(made, bins) == wanted).all()


def steps_of(nodes, arithmetic, roots, bias):
    classes = tuple(f"c{i}" for i in range(len(roots)))
    made = spn_graph(SpnModel(SPEC, nodes, arithmetic, roots, bias, classes))
    return made.steps, made.bounds, made.scores, made.readers


FLOWS = (
    Leaf(0, [-1, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)),
    Leaf(0, [-7, -2, -5]), Leaf(1, [-3, -1]), Product((3, 4)),
)  # fmt: skip


def test_operations_of_logarithms_that_were_written_by_hand():
    """Weights -3 and -4 and the bias -1 sink into the tables of the first leaf of each term."""
    log = LogArithmetic(2, [4, 3, 2, 1])
    steps = steps_of((*FLOWS, Sum((2, 5), [-3, -4])), log, (6, CONSTANT), [-1, -8])
    assert steps == (
        (
            Lookup(0, (-5, -6, -7)), Lookup(1, (-4, -9)), Add(0, 1),
            Lookup(0, (-12, -7, -10)), Lookup(1, (-3, -1)), Add(3, 4), LogAdd(2, 5), Constant(-8),
        ),
        ((-7, -5), (-9, -4), (-16, -9), (-12, -7), (-3, -1), (-15, -8), (-12, -5), (-8, -8)),
        (6, 7),
        ((2,), (2,), (6,), (5,), (5,), (6,), (), ()),
    )  # fmt: skip


def test_what_two_read_keeps_its_value_and_is_moved_where_it_is_read():
    log = LogArithmetic(2, [4, 3, 2, 1])
    nodes = (*FLOWS, Sum((2, 5), [-3, -4]), Sum((2, 5), [-2, 0]))
    steps, bounds, scores, readers = steps_of(nodes, log, (6, 7), [-5, 0])
    assert steps == (
        Lookup(0, (-1, -2, -3)), Lookup(1, (-4, -9)), Add(0, 1),
        Lookup(0, (-7, -2, -5)), Lookup(1, (-3, -1)), Add(3, 4),
        Offset(2, -8), Offset(5, -9), LogAdd(6, 7), Offset(2, -2), LogAdd(5, 9),
    )  # fmt: skip
    assert scores == (8, 10)
    assert readers[2] == (6, 9) and readers[5] == (7, 10)
    assert bounds[6:] == ((-20, -13), (-19, -12), (-16, -9), (-14, -7), (-10, -3))


def test_a_constant_goes_to_the_first_factor_where_each_has_other_readers():
    spec = InputSpec(tuple(Field.thermometer(name, (5,)) for name in "abcd"))
    leaves = tuple(Leaf(field, [-1 - field, -9]) for field in range(4))
    nodes = (*leaves, Product((0, 1)), Product((2, 3)), Product((4, 5)), Sum((6,), [-7]))
    roots, names = (7, 4, 5, 4, CONSTANT), ("v", "w", "x", "y", "z")
    model = SpnModel(spec, nodes, LogArithmetic.of(2), roots, [-3, -2, 0, 0, -1], names)
    made = spn_graph(model)
    first = made.steps.index(Add(0, 1))
    assert [step for step in made.steps if isinstance(step, Offset)] == [
        Offset(first, -10), Offset(first, -2),
    ]  # fmt: skip
    bins = np.array([[i >> j & 1 for j in range(4)] for i in range(16)])
    assert (evaluate(made, bins) == model.scores(pack(bits_of_bins(spec, bins)))).all()


@pytest.mark.parametrize("table", [[4, 0], [4, 3, 2]])
def test_a_table_that_falls_steeply_bounds_log_add_by_its_operands(table):
    """Where it falls by more than 1, at its end too, two larger operands may give less."""
    log = LogArithmetic(2, table)
    nodes = (*FLOWS, Sum((2, 5), [-3, -4]))
    (_, bounds, (score, _), _) = steps_of(nodes, log, (6, CONSTANT), [0, 0])
    assert bounds[score] == (-14, -7 + 4)


def test_operations_of_fixed_point_that_were_written_by_hand():
    linear = LinearArithmetic(4)
    nodes = (
        Leaf(0, [8, 4, 4]), Leaf(1, [12, 4]), Product((0, 1)),
        Leaf(0, [0, 6, 10]), Leaf(1, [2, 14]), Product((3, 4)),
        Sum((2, 5), [12, 4]),
    )  # fmt: skip
    steps = steps_of(nodes, linear, (6, 2, CONSTANT), [3, 0, 7])
    assert steps == (
        (
            Lookup(0, (8, 4, 4)), Lookup(1, (12, 4)), Times(0, 1),
            Lookup(0, (0, 6, 10)), Lookup(1, (2, 14)), Times(3, 4),
            Scale(2, 12), Scale(5, 4), Add(6, 7), Round(8), Offset(9, 3), Constant(7),
        ),
        (
            (4, 8), (4, 12), (1, 6), (0, 10), (2, 14), (0, 9),
            (12, 72), (0, 36), (12, 108), (1, 7), (4, 10), (7, 7),
        ),
        (10, 2, 11),
        ((2,), (2,), (6,), (5,), (5,), (7,), (8,), (8,), (9,), (10,), (), ()),
    )  # fmt: skip


def test_products_with_one_and_nothing_are_not_computed():
    linear = LinearArithmetic(4)
    one, none, any_of = Leaf(0, [16, 16, 16]), Leaf(1, [0, 0]), Leaf(1, [3, 5])
    steps, _, scores, _ = steps_of(
        (one, any_of, Product((0, 1)), none, Product((0, 3)), Leaf(0, [1, 2, 3]), Product((5, 3))),
        linear, (2, 4, 6), [0, 0, 0],
    )  # fmt: skip
    assert [steps[i] for i in scores] == [Lookup(1, (3, 5)), Constant(0), Constant(0)]
    steps, _, scores, _ = steps_of(
        (any_of, Leaf(1, [2, 9]), Sum((0, 1), [16, 0]), Sum((0, 1), [0, 0])), linear, (2, 3), [0, 4]
    )
    assert [steps[i] for i in scores] == [Lookup(1, (3, 5)), Constant(4)]


def test_what_an_operation_reads():
    assert operands(Constant(1)) == operands(Lookup(0, (1, 2))) == ()
    assert operands(Offset(3, 9)) == operands(Scale(3, 9)) == operands(Round(3)) == (3,)
    assert operands(Add(2, 5)) == operands(LogAdd(2, 5)) == operands(Times(2, 5)) == (2, 5)


def test_a_product_of_two_features_with_nothing_is_nothing():
    spec = InputSpec((*SPEC.fields, Field.thermometer("c", (5,))))
    nodes = (Leaf(0, [1, 2, 3]), Leaf(1, [3, 5]), Leaf(2, [0, 0]), Product((0, 1, 2)))
    model = SpnModel(spec, nodes, LinearArithmetic(4), (3, CONSTANT), [0, 1], ("x", "y"))
    assert spn_graph(model).steps == (Constant(0), Constant(1))


def test_two_offsets_are_one():
    builder = GraphBuilder(WIDE)
    a = builder.add(builder.lookup(0, (1, 7)), builder.lookup(1, (2, 9)))
    twice = builder.offset(builder.offset(a, 2), 3)
    assert builder.steps[twice] == Offset(a, 5)
    assert builder.offset(twice, -5) == a


def chain(builder, first, adds):
    """A sum of look-ups of as many different fields, as deep as it has additions, and one."""
    made = builder.lookup(first, (first, 9))
    for field in range(first + 1, first + adds + 1):
        made = builder.add(made, builder.lookup(field, (field, 9)))
    return made


@pytest.mark.parametrize("kind", [LogAdd, Times])
def test_shallow_values_are_added_first_and_a_table_or_a_product_counts_four(kind):
    """Of three values, those of the least depth; of equal depth, those that come first."""
    arithmetic = LogArithmetic.of(6) if kind is LogAdd else LinearArithmetic(9)

    def added(adds, last):
        builder = GraphBuilder(WIDE, arithmetic.integers)
        deep = builder._make(kind(builder.lookup(40, (1, 2)), builder.lookup(41, (3, 4))))
        chains = [chain(builder, 0, adds), chain(builder, 20, adds)]
        total = builder.steps[builder.total([*chains, deep] if last else [deep, *chains])]
        assert isinstance(total, Add)
        together = {total.a, total.b} & {deep, *chains}
        assert len(together) == 1
        return together == {deep}  # the chains were added before

    assert [added(adds, last) for adds in (3, 4, 5) for last in (False, True)] == [
        True, True, False, True, False, False,
    ]  # fmt: skip


def test_what_was_just_added_comes_after_what_is_as_deep():
    builder = GraphBuilder(WIDE)
    a, b = (builder.lookup(field, (1, field)) for field in (30, 31))
    deep = [chain(builder, field, 1) for field in (0, 10)]
    total = builder.total([a, b, *deep])
    both, pair = builder.steps[total].a, builder.steps[total].b
    assert {*operands(builder.steps[both])} == {*deep} or {*operands(builder.steps[pair])} == {
        *deep
    }
    flat = [builder.lookup(field, (2, field)) for field in range(50, 56)]
    top = builder.steps[builder.total(flat)]
    halves = [{*operands(builder.steps[i])} for i in operands(top)]
    assert {*flat[4:]} in halves  # two and two of six make four, and the last two wait for them


def test_constants_are_added_before_what_depends_on_a_feature():
    builder = GraphBuilder(WIDE)
    a, b = builder.lookup(30, (1, 7)), builder.lookup(31, (2, 9))
    made = builder.total([a, b, builder.constant(5)])
    assert [step for step in builder.steps if isinstance(step, Offset)] == []
    assert isinstance(builder.steps[made], Add)
    assert builder.bounds[made] == (8, 21)
