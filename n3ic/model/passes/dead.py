# SPDX-License-Identifier: Apache-2.0
"""Dead neurons: neurons that the output does not depend on."""

from __future__ import annotations

import numpy as np

from n3ic.model.bits import Bits
from n3ic.model.network import BinaryModel
from n3ic.model.passes import constant
from n3ic.model.passes.draft import Cause, Draft, narrowed, signs


def read_neurons(model: BinaryModel, *, scores: bool = True) -> list[Bits]:
    """Which neurons of each hidden layer the output depends on.

    Args:
        model: the network.
        scores: whether the output is the scores. If False, it is the class, which a neuron with
            the same weight for all classes does not affect.

    Returns:
        A bool array ``(neurons,)`` per hidden layer; what only constant neurons read is False.
    """
    last = signs(model.output)
    needed = (last != 0 if scores else last != last[0]).any(axis=0)
    used = [needed]
    for layer in reversed(model.hidden):
        rows = used[0].copy()
        rows[list(constant.values(layer))] = False  # whatever they read, their output is the same
        used.insert(0, (signs(layer)[rows] != 0).any(axis=0))
    return used[1:]


def drop(draft: Draft) -> Draft:
    """Remove the neurons that no neuron of the next layer reads.

    A layer keeps at least one neuron.
    """
    # From the output down: a neuron that goes may have been the only reader of others.
    for i in reversed(range(len(draft.model.hidden))):
        reader = draft.model.layers[i + 1]
        if reader.mask is None:  # every neuron is read
            continue
        dead = np.flatnonzero(~reader.mask.any(axis=0))
        if len(dead) == reader.n_inputs:
            dead = dead[1:]
        if len(dead):
            remaining = np.setdiff1d(np.arange(reader.n_inputs), dead)
            causes: dict[int, tuple[Cause, int | None]] = {int(j): ("dead", None) for j in dead}
            draft = draft.without(i, causes, narrowed(reader, remaining, 0))
    return draft
