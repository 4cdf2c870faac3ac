# SPDX-License-Identifier: Apache-2.0
"""The target ``p4-netfpga``: P4 for SimpleSumeSwitch, the weights as constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from n3ic.exporters.p4.shared.decoding import check_popcount_masks
from n3ic.exporters.p4.shared.options import PACKET_OPTIONS, packet_layout, shunt_port
from n3ic.exporters.p4.shared.pipeline import (
    PAPER_SHAPE,
    MatchActionPipeline,
    masked_bits,
    shape_operations,
)
from n3ic.exporters.p4.shared.target import (
    PROGRAM,
    P4Target,
    compile_switch,
    program_figures,
    read_artefact,
)
from n3ic.exporters.p4_netfpga.decoding import decode_program
from n3ic.model.network import BinaryModel
from n3ic.options import Option, Options
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Problem
from n3ic.targets.figures import Figure, Report
from n3ic.targets.packets import INGRESS, PacketLayout
from n3ic.targets.shape_search import Shape, nearest_shape

NOT_COMPILED = (
    "Checked and run in n3ic's interpreter under the rules of the architecture; not compiled by "
    "P4-SDNet."
)


class P4NetfpgaExporter(P4Target):
    """SimpleSumeSwitch: the program is the network."""

    name: ClassVar[str] = "p4-netfpga"
    summary: ClassVar[str] = "P4_16 for the NetFPGA-SUME (SimpleSumeSwitch), weights as constants"
    budget: ClassVar[Mapping[str, str]] = {
        what: f"{{need:,.0f}} {what[:-1].upper()}s estimated, the device has {{limit:,.0f}}"
        for what in ("luts", "brams")
    }
    sharing: ClassVar[str] = "one after the other in one pipeline"
    crossed: ClassVar[int] = INGRESS << 1  # ports are one bit each: the host's interface is next
    graph_exporter: ClassVar[str] = "n3ic.exporters.p4_netfpga.graph.exporter:EXPORTER"
    options: ClassVar[tuple[Option, ...]] = (
        *PACKET_OPTIONS,
        shunt_port(255, "one bit per port; 8 is the host's nf1"),
    )

    def width_problems(self, model: BinaryModel) -> list[Problem]:
        """List layers wider than the paper's, and an input wider than a field."""
        limits = self.device.limits
        widest, field_bits = int(limits["layer_neurons"]), int(limits["field_bits"])
        problems = [
            Problem(
                f"layer {index} has {layer.n_outputs} neurons: the paper built layers of "
                f"{widest} and could not build 128 (P4-SDNet unrolls every neuron)",
                layer=index,
                # The number of classes is given, so no nearby shape would help.
                nearest=self.nearest(model.shape) if index < len(model.hidden) else "",
            )
            for index, layer in enumerate(model.layers)
            if layer.n_outputs > widest
        ]
        if model.input.n_bits > field_bits:
            text = f"{model.input.n_bits} input bits, a field has {field_bits} at most"
            problems.append(Problem(text, layer=0, nearest=self.nearest(model.shape)))
        return problems

    def nearest(self, shape: Shape) -> str:
        """Describe the nearest shape that fits, with layers no wider than the paper's."""
        limits = self.device.limits
        widest, field_bits = int(limits["layer_neurons"]), int(limits["field_bits"])
        hidden = (min(neurons, widest) for neurons in shape[1:-1])
        clipped = (min(shape[0], field_bits), *hidden, shape[-1])
        return nearest_shape(clipped, self.fits)

    def needs(self, shapes: Sequence[Shape], masked: int = 0) -> dict[str, float]:
        """Scale the paper's LUTs and BRAMs to the shapes, and add the reference NIC."""
        bit_operations = sum(shape_operations(shape) for shape in shapes) + masked
        return scaled_resources(bit_operations, self.device.paper)

    def texts(
        self, model: BinaryModel, network: MatchActionPipeline, packets: PacketLayout
    ) -> dict[str, str]:
        """Render the program and the README."""
        return {
            PROGRAM: self.render("n3ic_sume.p4.j2", model, network, packets, layers=network.layers),
            "README.md": self.render("README_sume.md.j2", model, network, packets),
        }

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode the network from the program's constants, and check the popcount masks."""
        source = read_artefact(directory / PROGRAM)
        check_popcount_masks(source, [(k, (k - 1).bit_length()) for k in model.shape[:-1]])
        return (decode_program(source, model, packet_layout(model, options).shunt_port),)

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report resources and latency, scaled from the paper's figures."""
        paper = self.device.paper
        source = read_artefact(directory / PROGRAM)
        needs = self.needs([model.shape], masked_bits(model))
        stages = sum((layer.n_inputs - 1).bit_length() for layer in model.layers)
        popcount = (stages, "ceil(log2 K) per layer")
        constants = "the model's bits, constants in the code without a memory of their own"
        figures = (
            Figure("memory.weights", model.weight_bytes, "byte", "measured", constants),
            Figure("memory.thresholds", model.threshold_bytes, "byte", "measured", constants),
            *program_figures(model, source, compile_switch(source, model), popcount),
            *resource_figures(needs, paper),
            self.latency(model),
        )
        return Report(
            figures,
            (
                NOT_COMPILED,
                f"The reference NIC alone takes {paper['reference_luts']:,.0f} LUTs and "
                f"{paper['reference_brams']:.0f} BRAMs.",
            ),
        )


def scaled_resources(bit_operations: float, paper: Mapping[str, float]) -> dict[str, float]:
    """Scale the paper's LUTs and BRAMs by bit operations, beside the reference NIC."""
    # Only the network scales: the reference NIC is in the paper's figures and stays one.
    ratio = bit_operations / shape_operations(PAPER_SHAPE)
    return {
        what: paper[f"reference_{what}"] + (paper[what] - paper[f"reference_{what}"]) * ratio
        for what in ("luts", "brams")
    }


def resource_figures(
    needs: Mapping[str, float], paper: Mapping[str, float]
) -> tuple[Figure, Figure]:
    """Report the LUTs and BRAMs of :func:`scaled_resources`."""
    how = (
        "the paper's figure of 256-32-16-2 less the reference NIC, scaled by bit operations, "
        "plus the reference NIC"
    )
    luts, brams = round(needs["luts"]), round(needs["brams"])
    return (
        Figure("resources.lut", luts, "LUT", "estimated", how, paper["luts"]),
        Figure("resources.bram", brams, "BRAM", "estimated", how, paper["brams"]),
    )


EXPORTER = P4NetfpgaExporter()
