# SPDX-License-Identifier: Apache-2.0
"""Popcounts and thresholds: their value, bounds and normal form, and the layers that they make."""

import time
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.model.bits import pack, unpack
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.comparison import graph_difference
from n3ic.model.graph.dense import DenseLayers, dense_graph, dense_layers
from n3ic.model.graph.evaluate import scores
from n3ic.model.graph.operations import Constant, Graph, Offset, Operation, Popcount, Threshold
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.random_models import random_model
from n3ic.targets.operations import unwritten
from tests.support.random_graphs import Recorder, interpreted, layered_model, values_of

SPEC = InputSpec.raw(8)


def of_network(model):
    return dense_graph(model.input, DenseLayers(model.hidden, model.output))


def computed(layers, words):
    for layer in layers.hidden:
        words = layer.fire(words)
    return layers.output.scores(words)


@pytest.mark.parametrize("hidden", [(7,), (9, 4), (5, 6, 3)])
@pytest.mark.parametrize("density", [100, 60, 10])
def test_both_forms_give_the_scores_of_the_interpreter_within_their_bounds(hidden, density):
    for seed in range(4):
        model = layered_model(seed, hidden, density=density, classes=2 + seed % 3)
        asked, made = model.ask(Recorder), model.ask(GraphBuilder)
        bits = np.random.default_rng(seed).random((60, model.input.n_bits)) < 0.5
        wanted = np.array([interpreted(asked, row) for row in bits.tolist()])
        for graph in (asked, made):
            assert (scores(graph, pack(bits)) == wanted).all()
            for row in bits[:20].tolist():
                for value, (low, high) in zip(values_of(graph, row), graph.bounds, strict=True):
                    assert low <= value <= high
        assert len(made.steps) <= len(asked.steps)
        assert all(made.bounds[i][0] < made.bounds[i][1] for i, _ in made.places(Popcount))


@pytest.mark.parametrize("hidden", [(7,), (9, 4), (5, 6, 3)])
@pytest.mark.parametrize("density", [100, 60])
@pytest.mark.parametrize("kind", [Recorder, GraphBuilder])
def test_layers_of_any_family_are_found_and_give_its_scores(hidden, density, kind):
    count = 0
    for seed in range(5):
        model = layered_model(seed, hidden, density=density, classes=2 + seed % 3)
        graph = model.ask(kind)
        words = pack(np.random.default_rng(seed).random((200, model.input.n_bits)) < 0.5)
        layers = dense_layers(graph)
        if layers is None:  # all that the scores count is constant
            assert kind is GraphBuilder and Popcount not in graph.kinds
            continue
        count += 1
        assert layers.output.n_outputs == len(model.classes)
        assert (computed(layers, words) == scores(graph, words)).all()
    assert count > 2


@pytest.mark.parametrize("shape", [(12, 3), (40, 16, 3), (33, 5, 7, 2), (64, 40, 10)])
@pytest.mark.parametrize("density", [None, 0.5])
def test_the_layers_of_a_graph_are_found_as_they_were_given(shape, density):
    model = random_model(shape, np.random.default_rng(len(shape)), density=density)
    hidden = model.hidden
    if hidden:  # two equal neurons, one that always fires, one that never does
        layer, limits = hidden[0], hidden[0].thresholds.copy()
        weights = np.concatenate([layer.weights[:1], layer.weights[:1], layer.weights[2:]])
        mask = None
        if layer.mask is not None:
            mask = np.concatenate([layer.mask[:1], layer.mask[:1], layer.mask[2:]])
        limits[1], limits[2], limits[3] = limits[0], 0, layer.fan_in[3] + 1
        if mask is not None:
            limits = np.minimum(limits, mask.sum(axis=1) + 1)
        first = HiddenLayer(weights, mask=mask, thresholds=limits)
        model = replace(model, hidden=(first, *hidden[1:]))
    graph = of_network(model)
    layers = dense_layers(graph)
    for own, back in zip(model.layers, (*layers.hidden, layers.output), strict=True):
        assert {k: v.tolist() for k, v in own.tensors().items()} == {
            k: v.tolist() for k, v in back.tensors().items()
        }


def test_neurons_of_a_layer_share_the_list_of_their_inputs():
    graph = of_network(random_model((100, 30, 20, 4), np.random.default_rng(0)))
    lists = {(id(step.bits), id(step.values)) for _, step in graph.places(Popcount)}
    assert len(lists) == 3
    assert graph.count(Popcount) == 54 and graph.count(Threshold) == 50


