"""The target ``p4-netfpga``: P4 for SimpleSumeSwitch, the weights as constants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from n3ic.errors import ExportError
from n3ic.exporters.p4.exporter import (
    COMMON_OPTIONS,
    PROGRAM,
    check_packets,
    context,
    environment,
    hidden_widths,
    packet_format,
    program_figures,
    read_artefact,
)
from n3ic.exporters.p4.network import PAPER_SHAPE, operations, plan, shape_operations
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.colocation import CoLocation, Member, colocate, over_budget
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.nearest import nearest_shape

if TYPE_CHECKING:
    from jinja2 import Environment


class P4NetfpgaExporter(Exporter):
    """SimpleSumeSwitch: the program is the network."""

    name: ClassVar[str] = "p4-netfpga"
    summary: ClassVar[str] = "P4_16 for the NetFPGA-SUME (SimpleSumeSwitch), weights as constants"
    options: ClassVar[tuple[Option, ...]] = COMMON_OPTIONS
    vectors: ClassVar[int] = 2_000
    quick_vectors: ClassVar[int] = 200

    @cached_property
    def templates(self) -> Environment:
        """The target's templates, and those that it shares with ``p4``."""
        return environment(self.folder / "templates", self.folder.parent / "p4" / "templates")

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """The widest layer that the paper built, and the device's LUTs and BRAMs."""
        problems = check_packets(model, packet_format(model, options))
        limits = self.device.limits
        widest, field_bits = int(limits["layer_neurons"]), int(limits["field_bits"])
        clipped = (min(model.shape[0], field_bits), *(min(n, widest) for n in model.shape[1:-1]))
        near = nearest_shape((*clipped, model.shape[-1]), self._fits_device)
        for index, layer in enumerate(model.layers):
            if layer.n_outputs > widest:
                text = (
                    f"layer {index} has {layer.n_outputs} neurons: the paper built layers of "
                    f"{widest} and could not build 128 (P4-SDNet unrolls every neuron)"
                )
                fits = layer.n_outputs if index == len(model.hidden) else 0
                problems.append(Problem(text, layer=index, nearest="" if fits else near))
        if model.input.n_bits > field_bits:
            text = f"{model.input.n_bits} input bits, a field has {field_bits} at most"
            problems.append(Problem(text, layer=0, nearest=near))
        if not problems:
            for what, need in self._resources(operations(model)).items():
                if need > limits[what]:
                    text = (
                        f"{need:,.0f} {what[:-1].upper()}s estimated, the device has "
                        f"{limits[what]:,.0f}"
                    )
                    problems.append(Problem(text, memory=what, nearest=near))
        return Fit((), tuple(problems))

    def _fits_device(self, shape: tuple[int, ...]) -> bool:
        needs = self._resources(shape_operations(shape))
        return all(need <= self.device.limits[what] for what, need in needs.items())

    def _resources(self, bit_operations: int) -> dict[str, float]:
        paper = self.device.paper
        ratio = bit_operations / shape_operations(PAPER_SHAPE)
        return {
            what: paper[f"reference_{what}"] + (paper[what] - paper[f"reference_{what}"]) * ratio
            for what in ("luts", "brams")
        }

    def colocate(self, members: Sequence[Member]) -> CoLocation:
        """One after the other in one pipeline, beside the reference NIC."""
        resources = self._resources(sum(operations(member.model) for member in members))
        return colocate(
            members,
            "one after the other in one pipeline",
            sum,
            resources=resources,
            problems=over_budget(resources, self.device.limits),
        )

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the program and the README."""
        network, packets = plan(model), packet_format(model, options)
        problems = check_packets(model, packets)
        if problems:
            raise ExportError(str(problems[0]))
        known = context(model, network, packets)
        for name, template in ((PROGRAM, "n3ic_sume.p4.j2"), ("README.md", "README_sume.md.j2")):
            text = self.templates.get_template(template).render(known)
            (out / name).write_text(text, encoding="ascii", newline="\n")

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Execution the program on packets in the interpreter, under SimpleSumeSwitch's rules."""
        from n3ic.exporters.p4.execute import Program, run_interpreter

        program = Program(
            source=read_artefact(directory / PROGRAM),
            commands="",
            packets=packet_format(model, options),
            hidden=hidden_widths(model),
        )
        return run_interpreter(program, words)[0]

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Resources and latency scaled from the paper's figures of its shape."""
        paper = self.device.paper
        ratio = operations(model) / shape_operations(PAPER_SHAPE)
        needs = self._resources(operations(model))
        source = read_artefact(directory / PROGRAM)
        how = (
            "the paper's figure of 256-32-16-2 less the reference NIC, scaled by bit operations, "
            "plus the reference NIC"
        )
        figures = (
            Figure(
                "memory.weights",
                model.weight_bytes,
                "byte",
                "measured",
                "the model's bits, constants in the code without a memory of their own",
            ),
            Figure(
                "memory.thresholds",
                model.threshold_bytes,
                "byte",
                "measured",
                "the model's bits, constants in the code without a memory of their own",
            ),
            *program_figures(model, source),
            Figure("resources.lut", round(needs["luts"]), "LUT", "estimated", how, paper["luts"]),
            Figure(
                "resources.bram", round(needs["brams"]), "BRAM", "estimated", how, paper["brams"]
            ),
            Figure(
                "latency",
                1000 * paper["latency_us"] * ratio,
                "ns",
                "estimated",
                "the paper's 2 us of 256-32-16-2, scaled by bit operations",
                1000 * paper["latency_us"],
            ),
        )
        return Report(
            figures,
            (
                "Checked and run in n3ic's interpreter under the rules of the architecture; not "
                "compiled by P4-SDNet.",
                f"The reference NIC alone takes {paper['reference_luts']:,.0f} LUTs and "
                f"{paper['reference_brams']:.0f} BRAMs.",
            ),
        )
