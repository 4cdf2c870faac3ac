# SPDX-License-Identifier: Apache-2.0
"""What cuts cost while tables grow is what the input that is left in the end counts."""

import numpy as np
import pytest

from n3ic.families.tables.cut_costs import CutCosts
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.passes.unused import narrowed

MANY = InputSpec(
    (
        Field.thermometer("a", [*range(1, 100), 300, 70_000]),
        Field.thermometer("b", [1, 255]),
        Field.thermometer("c", [2, 256, 65_535]),
        Field.thermometer("d", [65_536, 2**32 - 1]),
    )
)
MIXED = InputSpec((Field.binary("r", 3), *MANY.fields[1:]))


@pytest.mark.first_case
@pytest.mark.parametrize("spec", [MANY, MIXED])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.63, 0.95])
def test_costs_are_those_of_the_narrowed_input(spec, share):
    rng, costs = np.random.default_rng(int(100 * share)), CutCosts(spec)

    def counted(read):
        idle = {*np.flatnonzero(~read).tolist()}
        return narrowed(spec, idle)[0].memory_bytes if read.any() else 0

    for _ in range(20):
        read = rng.random(spec.n_bits) < share
        assert costs.of(read) == counted(read)
        further = []
        for bit in range(spec.n_bits):
            more = read.copy()
            more[bit] = True
            further.append(counted(more) - counted(read))
        assert costs.of_each(read).tolist() == further