def test_the_normal_form_of_a_popcount():
    b = GraphBuilder(SPEC)
    at = b.popcount((5, 2, 7), (), (1, 0, 1), (1, 1, 0))
    assert b.steps[at] == Popcount((2, 5), (), 0b10, 0b11)
    assert b.popcount((2, 5), (), (0, 1)) == at
    assert b.steps[b.popcount((1, 2), (), (1, 0), (0, 0))] == Constant(0)
    one, zero = b.constant(1), b.constant(0)
    known = b.popcount((5, 2), (one, zero, zero), (1, 0, 1, 1, 0))
    assert b.steps[known] == Offset(at, 2)
    assert b.bounds[known] == (2, 4)
    fires = b.threshold(at, 2)
    assert b.steps[fires] == Threshold(at, 2)
    assert b.threshold(known, 4) == fires
    assert b.threshold(fires, 1) == fires
    assert b.threshold(known, 2) == one and b.threshold(known, 5) == zero
    # A value that is wanted as 1 and as 0 agrees once.
    both = b.popcount((), (fires, fires, fires), (1, 0, 0))
    assert b.steps[both] == Offset(b.popcount((), (fires,), (0,)), 1)
    shaped = b.popcount((5, 2, 7), (one,), (1, 0, 1, 1), (1, 1, 0, 1), shaped=True)
    assert b.steps[shaped] == Popcount((5, 2, 7), (one,), 0b1001, 0b1011)
    assert b.bounds[shaped] == (1, 3)
    assert b.steps[b.threshold(shaped, 9, shaped=True)] == Threshold(shaped, 9)


def test_a_threshold_of_a_look_up_is_a_look_up():
    model = layered_model(0, (3,))
    b = GraphBuilder(model.input)
    table = tuple(range(model.input.fields[0].width + 1))
    limit = len(table) // 2
    step = b.steps[b.threshold(b.lookup(0, table), limit)]
    assert step.table == tuple(int(v >= limit) for v in table)


@pytest.mark.parametrize("kind", [Recorder, GraphBuilder])
def test_neurons_count_values_of_every_kind(kind):
    spec = InputSpec((Field.thermometer("a", (3, 9)), Field.binary("b", 3)))
    rng = np.random.default_rng(0)
    b = kind(spec)
    zero, one = b.constant(0), b.constant(1)
    values = [
        zero,
        one,
        b.lookup(0, (0, 1, 0)),
        b.select((3, 4), (1, 0, 0, 1)),
        b.choose(2, one, zero),
        b.choose(4, b.choose(2, zero, one), b.select((3,), (0, 1))),
        b.threshold(b.add(b.lookup(0, (5, -2, 9)), b.select((2, 3), (3, 1, 4, 1))), 6),
    ]
    ones = np.ones(len(values) + 2, dtype=bool)
    scores_asked = [
        b.popcount([4, 0], values, rng.random(len(ones)) < 0.5, ones),
        b.threshold(b.popcount([1], values[:3], ones[:4], ones[:4]), 3),
        b.add(values[2], b.popcount([3], values[5:], np.zeros(3, bool), ones[:3])),
    ]
    graph = b.build(scores_asked)
    rows = {"a": np.repeat([0, 3, 9], 8), "b": np.tile(np.arange(8), 3)}
    words = spec.encode_words(rows)
    wanted = [interpreted(graph, row) for row in unpack(words, spec.n_bits).tolist()]
    assert len({*map(tuple, wanted)}) > 5
    assert scores(graph, words).tolist() == wanted
    assert dense_layers(graph) is None


def test_popcounts_that_cannot_be_are_refused():
    b = GraphBuilder(SPEC)
    two = b.popcount((0, 1), (), (1, 1))
    with pytest.raises(ModelError, match="counts a value of 0 to 2, not of 0 or 1"):
        b.popcount((), (two, two), (1, 0))
    with pytest.raises(ModelError, match="input bit 8 of 8"):
        b.popcount((0, 8), (), (1, 1))
    with pytest.raises(ModelError, match="different input bits"):
        b.popcount((3, 3), (), (1, 1))
    with pytest.raises(ModelError, match=r"popcount of 2 bits has weights of shape \(3,\)"):
        b.popcount((3, 4), (), (1, 1, 0))
    with pytest.raises(ModelError, match=r"of 2 bits .* and a mask of shape \(3,\)"):
        b.popcount((3, 4), (), (1, 1), (1, 1, 1))
    for weights, mask in (((1, -1), (1, 1)), ((1, 1), (2, 1))):
        with pytest.raises(ModelError, match="are 0 or 1; a weight of -1 is written 0"):
            b.popcount((3, 4), (), weights, mask)
    with pytest.raises(ModelError, match="one bit or more"):
        b.popcount((), (), ())
    for weights, mask in ((4, 3), (1, 2), (0, 8), (-1, 3)):
        with pytest.raises(ModelError, match="have 2 bits, weights 0 where none counts"):
            Graph(SPEC, (Popcount((0, 1), (), weights, mask), Constant(0)), (0, 1))
    with pytest.raises(ModelError, match="the first layer reads 9 bits, the input has 8"):
        dense_graph(SPEC, DenseLayers((), random_model((9, 2), np.random.default_rng(0)).output))


