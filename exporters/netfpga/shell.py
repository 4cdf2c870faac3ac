# SPDX-License-Identifier: Apache-2.0
"""The parts around a core of any model family: packet path or front end, README, runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from n3ic.exporters.netfpga.block import packaging, registers, testbench
from n3ic.exporters.netfpga.block.ports import ports_of
from n3ic.exporters.netfpga.core import CorePorts, frame_sources
from n3ic.exporters.netfpga.packet import wrapper
from n3ic.exporters.netfpga.packet.nic_simulation import MOST_ASKS, Another, check_card
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools import simulate
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.difference import first_difference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Figure
from n3ic.util.templates import render

if TYPE_CHECKING:
    from n3ic.exporters.netfpga.frontend.parameters import FrontendParameters
    from n3ic.exporters.netfpga.sequential.layout import AddressMap

FOLDER = Path(__file__).resolve().parent
SEQUENTIAL, UNROLLED = ((("style", (style,)),) for style in ("sequential", "unrolled"))
UNROLLED_OPTIONS = (
    Option(
        "pipeline",
        "look-up tables in series between two registers",
        1,
        minimum=1,
        maximum=8,
        only_with=UNROLLED,
    ),
    Option(
        "outputs",
        "scores and margin, or the class alone for fewer LUTs (margins are then 0)",
        "scores",
        choices=("scores", "class"),
        only_with=UNROLLED,
    ),
)
SYNTH = Option("synth", "synthesise with Yosys for the report", False)
VERIFY_OPTIONS = (
    Option(
        "simulator",
        "program that runs the Verilog; auto: the faster one of those installed",
        "auto",
        choices=("auto", "verilator", "icarus"),
    ),
)
ECP5 = "fmax.ecp5 is the clock on a Lattice ECP5: no open place and route supports the Virtex-7."
_VECTORS_OF_A_PACKET = 50  # core vectors for each packet that is sent through the whole card


def resource_figures(
    used: Resources,
    limits: Mapping[str, float],
    names: Sequence[str],
    *,
    prefix: str = "",
    paper: Mapping[str, float] = MappingProxyType({}),
) -> list[Figure]:
    """Figures of a core's resources, with shares of the device's LUTs and block memories.

    Args:
        used: the resources.
        limits: those of the device.
        names: names of the figures to make, in their order.
        prefix: what is put before each name.
        paper: the paper's figures of the same network, by name of the limit.
    """
    every: dict[str, tuple[float | None, str, float | None]] = {
        "lut": (used.luts, "LUT", None),
        "lut_sites": (used.lut_sites, "LUT6", paper.get("lut")),
        "lut_sites.share": (100 * used.lut_sites / limits["lut"], "%", None),
        "ff": (used.ffs, "FF", None),
        "carry": (used.carry, "CARRY4", None),
        "bram36": (used.bram36, "BRAM36", paper.get("bram36")),
        "bram36.share": (100 * used.bram36 / limits["bram36"], "%", None),
        "dsp": (used.dsps, "DSP48E1", None),
    }
    return [
        Figure(f"{prefix}{name}", value, unit, used.kind, used.source, by_paper)
        for name, (value, unit, by_paper) in every.items()
        if name in names and value is not None
    ]


def synthesis_figures(
    directory: Path, figures_of: Callable[[Resources, str], list[Figure]]
) -> list[Figure]:
    """Measure a core with Yosys and, on an ECP5, with nextpnr; see ``ECP5``.

    Args:
        directory: the export directory.
        figures_of: makes figures of resources, given what is put before each name.

    Raises:
        MissingDependencyError: Yosys or nextpnr is not installed.
        VerifyError: one of them fails.
    """
    from n3ic.exporters.netfpga.tools import synth

    return [*figures_of(synth.synthesise(directory), "yosys."), fmax_ecp5(directory)]


def fit_of(used: Resources, limits: Mapping[str, float], copies: int, kinds: Sequence[str]) -> Fit:
    """Check that cores side by side fit the device beside the reference NIC.

    Args:
        used: estimated resources of a core.
        limits: those of the device.
        copies: number of cores.
        kinds: what is checked: ``LUTs``, ``flip-flops``, ``BRAM36``, ``DSP blocks``.
    """
    rows = {
        "LUTs": (used.lut_sites, limits["lut"] - limits["reference_lut"]),
        "flip-flops": (used.ffs, limits["ff"]),
        "BRAM36": (used.bram36, limits["bram36"] - limits["reference_bram36"]),
        "DSP blocks": (used.dsps, limits["dsp"]),
    }
    return Fit(
        problems=tuple(
            Problem(
                f"about {rows[kind][0] * copies:,.10g} {kind}, {rows[kind][1]:,.0f} are free "
                "beside the reference NIC"
            )
            for kind in kinds
            if rows[kind][0] * copies > rows[kind][1]
        )
    )


def comparison_figures(model: Classifier, options: Options) -> tuple[Figure, ...]:
    """Estimate the comparisons of features with cuts; empty if packets hold input bits."""
    if options["input-stage"] != "features":
        return ()
    from n3ic.exporters.netfpga.packet.comparison_size import comparisons

    used = comparisons(model.input, wrapper.feature_widths(model.input, options))
    rows = (("lut", used.luts, "LUT"), ("lut_sites", used.lut_sites, "LUT6"))
    return tuple(
        Figure(f"comparisons.{name}", value, unit, used.kind, used.source)
        for name, value, unit in rows
    )


def write_shell(
    model: Classifier,
    options: Options,
    core: CorePorts,
    out: Path,
    *,
    addresses: AddressMap | None = None,
    masked: bool = False,
    lanes: int = 0,
) -> None:
    """Write the parts around a core, and the README.

    Args:
        model: the model of the core.
        options: options of the export.
        core: the core's description.
        out: the export directory, which already holds the core's Verilog.
        addresses: address map of the write port; None for a core without one.
        masked: whether every layer has a memory for connection masks.
        lanes: look-up tables that a sequential core reads per clock; 0 for other models.
    """
    core.save(out)
    front: FrontendParameters | None = None
    form = None
    if options["front-end"] != "none":
        from n3ic.exporters.netfpga.frontend import parameters

        parameters.write(model, options, core, out)
        front = parameters.frontend_parameters(model, options)
    else:
        wrapper.write(model, options, core, out)
        form = wrapper.packet_format(model, options)
    ports = ports_of(model, options, front)
    shape, behind = model.shape_text, front is not None
    table = registers.write(core, model.digest, shape, ports, out, front=behind)
    frame_sources(out)
    testbench.write(model, core, out, scores=options.get("outputs") != "class")
    packaging.write(table, ports, shape, out)
    if (shell := options.get("shell")) == "opennic":
        from n3ic.exporters.netfpga.opennic import plugin as opennic

        opennic.write(shape, out)
    elif shell == "corundum":
        from n3ic.exporters.netfpga.corundum import plugin as corundum

        corundum.write(shape, out)
    widths = wrapper.feature_widths(model.input, options)
    values = {
        "shape": model.shape_text,
        "name": model.name,
        "core": core,
        "front": front,
        "form": form,
        "shell": options.get("shell", "reference"),
        "wide": form is not None and form.beat > wrapper.BEAT,
        "pipelined": core.style != "sequential",
        "side": options["input"] == "side" and front is None,
        "features": list(zip(model.input.features, widths, strict=True))
        if options["input-stage"] == "features"
        else [],
        "addr": addresses,
        "masked": masked,
        "entries": lanes,
        "threshold": model.shunt,
        "classes": model.classes,
    }
    (out / "README.md").write_text(render(FOLDER, "README.md.j2", values), "utf-8")


def simulator_of(options: Options) -> simulate.Simulator:
    """Return the simulator that the options name."""
    return cast(simulate.Simulator, options.get("simulator", "auto"))


def run_shell(
    directory: Path,
    model: Classifier,
    options: Options,
    words: Words,
    simulation: simulate.SimulationRun,
    done: Execution,
    another: Another | None = None,
) -> Execution:
    """Simulate the parts around a core, after the core alone; see :func:`check_card`.

    Returns:
        ``done`` with the names of the further runs added. If the core alone is already wrong,
        ``done`` is returned unchanged: it names neuron and vector, which a packet cannot.

    Raises:
        MissingDependencyError: no simulator is installed.
        VerifyError: the Verilog does not build or run, or its answers differ from the model's.
    """
    if first_difference(model, simulation.inference, words) is not None:
        return done
    if options["front-end"] != "none":
        from n3ic.exporters.netfpga.frontend.verify import check_front

        around: object = check_front(directory, model, options, words)
    else:
        asks = min(MOST_ASKS, len(words) // _VECTORS_OF_A_PACKET)
        around = check_card(directory, model, options, another, simulator_of(options), asks)
    return replace(done, executor=f"{done.executor}; {around}")


def run_input_stage(
    directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
) -> Words | None:
    """Simulate the input stage on integer features; return None if packets hold input bits."""
    if options["input-stage"] != "features":
        return None
    widths = wrapper.feature_widths(model.input, options)
    return simulate.run_features(directory, model, features, widths, simulator_of(options))


def fmax_ecp5(directory: Path) -> Figure:
    """Measure the clock of an export after synthesis, place and route for an ECP5."""
    from n3ic.exporters.netfpga.tools import synth

    clock = synth.fmax_ecp5(directory)
    return Figure("fmax.ecp5", clock.mhz, "MHz", "measured", clock.source)
