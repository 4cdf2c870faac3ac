"""Random models of both families, for tests and benchmarks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from n3ic.model.bits import Bits
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.spn import Leaf, LogArithmetic, Product, SpnModel, Sum
from n3ic.model.spn.arithmetic import Arithmetic
from n3ic.model.spn.network import CONSTANT
from n3ic.model.spn.nodes import Node


def random_model(
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    density: float | None = None,
    extremes: bool = True,
) -> BinaryModel:
    """A random model, for tests and benchmarks.

    Args:
        shape: input bits, then the neurons of each layer, the classes last.
        rng: the source of randomness.
        density: share of the connections that are kept; None for no masks.
        extremes: let some neurons never or always fire, and biases differ.
    """

    def parts(outputs: int, inputs: int) -> tuple[Bits, Bits | None]:
        weights = rng.random((outputs, inputs)) < 0.5
        return weights, None if density is None else rng.random((outputs, inputs)) < density

    hidden = []
    for inputs, outputs in pairwise(shape[:-1]):
        weights, mask = parts(outputs, inputs)
        fan_in = np.full(outputs, inputs) if mask is None else mask.sum(axis=1)
        spread = np.sqrt(fan_in + 1) / 2
        thresholds = np.rint(fan_in / 2 + rng.normal(0, 1, outputs) * spread)
        if extremes:
            kind = rng.integers(0, 16, outputs)
            thresholds = np.where(kind == 0, 0, np.where(kind == 1, fan_in + 1, thresholds))
        thresholds = np.clip(thresholds, 0, fan_in + 1).astype(np.int32)
        hidden.append(HiddenLayer(weights, mask=mask, thresholds=thresholds))
    weights, mask = parts(shape[-1], shape[-2])
    bias = rng.integers(-3, 4, shape[-1]) if extremes else np.zeros(shape[-1], dtype=np.int64)
    return BinaryModel(
        input=InputSpec.raw(shape[0]),
        hidden=tuple(hidden),
        output=OutputLayer(weights, mask=mask, bias=bias.astype(np.int32)),
        classes=tuple(f"class{i}" for i in range(shape[-1])),
        name="random",
    )


def random_spn(
    rng: np.random.Generator,
    *,
    features: int = 6,
    cuts: int = 5,
    classes: int = 2,
    depth: int = 3,
    arithmetic: Arithmetic | None = None,
) -> SpnModel:
    """A random sum-product network, for tests and benchmarks.

    Args:
        rng: the source of randomness.
        features: number of features.
        cuts: largest number of cuts of a feature.
        classes: number of classes, each with a root; 1 for a root and a threshold.
        depth: sums from the root to the leaves.
        arithmetic: how values are integers; logarithms with 6 bits behind the point where None.
    """
    kept = arithmetic or LogArithmetic.of(6)
    spec = InputSpec(
        tuple(
            Field.thermometer(
                f"x{i}", sorted(rng.choice(np.arange(1, 1000), rng.integers(1, cuts + 1), False))
            )
            for i in range(features)
        )
    )
    nodes: list[Node] = []

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    def grow(scope: list[int], left: int) -> int:
        if len(scope) == 1:
            chances = rng.dirichlet(np.full(spec.fields[scope[0]].width + 1, 0.7)) + 1e-4
            return add(Leaf(scope[0], kept.leaf(chances / chances.sum())))
        if left == 0:
            return add(Product(tuple(grow([f], 0) for f in scope)))
        terms = []
        for _ in range(int(rng.integers(2, 4))):
            order = rng.permutation(scope).tolist()
            middle = int(rng.integers(1, len(scope)))
            halves = (order[:middle], order[middle:])
            terms.append(add(Product(tuple(grow(half, left - 1) for half in halves))))
        weights = rng.dirichlet(np.ones(len(terms))) + 1e-3
        return add(Sum(tuple(terms), kept.weights(weights / weights.sum())))

    roots = [grow(list(range(features)), depth) for _ in range(classes)]
    bias = [0] * classes
    if classes == 1:
        roots.append(CONSTANT)
        bias.append(kept.one // 1000 if kept.one else -(3 * features << kept.fraction))
    return SpnModel(
        input=spec,
        nodes=tuple(nodes),
        arithmetic=kept,
        roots=tuple(roots),
        bias=np.array(bias),
        classes=tuple(f"class{i}" for i in range(len(roots))),
        name="random",
    )
