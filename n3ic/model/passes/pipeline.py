# SPDX-License-Identifier: Apache-2.0
"""Run all passes until none of them finds anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from numpy.typing import ArrayLike
from typing_extensions import TypeVar

from n3ic.model.bits import Words, checked_words, pack, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.network import BinaryModel
from n3ic.model.passes import constant, dead, duplicate, unused
from n3ic.model.passes.draft import Draft, Removed

ModelT = TypeVar("ModelT", bound=Classifier, default=BinaryModel)

PASSES: tuple[Callable[[Draft], Draft], ...] = (
    constant.fold,
    duplicate.merge,
    dead.drop,
    unused.drop,  # last: the others may leave bits without a reader
)


@dataclass(frozen=True)
class Findings:
    """What the passes remove from a network, and what they find but keep.

    Attributes:
        neurons: the removed hidden neurons, each with its cause.
        bits: the removed input bits, which nothing reads.
        features: the features that are no longer read.
        parts: other parts that a family removes from its models, one line each.
        shared: groups of equal or complementary neurons that stay, because a reader counts
            several: (layer, neurons). Targets that fold weights into logic compute a group once.
    """

    neurons: tuple[Removed, ...] = ()
    bits: tuple[int, ...] = ()
    features: tuple[str, ...] = ()
    shared: tuple[tuple[int, tuple[int, ...]], ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def removes(self) -> bool:
        """Whether anything is removed."""
        return bool(self.neurons or self.bits or self.parts)

    def lines(self) -> list[str]:
        """The findings in words, one line each; empty without findings."""
        out = list(self.parts)
        for (layer, cause), count in sorted(
            Counter((found.layer, found.cause) for found in self.neurons).items()
        ):
            out.append(f"layer {layer}: {_some(count, cause + ' neuron')} removed")
        if self.bits:
            out.append(f"input: {_some(len(self.bits), 'bit')} that nothing reads removed")
        if self.features:
            out.append(f"features that are no longer read: {', '.join(self.features)}")
        for layer, group in self.shared:
            listed = ", ".join(str(j) for j in group)
            out.append(f"layer {layer}: neurons {listed} are equal or complementary and stay")
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return ({"parts": list(self.parts)} if self.parts else {}) | {
            "neurons": [
                {"layer": r.layer, "neuron": r.neuron, "cause": r.cause, "other": r.other}
                for r in self.neurons
            ],
            "bits": list(self.bits),
            "features": list(self.features),
            "shared": [{"layer": layer, "neurons": list(group)} for layer, group in self.shared],
        }


@dataclass(frozen=True, eq=False)
class Simplified(Generic[ModelT]):
    """A simplified model, and its relation to the original.

    Attributes:
        source: the original.
        model: the simplified one: the same scores, classes and margins on every input.
        kept: for each input bit of ``model`` its index in ``source``.
        findings: what was removed.
    """

    source: ModelT
    model: ModelT
    kept: tuple[int, ...]
    findings: Findings

    def inputs(self, words: ArrayLike) -> Words:
        """Packed inputs of ``source`` as packed inputs of ``model``.

        Args:
            words: uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the words are not packed inputs of ``source``.
        """
        n = self.source.input.n_bits
        checked = checked_words(words, n, "packed inputs")
        if len(self.kept) == n:
            return checked
        return pack(unpack(checked, n)[:, list(self.kept)])


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
    kept = tuple(draft.bits.tolist())
    gone = tuple(sorted(set(range(model.input.n_bits)) - set(kept)))
    still = set(draft.model.input.features)
    shared = tuple(
        (i, tuple(int(draft.neurons[i][j]) for j, _ in group))
        for i, layer in enumerate(draft.model.hidden)
        for group in duplicate.groups(layer)
    )
    findings = Findings(
        tuple(sorted(draft.removed, key=lambda r: (r.layer, r.neuron))),
        gone,
        tuple(name for name in model.input.features if name not in still),
        shared,
    )
    result = draft.model
    if findings.removes:
        result = replace(result, provenance={**model.provenance, "simplified from": model.digest})
    return Simplified(model, result, kept, findings)


def unchanged(model: ModelT) -> Simplified[ModelT]:
    """The result for a model in which nothing is removed."""
    return Simplified(model, model, tuple(range(model.input.n_bits)), Findings())


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
