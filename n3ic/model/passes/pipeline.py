# SPDX-License-Identifier: Apache-2.0
"""Run all passes until none of them finds anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from n3ic.model.family import family
from n3ic.model.network import BinaryModel
from n3ic.model.passes import constant, dead, duplicate, unused
from n3ic.model.passes.draft import Draft
from n3ic.model.simplified import Findings, ModelT, Simplified

PASSES: tuple[Callable[[Draft], Draft], ...] = (
    constant.fold,
    duplicate.merge,
    dead.drop,
    unused.drop,  # last: the others may leave bits without a reader
)


def simplify(model: ModelT) -> Simplified[ModelT]:
    """Remove the parts of a model that do not affect its scores.

    In a binary network, constant neurons are folded into the next thresholds and biases; needless
    copies and unread neurons and bits are removed. No layer gains a mask.
    """
    if isinstance(model, BinaryModel):
        network: Simplified[Any] = _network(model)
        return network
    return family(model.family).simplified(model)


def _network(model: BinaryModel) -> Simplified[BinaryModel]:
    draft = Draft.of(model)
    while True:  # a pass may make work for another; each round removes something, so this ends
        before = draft.model
        for each in PASSES:
            draft = each(draft)
        if draft.model is before:
            break
    source_bits = tuple(draft.bits.tolist())
    removed_bits = tuple(sorted(set(range(model.input.n_bits)) - set(source_bits)))
    still = set(draft.model.input.features)
    shared = tuple(
        (i, tuple(int(draft.neurons[i][j]) for j, _ in group))
        for i, layer in enumerate(draft.model.hidden)
        for group in duplicate.groups(layer)
    )
    findings = Findings(
        tuple(sorted(draft.removed, key=lambda r: (r.layer, r.neuron))),
        removed_bits,
        tuple(name for name in model.input.features if name not in still),
        shared,
    )
    result = draft.model
    if findings.removes:
        result = replace(result, provenance={**model.provenance, "simplified from": model.digest})
    return Simplified(model, result, source_bits, findings)
