# SPDX-License-Identifier: Apache-2.0
"""A step of a network of integers that a card computes, cut out of the network."""

import numpy as np
import pytest

from n3ic.errors import ClusterError
from n3ic.systems.cluster.networks.card_step import CardStep, CardStepSession, _pipelines
from n3ic.systems.cluster.networks.network import IntegerNetwork, NetworkStep
from n3ic.systems.cluster.networks.operations import (
    Addition,
    Convolution,
    Dense,
    Integers,
    Reshape,
)
from tests.support.integer_networks import integers


def network():
    """A convolution, another one with a stride, and scores."""
    rng = np.random.default_rng(0)

    def numbers(*shape):
        return rng.integers(-100, 100, shape)

    first = Convolution(numbers(5, 3, 3, 3), numbers(5), padding=(1, 1))
    second = Convolution(numbers(4, 5, 3, 2), numbers(4), stride=(2, 2), padding=(1, 1))
    steps = [
        NetworkStep(first, (0,), "first"),
        NetworkStep(second, (1,), "second"),
        NetworkStep(Reshape((4 * 3 * 4,)), (2,), "flat"),
        NetworkStep(Dense(rng.integers(-1, 2, (7, 48)), numbers(7)), (3,), "scores"),
    ]
    return IntegerNetwork(Integers((3, 6, 7), -3, 3), steps)


class Local:
    """A session without a ring."""

    def __init__(self, compute):
        self.scores = compute

    def submit(self, operand):
        results = self.scores(operand)
        return type("Ready", (), {"result": lambda self: results})()


def computed(kernel, operand):
    rows = kernel.rows(operand)
    return kernel.result(kernel.whole_matrix.results(rows).reshape(len(rows), -1))


@pytest.mark.parametrize("number", [0, 1, 3])
def test_the_parts_give_the_scores_of_the_network(number):
    whole = network()
    cut = CardStep.of(whole, number)
    card = Local(lambda operand: computed(cut.kernel, operand))
    before, behind = (p and Local(p.scores) for p in (cut.before, cut.behind))
    items = integers(whole, 5)
    scores = CardStepSession(whole, cut, card, before, behind).scores(items)
    assert np.array_equal(scores, whole.scores(items))
    assert (cut.before is None, cut.behind is None) == (number == 0, number == 3)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (2, r"step 2 \(flat\): a card computes no Reshape"),
        (4, "step 4: expected 0 to 3"),
        (-1, "step -1"),
    ],
)
def test_what_a_card_does_not_compute_is_refused_by_name(number, words):
    with pytest.raises(ClusterError, match=words):
        CardStep.of(network(), number)


def test_groups_and_values_beside_the_step_are_refused():
    grouped = Convolution(np.ones((4, 1, 3, 3), dtype=int), np.zeros(4, dtype=int), groups=2)
    alone = IntegerNetwork(Integers((2, 5, 5), -1, 1), [NetworkStep(grouped, (0,), "grouped")])
    with pytest.raises(ClusterError, match=r"grouped.*Convolution without groups"):
        CardStep.of(alone, 0)
    same = Dense(np.eye(4, dtype=int), np.zeros(4, dtype=int))
    steps = [NetworkStep(same, (0,), "same"), NetworkStep(Addition((0, 0)), (0, 1), "sum")]
    with pytest.raises(ClusterError, match=r"step 0 .same.: values pass beside it"):
        CardStep.of(IntegerNetwork(Integers((4,), -1, 1), steps), 0)


def test_nodes_are_divided_over_both_sides():
    cut = CardStep.of(network(), 1)
    before, behind = _pipelines(cut, 3, [1.0, 1.0, 1.0, 1.0], 1)
    assert (before.nodes, behind.nodes) == (1, 2)
    with pytest.raises(ClusterError, match="1 nodes beside the card"):
        _pipelines(cut, 1, [1.0] * 4, 1)
