# SPDX-License-Identifier: Apache-2.0
"""The base classes of both P4 targets: checks, templates, execution and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.p4.shared.options import packet_layout, packet_problems
from n3ic.exporters.p4.shared.pipeline import (
    PAPER_SHAPE,
    MatchActionPipeline,
    literal,
    masked_bits,
    operations,
    pipeline_of,
    shape_operations,
)
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel
from n3ic.options import Options
from n3ic.targets.base import Execution, Exporter, ModelT
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.colocation import CoLocatedNetwork, CoLocation, colocate, over_budget
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Figure
from n3ic.targets.packets import FIELD_BITS, PacketLayout
from n3ic.targets.shape_search import Shape
from n3ic.util.templates import render

if TYPE_CHECKING:
    from n3ic.exporters.p4.interpreter import Switch
    from n3ic.exporters.p4.run.execute import LoadedProgram

PROGRAM = "n3ic.p4"
_SHARED_TEMPLATES = Path(__file__).parent / "templates"


class P4Program(Exporter[ModelT]):
    """A target whose artefact is the P4_16 program ``n3ic.p4``, for models of any family.

    Attributes:
        crossed: port through which packets from ``INGRESS`` leave.
    """

    shunts: ClassVar[bool] = True
    verification: ClassVar[VerificationDefaults] = VerificationDefaults(
        vectors=2_000, quick_vectors=200
    )
    crossed: ClassVar[int]

    @abstractmethod
    def artefacts(self, model: ModelT, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts by file name."""

    @property
    def template_folders(self) -> tuple[Path, ...]:
        """Folders of the target's templates, in the order in which they are searched."""
        return (self.folder / "templates", _SHARED_TEMPLATES)

    def commands(self, directory: Path) -> str:
        """Table entries as ``simple_switch_CLI`` commands, to be loaded before any packet."""
        return ""

    def hidden(self, model: ModelT) -> tuple[int, ...]:
        """Number of bits of each hidden layer that the program keeps."""
        return ()

    def write(self, model: ModelT, options: Options, out: Path) -> None:
        """Write the program, its entries and the README."""
        packets = packet_layout(model, options)
        problems = packet_problems(model, packets)
        if problems:
            raise ExportError(str(problems[0]))
        for name, text in self.artefacts(model, packets).items():
            kind = "utf-8" if name.endswith(".md") else "ascii"  # a compiler reads the others
            (out / name).write_text(text, encoding=kind, newline="\n")

    def render(
        self, name: str, model: ModelT, network: object, packets: PacketLayout, **more: Any
    ) -> str:
        """Render a template of the target, which may include shared ones."""
        values = {
            "network": network,
            "layers": (),
            "packets": packets,
            "title": model.name,
            "shape": model.shape_text,
            "class_names": model.classes,
            "field_bits": FIELD_BITS.get(packets.field, 0),
        }
        return render(self.template_folders, name, {**values, **more}, {"literal": literal})

    def program(self, directory: Path, model: ModelT, options: Options) -> LoadedProgram:
        """Load the program of an export directory with its entries.

        Raises:
            VerifyError: an artefact cannot be read.
        """
        from n3ic.exporters.p4.run.execute import LoadedProgram

        return LoadedProgram(
            source=read_artefact(directory / PROGRAM),
            commands=self.commands(directory),
            packets=packet_layout(model, options),
            hidden=self.hidden(model),
            crossed=self.crossed,
        )

    def run(self, directory: Path, model: ModelT, options: Options, words: Words) -> Execution:
        """Send packets through the program in the interpreter and, if requested, on bmv2."""
        from n3ic.exporters.p4.run.execute import run_interpreter

        program = self.program(directory, model, options)
        outcome = run_interpreter(program, words)
        if not options.get("with-bmv2"):
            return outcome[0]
        from n3ic.exporters.p4.run.bmv2 import run_bmv2

        return run_bmv2(program, words, *outcome)

    def scaled_latency(self, bit_operations: float, remark: str = "") -> Figure:
        """Scale the paper's latency by bit operations; at least one clock."""
        paper_ns = 1000 * self.device.paper["latency_us"]
        scaled = paper_ns * bit_operations / shape_operations(PAPER_SHAPE)
        clock_ns = 1000 / self.device.paper["clock_mhz"]
        bound = f", but at least one clock of {clock_ns:g} ns" if scaled < clock_ns else ""
        return Figure(
            "latency",
            max(scaled, clock_ns),
            "ns",
            "estimated",
            "the paper's 2 us for 256-32-16-2 as P4 on a NetFPGA-SUME, scaled by bit operations"
            f"{bound}{remark}",
            paper_ns,
        )


