# SPDX-License-Identifier: Apache-2.0
"""What the tests of several targets share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from n3ic.model.bits import Words, pack
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

SHUNT = 2
Case = tuple[BinaryModel, Words]


@pytest.fixture(scope="session")
def at_the_threshold() -> Callable[[int], Case]:
    """A network of some classes that shunts margins below 2, and inputs of margins 0 to 3.

    Not all connections are there, so that margins are even and odd; there are ties of the best
    two and, of more than two classes, ties of the second and third.
    """

    def case(classes: int) -> Case:
        rng = np.random.default_rng(classes)
        model = random_model((24, 9, classes), rng, density=0.7, extremes=False)
        words = pack(rng.random((4000, 24)) < 0.5)
        margins = model.infer(words).margins
        rows = np.concatenate([np.flatnonzero(margins == m)[:12] for m in range(4)])
        assert np.bincount(margins[rows], minlength=4).min() >= 8
        return model.with_shunt(SHUNT), words[rows]

    return case
