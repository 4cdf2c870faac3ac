# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations as Verilog: a generated pipeline, one input per clock.

The core has the ports of a binary network's core, so packet path and front end are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.netfpga import shell
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.frontend import options as front
from n3ic.exporters.netfpga.graph import size
from n3ic.exporters.netfpga.graph.choices import Trees
from n3ic.exporters.netfpga.graph.decode import decode_core
from n3ic.exporters.netfpga.graph.pipeline import WRITTEN, Pipeline, pipeline
from n3ic.exporters.netfpga.graph.verilog import class_width, core_text, latency, table_text
from n3ic.exporters.netfpga.packet import wrapper
from n3ic.exporters.netfpga.packet.decode import check_width, decode_cuts
from n3ic.exporters.netfpga.resources import Resources, estimated_latency
from n3ic.exporters.netfpga.tools import simulate
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import family, graph_of
from n3ic.model.graph.arithmetic import FixedPoint, Logarithms
from n3ic.model.graph.operations import Choose
from n3ic.model.passes import unchanged
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.decoded_graphs import compared
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit
from n3ic.targets.figures import Figure, Report
from n3ic.targets.operations import unwritten

FOLDER = Path(__file__).resolve().parent
_BLOCKS = {
    type(None): (),
    Logarithms: ("n3ic_ones.v", "n3ic_log_max.v"),
    FixedPoint: ("n3ic_ones.v", "n3ic_times.v", "n3ic_scale.v", "n3ic_round.v"),
}
_REPORT_VECTORS = 64
_FIGURES = ("lut", "lut_sites", "lut_sites.share", "ff", "bram36", "dsp")