class P4Target(P4Program[BinaryModel]):
    """A P4 target of binary networks.

    Attributes:
        budget: error text for each device limit, with the fields ``need`` and ``limit``.
        sharing: how several networks share the device, as a phrase for reports.
    """

    budget: ClassVar[Mapping[str, str]]
    sharing: ClassVar[str]

    @abstractmethod
    def width_problems(self, model: BinaryModel) -> list[Problem]:
        """List the layers that are too wide for the architecture."""

    @abstractmethod
    def nearest(self, shape: Shape) -> str:
        """Describe the nearest shape that fits; empty if no such shape is found."""

    @abstractmethod
    def needs(self, shapes: Sequence[Shape], masked: int = 0) -> dict[str, float]:
        """Resources that networks need, by the name of the device limit.

        Args:
            shapes: for each network, its input bits and the neurons of each layer.
            masked: number of weight bits in masked layers.
        """

    @abstractmethod
    def texts(
        self, model: BinaryModel, network: MatchActionPipeline, packets: PacketLayout
    ) -> dict[str, str]:
        """Render the texts of the artefacts of a network by file name."""

    def artefacts(self, model: BinaryModel, packets: PacketLayout) -> dict[str, str]:
        """Render the texts of the artefacts by file name."""
        return self.texts(model, pipeline_of(model, shunts=packets.shunts), packets)

    def hidden(self, model: BinaryModel) -> tuple[int, ...]:
        """Number of neurons of each hidden layer."""
        return tuple(layer.n_outputs for layer in model.hidden)

    def placements(self, model: BinaryModel) -> tuple[Placement, ...]:
        """Placements of the model in separate memories."""
        return ()

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check that packets hold the input, fields hold each layer, and the device holds all."""
        problems = packet_problems(model, packet_layout(model, options))
        problems += self.width_problems(model)
        if not problems:  # too wide a layer would show again, less clearly, in the budget
            problems += [
                Problem(
                    self.budget[what].format(need=need, limit=self.device.limits[what]),
                    nearest=self.nearest(model.shape),
                )
                for what, need in self.needs([model.shape], masked_bits(model)).items()
                if need > self.device.limits[what]
            ]
        return Fit(self.placements(model), tuple(problems))

    def fits(self, shape: Shape) -> bool:
        """Whether a network of this shape without masks fits the device."""
        limits = self.device.limits
        return all(need <= limits[what] for what, need in self.needs([shape]).items())

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models that run in turn in one pipeline."""
        needs = self.needs(
            [member.model.shape for member in members],
            sum(masked_bits(member.model) for member in members),
        )
        return colocate(
            members,
            self.sharing,
            sum,
            resources=needs,
            problems=over_budget(needs, self.device.limits),
        )

    def latency(self, model: BinaryModel, remark: str = "") -> Figure:
        """Scale the paper's latency to the shape by bit operations; at least one clock."""
        return self.scaled_latency(operations(model), remark)


def compile_switch(source: str, model: Classifier) -> Switch:
    """Compile the program of a network, without entries.

    Raises:
        VerifyError: a P4 compiler would refuse the program.
    """
    from n3ic.exporters.p4.interpreter import P4Error, Switch
    from n3ic.exporters.p4.interpreter.switch import FIELD_BITS as WIDEST

    try:
        # `check` reports fields that p4c refuses; a forced export must still be readable.
        return Switch(source, field_bits=max(WIDEST, *model.shape))
    except P4Error as error:
        raise VerifyError(f"{PROGRAM}: {error}") from error


def program_figures(
    model: BinaryModel, source: str, switch: Switch, popcount: tuple[int, str]
) -> tuple[Figure, ...]:
    """Report size, operations, PHV bits, popcount stages and tables of a program.

    Args:
        model: the network.
        source: P4 source.
        switch: the compiled program.
        popcount: number of its popcount stages, and how they are counted.
    """
    counted = "counted in n3ic's reading of the program; no P4 compiler ran"
    return (
        Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
        Figure(
            "operations",
            operations(model),
            "bit operation",
            "estimated",
            "formula in docs/how-to/p4.md: XNOR, popcount stages and signs",
        ),
        Figure("phv", switch.metadata_bits + switch.header_bits, "bit", "estimated", counted),
        Figure("stages.popcount", popcount[0], "stage", "estimated", popcount[1]),
        Figure("tables", len(switch.tables), "table", "estimated", counted),
    )


def read_artefact(path: Path) -> str:
    """Read the text of an artefact.

    Raises:
        VerifyError: the file is missing or not text.
    """
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"cannot read {path.name}: {error}") from error