def test_other_graphs_have_no_layers():
    b = GraphBuilder(SPEC)
    x, y = b.popcount((0, 1), (), (1, 0)), b.popcount((2, 3, 4), (), (1, 0, 0))
    zero = b.constant(0)
    fires = b.threshold(x, 1)
    assert dense_layers(b.build([zero, b.offset(y, 3)])) is not None
    assert dense_layers(b.build([zero, b.add(x, y)])) is None
    assert dense_layers(b.build([zero, fires])) is None
    assert dense_layers(b.build([zero, zero])) is None
    assert dense_layers(b.build([zero, b.choose(0, zero, x)])) is None
    above = b.popcount((), (fires,), (1,))
    assert dense_layers(b.build([zero, above])) is not None
    assert dense_layers(b.build([x, above])) is None  # one score reads bits, one reads neurons
    skips = b.popcount((6,), (fires,), (1, 1))
    assert dense_layers(b.build([zero, skips])) is None
    far = b.offset(y, 1 << 24)
    assert dense_layers(b.build([zero, far])) is None  # a bias of an output layer is below that


def test_a_value_of_0_or_1_is_a_neuron():
    b = GraphBuilder(SPEC)
    single = b.popcount((3,), (), (0,))
    layers = dense_layers(b.build([b.constant(5), b.popcount((), (single,), (1,))]))
    bits = np.eye(8, dtype=bool)
    assert computed(layers, pack(bits))[:, 1].tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    assert layers.output.bias.tolist() == [5, 0]
    assert layers.hidden[0].thresholds.tolist() == [1]


@pytest.mark.parametrize("seed", range(3))
def test_graphs_are_compared_whatever_the_order_of_their_bits(seed):
    model = layered_model(seed, (6, 5), density=70)
    asked = model.ask(Recorder)
    rng = np.random.default_rng(seed)

    def shuffled(step):
        if not isinstance(step, Popcount):
            return step
        parts, numbers = [], [0, 0]
        for read, first in ((step.bits, 0), (step.values, len(step.bits))):
            order = rng.permutation(len(read)).tolist()
            for place, j in enumerate(order):
                for n, number in enumerate((step.weights, step.mask)):
                    numbers[n] |= (number >> first + j & 1) << first + place
            parts.append(tuple(read[j] for j in order))
        return Popcount(*parts, *numbers)

    other = Graph(asked.input, tuple(map(shuffled, asked.steps)), asked.scores)
    assert other.steps != asked.steps
    assert graph_difference(asked, other) == ""


def test_every_weight_mask_bit_and_threshold_counts_in_a_comparison():
    model = random_model((10, 4, 3), np.random.default_rng(1), density=0.7)
    graph = of_network(model)
    for i, step in enumerate(graph.steps):
        others: list[Operation] = []
        if isinstance(step, Popcount):
            for j in range(step.size):
                if step.mask >> j & 1:
                    others.append(replace(step, weights=step.weights ^ (1 << j)))
                    drop = ~(1 << j)
                    others.append(replace(step, weights=step.weights & drop, mask=step.mask & drop))
                else:
                    others.append(replace(step, mask=step.mask | 1 << j))
        if isinstance(step, Threshold):
            others = [replace(step, limit=step.limit + by) for by in (-1, 1)]
        if isinstance(step, Offset):
            others = [replace(step, by=step.by + 1)]
        for other in others:
            steps = (*graph.steps[:i], other, *graph.steps[i + 1 :])
            difference = graph_difference(graph, Graph(graph.input, steps, graph.scores))
            assert difference.startswith("the score of class")
            assert (
                isinstance(step, Offset)
                or "popcount of" in difference
                or "a threshold" in difference
            )


def test_a_refusal_names_the_popcount():
    graph = of_network(random_model((152, 6, 3), np.random.default_rng(0)))
    problems = [p.message for p in unwritten(graph, (Constant, Offset, Threshold))]
    assert problems == [
        "step 0, a popcount of 152 bits, the first of 9: this target writes no popcount"
    ]


@pytest.mark.slow
def test_a_wide_network_is_a_graph_in_seconds_and_little_memory():
    import tracemalloc

    model = random_model((4096, 2048, 10), np.random.default_rng(0))
    tracemalloc.start()
    began = time.process_time()
    graph = of_network(model)
    assert len(dense_layers(graph).hidden) == 1
    assert time.process_time() - began < 60
    assert tracemalloc.get_traced_memory()[1] < 300 << 20
    tracemalloc.stop()


@pytest.mark.slow
def test_the_evaluator_keeps_the_pace_of_the_layers():
    model = random_model((152, 128, 64, 10), np.random.default_rng(0))
    words = pack(np.random.default_rng(1).random((4000, 152)) < 0.5)
    graph = of_network(model)
    assert (scores(graph, words) == model.scores(words)).all()

    def seconds(of):
        began = time.process_time()
        of(words)
        return time.process_time() - began

    own = min(seconds(model.scores) for _ in range(3))
    assert min(seconds(lambda words: scores(graph, words)) for _ in range(3)) < 10 * own


def test_an_output_layer_alone_is_a_graph():
    layer = OutputLayer(np.eye(8, dtype=bool)[:3], bias=np.array([0, -2, 5]))
    graph = dense_graph(SPEC, DenseLayers((), layer))
    assert (dense_layers(graph).output.weights == layer.weights).all()
    assert graph.largest_margin == 13
