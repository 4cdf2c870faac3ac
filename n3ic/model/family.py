# SPDX-License-Identifier: Apache-2.0
"""The interface of a family of models, which the core finds by its name in model files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic import plugins
from n3ic.errors import UsageError
from n3ic.plugins import Plugin

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from n3ic.model.bits import Bits, Words
    from n3ic.model.classifier import Classifier, Inference
    from n3ic.model.graph.operations import Graph
    from n3ic.model.simplified import Simplified
    from n3ic.util.display import TextTable


@dataclass(frozen=True)
class Decided:
    """The parameters of a model that some vectors decide: a wrong value would change a result.

    Attributes:
        parameters: what is counted, in words.
        total: number of parameters; 0 if they were not counted.
        decided: number of decided ones.
        undecided: the others, in words.
    """

    parameters: str = "weight bits"
    total: int = 0
    decided: int = 0
    undecided: tuple[str, ...] = ()


class Family(Plugin):
    """A family of models.

    An entry point in the group ``n3ic.families`` names an instance. Its name is the family's name
    in model files, :attr:`~n3ic.model.classifier.Classifier.family`. A
    :class:`~n3ic.runs.learner.Learner` trains models of the family.

    Attributes:
        name: its name in model files, such as ``binary-network``.
        summary: one line.
        foreign_suffixes: suffixes of the files of other libraries that it reads, such as ``.json``.
        classified_by: what :meth:`predict` calls, as ``module:name``; the readers lie above models.
    """

    foreign_suffixes: ClassVar[tuple[str, ...]] = ()
    classified_by: ClassVar[str] = "n3ic.dataframes:predict_flows"

    @property
    def model(self) -> type[Classifier]:
        """The class of the family's models, which reads their files."""
        raise NotImplementedError

    def simplified(self, model: Any) -> Simplified[Any]:
        """The model without parts that do not affect its scores; by default the model itself.

        Args:
            model: a model of the family.
        """
        from n3ic.model.simplified import unchanged

        return unchanged(model)

    def imported(self, path: Path) -> Classifier:
        """Read a file of another library, with one of ``foreign_suffixes``.

        Args:
            path: the file.

        Raises:
            ModelError: it holds no model that the family has.
        """
        raise NotImplementedError

    def compiled(self, model: Any) -> Any:
        """The model loaded into a compiled kernel, a ``KernelNetwork``; None if none computes it.

        Args:
            model: a model of the family.
        """
        return None

    def graph(self, model: Any) -> Graph:
        """The operations that compute a model's scores, from which targets are written.

        Args:
            model: a model of the family.

        Raises:
            ModelError: a value may exceed 64 bits, or a score 32 bits.
        """
        raise NotImplementedError

    def vectors(self, network: Simplified[Any], count: int, seed: int) -> Words:
        """Packed inputs of the trained model for verification: deciding ones, then others.

        By default, features at each cut and the values beside it, then random ones.

        Args:
            network: the trained model and its simplified form.
            count: number of inputs; a few more may be returned.
            seed: seed of the random inputs.

        Returns:
            uint32 array of shape ``(rows, n_words)``: only inputs that features can have
            (:meth:`~n3ic.model.inputs.InputSpec.ordered`), unless the graph is a sum of look-ups by
            bits or layers of popcounts, whose scores are those of any bits.
        """
        from n3ic.model.verification_vectors import feature_vectors

        return feature_vectors(network.source.input, count, seed)

    def decided(self, model: Any, inputs: Words, inference: Inference) -> Decided:
        """Which parameters of a model some inputs decide; by default, none is counted.

        Args:
            model: the model that ran.
            inputs: packed inputs, uint32 array of shape ``(rows, n_words)``.
            inference: the executor's results; with hidden bits, neurons need not reach the scores.
        """
        return Decided()

    def summary_of(self, model: Any) -> tuple[TextTable, tuple[str, ...]]:
        """What ``n3ic inspect`` shows of a model's parts: a table, and lines below it.

        By default, its shape and the bytes of its parts.

        Args:
            model: a model of the family.
        """
        from n3ic.util.display import TextTable

        rows = [("shape", model.shape_text), ("classes", ", ".join(model.classes))]
        rows += [(part.replace("_", " "), f"{size:,} B") for part, size in model.memory.items()]
        return TextTable(model.name, (model.family, ""), tuple(rows), left=2), ()

    def predict(self, model: Any, flows: Any, **how: Any) -> Any:
        """Classify flows, wherever they are, as :func:`n3ic.predict` does.

        Args:
            model: a model of the family.
            flows: a table in memory, a file, a :class:`FlowTable`, or features by name.
            **how: other arguments of :func:`n3ic.predict`.
        """
        module, _, name = self.classified_by.partition(":")
        return getattr(import_module(module), name)(model, flows, **how)

    def trained_further(
        self,
        model: Any,
        bits: Bits,
        weights: NDArray[np.float64],
        label: NDArray[np.int64],
        class_weight: NDArray[np.float64],
        *,
        rounds: int,
        seed: int,
    ) -> Classifier:
        """A model of the same input and shape, whose numbers follow further flows.

        Args:
            model: a model of the family.
            bits: input bits of the flows, shape ``(rows, n_bits)``.
            weights: weight of each class for each flow, shape ``(rows, classes)``.
            label: class index of each flow, shape ``(rows,)``.
            class_weight: weight of a flow of each class, shape ``(classes,)``.
            rounds: the most rounds of a search over all parameters.
            seed: seed of all random choices.

        Raises:
            UsageError: models of this family are not trained further.
        """
        self.refuse_further_training(model)
        raise NotImplementedError

    def refuse_further_training(self, model: Any) -> None:
        """Check that models of this family are trained further; see :meth:`trained_further`.

        Args:
            model: a model of the family.

        Raises:
            UsageError: they are not; the message names the families whose models are.
        """
        if type(self).trained_further is not Family.trained_further:
            return
        every = (family(name) for name in plugins.names(plugins.FAMILIES))
        able = [f.name for f in every if type(f).trained_further is not Family.trained_further]
        raise UsageError(
            f"{model.name} is of family {model.family}, whose models are not trained further: "
            f"expected one of family {', '.join(able)}"
        )

    def random(self, rng: np.random.Generator) -> Classifier:
        """A small random model, for tests and benchmarks.

        Args:
            rng: the source of randomness.
        """
        raise NotImplementedError


def family(name: str) -> Family:
    """The family of that name.

    Args:
        name: its name in model files.

    Raises:
        UsageError: no family has that name; the message lists the known ones.
    """
    plug_in: Family = plugins.find(plugins.FAMILIES, name, Family)
    return plug_in


@lru_cache(maxsize=4)  # an export asks for the same graph several times
def graph_of(model: Classifier) -> Graph:
    """The graph of integer operations of a model.

    Args:
        model: a model of any family.

    Raises:
        ModelError: a value may exceed 64 bits, or a score 32 bits.
    """
    return family(model.family).graph(model)
