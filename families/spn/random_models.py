# SPDX-License-Identifier: Apache-2.0
"""Makes random sum-product networks for tests and benchmarks."""

from __future__ import annotations

import numpy as np

from n3ic.families.spn.arithmetic import Arithmetic, LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Node, Product, Sum
from n3ic.model.inputs import Field, InputSpec


def random_spn(
    rng: np.random.Generator,
    *,
    features: int = 6,
    cuts: int = 5,
    classes: int = 2,
    depth: int = 3,
    arithmetic: Arithmetic | None = None,
) -> SpnModel:
    """Make a random sum-product network.

    Args:
        rng: random generator.
        features: number of features.
        cuts: largest number of cuts of a feature.
        classes: number of classes, each with a root; 1 for a root and a threshold.
        depth: number of sums from the root to the leaves.
        arithmetic: how integers represent values; None for logarithms with 6 fraction bits.
    """
    integers = arithmetic or LogArithmetic.of(6)
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
            # Not 0, whose logarithm is not finite.
            chances = rng.dirichlet(np.full(spec.fields[scope[0]].width + 1, 0.7)) + 1e-4
            return add(Leaf(scope[0], integers.leaf(chances / chances.sum())))
        if left == 0:
            return add(Product(tuple(grow([f], 0) for f in scope)))
        terms = []
        for _ in range(int(rng.integers(2, 4))):
            order = rng.permutation(scope).tolist()
            middle = int(rng.integers(1, len(scope)))
            halves = (order[:middle], order[middle:])
            terms.append(add(Product(tuple(grow(half, left - 1) for half in halves))))
        weights = rng.dirichlet(np.ones(len(terms))) + 1e-3
        return add(Sum(tuple(terms), integers.weights(weights / weights.sum())))

    roots = [grow(list(range(features)), depth) for _ in range(classes)]
    bias = [0] * classes
    if classes == 1:
        roots.append(CONSTANT)
        bias.append(integers.one // 1000 if integers.one else -(3 * features << integers.fraction))
    return SpnModel(
        input=spec,
        nodes=tuple(nodes),
        arithmetic=integers,
        roots=tuple(roots),
        bias=np.array(bias),
        classes=tuple(f"class{i}" for i in range(len(roots))),
        name="random",
    )
