# SPDX-License-Identifier: Apache-2.0
"""A simplified model, what was removed from it, and its relation to the original."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Generic, Literal

from numpy.typing import ArrayLike
from typing_extensions import TypeVar

from n3ic.model.bits import Words, checked_words, pack, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel

ModelT = TypeVar("ModelT", bound=Classifier, default=BinaryModel)
Cause = Literal["constant", "dead", "equal", "complementary"]


@dataclass(frozen=True)
class Removed:
    """A hidden neuron that a pass removed.

    Attributes:
        layer: index of its layer.
        neuron: its index in the network before all passes.
        cause: ``constant``, ``dead`` (nothing reads it), ``equal`` or ``complementary``.
        other: the value of a constant neuron; the neuron that an equal or complementary one
            follows, by its index before all passes; None for a dead one.
    """

    layer: int
    neuron: int
    cause: Cause
    other: int | None = None


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
            Counter((finding.layer, finding.cause) for finding in self.neurons).items()
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
        source_bits: for each input bit of ``model`` its index in ``source``.
        findings: what was removed.
    """

    source: ModelT
    model: ModelT
    source_bits: tuple[int, ...]
    findings: Findings

    @property
    def differs(self) -> bool:
        """Whether parts were removed, or the simplified model is of another family."""
        return self.findings.removes or self.model.family != self.source.family

    @property
    def lines(self) -> tuple[str, ...]:
        """How the simplified model differs, in words, one line each."""
        form = f"written as layers of family {self.model.family}"
        same = self.model.family == self.source.family
        return (*(() if same else (form,)), *self.findings.lines())

    def inputs(self, words: ArrayLike) -> Words:
        """Packed inputs of ``source`` as packed inputs of ``model``.

        Args:
            words: uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Raises:
            ModelError: the words are not packed inputs of ``source``.
        """
        n = self.source.input.n_bits
        checked = checked_words(words, n, "packed inputs")
        if len(self.source_bits) == n:
            return checked
        return pack(unpack(checked, n)[:, list(self.source_bits)])


def unchanged(model: ModelT) -> Simplified[ModelT]:
    """The result for a model in which nothing is removed."""
    return Simplified(model, model, tuple(range(model.input.n_bits)), Findings())


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
