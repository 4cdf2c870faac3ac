# SPDX-License-Identifier: Apache-2.0
"""The folded network decides as the trained one does: on ties, at zero and negative scales."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.families.binary.binary_mlp import BinaryMLP
from n3ic.families.binary.fold import check_fold, fold, fold_layer
from n3ic.model.bits import pack
from n3ic.model.inputs import InputSpec
from n3ic.training.recipe import Training


def random_network(shape, seed, *, batch_norm, ste="approx", adversarial=True):
    """A network with batch norms that tie, vanish, flip and saturate."""
    config = Training(hidden=tuple(shape[1:-1]), batch_norm=batch_norm, ste=ste)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = BinaryMLP(shape[0], shape[-1], config)
        for norm, layer in zip(network.norms, network.layers, strict=True):
            if not batch_norm:
                continue
            k = layer.mask.shape[1]
            n = layer.mask.shape[0]
            with torch.no_grad():
                norm.running_mean.copy_(torch.randint(-k, k + 1, (n,)).float())
                norm.running_var.copy_(torch.rand(n) * k + 0.01)
                norm.weight.copy_(torch.randn(n))
                norm.bias.copy_(torch.randn(n))
                if adversarial:
                    kind = torch.randint(0, 6, (n,))
                    norm.weight[kind == 0] = 0.0
                    norm.bias[(kind == 0) & (torch.rand(n) < 0.5)] = 0.0
                    norm.bias[kind == 1] = 0.0  # a tie where dot equals the mean
                    norm.weight[kind == 2] *= 1e-20
                    norm.bias[kind == 3] = 1e3
        with torch.no_grad():
            network.bias.copy_(torch.randn(shape[-1]) * 3)
        for layer in network.layers:
            if torch.rand(()) < 0.3:
                layer.prune(max(1, layer.mask.shape[1] // 3))
    return network.eval()


def assert_equal(network, shape, seed):
    model = fold(network, InputSpec.raw(shape[0]), tuple(f"c{i}" for i in range(shape[-1])))
    rng = np.random.default_rng(seed)
    bits = rng.random((64, shape[0])) < rng.random((64, 1))
    x = torch.from_numpy(np.where(bits, np.float32(1), np.float32(-1)))
    with torch.no_grad():
        trained, logits = network.integer_scores(x).numpy(), network(x).numpy()
    scores = model.scores(pack(bits))
    assert np.array_equal(2 * scores - shape[-2], trained)
    assert np.array_equal(model.infer(pack(bits)).classes, logits.argmax(axis=1))
    return model


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 2**31),
    st.booleans(),
)
def test_random_networks_fold_exactly(head, classes, seed, batch_norm):
    shape = (*head, classes)
    assert_equal(random_network(shape, seed, batch_norm=batch_norm), shape, seed)


def test_thousands_of_neurons_fold_exactly():
    """2,000 neurons of each width against the batch norm itself, at every popcount."""
    for k in (1, 2, 7, 16, 33, 64):
        network = random_network((k, 2000, 2), k, batch_norm=True)
        network.layers[0].sparse = False
        network.layers[0].mask.fill_(1.0)
        model = fold(network, InputSpec.raw(k), ("a", "b"))
        layer, norm = model.hidden[0], network.norms[0]
        weights = (network.layers[0].linear.weight.detach() >= 0).numpy()
        for p in range(k + 1):
            with torch.no_grad():
                fires = (norm(torch.full((1, 2000), float(2 * p - k))) >= 0).numpy()[0]
            flipped = (layer.weights != weights).any(axis=1)
            popcount = np.where(flipped, k - p, p)
            assert np.array_equal(popcount >= layer.thresholds, fires)
        assert (layer.thresholds == 0).any()
        assert (layer.thresholds == k + 1).any()
        assert (layer.weights != weights).any()


def test_without_batch_norm_the_threshold_is_half_the_inputs():
    for k in (6, 7):
        network = random_network((k, 5, 2), 0, batch_norm=False)
        network.layers[0].sparse = False
        network.layers[0].mask.fill_(1.0)
        model = fold(network, InputSpec.raw(k), ("a", "b"))
        assert model.hidden[0].thresholds.tolist() == [(k + 1) // 2] * 5


def test_a_decision_that_is_not_monotone_is_refused():
    with pytest.raises(ModelError, match="neuron 0: its decision changes 2 times"):
        fold_layer(np.ones((1, 4), bool), None, lambda dots: np.abs(dots) < 1)


def test_negative_scale_flips_the_row():
    layer = fold_layer(np.array([[True, False, True]]), None, lambda dots: dots <= -1)
    assert layer.weights.tolist() == [[False, True, False]]
    assert layer.thresholds.tolist() == [2]


@pytest.mark.parametrize(
    ("fires", "threshold", "flipped"),
    [
        (lambda dots: dots >= -9, 0, False),  # always
        (lambda dots: dots >= 9, 6, False),  # never
        (lambda dots: dots >= -3, 1, False),
        (lambda dots: dots >= 5, 5, False),  # where all agree
        (lambda dots: dots <= 3, 1, True),
        (lambda dots: dots <= -5, 5, True),  # where none agrees
        (lambda dots: dots < 0, 3, True),
    ],
)
def test_thresholds_of_five_inputs(fires, threshold, flipped):
    weights = np.array([[True, False, True, True, False]])
    layer = fold_layer(weights, None, fires)
    assert layer.thresholds.tolist() == [threshold]
    assert layer.weights.tolist() == (~weights if flipped else weights).tolist()


def test_a_masked_neuron_counts_its_connections_alone():
    """Three of five inputs: popcounts 0 to 3 are dot products -3 to 3."""
    weights = np.ones((3, 5), dtype=bool)
    mask = np.array([[1, 1, 1, 0, 0]] * 2 + [[1] * 5], dtype=bool)

    def fires(dots):
        assert dots.dtype == np.float32 and dots.shape == (6, 3)
        return dots >= np.array([1, 99, 1])

    assert fold_layer(weights, mask, fires).thresholds.tolist() == [2, 4, 3]


def test_a_neuron_without_connections_always_fires_or_never():
    weights, mask = np.zeros((2, 3), bool), np.zeros((2, 3), bool)
    layer = fold_layer(weights, mask, lambda dots: dots >= np.array([0, 1]))
    assert layer.thresholds.tolist() == [0, 1]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_weight_of_0_is_what_it_was_in_training(sign):
    network = random_network((7, 5, 2), 3, batch_norm=True)
    with torch.no_grad():
        network.layers[0].linear.weight[:, ::2] = 0.0 * sign
        network.output.linear.weight[:, ::2] = 0.0 * sign
    model = assert_equal(network, (7, 5, 2), 0)
    assert model.output.weights[:, ::2].all()


@pytest.mark.parametrize("row", [0, 16_383, 16_384, 20_000])
def test_a_row_whose_scores_differ_is_named(row):
    network = random_network((9, 4, 2), 3, batch_norm=True)
    model = fold(network, InputSpec.raw(9), ("a", "b"), name="n", provenance={"k": "v"})
    assert (model.name, model.provenance) == ("n", {"k": "v"})
    bits = np.zeros((20_001, 9), dtype=bool)
    check_fold(network, model, bits)
    true = network.integer_scores

    class Wrong:
        """The trained network, with another score of the second class in one row."""

        seen = 0

        def integer_scores(self, x):
            scores = true(x)
            if self.seen <= row < self.seen + len(x):
                scores[row - self.seen, 1] += 2
            self.seen += len(x)
            return scores

    mine = model.scores(pack(bits[:1]))[0].tolist()
    theirs = [float(mine[0]), float(mine[1] + 1)]
    message = f"row {row}: the folded network scores {mine}, the trained one {theirs}"
    with pytest.raises(ModelError, match=re.escape(message)):
        check_fold(Wrong(), model, bits)
