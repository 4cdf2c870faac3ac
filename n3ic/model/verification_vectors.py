# SPDX-License-Identifier: Apache-2.0
"""Inputs for verification: random ones, and those where executors go wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import Bits, Words, pack, unpack
from n3ic.model.classifier import Classifier, margins_of
from n3ic.model.inputs import UINT32_MAX, InputSpec
from n3ic.model.layers import HiddenLayer
from n3ic.model.network import BinaryModel

_MARGIN_ROWS = 32  # inputs at the shunting threshold, and as many one below
_MARGIN_STEPS = 400


def verification_vectors(model: BinaryModel, count: int, seed: int = 0) -> Words:
    """Boundary vectors of the model, then random ones up to ``count`` vectors in all.

    Boundary vectors are all zeros, all ones, alternating bits, single bits, and for every
    neuron of the first layer one input at its threshold and one just below it.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    rng = np.random.default_rng(seed)
    boundary = boundary_vectors(model, rng)
    n = model.input.n_bits
    extra = max(0, count - len(boundary))
    density = rng.random((extra, 1))  # reaches popcounts far from the middle, too
    uniform = rng.random((extra, 1)) < 0.5
    random = rng.random((extra, n)) < np.where(uniform, 0.5, density)
    return pack(np.concatenate([boundary, random]))


def margin_vectors(model: Classifier, seed: int = 0) -> Words:
    """Inputs whose margin is exactly the shunting threshold, and one less.

    The search flips single bits of random inputs, and keeps to inputs that features can have
    (:meth:`.InputSpec.ordered`). Not every network has such a margin: those of two fully connected
    classes are all even or all odd. The search then ends at the nearest one.

    Args:
        model: a model of any family.
        seed: seed of the search.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``; none for a threshold of 0.
    """
    n = model.input.n_bits
    if not model.shunt:
        return np.empty((0, model.input.n_words), dtype=np.uint32)
    rng = np.random.default_rng(seed)
    rows = np.arange(2 * _MARGIN_ROWS)
    target = model.shunt - (rows % 2)  # in turn, the least margin decided and the largest shunted
    x = rng.random((len(rows), n)) < np.where(rows % 4 < 2, 0.5, rng.random(len(rows)))[:, None]
    x = model.input.ordered(x)
    # The search runs for all rows at once: each step is one call of the network.
    off = np.abs(margins_of(model.scores(pack(x))) - target)
    for _ in range(_MARGIN_STEPS):
        if not off.any():
            break
        flipped = x.copy()
        flipped[rows, rng.integers(0, n, len(rows))] ^= True
        flipped = model.input.ordered(flipped)
        other = np.abs(margins_of(model.scores(pack(flipped))) - target)
        nearer = (other <= off) & (off > 0)  # steps of equal distance lead across plateaus
        x[nearer], off[nearer] = flipped[nearer], other[nearer]
    return pack(x)


def boundary_features(spec: InputSpec, seed: int = 0) -> dict[str, NDArray[np.int64]]:
    """Integer features on the edges of an input stage.

    Each cut of a feature, its clamp, each power of two of its raw bits, the values beside them, 0
    and 2^32 - 1 occur in some row. The other features of that row are at their own edges.

    Returns:
        int64 array of shape ``(rows,)`` per feature, all of one length.
    """
    edges: dict[str, set[int]] = {name: {0, 1, UINT32_MAX} for name in spec.features}
    for field in spec.fields:
        points = [*field.cuts, field.clamp]
        if field.kind == "binary":
            points += [1 << bit for bit in range(field.width)]
        for point in points:
            # A comparison that is off by one, or > for >=, differs at one of these three.
            edges[field.feature] |= {point - 1, point, min(point + 1, UINT32_MAX)}
    rng = np.random.default_rng(seed)
    rows = max(len(values) for values in edges.values())  # shorter lists repeat
    return {
        name: np.resize(rng.permutation(np.array(sorted(values), dtype=np.int64)), rows)
        for name, values in edges.items()
    }


def feature_vectors(spec: InputSpec, count: int, seed: int = 0) -> Words:
    """Inputs that features can have: those on the edges, then random ones, ``count`` or more.

    Half of the random features are uniform between 0 and a little above their highest edge, and
    half are on edges, each by itself.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``.
    """
    edges = boundary_features(spec, seed)
    rng = np.random.default_rng(seed)
    more = max(0, count - len(next(iter(edges.values()))))
    top = {f.feature: min(2 * f.clamp, UINT32_MAX) for f in spec.fields}
    drawn = {
        name: np.where(
            np.arange(more) % 2, rng.choice(values, more), rng.integers(0, top[name] + 1, more)
        )
        for name, values in edges.items()
    }
    return np.concatenate([spec.encode_words(edges), spec.encode_words(drawn)])


def boundary_vectors(model: BinaryModel, rng: np.random.Generator) -> Bits:
    """Inputs on the edges: bool array of shape ``(rows, n_bits)``."""
    n = model.input.n_bits
    fixed = [
        np.zeros((1, n), dtype=np.bool_),
        np.ones((1, n), dtype=np.bool_),  # reveals padding that is counted
        np.arange(n)[None, :] % 2 == np.array([[0], [1]]),  # reveals bits in reverse order
        np.eye(n, dtype=np.bool_)[[0, n - 1]],  # reveals a wrong first or last word
    ]
    layer = model.layers[0]
    if isinstance(layer, HiddenLayer):
        fixed.extend(at_threshold(layer, j, rng) for j in range(layer.n_outputs))
    return np.concatenate(fixed)


def at_threshold(layer: HiddenLayer, neuron: int, rng: np.random.Generator) -> Bits:
    """A random input on which a neuron is at its threshold, and one just below it.

    The second flips one of the bits that agree with the neuron's weights.

    Returns:
        bool array of shape ``(rows, n_inputs)``; fewer than two rows for a constant neuron.
    """
    threshold = int(layer.thresholds[neuron])
    fan_in = int(layer.fan_in[neuron])
    counted = layer.mask_words[neuron]
    order = rng.permutation(np.flatnonzero(unpack(counted, layer.n_inputs)))
    x = np.tile(rng.random(layer.n_inputs) < 0.5, (2, 1))
    # As many connections agree as the threshold requires, and the rest disagree.
    x[:, order[:threshold]] = layer.weights[neuron, order[:threshold]]
    x[:, order[threshold:]] = ~layer.weights[neuron, order[threshold:]]
    if threshold:
        x[1, order[threshold - 1 : threshold]] ^= True
    reached = [threshold <= fan_in, threshold >= 1]  # no popcount is above fan-in or below 0
    return x[reached]
