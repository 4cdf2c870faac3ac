# SPDX-License-Identifier: Apache-2.0
"""The graph of a binary network gives the network's scores, where executors go wrong above all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic.model.bits import pack, unpack
from n3ic.model.family import family, graph_of
from n3ic.model.graph.dense import dense_layers
from n3ic.model.graph.evaluate import scores
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.model.passes import simplify, unchanged
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import boundary_features, margin_vectors
from tests.support.random_graphs import interpreted

SHAPES = [(12, 2), (12, 5), (33, 8, 2), (152, 32, 16, 2), (64, 16, 3), (40, 9, 7, 10)]


def adversarial(model: BinaryModel) -> np.ndarray:
    """The vectors of verification, and inputs at the shunting threshold and one below."""
    vectors = family(model.family).vectors(unchanged(model), 600, 0)
    return np.concatenate([vectors, margin_vectors(model)])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("density", [None, 0.4])
def test_the_graph_gives_the_scores(shape, density):
    model = random_model(shape, np.random.default_rng(len(shape)), density=density)
    model = model.with_shunt(min(2, model.largest_margin))
    words, graph = adversarial(model), graph_of(model)
    wanted = model.scores(words)
    assert (scores(graph, words) == wanted).all()
    rows = [interpreted(graph, row) for row in unpack(words[:20], shape[0]).tolist()]
    assert rows == wanted[:20].tolist()
    assert graph.largest_margin <= model.largest_margin
    simple = simplify(model)
    assert (scores(graph_of(simple.model), simple.inputs(words)) == wanted).all()


def test_thresholds_at_their_ends_stay_in_the_graph():
    model = random_model((20, 6, 3), np.random.default_rng(0), density=0.5)
    layer = model.hidden[0]
    ends = np.zeros(6, dtype=np.int32)
    ends[1], ends[2] = layer.fan_in[1] + 1, layer.fan_in[2]
    ends[3] = 1
    model = replace(model, hidden=(replace(layer, thresholds=ends),))
    words = adversarial(model)
    assert (scores(graph_of(model), words) == model.scores(words)).all()
    (layer_read,) = dense_layers(graph_of(model)).hidden
    assert isinstance(layer_read, HiddenLayer) and layer_read.thresholds.tolist() == ends.tolist()
    assert (layer_read.weights == layer.weights).all()


def test_features_and_their_cuts_lead_to_the_same_scores():
    spec = InputSpec(
        (
            Field.binary("bytes", 20),
            Field.thermometer("rate", (3, 70, 900)),
            Field.thermometer("bytes", (1500,)),
        )
    )
    model = replace(random_model((24, 8, 4), np.random.default_rng(3)), input=spec)
    words = model.encode(boundary_features(spec))
    assert (scores(graph_of(model), words) == model.scores(words)).all()
    # Bits that no feature has count as well.
    any_bits = pack(np.random.default_rng(0).random((300, 24)) < 0.5)
    assert (scores(graph_of(model), any_bits) == model.scores(any_bits)).all()


def test_a_graph_is_the_same_each_time():
    model = random_model((30, 8, 3), np.random.default_rng(5))
    kind = family(model.family)
    assert kind.graph(model).steps == kind.graph(model).steps