class NetfpgaGraphExporter(Exporter[Classifier]):
    """A fully spatial pipeline for the NetFPGA-SUME (Virtex-7 690T)."""

    family: ClassVar[str] = ""
    name: ClassVar[str] = "netfpga"
    summary: ClassVar[str] = "Verilog for the NetFPGA-SUME: a pipeline, one input per clock"
    options: ClassVar[tuple[Option, ...]] = (
        *wrapper.OPTIONS,
        # There is only one style, so conditions on the style are dropped.
        *(
            replace(o, only_with=tuple(pair for pair in o.only_with if pair[0] != "style"))
            for o in front.OPTIONS
        ),
        shell.SYNTH,
    )
    verification: ClassVar[VerificationDefaults] = VerificationDefaults(
        shell.VERIFY_OPTIONS, vectors=5_000
    )
    shunts: ClassVar[bool] = True

    @cached_property
    def device(self) -> Device:
        """The device of binary networks: the same card."""
        return Device.from_toml(shell.FOLDER / "device.toml")

    def check(self, model: Classifier, options: Options) -> Fit:
        """Check that logic, registers and multipliers fit the device beside the reference NIC."""
        if refused := unwritten(graph_of(model), WRITTEN):
            return Fit(problems=refused)
        used = size.estimate(_plan(model))
        kinds = ("LUTs", "flip-flops", "DSP blocks")
        return shell.fit_of(used, self.device.limits, _copies(options), kinds)

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write Verilog and README."""
        plan = _plan(model)
        texts = {"n3ic_core.v": core_text(plan)}
        if isinstance(plan.graph.arithmetic, Logarithms):
            texts["n3ic_log_table.v"] = table_text(plan)
        for name in _blocks(plan):
            texts[name] = (FOLDER / "rtl" / name).read_text("ascii")
        (out / "rtl").mkdir(exist_ok=True)
        for name, text in texts.items():
            (out / "rtl" / name).write_text(text, encoding="ascii")
        ports = CorePorts(
            style="spatial",
            n_in=model.input.n_bits,
            n_classes=len(model.classes),
            class_w=class_width(len(model.classes)),
            score_w=plan.score_width,
            trace_w=0,
            write_port=False,
            wr_aw=0,
            wr_dw=0,
            sources=tuple(sorted(f"rtl/{name}" for name in texts)),
            shunts=model.shunt > 0,
        )
        shell.write_shell(model, options, ports, out)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Simulate the core on packed inputs, then the parts around it under traffic."""
        simulation = simulate.run_core(directory, model, words, shell.simulator_of(options))
        if simulation.latency != latency(_plan(model)) or simulation.interval not in (None, 1.0):
            raise VerifyError(
                f"n3ic_core: {simulation.latency} clocks, "
                f"an input every {simulation.interval} clocks; "
                f"expected {latency(_plan(model))} clocks, one input per clock"
            )
        done = simulate.as_run(simulation, self.device.clock_mhz, {})
        return shell.run_shell(directory, model, options, words, simulation, done)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Read the graph, the shunting threshold and the cuts back, and compare them."""
        check_width(directory, options)
        decoded = decode_core(directory, model)
        if options["input-stage"] == "features":
            decoded = replace(decoded, cuts=decode_cuts(directory, model, options))
        return (compared(model, decoded),)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Simulate the input stage on integer features; return None if packets hold input bits."""
        if options["input-stage"] == "features":
            decode_cuts(directory, model, options)
        return shell.run_input_stage(directory, model, options, features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report simulated clocks, counted or synthesised logic, and the rate of inputs."""
        plan, copies = _plan(model), _copies(options)
        figures: list[Figure] = []
        notes = [
            "The core is a pipeline of the graph's operations.",
            "Latency and rate are the core's own, in simulation; LUTs, flip-flops and DSP blocks "
            f"are those of one core{f' out of {copies}' if copies > 1 else ''}.",
        ]
        notes += _choices_note(plan)
        words = family(model.family).vectors(unchanged(model), _REPORT_VECTORS, 0)
        try:
            simulation = simulate.run_core(directory, model, words)
            figures += simulate.as_run(simulation, self.device.clock_mhz, {}).figures
        except MissingDependencyError as error:
            notes.append(f"Not simulated: {error}.")
        source = f"{copies} core{'s' if copies > 1 else ''} with one input per clock each"
        octets = copies * -(-wrapper.input_width(model, options) // 8)
        rate = 8e6 * octets * self.device.clock_mhz / 1e9
        figures += [
            Figure("input.bytes_per_clock", octets, "byte", "estimated", source),
            Figure("input.rate", rate, "Gb/s", "estimated", f"{source}, at this clock"),
        ]
        figures += self._resources(size.estimate(plan))
        if options["synth"]:
            figures += shell.synthesis_figures(directory, self._resources)
            notes.append(shell.ECP5)
        return Report(tuple(figures), tuple(notes))

    def estimate(self, model: Classifier, options: Options) -> tuple[Figure, ...]:
        """Estimate the logic of one core, and its latency."""
        plan = _plan(model)
        clocks = estimated_latency(latency(plan), self.device.clock_mhz)
        of_cuts = shell.comparison_figures(model, options)
        return (*self._resources(size.estimate(plan)), *clocks, *of_cuts)

    def _resources(self, used: Resources, prefix: str = "") -> list[Figure]:
        """Figures of a core's resources, with their share of the device."""
        return shell.resource_figures(used, self.device.limits, _FIGURES, prefix=prefix)


@lru_cache(maxsize=4)
def _plan(model: Classifier) -> Pipeline:
    return pipeline(model, graph_of(model))


def _blocks(plan: Pipeline) -> list[str]:
    """The files of the blocks that a core may use."""
    used = {"count": "n3ic_ones.v", "gate": "n3ic_gate.v"}
    needed = [name for kind, name in used.items() if plan.count(kind)]
    return sorted({"n3ic_best.v", *_BLOCKS[type(plan.graph.arithmetic)], *needed})


def _choices_note(plan: Pipeline) -> list[str]:
    """How the choices of a graph were written, in words; none if it has none."""
    trees, muxes = len(Trees(plan.graph).roots), plan.count("mux")
    choices = plan.graph.count(Choose)
    texts = []
    if trees:
        texts.append(
            f"{choices - muxes:,} choices between constants are {trees:,} trees: "
            f"{plan.count('gate'):,} look-up tables of one bit lead to tables of their values"
        )
    if muxes:
        texts.append(f"{muxes:,} choices between other values are multiplexers")
    return ["; ".join(texts) + "."] if texts else []


def _copies(options: Options) -> int:
    """Number of cores side by side."""
    return int(options["executors"]) if options["front-end"] != "none" else 1


EXPORTER = NetfpgaGraphExporter()
