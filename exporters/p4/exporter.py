"""The target ``p4``: a v1model program for bmv2, with the weights in its tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from n3ic.errors import ExportError, UsageError, VerifyError
from n3ic.exporters.p4.entries import (
    Entry,
    cli_commands,
    ids_of,
    network_entries,
    p4runtime_request,
    tutorial_runtime,
)
from n3ic.exporters.p4.network import (
    PAPER_SHAPE,
    Network,
    operations,
    plan,
    shape_operations,
    statements,
    tables,
)
from n3ic.exporters.p4.packets import FIELD_BITS, PacketFormat
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel, shape_text
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocation, Member, colocate, over_budget
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.identifiers import comment
from n3ic.targets.nearest import nearest_shape

if TYPE_CHECKING:
    from jinja2 import Environment

PROGRAM, COMMANDS = "n3ic.p4", "commands.txt"
P4RUNTIME, TUTORIAL = "p4runtime.json", "runtime.json"

COMMON_OPTIONS = (
    Option(
        "output",
        "what the result header tells",
        "both",
        choices=("class", "scores", "both"),
    ),
    Option(
        "ethertype", "EtherType of packets with n3ic headers", 0x2323, minimum=0x600, maximum=0xFFFF
    ),
    Option("input", "where the input bits come from", "header", choices=("header", "field")),
    Option(
        "field",
        "with --input field: the field that holds them",
        "ipv6.src_dst",
        choices=tuple(FIELD_BITS),
    ),
    Option(
        "udp-port",
        "with --field udp.payload: the destination port",
        0x2323,
        minimum=1,
        maximum=0xFFFF,
    ),
)


def packet_format(model: BinaryModel, options: Options) -> PacketFormat:
    """The packets that a model's program takes under some options."""
    return PacketFormat(
        input_bits=model.input.n_bits,
        classes=len(model.classes),
        output=str(options["output"]),
        field=str(options["field"]) if options["input"] == "field" else "",
        ethertype=int(options["ethertype"]),
        udp_port=int(options["udp-port"]),
    )


def check_packets(model: BinaryModel, packets: PacketFormat) -> list[Problem]:
    """Problems of the packet format: an input that its field cannot hold, a clash of types.

    Raises:
        UsageError: the EtherType is one that the program must tell from its own.
    """
    if packets.ethertype in (0x0800, 0x86DD):
        raise UsageError(f"--ethertype {packets.ethertype:#06x} is that of IP: choose another one")
    held = FIELD_BITS.get(packets.field, packets.input_bits)
    if packets.input_bits <= held:
        return []
    text = f"{packets.input_bits} input bits do not fit the {held} bits of {packets.field}"
    return [Problem(text, layer=0, nearest=shape_text((held, *model.shape[1:])))]


