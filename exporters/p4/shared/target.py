"""What a P4 target is: checks, templates, execution and figures of both architectures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.p4.shared.options import packet_layout, packet_problems
from n3ic.exporters.p4.shared.pipeline import (
    PAPER_SHAPE,
    Pipeline,
    literal,
    masked_bits,
    operations,
    pipeline_of,
    shape_operations,
)
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel
from n3ic.options import Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocation, Member, colocate, over_budget
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Figure
from n3ic.targets.identifiers import comment
from n3ic.targets.nearest import Shape
from n3ic.targets.packets import FIELD_BITS, PacketLayout
from n3ic.util.templates import render

if TYPE_CHECKING:
    from n3ic.exporters.p4.interpreter import Switch
    from n3ic.exporters.p4.run.execute import LoadedProgram

PROGRAM = "n3ic.p4"
_SHARED_TEMPLATES = Path(__file__).parent / "templates"


class P4Target(Exporter):
    """A target whose artefact is the P4_16 program ``n3ic.p4``.

    Attributes:
        budget: the error where a resource of the device does not suffice, by the name of the
            device's limit, with the fields ``need`` and ``limit``.
        sharing: how several networks share the device, in words.
        crossed: the port through which packets leave that came in at ``INGRESS``.
    """

    shunts: ClassVar[bool] = True
    vectors: ClassVar[int] = 2_000
    refusals: ClassVar[Mapping[str, str]] = {
        "sum-product-network": "a sum compares two values and looks their distance up, and each "
        "sum needs the one before: such a chain of dependent tables is longer than a pipeline"
    }
    quick_vectors: ClassVar[int] = 200
    budget: ClassVar[Mapping[str, str]]
    sharing: ClassVar[str]
    crossed: ClassVar[int]

    @abstractmethod
    def width_problems(self, model: BinaryModel) -> list[Problem]:
        """Layers that are too wide for the architecture."""

    @abstractmethod
    def nearest(self, shape: Shape) -> str:
        """The nearest shape that fits, in words; empty where none is found."""

    @abstractmethod
    def needs(self, shapes: Sequence[Shape], masked: int = 0) -> dict[str, float]:
        """What networks take of the device, by the name of its limit.

        Args:
            shapes: input bits, then the neurons of each layer, of every network.
            masked: weight bits in layers that have a connection mask.
        """

    @abstractmethod
    def artefacts(
        self, model: BinaryModel, network: Pipeline, packets: PacketLayout
    ) -> dict[str, str]:
        """The text of each artefact by its file name."""

    def commands(self, directory: Path) -> str:
        """Table entries to load before packets come, as ``simple_switch_CLI`` commands."""
        return ""

    def placements(self, model: BinaryModel) -> tuple[Placement, ...]:
        """What of the model lies in memories of its own."""
        return ()

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Whether the packets hold the input, each layer its fields, and the device all of it."""
        problems = packet_problems(model, packet_layout(model, options))
        problems += self.width_problems(model)
        if not problems:
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
        """Whether the device suffices for a network of this shape without masks."""
        limits = self.device.limits
        return all(need <= limits[what] for what, need in self.needs([shape]).items())

    def colocate(self, members: Sequence[Member]) -> CoLocation:
        """One after the other in one pipeline."""
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

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the program, what belongs to it, and the README."""
        packets = packet_layout(model, options)
        problems = packet_problems(model, packets)
        if problems:
            raise ExportError(str(problems[0]))
        network = pipeline_of(model, shunts=packets.shunts)
        for name, text in self.artefacts(model, network, packets).items():
            (out / name).write_text(text, encoding="ascii", newline="\n")

    def render(
        self, name: str, model: BinaryModel, network: Pipeline, packets: PacketLayout, **more: Any
    ) -> str:
        """One of the target's templates, which may include the shared ones."""
        values = {
            "network": network,
            "packets": packets,
            "title": comment(model.name),
            "shape": model.shape_text,
            "class_names": [_markdown_cell(c) for c in model.classes],
            "field_bits": FIELD_BITS.get(packets.field, 0),
        }
        folders = (self.folder / "templates", _SHARED_TEMPLATES)
        return render(folders, name, {**values, **more}, {"literal": literal})

    def program(self, directory: Path, model: BinaryModel, options: Options) -> LoadedProgram:
        """The program of an export directory with its entries.

        Raises:
            VerifyError: an artefact cannot be read.
        """
        from n3ic.exporters.p4.run.execute import LoadedProgram

        return LoadedProgram(
            source=read_artefact(directory / PROGRAM),
            commands=self.commands(directory),
            packets=packet_layout(model, options),
            hidden=tuple(layer.n_outputs for layer in model.hidden),
            crossed=self.crossed,
        )

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Send packets through the program in the interpreter, by its architecture's rules."""
        from n3ic.exporters.p4.run.execute import run_interpreter

        return run_interpreter(self.program(directory, model, options), words)[0]

    def latency(self, model: BinaryModel, remark: str = "") -> Figure:
        """The paper's latency of its shape, scaled by bit operations, and never below a clock."""
        paper_ns = 1000 * self.device.paper["latency_us"]
        scaled = paper_ns * operations(model) / shape_operations(PAPER_SHAPE)
        clock_ns = 1000 / self.device.paper["clock_mhz"]
        bound = f", which gives less than its clock of {clock_ns:g} ns" if scaled < clock_ns else ""
        return Figure(
            "latency",
            max(scaled, clock_ns),
            "ns",
            "estimated",
            "the paper's 2 us of 256-32-16-2 as P4 on a NetFPGA-SUME, scaled by bit operations"
            f"{bound}{remark}",
            paper_ns,
        )


def compiled(source: str, model: BinaryModel) -> Switch:
    """The program of a network, with no entries.

    Raises:
        VerifyError: a compiler would refuse it.
    """
    from n3ic.exporters.p4.interpreter import P4Error, Switch
    from n3ic.exporters.p4.interpreter.switch import FIELD_BITS as WIDEST

    try:
        # Fields that p4c refuses are the business of `check`: a forced export is read all the same.
        return Switch(source, field_bits=max(WIDEST, *model.shape))
    except P4Error as error:
        raise VerifyError(f"{PROGRAM}: {error}") from error


def program_figures(model: BinaryModel, source: str, switch: Switch) -> tuple[Figure, ...]:
    """What the program tells, as text and compiled: its size, PHV bits and pipeline steps."""
    stages = sum((layer.n_inputs - 1).bit_length() for layer in model.layers)
    told = "counted in the compiled program"
    return (
        Figure("code", len(source), "byte", "measured", "size of n3ic.p4"),
        Figure(
            "operations",
            operations(model),
            "bit operation",
            "estimated",
            "formula in docs/how-to/p4.md: XNOR, popcount stages and signs",
        ),
        Figure("phv", switch.metadata_bits + switch.header_bits, "bit", "measured", told),
        Figure("stages.popcount", stages, "stage", "measured", "ceil(log2 K) a layer"),
        Figure("tables", len(switch.tables), "table", "measured", told),
    )


def read_artefact(path: Path) -> str:
    """The text of an artefact.

    Raises:
        VerifyError: it is missing or no text.
    """
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"cannot read {path.name}: {error}") from error


def _markdown_cell(text: str) -> str:
    """A name as a cell of a Markdown table: code, without what would end the cell."""
    return "`" + comment(text).replace("`", "'").replace("|", "/") + "`"
