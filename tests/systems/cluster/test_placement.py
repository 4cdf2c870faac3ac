# SPDX-License-Identifier: Apache-2.0
"""Who holds what: divisions that cover, and those that do not."""

import json
from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ClusterError
from n3ic.model.random_models import random_model
from n3ic.systems.cluster.placement import (
    LayerPlacement,
    LayerSplit,
    ModelPlacement,
    Share,
    even_placement,
)

MODEL = random_model((200, 100, 64, 10), np.random.default_rng(0))
SPLITS = (LayerSplit.OUTPUT, LayerSplit.INPUT, LayerSplit.REPLICATED)


def test_an_even_division_covers_each_layer_at_boundaries_of_words():
    placed = even_placement(MODEL, 3, SPLITS)
    first, second, third = placed.layers
    assert first.shares == (Share(1, 0, 32), Share(2, 32, 64), Share(3, 64, 100))
    assert second.shares == (Share(1, 0, 32), Share(2, 32, 64), Share(3, 64, 100))
    assert second.reducers == (Share(2, 0, 32), Share(3, 32, 64))
    assert third.shares == (Share(1, 0, 10), Share(2, 0, 10), Share(3, 0, 10))
    placed.check_model(MODEL)


def test_round_trip_through_json():
    placed = even_placement(MODEL, 3, SPLITS)
    assert ModelPlacement.from_dict(json.loads(json.dumps(placed.to_dict()))) == placed


def test_another_model_is_refused():
    other = random_model((200, 100, 64, 10), np.random.default_rng(1))
    with pytest.raises(ClusterError, match="plan again"):
        even_placement(MODEL, 2).check_model(other)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (LayerPlacement(LayerSplit.OUTPUT, ()), "no node holds it"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(0, 0, 100),)), "node 0 is not in a ring of 3"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(4, 0, 100),)), "node 4 is not in a ring of 3"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 32),)), "end at 32 of 100"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 96), Share(2, 64, 100))), "begins at 96"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 40), Share(2, 40, 100))), "multiple of 32"),
        (LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 32), Share(1, 32, 100))), "one share"),
        (LayerPlacement(LayerSplit.REPLICATED, (Share(1, 0, 96),)), "a replica is the whole layer"),
        (LayerPlacement(LayerSplit.INPUT, (Share(1, 0, 200),)), "reducers: the shares end at 0"),
        (
            LayerPlacement(LayerSplit.OUTPUT, (Share(1, 0, 100),), (Share(1, 0, 100),)),
            "only a layer split by inputs",
        ),
    ],
)
def test_a_division_that_cannot_be(layer, message):
    placed = even_placement(MODEL, 3)
    with pytest.raises(ClusterError, match=message):
        replace(placed, layers=(layer, *placed.layers[1:]))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 2, "version 1, got 2"),
        ("nodes", True, "integers"),
        ("nodes", 255, "1 to 254 nodes"),
        ("model", 3, "digest"),
        ("layers", {}, "list of layers"),
        ("layers", [], "0 layers are placed"),
        ("layers", [{"split": "half", "shares": [], "reducers": []}] * 3, "'half'"),
        ("layers", [{"split": "output", "shares": [[1, 0]], "reducers": []}] * 3, "a share is"),
        ("layers", [{"split": "output", "shares": 5, "reducers": []}] * 3, "list of"),
        ("layers", [{"split": "output", "shares": []}] * 3, "fields are"),
        ("shape", [200, -1], "integers"),
    ],
)
def test_a_file_that_is_none(key, value, message):
    data = even_placement(MODEL, 3).to_dict() | {key: value}
    with pytest.raises(ClusterError, match=message):
        ModelPlacement.from_dict(data)
    with pytest.raises(ClusterError, match="fields are"):
        ModelPlacement.from_dict({k: v for k, v in data.items() if k != "shape"})
