# SPDX-License-Identifier: Apache-2.0
"""Equal and complementary neurons: only as many copies stay as a reader needs.

A reader that counts ``p`` of ``n`` copies with one sign and the others with the opposite sign
always counts ``(n - k) / 2``, and besides these only ``k = |2 p - n|`` copies. A layer with a mask
reads just those ``k``. A layer without a mask reads all copies that are left, in pairs of opposite
signs if it needs fewer, so that it needs no mask.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from n3ic.model.layers import HiddenLayer
from n3ic.model.passes import constant
from n3ic.model.passes.draft import Cause, Draft, rewired, signs

Group = tuple[tuple[int, bool], ...]  # (neuron, complementary to the first), two or more


def groups(layer: HiddenLayer) -> list[Group]:
    """Neurons of a layer that are equal or complementary on every input, without constant ones."""
    constants = constant.values(layer)
    connected = np.ones_like(layer.weights) if layer.mask is None else layer.mask
    members: defaultdict[tuple[bytes, bytes, int], list[tuple[int, bool]]] = defaultdict(list)
    for j in range(layer.n_outputs):
        if j in constants:
            continue
        mask, weights = connected[j], layer.weights[j]
        threshold = int(layer.thresholds[j])
        flipped = not weights[np.argmax(mask)]  # one form for both: the first weight is +1
        if flipped:  # popcount of the inverted weights is the fan-in less the popcount
            weights, threshold = ~weights, int(layer.fan_in[j]) + 1 - threshold
        # Weights without a connection have no effect, so they are not part of the key.
        key = (mask.tobytes(), (weights & mask).tobytes(), threshold)
        members[key].append((j, flipped))
    return [
        tuple((j, flipped != same[0][1]) for j, flipped in same)
        for same in members.values()
        if len(same) > 1
    ]


def merge(draft: Draft) -> Draft:
    """Remove the copies that no reader needs; a layer keeps at least one neuron."""
    for i in range(len(draft.model.hidden)):
        causes: dict[int, tuple[Cause, int | None]] = {}
        reader = draft.model.layers[i + 1]
        reader_signs = signs(reader)
        counted = np.zeros(reader.n_outputs, dtype=np.int64)
        for group in groups(draft.model.hidden[i]):
            copies = np.array([j for j, _ in group])
            turned = np.where([opposite for _, opposite in group], -1, 1)
            own = reader_signs[:, copies] * turned
            needed = own.sum(axis=1, dtype=np.int64)  # copies of the first, with their sign
            count = int(np.abs(needed).max())
            if count == 0 and len(causes) + len(copies) == reader.n_inputs:
                count = 2 if reader.mask is None else 1  # a layer keeps one, or two that cancel
            if count >= len(copies):
                continue
            fresh = _spread(needed, count, dense=reader.mask is None)
            # Of two copies with opposite signs, exactly one agrees: each removed pair adds 1.
            counted += (np.abs(own).sum(axis=1) - np.abs(fresh).sum(axis=1)) // 2
            reader_signs[:, copies[:count]] = fresh * turned[:count]
            first = int(draft.neurons[i][copies[0]])
            for j, opposite in group[count:]:
                causes[j] = ("complementary" if opposite else "equal", first)
        if causes:
            remaining = np.setdiff1d(np.arange(reader.n_inputs), list(causes))
            left = reader_signs[:, remaining]
            mask = None if reader.mask is None else left != 0
            draft = draft.without(i, causes, rewired(reader, left > 0, mask, counted))
    return draft


def _spread(needed: NDArray[np.int64], count: int, *, dense: bool) -> NDArray[np.int8]:
    """Signs with which each reader counts the copies that stay; their sum is ``needed``."""
    place, target = np.arange(count)[None, :], needed[:, None]
    if dense:  # every reader reads all copies, so needed and count are both even or both odd
        return np.where(2 * place < count + target, 1, -1).astype(np.int8)
    return np.where(place < np.abs(target), np.sign(target), 0).astype(np.int8)