def environment(*folders: Path) -> Environment:
    """The templates in some folders."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(  # noqa: S701 - P4 and Markdown, not HTML
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def markdown_cell(text: str) -> str:
    """A name as a cell of a Markdown table: code, without what would end the cell."""
    return "`" + comment(text).replace("`", "'").replace("|", "/") + "`"


def context(model: BinaryModel, network: Network, packets: PacketFormat) -> dict[str, Any]:
    """What every template knows."""
    return {
        "network": network,
        "packets": packets,
        "title": comment(model.name),
        "shape": model.shape_text,
        "class_names": [markdown_cell(c) for c in model.classes],
        "field_bits": FIELD_BITS.get(packets.field, 0),
    }


class P4Exporter(Exporter):
    """v1model: the program is the shape, the tables are the network."""

    name: ClassVar[str] = "p4"
    summary: ClassVar[str] = "P4_16 for bmv2 (v1model), weights in tables changed at run time"
    options: ClassVar[tuple[Option, ...]] = COMMON_OPTIONS
    verify_options: ClassVar[tuple[Option, ...]] = (
        Option("with-bmv2", "compile with p4c and run on simple_switch (needs root)", False),
    )
    vectors: ClassVar[int] = 2_000
    quick_vectors: ClassVar[int] = 200

    @cached_property
    def templates(self) -> Environment:
        """The target's templates."""
        return environment(self.folder / "templates")

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Limits of p4c's fields and of programs that it compiles in minutes."""
        problems = check_packets(model, packet_format(model, options))
        limits = self.device.limits
        widest = int(limits["field_bits"])
        near = nearest_shape(model.shape, self._fits_shape, widest=widest)
        for index, layer in enumerate(model.layers):
            size = max(layer.n_inputs, layer.n_outputs if index < len(model.hidden) else 0)
            if size > widest:
                text = f"layer {index} needs a field of {size} bits, p4c takes {widest}"
                problems.append(Problem(text, layer=index, nearest=near))
        if len(model.classes) > limits["classes"]:
            text = f"{len(model.classes)} classes, at most {limits['classes']:.0f}"
            problems.append(Problem(text, layer=len(model.hidden)))
        if not problems and not self._fits_shape(model.shape):
            text = (
                f"{model.shape_text} has {statements(model.shape)} popcount statements, "
                f"{limits['statements']:.0f} are what p4c compiles in minutes"
            )
            problems.append(Problem(text, nearest=near))
        entries = network_entries(plan(model))
        return Fit(_placements(entries), tuple(problems))

    def _fits_shape(self, shape: tuple[int, ...]) -> bool:
        limits = self.device.limits
        return statements(shape) <= limits["statements"] and tables(shape) <= limits["tables"]

    def colocate(self, members: Sequence[Member]) -> CoLocation:
        """One after the other in one program, which p4c must compile in minutes."""
        shapes = [member.model.shape for member in members]
        resources: dict[str, float] = {
            "statements": sum(statements(shape) for shape in shapes),
            "tables": sum(tables(shape) for shape in shapes),
        }
        return colocate(
            members,
            "one after the other in one program",
            sum,
            resources=resources,
            problems=over_budget(resources, self.device.limits),
        )

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the program, its entries in three formats, and the README."""
        network, packets = plan(model), packet_format(model, options)
        problems = check_packets(model, packets)
        if problems:
            raise ExportError(str(problems[0]))
        entries = network_entries(network)
        ids = ids_of(entries)
        known = {**context(model, network, packets), "id": ids.annotation}
        texts = {
            PROGRAM: self.templates.get_template("n3ic.p4.j2").render(known),
            COMMANDS: cli_commands(entries),
            P4RUNTIME: p4runtime_request(entries, ids),
            TUTORIAL: tutorial_runtime(entries),
            "README.md": self.templates.get_template("README.md.j2").render(known),
        }
        for name, text in texts.items():
            (out / name).write_text(text, encoding="ascii", newline="\n")

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Execution the program on packets: in the interpreter, and on bmv2 where asked for."""
        from n3ic.exporters.p4.execute import Program, run_interpreter

        program = Program(
            source=read_artefact(directory / PROGRAM),
            commands=read_artefact(directory / COMMANDS),
            packets=packet_format(model, options),
            hidden=hidden_widths(model),
        )
        interpreted, expected = run_interpreter(program, words)
        if not options.get("with-bmv2"):
            return interpreted
        from n3ic.exporters.p4.bmv2 import run_bmv2

        return run_bmv2(program, words, interpreted, expected)

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Entries, operations, PHV bits and tables; no latency of bmv2 is claimed."""
        source = read_artefact(directory / PROGRAM)
        figures = (
            *memory_figures(read_artefact(directory / COMMANDS)),
            *program_figures(model, source),
            Figure(
                "latency",
                self.device.paper["latency_us"]
                * 1000
                * operations(model)
                / shape_operations(PAPER_SHAPE),
                "ns",
                "estimated",
                "the paper's 2 us of 256-32-16-2 as P4 on a NetFPGA-SUME, scaled by bit "
                "operations; bmv2 is a software switch and far slower",
                paper=self.device.paper["latency_us"] * 1000,
            ),
        )
        return Report(
            figures,
            (
                "bmv2 is for function, not for speed: measure latency on the device of use.",
                "Written for p4c and bmv2; what ran here is named as the executor of the "
                "verification.",
                "PHV bits are what the program's headers and metadata hold: "
                "as in the paper, the input is copied to as many fields as there are neurons.",
            ),
        )


def hidden_widths(model: BinaryModel) -> tuple[int, ...]:
    """Neurons of the hidden layers: all that running needs to know beside the artefacts."""
    return tuple(layer.n_outputs for layer in model.hidden)


def memory_figures(commands: str) -> tuple[Figure, ...]:
    """Bytes of action data by kind, and the entries, counted in the commands."""
    totals = {"weights": 0, "masks": 0, "thresholds": 0, "biases": 0}
    lines = [line.split() for line in commands.splitlines() if line.strip()]
    for _, table, _, *data in lines:
        kinds = {"weights": ("weights", "masks"), "threshold": ("thresholds",), "bias": ("biases",)}
        for kind, value in zip(kinds.get(table.rpartition("_")[2], ()), data, strict=False):
            totals[kind] += -(-(len(value) - len("0x")) // 2)
    source = "action data of commands.txt, each parameter in whole bytes"
    memory = (
        Figure(f"memory.{kind}", size, "byte", "measured", source)
        for kind, size in totals.items()
        if size or kind != "masks"
    )
    entries = Figure("table.entries", len(lines), "entry", "measured", "count of commands.txt")
    return (*memory, entries)


def program_figures(model: BinaryModel, source: str) -> tuple[Figure, ...]:
    """What the program's text tells: its size, PHV bits and pipeline steps."""
    from n3ic.exporters.p4.interpreter import Switch
    from n3ic.exporters.p4.interpreter.switch import FIELD_BITS

    switch = Switch(source, field_bits=max(FIELD_BITS, *model.shape))
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


def _placements(entries: tuple[Entry, ...]) -> tuple[Placement, ...]:
    size = sum(e.data_bytes for e in entries)
    return (Placement("weights, thresholds and biases", "table entries", size),)


def read_artefact(path: Path) -> str:
    """The text of an artefact.

    Raises:
        VerifyError: it is missing or no text.
    """
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise VerifyError(f"cannot read {path.name}: {error}") from error
