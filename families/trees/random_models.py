# SPDX-License-Identifier: Apache-2.0
"""Makes random trees for tests and benchmarks."""

from __future__ import annotations

import numpy as np

from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.simplify import possible
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.summed import n_sums


def random_trees(
    rng: np.random.Generator,
    *,
    features: int = 6,
    cuts: int = 6,
    trees: int = 12,
    depth: int = 4,
    classes: int = 2,
    largest: int = 100,
    spec: InputSpec | None = None,
) -> TreesModel:
    """Make random trees, each of about ``2 ** depth`` leaves.

    Args:
        rng: random generator.
        features: number of features.
        cuts: largest number of cuts of a feature.
        trees: number of trees.
        depth: the most nodes on the way to a leaf.
        classes: number of classes.
        largest: largest magnitude of a leaf.
        spec: the input; None for random thermometers.
    """
    if spec is None:
        spec = InputSpec(
            tuple(
                Field.thermometer(
                    f"x{i}",
                    sorted(rng.choice(np.arange(1, 1000), int(rng.integers(1, cuts + 1)), False)),
                )
                for i in range(features)
            )
        )
    inner = (1 << depth) - 1  # nodes of a full tree; node i leads to 2 i + 1 and 2 i + 2
    node = np.arange(trees * inner)
    base, place = node - node % inner, node % inner
    sides = []
    for side in (1, 2):
        child = 2 * place + side
        sides.append(np.where(child < inner, base + child, -1).tolist())
    bits = rng.integers(0, spec.n_bits, len(node)).tolist()
    laid = possible(spec, np.arange(trees).dot(inner).tolist() if inner else [-1] * trees, bits,
                    *sides)  # fmt: skip
    shape = (len(laid.leaves), n_sums(classes))
    return TreesModel(
        input=spec,
        sizes=np.array(laid.sizes),
        bits=np.array(laid.bits),
        zero_sizes=np.array(laid.zero_sizes),
        leaves=rng.integers(-largest, largest + 1, shape),
        bias=rng.integers(-20, 21, n_sums(classes)),
        classes=tuple(f"class{i}" for i in range(classes)),
        name="random",
    )
