"""The operations that targets are written from: the model's scores, within their bounds."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum
from n3ic.families.spn.operations import Add, LogAdd, Lookup, Offset, Round, Times, operations
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import bits_of_bins, spn_vectors
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec

ARITHMETICS = [LogArithmetic.of(6), LogArithmetic.of(0), LinearArithmetic(30), LinearArithmetic(9)]
SPEC = InputSpec((Field.thermometer("a", (5, 6)), Field.thermometer("b", (5,))))


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: f"{a.name}-{a.fraction}")
@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_they_give_the_scores_of_the_model_within_their_bounds(arithmetic, classes, seed):
    rng = np.random.default_rng(seed)
    model = random_spn(rng, features=5, classes=classes, arithmetic=arithmetic)
    made = operations(model)
    words = spn_vectors(model, 300, seed)
    scores = made.evaluate(model.bins(words))
    assert (scores == model.scores(words)).all()
    for c, step in enumerate(made.scores):
        low, high = made.bounds[step]
        assert low <= scores[:, c].min()
        assert scores[:, c].max() <= high
    assert operations(model).steps == made.steps


def test_weights_and_biases_sink_into_the_tables():
    model = random_spn(np.random.default_rng(3), classes=3)
    assert operations(replace(model, bias=[-5, -6, -7])).count(Offset) == 0


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
    made = operations(model)
    assert made.count(Add) == 2
    assert made.count(LogAdd) == 2  # the last two sums are one
    bins = np.array([[i, j] for i in range(3) for j in range(2)])
    wanted = model.scores(pack(bits_of_bins(SPEC, bins)))
    assert (made.evaluate(bins) == wanted).all()


def test_what_depends_on_one_feature_is_a_table():
    linear = LinearArithmetic(8)
    nodes = (
        Leaf(0, [100, 100, 56]),
        Leaf(0, [3, 3, 250]),
        Sum((0, 1), [200, 56]),
        Leaf(1, [128, 128]),
        Product((2, 3)),
    )
    made = operations(SpnModel(SPEC, nodes, linear, (4, CONSTANT), [0, 9], ("x", "y")))
    assert made.count(Round) == made.count(Times) == 0
    assert made.count(Lookup) == 1


def test_a_term_that_is_always_too_small_is_dropped():
    log = LogArithmetic.of(0)
    reach = len(log.table)
    nodes = (Leaf(0, [-1, -2, -3]), Leaf(1, [-1, 0]), Product((0, 1)))
    nodes += (Leaf(0, [0, -2, -9]), Leaf(1, [0, -1]), Product((3, 4)))
    for gap, kept in ((reach + 3, 1), (reach + 4, 0)):
        model = SpnModel(
            SPEC, (*nodes, Sum((2, 5), [0, -gap])), log, (6, CONSTANT), [0, -9], ("x", "y")
        )
        made = operations(model)
        assert made.count(LogAdd) == kept
        bins = np.array([[i, j] for i in range(3) for j in range(2)])
        wanted = model.scores(pack(bits_of_bins(SPEC, bins)))
        assert (made.evaluate(bins) == wanted).all()
