"""The target ``netfpga``: Verilog executors behind the packet path of a NetFPGA-SUME."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

from n3ic.exporters.netfpga import sequential, simulate, wrapper
from n3ic.exporters.netfpga.core import Core

from n3ic.bits import Words
from n3ic.errors import MissingDependencyError
from n3ic.export import Exporter, Figure, Fit, Option, Options, Placement, Problem, Report, Run
from n3ic.model import BinaryModel
from n3ic.vectors import verification_vectors

_PAPER_SHAPE = (256, 32, 16, 2)
_REPORT_VECTORS = 24


class NetfpgaExporter(Exporter):
    """Verilog for the NetFPGA-SUME (Virtex-7 690T): sequential or unrolled."""

    name: ClassVar[str] = "netfpga"
    summary: ClassVar[str] = "Verilog for the NetFPGA-SUME: weights in block RAM, or unrolled"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "style",
            "sequential: a row of weights a clock, rewritable; unrolled: an inference a clock",
            "sequential",
            choices=("sequential", "unrolled"),
        ),
        Option("modules", "sequential executors in parallel", 1, minimum=1, maximum=64),
        Option(
            "packing",
            "neurons of a memory row; balanced: the fewest that keep the rate; "
            "full: as many as fit 256 bits, for the least latency",
            "balanced",
            choices=("balanced", "full"),
        ),
        Option(
            "popcount",
            "compressors, or tables of 256 entries as in the paper",
            "compressors",
            choices=("compressors", "tables"),
        ),
        *wrapper.OPTIONS,
        Option("synth", "synthesise with Yosys for the report", False),
    )
    verify_options: ClassVar[tuple[Option, ...]] = (
        Option(
            "simulator",
            "what runs the Verilog; auto: Verilator where it is found",
            "auto",
            choices=("auto", "verilator", "icarus"),
        ),
    )
    vectors: ClassVar[int] = 5_000
    quick_vectors: ClassVar[int] = 500

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Whether memories and logic fit the device; see the base class."""
        layout = _plan(model, options)
        placements = []
        blocks = 0.0
        for layer in layout.layers:
            used = layer.bram36 * layout.modules
            blocks += used
            placements.append(
                Placement(
                    f"layer {layer.index}, {layer.rows} rows of {32 * layer.row_words} bits, "
                    f"two banks, {layout.modules} modules",
                    "bram" if layer.block else "distributed",
                    2 * layer.rows * 4 * layer.row_words * (1 + layer.masked) * layout.modules,
                )
            )
        room = self.device.limits["bram36"] - self.device.limits["reference_bram36"]
        problems = []
        if blocks > room:
            worst = max(layout.layers, key=lambda p: p.bram36)
            problems.append(
                Problem(
                    f"weights need {blocks:g} BRAM36, {room:g} are free beside the reference NIC; "
                    f"layer {worst.index} alone needs {worst.bram36 * layout.modules:g}",
                    layer=worst.index,
                    memory="bram",
                    missing_bytes=int((blocks - room) * 4608),
                )
            )
        return Fit(tuple(placements), tuple(problems))

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write Verilog, memory files and README."""
        ports = sequential.write(model, _plan(model, options), out, self.folder / "rtl")
        sources = sorted(p.relative_to(out).as_posix() for p in (out / "rtl").glob("n3ic_*.v"))
        core = Core(
            style=str(options["style"]),
            n_in=model.shape[0],
            n_classes=model.shape[-1],
            sources=tuple(sources),
            **ports,
        )
        core.save(out)
        wrapper.write(model, options, core, out, self.folder / "rtl")

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Run:
        """Simulate the Verilog on packed inputs; latency and rate are seen, not computed."""
        wanted = cast(simulate.Simulator, options.get("simulator", "auto"))
        seen = simulate.run_core(directory, model, words, wanted)
        return simulate.as_run(seen, self.device.clock_mhz, self._paper(model))

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Clocks from a short simulation, block RAM counted, logic estimated or synthesised."""
        figures: list[Figure] = []
        notes: list[str] = []
        words = verification_vectors(model, _REPORT_VECTORS)[-_REPORT_VECTORS:]
        try:
            figures += self.run(directory, model, options, words).figures
        except MissingDependencyError as error:
            notes.append(f"Not simulated: {error}.")
        figures += self._memory(model, options)
        return Report(tuple(figures), tuple(notes))

    def _paper(self, model: BinaryModel) -> Mapping[str, float]:
        """The paper's figures, where they are about this shape."""
        return self.device.paper if model.shape == _PAPER_SHAPE else {}

    def _memory(self, model: BinaryModel, options: Options) -> list[Figure]:
        layout = _plan(model, options)
        count = sum(p.bram36 for p in layout.layers) * layout.modules
        share = 100 * count / self.device.limits["bram36"]
        source = "count of the memories: 32 bits x 512 rows a half block, two banks"
        paper = self._paper(model)
        figures = [
            Figure("bram36", count, "BRAM36", "estimated", source, paper.get("bram36")),
            Figure("bram36.share", share, "%", "estimated", f"{source}; of 1,470"),
        ]
        if model.has_masks:
            masks = sum(p.bram36 / 2 for p in layout.layers if p.masked) * layout.modules
            figures.append(Figure("bram36.masks", masks, "BRAM36", "estimated", source))
        return figures


def _plan(model: BinaryModel, options: Mapping[str, Any]) -> sequential.Plan:
    return sequential.plan(
        model,
        packing=cast(sequential.Packing, options["packing"]),
        modules=int(options["modules"]),
        tables=options["popcount"] == "tables",
    )
