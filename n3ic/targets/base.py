# SPDX-License-Identifier: Apache-2.0
"""The interface between the core and a target.

A target is an :class:`Exporter` in ``n3ic.exporters``. The core writes the directory around its
artefacts, compares their results with the model's, and words the errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

from typing_extensions import TypeVar

from n3ic import plugins
from n3ic.errors import ExportError
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier, Inference
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options, OptionValue, parse_options
from n3ic.plugins import Plugin
from n3ic.targets.capabilities import (
    Benchmark,
    CardSimulation,
    Importer,
    SiteCount,
    TargetMeter,
    VerificationDefaults,
)
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit
from n3ic.targets.figures import Figure, Report

if TYPE_CHECKING:
    from n3ic.targets.colocation import CoLocatedNetwork, CoLocation


@dataclass(frozen=True, eq=False)
class Execution:
    """Results of an executor, and its observed speed.

    Attributes:
        inference: the scores and, if the executor reports them, the hidden bits.
        executor: name of the executor, such as ``gcc 12.2, AVX-512`` or ``p4 interpreter``.
        figures: figures of the run (clocks, nanoseconds).
    """

    inference: Inference
    executor: str
    figures: tuple[Figure, ...] = field(default=())


Command = Literal["export", "verify", "bench", "simulate"]
"""A command that takes options of a target."""
ModelT = TypeVar("ModelT", bound=Classifier, default=BinaryModel)


class Exporter(Plugin, ABC, Generic[ModelT]):
    """A target: how a model becomes a program, and how that program is run here.

    An entry point in the group ``n3ic.exporters`` names an instance. Subclasses keep a
    ``device.toml`` and their templates beside their module, and import no PyTorch. What not every
    target has is None here: see :mod:`n3ic.targets.capabilities`.

    A model of another family whose graph consists of binary layers is written as a binary network
    (:func:`~n3ic.model.layered.in_layers`), by the exporter of these.

    Attributes:
        name: name, as in ``--target NAME``.
        summary: one line for ``n3ic targets``.
        options: options of the export.
        verification: how its artefacts are verified.
        products: path patterns of files that building an export creates in its directory;
            ``verify`` neither compares nor runs them.
        shunts: whether the artefacts give *class or shunt* by the model's threshold. The result of
            :meth:`run` then holds verdicts. Other targets take only models without a threshold.
        family: the family of models that it writes; empty for an exporter of graphs.
        graph_exporter: the exporter of every other family's graph of integer operations
            (:meth:`~n3ic.model.family.Family.graph`), as ``module:name``; empty if there is none.
            It reads the graph and what all models share, and refuses operations that it does not
            write. Each of its options has the name of an option of this exporter, because the
            command line offers those.
        refusals: by family, why its models are not written, in words.
        simplifies: whether an export by default leaves out what makes no difference to the scores;
            False if a running device may load other weights of the trained shape.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    verification: ClassVar[VerificationDefaults] = VerificationDefaults()
    products: ClassVar[tuple[str, ...]] = ()
    shunts: ClassVar[bool] = False
    simplifies: ClassVar[bool] = True
    family: ClassVar[str] = BinaryModel.family
    graph_exporter: ClassVar[str] = ""
    refusals: ClassVar[Mapping[str, str]] = {}

    @property
    def meter(self) -> TargetMeter | None:
        """Its own meter; None if it has none."""
        return None

    @property
    def importer(self) -> Importer | None:
        """Its importer; None if networks cannot be imported from its format."""
        return None

    @property
    def benchmark(self) -> Benchmark | None:
        """Its benchmark; None if it has none."""
        return None

    @property
    def simulated_card(self) -> CardSimulation | None:
        """Its simulated card; None if it has none."""
        return None

    @property
    def site_count(self) -> SiteCount | None:
        """How it counts LUT sites; None if it has none."""
        return None

    def options_of(self, command: Command) -> tuple[Option, ...]:
        """The options that it adds to a command; empty if it lacks what the command needs."""
        if command == "export":
            return self.options
        if command == "verify":
            return self.verification.options
        capability = self.benchmark if command == "bench" else self.simulated_card
        return () if capability is None else capability.options

    @property
    def families(self) -> tuple[str, ...]:
        """The families of models that the target takes, its own first."""
        if not self.graph_exporter:
            return (self.family,)
        names = plugins.names(plugins.FAMILIES)
        return (self.family, *(n for n in names if n != self.family))

    def options_for(self, model: ModelT) -> tuple[Option, ...]:
        """The options of an export that a model has a use for; its manifest records no others."""
        return self.options

    def for_options(self, options: Options) -> Exporter[Any]:
        """The exporter for these options; itself, unless one of them chooses another form.

        Args:
            options: options of the export, by name.
        """
        return self

    def for_family(self, name: str) -> Exporter[Any]:
        """The exporter for models of a family on this target.

        Args:
            name: the family's name in model files.

        Raises:
            ExportError: the target takes no models of the family; the error says why.
        """
        if name == self.family:
            return self
        if not self.graph_exporter:
            why = self.refusals.get(name, f"it takes models of family {', '.join(self.families)}")
            raise ExportError(f"target {self.name} takes no model of family {name}: {why}")
        return _named(self.graph_exporter)

    def for_graphs(self) -> Exporter[Any]:
        """The exporter of graphs of integer operations.

        Raises:
            ExportError: the target writes no graphs.
        """
        if not self.graph_exporter:
            raise ExportError(f"target {self.name} writes no graphs of integer operations")
        return _named(self.graph_exporter)

    @cached_property
    def device(self) -> Device:
        """The device of the target."""
        return Device.from_toml(self.folder / "device.toml")

    def is_product(self, name: str) -> bool:
        """Whether building an export creates the file of that path; see ``products``."""
        return any(fnmatchcase(name, pattern) for pattern in self.products)

    def of_features(self, model: Classifier) -> bool:
        """Whether scores are the model's only for input bits that features can have.

        Verification then gives :meth:`run` no others.
        """
        return False

    def refuse_shunting(self, model: Classifier) -> None:
        """Check that the target does not ignore a model's shunting threshold.

        Raises:
            ExportError: the model shunts, but the target would decide every flow.
        """
        if model.shunt and not self.shunts:
            raise ExportError(
                f"the model shunts flows whose margin is below {model.shunt}, and target "
                f"{self.name} would decide them all: export a model whose threshold is 0"
            )

    @abstractmethod
    def check(self, model: ModelT, options: Options) -> Fit:
        """Check that the model fits the device; problems name layer, memory and missing bytes."""

    @abstractmethod
    def write(self, model: ModelT, options: Options, out: Path) -> None:
        """Write the artefacts into the empty directory ``out``.

        Also writes ``README.md`` there, which names the next command on the device. The core
        adds ``model.n3ic``, ``report.json``, ``report.md``, ``sbom.spdx.json`` and
        ``manifest.json``.

        Raises:
            ExportError: the model cannot be expressed for this target.
        """

    @abstractmethod
    def run(self, directory: Path, model: ModelT, options: Options, words: Words) -> Execution:
        """Run the artefacts in ``directory`` on packed inputs, without changing the directory.

        It must compute from the artefacts alone; ``model`` only gives shapes.

        Args:
            directory: an export directory of this target.
            model: the model that it was made from.
            options: options of the export and of the verification.
            words: packed inputs, uint32 array of shape ``(rows, n_words)``.

        Raises:
            MissingDependencyError: a tool that this needs is not installed; the error names it.
            VerifyError: the artefacts do not build or run.
        """

    @abstractmethod
    def report(self, model: ModelT, options: Options, directory: Path) -> Report:
        """Memory, resources, latency and throughput of the artefacts in ``directory``."""

    def estimate(self, model: ModelT, options: Options) -> tuple[Figure, ...]:
        """Estimate size and speed before anything is written, with the report's names.

        It is called for many models, so it runs no tool; empty if nothing can be estimated.
        """
        return ()

    def decode(self, directory: Path, model: ModelT, options: Options) -> tuple[Decoded, ...]:
        """Read weights, masks, thresholds, biases and cuts back from the artefacts.

        The reader shares no code with the writer. ``model`` only gives the shape, if the artefact
        does not hold it.

        Returns:
            The content of each artefact that holds weights; empty if none can be read back.

        Raises:
            VerifyError: an artefact is damaged or malformed.
        """
        return ()

    def encode(
        self,
        directory: Path,
        model: ModelT,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Run the artefacts' input stage on integer features; None if they have none.

        Raises:
            MissingDependencyError, VerifyError: as :meth:`run`.
        """
        return None

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Describe how several networks share the device; by default they run in turn.

        Args:
            members: one or more networks, each of which fits alone.
        """
        from n3ic.targets.colocation import colocate, over_budget, summed_memory

        memory = summed_memory(members)
        sizes = {m.name: m.bytes for m in self.device.memories}
        problems = over_budget(
            {f"bytes of {name}": used for name, used in memory.items()},
            {f"bytes of {name}": size for name, size in sizes.items()},
        )
        return colocate(members, "one after the other", sum, problems=problems)

    def parse_options(self, values: Mapping[str, OptionValue], *, verify: bool = False) -> Options:
        """Merge defaults and given options, and check them.

        Raises:
            UsageError: an option is unknown or has an invalid value.
        """
        known = (*self.options, *(self.verification.options if verify else ()))
        return parse_options(known, values, f"target {self.name}")


def _named(place: str) -> Exporter[Any]:
    """The exporter at ``module:name``."""
    module, _, name = place.partition(":")
    member: Exporter[Any] = getattr(import_module(module), name)
    return member


def exporter(target: str) -> Exporter[Any]:
    """Find a target by name.

    Raises:
        UsageError: no target has that name; the error lists the targets.
    """
    plug_in: Exporter[Any] = plugins.find("n3ic.exporters", target, Exporter)
    return plug_in
