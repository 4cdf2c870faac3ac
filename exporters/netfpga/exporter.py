# SPDX-License-Identifier: Apache-2.0
"""The target ``netfpga``: Verilog executors behind the packet path of a NetFPGA-SUME."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from n3ic.errors import MissingDependencyError, N3icError, UsageError
from n3ic.exporters.netfpga import shell
from n3ic.exporters.netfpga.core import SCORE_BITS, CorePorts
from n3ic.exporters.netfpga.frontend import options as front
from n3ic.exporters.netfpga.packet import wrapper
from n3ic.exporters.netfpga.packet.decode import check_width, decode_cuts
from n3ic.exporters.netfpga.resources import Resources, estimated_latency
from n3ic.exporters.netfpga.tools import simulate
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel
from n3ic.model.verification_vectors import verification_vectors
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import CardSimulation, SiteCount, VerificationDefaults
from n3ic.targets.colocation import (
    CoLocatedNetwork,
    CoLocation,
    colocate,
    over_budget,
    summed_figures,
)
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Placement, Problem
from n3ic.targets.figures import Figure, Report

_PAPER_SHAPE = (256, 32, 16, 2)
_REPORT_VECTORS = 24
_FIGURES = ("lut", "lut_sites", "lut_sites.share", "ff", "carry", "bram36", "bram36.share")
_REPORT_ROUNDS = 6  # vectors per module in the report's simulation


_SIMULATE_OPTIONS = (
    Option("tap", "name of the card's network device", "n3ic0"),
    Option("peer", "name of the device that it is plugged into", "n3ic1"),
    Option(
        "netns",
        "network namespace to make for the second device, or for the device of a front end; "
        "none if empty",
        "",
    ),
    Option("address", "IPv4 address of a card with a front end", front.ADDRESS),
    Option(
        "waves",
        "FST file for all signals of a card with a front end, for GTKWave or Surfer; none if empty",
        "",
    ),
    Option(
        "scaffold",
        "instead of running the card, write this folder: a kernel of your own in the network's "
        "place behind its front end, with bench and test",
        "",
    ),
)


class NetfpgaExporter(Exporter):
    """Verilog for the NetFPGA-SUME (Virtex-7 690T): sequential or unrolled."""

    name: ClassVar[str] = "netfpga"
    summary: ClassVar[str] = "Verilog for the NetFPGA-SUME: weights in block RAM, or unrolled"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "style",
            "sequential: a row of weights per clock, rewritable; unrolled: an inference per clock",
            "sequential",
            choices=("sequential", "unrolled"),
        ),
        Option(
            "modules",
            "executors in parallel",
            1,
            minimum=1,
            maximum=64,
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "packing",
            "neurons per memory row; balanced: the fewest that keep the rate; "
            "full: as many as fit --row-bits, for the least latency",
            "balanced",
            choices=("balanced", "full"),
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "row-bits",
            "most bits of a row, which takes a clock: shorter rows take fewer LUTs and more clocks",
            "256",
            choices=("256", "128", "64"),
            only_with=shell.SEQUENTIAL,
            newer=True,
        ),
        Option(
            "popcount",
            "compressors, or tables of 256 entries as in the paper",
            "compressors",
            choices=("compressors", "tables"),
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "score-bits",
            "bits of a score, raised if a popcount has more than nine bits; models that are "
            "loaded later must fit them",
            SCORE_BITS,
            minimum=2,
            maximum=32,
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "masks",
            "memory for connection masks: for the layers that the model masks, or for all, "
            "so that masked models can be loaded later",
            "model",
            choices=("model", "all"),
            only_with=shell.SEQUENTIAL,
        ),
        Option(
            "shunting",
            "register for a shunting threshold: only if the model has one, or always, so that "
            "models with one can be loaded later",
            "model",
            choices=("model", "all"),
            only_with=shell.SEQUENTIAL,
            newer=True,
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
    graph_exporter: ClassVar[str] = "n3ic.exporters.netfpga.graph.kernels:EXPORTER"

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check that memories and logic fit the device; see the base class."""
        placements: list[Placement] = []
        problems: list[Problem] = []
        limits = self.device.limits
        if options["style"] == "sequential":
            from n3ic.exporters.netfpga.sequential import layout, size

            room = limits["bram36"] - limits["reference_bram36"]
            placements, problems = size.check(model, layout.plan_with(model, options), room)
        sites = _estimate(model, options).lut_sites
        room = limits["lut"] - limits["reference_lut"]
        if sites > room:
            problems.append(
                Problem(f"about {sites:,} LUTs, {room:,.0f} are free beside the reference NIC")
            )
        return Fit(tuple(placements), tuple(problems))

    def colocate(self, members: Sequence[CoLocatedNetwork]) -> CoLocation:
        """Co-locate models side by side, each on its own cores, beside the reference NIC."""
        limits = self.device.limits
        resources = summed_figures(members, ("lut_sites", "ff", "bram36"))
        room = {
            "lut_sites": limits["lut"] - limits["reference_lut"],
            "ff": limits["ff"],
            "bram36": limits["bram36"] - limits["reference_bram36"],
        }
        return colocate(
            members,
            "side by side, each on a core of its own",
            max,
            resources=resources,
            problems=over_budget(resources, room),
        )

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write Verilog, memory files and README."""
        addresses, masked = None, False
        if options["style"] == "sequential":
            from n3ic.exporters.netfpga.sequential import layout, write

            plan = layout.plan_with(model, options)
            ports = write.write(model, plan, out)
            addresses, masked = plan.address_map, all(p.masked for p in plan.layers)
        else:
            from n3ic.exporters.netfpga.unrolled.write import write as write_unrolled

            ports = write_unrolled(model, out, **_unrolled(options))
        sources = sorted(p.relative_to(out).as_posix() for p in (out / "rtl").glob("n3ic_*.v"))
        core = CorePorts(
            style=str(options["style"]),
            n_in=model.shape[0],
            n_classes=model.shape[-1],
            sources=tuple(sources),
            **ports,
        )
        shell.write_shell(model, options, core, out, addresses=addresses, masked=masked)

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Simulate the core on packed inputs, then the whole card under traffic.

        Latency and rate are observed in the simulation, not computed.
        """
        simulation = simulate.run_core(directory, model, words, shell.simulator_of(options))
        done = simulate.as_run(simulation, self.device.clock_mhz, self._paper(model))
        another = None
        if options["style"] == "sequential":
            from n3ic.exporters.netfpga.sequential import layout, memory_contents

            plan = layout.plan_with(model, options)
            another = partial(memory_contents.another, model, plan)
        return shell.run_shell(directory, model, options, words, simulation, done, another)

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Read back the weights, the shunting threshold and the input stage; see the base class."""
        check_width(directory, options)
        if options["style"] == "sequential":
            from n3ic.exporters.netfpga.sequential.decode import decode

            decoded = decode(directory)
        else:
            from n3ic.exporters.netfpga.unrolled.decode import decode as decode_unrolled

            decoded = decode_unrolled(directory, model)
        if options["input-stage"] == "features" and decoded:
            cuts = decode_cuts(directory, model, options)
            decoded = (*decoded[:-1], replace(decoded[-1], cuts=cuts))
        return decoded

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report simulated clocks, counted block RAM, and estimated or synthesised logic."""
        figures: list[Figure] = []
        notes = [
            "The paper measured latency and rate on the card at 200 MHz, through the packet path; "
            "those here are the core's own, in simulation. The paper's LUTs and BRAM are what the "
            "module with its packet path adds to the reference NIC (Table 2).",
        ]
        count = _REPORT_VECTORS + _REPORT_ROUNDS * CorePorts.load(directory, model).modules
        words = verification_vectors(model, count)[-count:]
        try:
            simulation = simulate.run_core(directory, model, words)
            figures += simulate.as_run(
                simulation, self.device.clock_mhz, self._paper(model)
            ).figures
        except MissingDependencyError as error:
            notes.append(f"Not simulated: {error}.")
        resources = _estimate(model, options)
        figures += self._resources(model, resources)
        if options["synth"]:
            figures += shell.synthesis_figures(directory, partial(self._resources, model))
            notes.append(shell.ECP5)
        return Report(tuple(figures), tuple(notes))

    def estimate(self, model: BinaryModel, options: Options) -> tuple[Figure, ...]:
        """Estimate logic and block RAM, and the latency of an unrolled core from its stages."""
        figures = self._resources(model, _estimate(model, options))
        if options["style"] == "unrolled":
            from n3ic.exporters.netfpga.unrolled import design

            clocks = design.latency(model, **_unrolled(options))
            figures += estimated_latency(clocks, self.device.clock_mhz)
        return (*figures, *shell.comparison_figures(model, options))

    def encode(
        self,
        directory: Path,
        model: BinaryModel,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Simulate the input stage on integer features; return None if packets hold input bits."""
        return shell.run_input_stage(directory, model, options, features)

    @property
    def simulated_card(self) -> CardSimulation:
        """A virtual card between two TAP devices."""
        return CardSimulation(_simulate, _SIMULATE_OPTIONS)

    @property
    def site_count(self) -> SiteCount:
        """The sites of an unrolled core with class output."""
        return SiteCount(
            {"style": "unrolled", "outputs": "class"},
            {"input-stage": "features", "feature-bits": "own"},
        )

    def _paper(self, model: BinaryModel) -> Mapping[str, float]:
        """The paper's figures if the model has the paper's shape, else an empty mapping."""
        return self.device.paper if model.shape == _PAPER_SHAPE else {}

    def _resources(self, model: BinaryModel, used: Resources, prefix: str = "") -> list[Figure]:
        """Figures of a core's resources, with their share of the device."""
        paper, limits = self._paper(model), self.device.limits
        return shell.resource_figures(used, limits, _FIGURES, prefix=prefix, paper=paper)


def _simulate(directory: Path, options: Options, say: Callable[[str], None]) -> None:
    """Run a virtual card between two TAP devices until Ctrl-C; see :mod:`.packet.tap`.

    Args:
        directory: an export directory of this target.
        options: ``tap`` and ``peer``, names of the two devices; ``netns``, a namespace to create
            for the second device. A card with a front end has one device, ``tap``: ``netns`` then
            holds that device, ``address`` is the card's address, ``waves`` an FST file for its
            signals, and ``scaffold`` a folder to write instead, see :mod:`.frontend.scaffold`.
        say: called with a line of text when the card is ready, and with its counters at the end.
    """
    from n3ic.exporters.netfpga.frontend.tap import has_front, serve, waves_file
    from n3ic.exporters.netfpga.packet import tap

    chosen = {name: str(value) for name, value in options.items()}
    address, waves, scaffold = (chosen.pop(name) for name in ("address", "waves", "scaffold"))
    if scaffold and has_front(directory):
        from n3ic.exporters.netfpga.frontend.scaffold import write_scaffold

        write_scaffold(directory, Path(scaffold))
        say(f"wrote {scaffold}: python {Path(scaffold) / 'test_kernel.py'} runs its test")
        return
    if scaffold or (waves and not has_front(directory)):
        name = "--scaffold" if scaffold else "--waves"
        raise UsageError(f"{name} needs a card with a front end: export it with --front-end tcp")
    say("building the card, which takes a minute ...")
    if has_front(directory):
        place = waves_file(waves) if waves else None
        tap_name, netns = chosen["tap"], chosen["netns"]
        serve(directory, tap=tap_name, netns=netns, address=address, waves=place, say=say)
        return
    counters = tap.serve(directory, **chosen, ready=say)
    if counters is None:
        raise N3icError("the simulated card ended unexpectedly")
    say(
        f"{chosen['tap']}: {counters.tap_in} frames in, {counters.tap_out} out; "
        f"{chosen['peer']}: {counters.peer_in} in, {counters.peer_out} out; "
        f"{counters.dropped} dropped; {counters.clocks:,} clocks simulated"
    )


def _estimate(model: BinaryModel, options: Options) -> Resources:
    """Estimated resources of a core, without synthesis."""
    if options["style"] == "sequential":
        from n3ic.exporters.netfpga.sequential import layout, size

        return size.resources(layout.plan_with(model, options))
    from n3ic.exporters.netfpga.unrolled.size import estimate

    return estimate(model, **_unrolled(options))


def _unrolled(options: Options) -> dict[str, Any]:
    """The options of an unrolled core."""
    return {"pipeline": int(options["pipeline"]), "outputs": str(options["outputs"])}


EXPORTER = NetfpgaExporter()
