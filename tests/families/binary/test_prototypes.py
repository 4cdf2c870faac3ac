# SPDX-License-Identifier: Apache-2.0
"""Networks of prototypes for few input bits."""

from __future__ import annotations

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.families.binary.polish import polish
from n3ic.families.binary.prototypes import prototype_network
from n3ic.model.bits import pack
from n3ic.model.inputs import InputSpec
from n3ic.training.recipe import Training

pytest.importorskip("sklearn")  # brings threadpoolctl


def _table(n_bits: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels, where the label is any function of the bits."""
    rng = np.random.default_rng(seed)
    bits = rng.random((3000, n_bits)) < 0.5
    answer = rng.integers(0, n_classes, 1 << n_bits)
    return bits, answer[bits @ (1 << np.arange(n_bits))]


@pytest.mark.parametrize(("n_bits", "n_classes"), [(4, 2), (5, 2), (4, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_a_neuron_a_cell_is_any_function(n_bits: int, n_classes: int, seed: int) -> None:
    bits, label = _table(n_bits, n_classes, seed)
    classes = tuple(f"c{i}" for i in range(n_classes))
    neurons = n_classes * 2**n_bits
    model = prototype_network(bits, label, InputSpec.raw(n_bits), classes, neurons)
    model = polish(model, pack(bits), label, rounds=20)
    assert (model.scores(pack(bits)).argmax(axis=1) == label).mean() > 0.99


def test_scores_begin_at_the_shares_and_the_same_rows_give_the_same_bytes() -> None:
    bits, _ = _table(6, 2, 1)
    label = (np.arange(len(bits)) % 10 == 0).astype(np.int64)  # nothing to learn
    made = [
        prototype_network(bits, label, InputSpec.raw(6), ("a", "b"), 3).to_bytes() for _ in "12"
    ]
    assert made[0] == made[1]
    model = prototype_network(bits, label, InputSpec.raw(6), ("a", "b"), 3)
    assert (model.scores(pack(bits)).argmax(axis=1) == 0).all()


@pytest.mark.parametrize("given", [{"hidden": (8, 4)}, {"density": 0.5}, {"distill": 0.5}])
def test_what_prototypes_cannot_be_is_refused(given) -> None:
    with pytest.raises(UsageError, match="for prototypes"):
        Training(**{"hidden": (8,), "method": "prototypes", **given})
