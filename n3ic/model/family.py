# SPDX-License-Identifier: Apache-2.0
"""What a family of models is to the core, which finds each by what model files say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from n3ic import plugins
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    import numpy as np

    from n3ic.model.bits import Words
    from n3ic.model.classifier import Classifier, Inference
    from n3ic.model.passes import Simplified
    from n3ic.util.display import TextTable

GROUP = "n3ic.families"


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


class Family(Plugin):
    """A family of models.

    An entry point in the group ``n3ic.families`` names an instance; the entry point's name is that
    which model files say, :attr:`~n3ic.model.classifier.Classifier.family`. How models of the
    family are trained is a :class:`~n3ic.runs.learner.Learner`.

    Attributes:
        name: as model files say it, such as ``binary-network``.
        summary: one line.
    """

    @property
    def model(self) -> type[Classifier]:
        """The class of its models, which reads their files."""
        raise NotImplementedError

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Packed inputs of the trained model that verification runs: deciding ones, then others.

        Args:
            network: what was written of the trained model.
            count: how many, or a few more.
            seed: of what is random.

        Returns:
            uint32 array of shape ``(rows, n_words)``.
        """
        raise NotImplementedError

    def decided(self, model: Any, inputs: Words, got: Inference) -> Decided:
        """What of a model some inputs decide.

        Args:
            model: the model that ran.
            inputs: packed inputs, uint32 array of shape ``(rows, n_words)``.
            got: what the executor told: with hidden bits, less has to be followed to the scores.
        """
        raise NotImplementedError

    def summary_of(self, model: Any) -> tuple[TextTable, tuple[str, ...]]:
        """What ``n3ic inspect`` shows of a model's parts: a table, and lines below it.

        Args:
            model: a model of the family.
        """
        raise NotImplementedError

    def random(self, rng: np.random.Generator) -> Classifier:
        """A small random model, for tests and benchmarks.

        Args:
            rng: the source of randomness.
        """
        raise NotImplementedError


def family(name: str) -> Family:
    """The family of that name.

    Args:
        name: as model files say it.

    Raises:
        UsageError: there is none; the text lists them.
    """
    found: Family = plugins.find(GROUP, name, Family)
    return found
