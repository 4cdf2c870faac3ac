# SPDX-License-Identifier: Apache-2.0
"""Makes random look-up tables for tests and benchmarks."""

from __future__ import annotations

import numpy as np

from n3ic.families.tables.network import Table, TablesModel
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.summed import n_sums


def random_tables(
    rng: np.random.Generator,
    *,
    features: int = 6,
    cuts: int = 6,
    tables: int = 12,
    classes: int = 2,
    inputs: tuple[int, int] = (1, 5),
    widths: tuple[int, int] = (4, 4),
    spec: InputSpec | None = None,
) -> TablesModel:
    """Make random look-up tables; every input bit is read if there are enough tables.

    Args:
        rng: random generator.
        features: number of features.
        cuts: largest number of cuts of a feature.
        tables: number of tables.
        classes: number of classes.
        inputs: least and largest number of bits that address a table.
        widths: least and largest number of bits of an entry.
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
    # Bits are dealt like cards, so that each is read before one is read twice.
    stack: list[int] = []
    random_parts = []
    for _ in range(tables):
        size = min(int(rng.integers(inputs[0], inputs[1] + 1)), spec.n_bits)
        bits: list[int] = []
        while len(bits) < size:
            if not stack:
                stack = rng.permutation(spec.n_bits).tolist()
            bit = next((b for b in stack if b not in bits), None)
            if bit is None:
                stack = [*stack, *rng.permutation(spec.n_bits).tolist()]
                continue
            stack.remove(bit)
            bits.append(bit)
        width = int(rng.integers(widths[0], widths[1] + 1))
        half = 1 << (width - 1)
        entries = rng.integers(-half, half, (1 << size, n_sums(classes)), dtype=np.int8)
        random_parts.append(Table(tuple(bits), entries, width))
    return TablesModel(
        input=spec,
        tables=tuple(random_parts),
        bias=rng.integers(-20, 21, n_sums(classes), dtype=np.int32),
        classes=tuple(f"class{i}" for i in range(classes)),
        name="random",
    )
