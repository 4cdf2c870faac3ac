"""What stands around a core of either family: packets or front end, README, runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from n3ic.exporters.netfpga.core import Core
from n3ic.exporters.netfpga.frontend import form as front
from n3ic.exporters.netfpga.frontend.verify import check_front
from n3ic.exporters.netfpga.packet import wrapper
from n3ic.exporters.netfpga.packet.card import MOST_ASKS, check_card
from n3ic.exporters.netfpga.sequential.layout import AddressMap, SequentialLayout
from n3ic.exporters.netfpga.tools import simulate, synth
from n3ic.model.bits import Words
from n3ic.model.classifier import Classifier
from n3ic.model.difference import first_difference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution
from n3ic.targets.figures import Figure
from n3ic.targets.identifiers import comment
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
SYNTH = Option("synth", "synthesise with Yosys for the report", False)
VERIFY_OPTIONS = (
    Option(
        "simulator",
        "what runs the Verilog; auto: the quicker one of those found",
        "auto",
        choices=("auto", "verilator", "icarus"),
    ),
)
ECP5 = "fmax.ecp5 is a Lattice ECP5's; the Virtex-7 has no open place and route."
_VECTORS_OF_A_PACKET = 50  # vectors of the core that a packet through the card stands beside


def write_around(
    model: Classifier,
    options: Options,
    core: Core,
    out: Path,
    *,
    addresses: AddressMap | None = None,
    masked: bool = False,
) -> None:
    """Write what stands around a core, and the README.

    Args:
        model: the model of the core.
        options: of the export.
        core: the core.
        out: the export directory, in which the core's Verilog lies.
        addresses: of the memories that are written while it runs; None of a core without.
        masked: whether every layer has a memory of connection masks.
    """
    core.save(out)
    behind_front = options["front-end"] != "none"
    (front if behind_front else wrapper).write(model, options, core, out)
    values = {
        "shape": model.shape_text,
        "name": comment(model.name),
        "core": core,
        "front": front.front_form(model, options) if behind_front else None,
        "form": None if behind_front else wrapper.packet_format(model, options),
        "side": options["input"] == "side" and not behind_front,
        "features": [comment(f) for f in model.input.features]
        if options["input-stage"] == "features"
        else [],
        "addr": addresses,
        "masked": masked,
        "threshold": model.shunt,
        "classes": [comment(c) for c in model.classes],
    }
    (out / "README.md").write_text(render(FOLDER, "README.md.j2", values))


def simulator_of(options: Options) -> simulate.Simulator:
    """The simulator that is asked for."""
    return cast(simulate.Simulator, options.get("simulator", "auto"))


def run_around(
    directory: Path,
    model: Classifier,
    options: Options,
    words: Words,
    seen: simulate.Observed,
    done: Execution,
    layout: SequentialLayout | None = None,
) -> Execution:
    """Simulate what stands around a core, after the core alone.

    Args:
        directory: the export directory.
        model: its model.
        options: of export and verification.
        words: packed inputs, as the core had them.
        seen: what the core alone showed.
        done: the same as an execution.
        layout: of a core that is written while it runs.

    Returns:
        ``done``, and what was run besides; as it was where the core is wrong already, since that
        names neuron and vector better than a packet would.

    Raises:
        MissingDependencyError: no simulator is installed.
        VerifyError: the Verilog does not build or run, or answers otherwise than the model.
    """
    if first_difference(model, seen.inference, words) is not None:
        return done
    if options["front-end"] != "none":
        around: object = check_front(directory, model, options, words)
    else:
        asks = min(MOST_ASKS, len(words) // _VECTORS_OF_A_PACKET)
        around = check_card(directory, model, options, layout, simulator_of(options), asks)
    return replace(done, executor=f"{done.executor}; {around}")


def run_input_stage(
    directory: Path, model: Classifier, options: Options, features: Mapping[str, Any]
) -> Words | None:
    """Simulate the input stage on integer features; None where packets hold bits."""
    if options["input-stage"] != "features":
        return None
    return simulate.run_features(directory, model, features, simulator_of(options))


def fmax_ecp5(directory: Path) -> Figure:
    """The clock of an export after synthesis, place and route for an ECP5."""
    clock = synth.fmax_ecp5(directory)
    return Figure("fmax.ecp5", clock.mhz, "MHz", "measured", clock.source)
