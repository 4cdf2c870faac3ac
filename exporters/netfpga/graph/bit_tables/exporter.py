# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as Verilog for the NetFPGA: entries and sums in logic, one input per clock.

The core has the ports of a binary network's core, so packet path and front end are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.netfpga import shell
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.frontend import options as front
from n3ic.exporters.netfpga.graph.bit_tables import sequential
from n3ic.exporters.netfpga.graph.bit_tables.decode_sequential import decode_sequential
from n3ic.exporters.netfpga.graph.bit_tables.decode_unrolled import decode
from n3ic.exporters.netfpga.graph.bit_tables.sequential import TablesLayout
from n3ic.exporters.netfpga.graph.bit_tables.unrolled import added, design, write
from n3ic.exporters.netfpga.packet import wrapper
from n3ic.exporters.netfpga.packet.decode import check_width, decode_cuts
from n3ic.exporters.netfpga.resources import Resources, estimated_latency
from n3ic.exporters.netfpga.tools import simulate
from n3ic.exporters.netfpga.unrolled import design as unrolled_design
from n3ic.exporters.netfpga.unrolled import size
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.passes import unchanged
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import VerificationDefaults
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Device, Fit, Problem
from n3ic.targets.figures import Figure, Report

_REPORT_VECTORS = 64
_FIGURES = ("lut", "lut_sites", "lut_sites.share", "ff", "carry", "bram36")


class NetfpgaTablesExporter(Exporter[Classifier]):
    """Look-up tables in the logic of the NetFPGA-SUME (Virtex-7 690T)."""

    name: ClassVar[str] = "netfpga"
    summary: ClassVar[str] = "Verilog for the NetFPGA-SUME: entries in logic, one input per clock"
    family: ClassVar[str] = ""
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "style",
            "unrolled: entries in logic, an inference per clock; "
            "sequential: entries in block RAM, rewritable",
            "unrolled",
            choices=("unrolled", "sequential"),
        ),
        Option(
            "modules",
            "tables looked up per clock",
            4,
            minimum=1,
            maximum=64,
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "shunting",
            "register for a shunting threshold: only if the model has one, or always, so that "
            "entries of models with one can be loaded later",
            "model",
            choices=("model", "all"),
            only_with=shell.SEQUENTIAL,
        ),
        *shell.UNROLLED_OPTIONS,
        *wrapper.OPTIONS,
        *front.OPTIONS,
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
        """Check that logic and memories fit the device beside the reference NIC."""
        if options["style"] == "sequential" and (problems := _unloadable(model)):
            return Fit(problems=problems)
        used = _estimate(model, options)
        return shell.fit_of(used, self.device.limits, _copies(options), ("LUTs", "BRAM36"))

    def write(self, model: Classifier, options: Options, out: Path) -> None:
        """Write Verilog and README."""
        layout = _layout(model, options)
        if layout is not None:
            ports = sequential.write(model, layout, out)
        else:
            outputs, pipeline = str(options["outputs"]), int(options["pipeline"])
            ports = write(model, out, outputs=outputs, pipeline=pipeline)
        sources = sorted(p.relative_to(out).as_posix() for p in (out / "rtl").glob("n3ic_*.v"))
        core = CorePorts(
            style=str(options["style"]),
            n_in=model.input.n_bits,
            n_classes=len(model.classes),
            trace_w=0,
            sources=tuple(sources),
            **ports,
        )
        if layout is None:
            shell.write_shell(model, options, core, out)
        else:
            addresses, lanes = layout.address_map, layout.lanes
            shell.write_shell(model, options, core, out, addresses=addresses, lanes=lanes)

    def decode(self, directory: Path, model: Classifier, options: Options) -> tuple[Decoded, ...]:
        """Compare scores, shunting threshold and input stage with the model's, for all inputs."""
        check_width(directory, options)
        if options["style"] == "sequential":
            parts = decode_sequential(directory, model)
            if options["input-stage"] == "features":
                _check_cuts(directory, model, options)
            return parts
        decoded = decode(directory, model)
        if decoded.shunt is not None and decoded.shunt != model.shunt:
            raise VerifyError(
                f"{decoded.artefact}: shunts margins below {decoded.shunt}, "
                f"the model below {model.shunt}"
            )
        if options["input-stage"] == "features":
            _check_cuts(directory, model, options)
        return (decoded,)

    def run(self, directory: Path, model: Classifier, options: Options, words: Words) -> Execution:
        """Simulate the core on packed inputs, then the parts around it under traffic."""
        simulation = simulate.run_core(directory, model, words, shell.simulator_of(options))
        clocks, interval = _clocks(model, options)
        if simulation.latency != clocks or simulation.interval not in (None, interval):
            raise VerifyError(
                f"n3ic_core: {simulation.latency} clocks, "
                f"an input every {simulation.interval} clocks; "
                f"expected {clocks} clocks, an input every {interval} clocks"
            )
        done = simulate.as_run(simulation, self.device.clock_mhz, {})
        layout = _layout(model, options)
        another = None if layout is None else partial(sequential.another, model, layout)
        return shell.run_shell(directory, model, options, words, simulation, done, another)

    def encode(
        self, directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
    ) -> Words | None:
        """Simulate the input stage on integer features; return None if packets hold input bits."""
        return shell.run_input_stage(directory, model, options, features)

    def report(self, model: Classifier, options: Options, directory: Path) -> Report:
        """Report simulated clocks, counted or synthesised logic, and the rate of inputs."""
        figures: list[Figure] = []
        notes = [
            "The core adds up look-up tables.",
            "Latency and rate are the core's own, in simulation; LUTs are of one core.",
        ]
        try:
            words = family(model.family).vectors(unchanged(model), _REPORT_VECTORS, 0)
            simulation = simulate.run_core(directory, model, words)
            figures += simulate.as_run(simulation, self.device.clock_mhz, {}).figures
        except MissingDependencyError as error:
            notes.append(f"Not simulated: {error}.")
        figures += self._resources(_estimate(model, options))
        if options["synth"]:
            figures += shell.synthesis_figures(directory, self._resources)
            notes.append(shell.ECP5)
        return Report(tuple(figures), tuple(notes))

    def estimate(self, model: Classifier, options: Options) -> tuple[Figure, ...]:
        """Estimate the logic of one core, and its latency."""
        clocks = estimated_latency(_clocks(model, options)[0], self.device.clock_mhz)
        of_cuts = shell.comparison_figures(model, options)
        return (*self._resources(_estimate(model, options)), *clocks, *of_cuts)

    def _resources(self, used: Resources, prefix: str = "") -> list[Figure]:
        """Figures of a core's resources, with their share of the device."""
        own = replace(used, carry=used.carry or 0)
        return shell.resource_figures(own, self.device.limits, _FIGURES, prefix=prefix)


