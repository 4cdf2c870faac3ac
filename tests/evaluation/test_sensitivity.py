# SPDX-License-Identifier: Apache-2.0
"""The effect of each input bit is that of the network, bit by bit."""

import numpy as np
import pytest

from n3ic.evaluation.sensitivity import feature_changes, flips
from n3ic.families.spn.arithmetic import LogArithmetic
from n3ic.families.spn.network import SpnModel
from n3ic.families.spn.nodes import Leaf
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.random_models import random_model


@pytest.mark.parametrize("density", [None, 0.5])
@pytest.mark.parametrize("shape", [(33, 9, 3), (64, 2), (40, 8, 5, 4)])
def test_every_effect_is_that_of_the_network(shape, density):
    rng = np.random.default_rng(sum(shape))
    model = random_model(shape, rng, density=density)
    for bits in rng.random((5, shape[0])) < 0.5:
        effects = flips(model, pack(bits[None, :])[0])
        scores = model.scores(pack(bits[None, :]))[0].tolist()
        winner = scores.index(max(scores))
        assert effects.winner == winner and effects.scores.tolist() == scores
        margin = scores[winner] - max(s for i, s in enumerate(scores) if i != winner)
        assert effects.margin == margin
        first = model.layers[0]
        for i in range(shape[0]):
            other = bits.copy()
            other[i] = not other[i]
            changed = model.scores(pack(other[None, :]))[0].tolist()
            lead = changed[winner] - max(s for j, s in enumerate(changed) if j != winner)
            assert effects.support[i] == margin - lead
            assert effects.classes[i] == changed.index(max(changed))
            connected = first.mask[:, i] if first.mask is not None else np.ones(shape[1], bool)
            assert effects.counted[i] == ((first.weights[:, i] == bits[i]) & connected).sum()


def test_the_strongest_are_in_order_and_have_an_effect():
    model = random_model((64, 2), np.random.default_rng(0), extremes=False)
    effects = flips(model, pack(np.zeros((1, 64), dtype=np.bool_))[0])
    order = effects.strongest(10)
    sizes = np.abs(effects.support[order])
    assert len(order) == 10 and (sizes > 0).all() and (np.diff(sizes) <= 0).all()
    assert len(effects.strongest(64)) == (effects.support != 0).sum()


def test_the_nearest_value_that_changes_the_class_is_named():
    spec = InputSpec(
        (
            Field.thermometer("a", [2, 3, 9]),
            Field.thermometer("b", [1, 20]),
            Field.binary("c", 2),
            Field.thermometer("a", [5]),
        )
    )
    rng = np.random.default_rng(3)
    found_none = found_some = 0
    for _ in range(40):
        model = random_model((spec.n_bits, 5, 3), rng).changed(input=spec)
        flow = {"a": int(rng.integers(12)), "b": int(rng.integers(25)), "c": int(rng.integers(4))}
        changes = {change.feature: change for change in feature_changes(model, flow)}
        assert list(changes) == sorted(changes, key=lambda name: changes[name].least)
        winner = model.infer(model.encode({n: [v] for n, v in flow.items()})).classes[0]
        for name, change in changes.items():
            every = range(25) if name != "c" else range(4)
            rows = {n: [v] * len(every) for n, v in flow.items()} | {name: list(every)}
            scores = model.scores(model.encode(rows)).astype(int)
            lead = scores[:, winner] - np.delete(scores, winner, axis=1).max(axis=1)
            called = scores.argmax(axis=1)
            others = [(abs(v - flow[name]), v) for v in every if called[v] != winner]
            assert change.value == flow[name] and change.least == lead.min()
            if others:
                assert change.nearest == min(others)[1] and change.called == called[change.nearest]
                found_some += 1
            else:
                assert change.nearest is None and change.called == winner
                found_none += 1
    assert found_none and found_some


def test_a_sum_product_network_has_features_and_no_neurons():
    spec = InputSpec((Field.thermometer("a", [2, 4, 8]),))
    leaf = Leaf(0, [0, -1, -2, -3])
    model = SpnModel(spec, (leaf,), LogArithmetic.of(0), (0, -1), [0, -2], ("n", "a"))
    effects = flips(model, model.encode({"a": [5]})[0])
    assert effects.counted is None and effects.support.tolist() == [-1, -1, 1]
    (change,) = feature_changes(model, {"a": 5})
    assert (change.least, change.nearest, change.called) == (-1, 8, 1)
