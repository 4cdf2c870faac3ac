"""Inputs that verification runs on a model, and the parts of the model that they decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from n3ic.model.bits import Words, pack, unpack
from n3ic.model.boundary import margin_vectors, verification_vectors
from n3ic.model.classifier import Classifier, Inference
from n3ic.model.coverage import coverage, deciding_vectors
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Simplified
from n3ic.model.spn import SpnModel
from n3ic.model.spn.vectors import spn_coverage, spn_vectors

_MAX_FOLLOWED = 1 << 21  # weight bits of networks whose neurons are followed to the scores


@dataclass(frozen=True)
class Decided:
    """What of a model some vectors decide: a wrong executor would have shown.

    Attributes:
        parameters: what is counted, in words.
        total: how many there are; 0 where they were not counted.
        decided: how many of them are decided.
        undecided: which are not, in words.
    """

    parameters: str = "weight bits"
    total: int = 0
    decided: int = 0
    undecided: tuple[str, ...] = ()


def inputs_to_run(network: Simplified[Any], count: int, seed: int) -> Words:
    """Packed inputs of the trained model: deciding ones, boundary ones, then random ones.

    Args:
        network: what was written of the trained model.
        count: how many, or a few more.
        seed: of the random ones.

    Returns:
        uint32 array of shape ``(rows, n_words)``.
    """
    edges = margin_vectors(network.source, seed)
    if isinstance(network.source, SpnModel):
        return np.concatenate([edges, spn_vectors(network.source, count - len(edges), seed)])
    deciding = deciding_vectors(network.model, seed, hidden=_is_large(network.model))
    source = network.source.input
    bits = np.random.default_rng(seed).random((len(deciding), source.n_bits)) < 0.5
    bits[:, list(network.kept)] = unpack(deciding, network.model.input.n_bits)
    further = verification_vectors(network.source, count - len(deciding) - len(edges), seed)
    return np.concatenate([pack(bits), edges, further])


def decided_by(model: Classifier, inputs: Words, got: Inference) -> Decided:
    """What of a model some inputs decide.

    Args:
        model: the model that ran.
        inputs: packed inputs, uint32 array of shape ``(rows, n_words)``.
        got: what the executor told: with hidden bits, less has to be followed to the scores.
    """
    if isinstance(model, SpnModel):
        found = spn_coverage(model, inputs)
        return Decided("entries and weights", found.total, found.decided, found.undecided)
    assert isinstance(model, BinaryModel)  # noqa: S101 - there are two families
    hidden = len(got.hidden) == len(model.hidden)
    if not hidden and _is_large(model):
        return Decided()
    known = coverage(model, inputs, hidden=hidden)
    return Decided("weight bits", known.total, known.decided, tuple(known.lines(model)))


def _is_large(model: BinaryModel) -> bool:
    """Whether following single neurons to the scores would take minutes."""
    return sum(int(layer.fan_in.sum()) for layer in model.layers) > _MAX_FOLLOWED