def _layout(model: Classifier, options: Options) -> TablesLayout | None:
    """Sizes of a sequential executor; None for an unrolled one."""
    if options["style"] != "sequential":
        return None
    lanes, shunting = int(options["modules"]), options["shunting"] == "all"
    return sequential.plan(model, lanes, shunting=shunting)


def _unloadable(model: Classifier) -> tuple[Problem, ...]:
    """What memories of entries do not take."""
    own, problems = added(model), []
    if own.beyond:
        problems.append(Problem(own.beyond))
    if len(model.classes) == len(own.bias) == 2:
        problems.append(
            Problem(
                "the first of two classes is a sum of look-up tables: in block RAM two classes "
                "have one sum, and the first scores 0 (--style unrolled)"
            )
        )
    return tuple(problems)


def _clocks(model: Classifier, options: Options) -> tuple[int, int]:
    """Clocks from an input to its result, and from an input to the next."""
    layout = _layout(model, options)
    if layout is None:
        return _design(model, options).plan.depth, 1
    return layout.latency, layout.turns


def _design(model: Classifier, options: Options) -> unrolled_design.Design:
    return design(model, str(options["outputs"]), int(options["pipeline"]))


def _estimate(model: Classifier, options: Options) -> Resources:
    layout = _layout(model, options)
    if layout is None:
        return size.count(_design(model, options))
    return sequential.resources(model, layout)


def _copies(options: Options) -> int:
    """Number of cores side by side."""
    return int(options["executors"]) if options["front-end"] != "none" else 1


def _check_cuts(directory: Path, model: Classifier, options: Options) -> None:
    """Compare the cuts of the input stage with the model's."""
    all_cuts = decode_cuts(directory, model, options)
    for field, cuts in zip(model.input.fields, all_cuts, strict=True):
        if tuple(cuts) != tuple(field.cuts):
            raise VerifyError(f"{field.feature}: other cuts than the model's")


EXPORTER = NetfpgaTablesExporter()
