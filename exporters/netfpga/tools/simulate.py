# SPDX-License-Identifier: Apache-2.0
"""Runs the generated Verilog: in Verilator if it is installed, else in Icarus Verilog."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.exporters.netfpga.packet.wrapper import features_number
from n3ic.model.bits import Bits, Words
from n3ic.model.classifier import SHUNT, Classifier, Inference
from n3ic.model.inputs import UINT32_MAX
from n3ic.model.network import BinaryModel
from n3ic.targets.base import Execution
from n3ic.targets.figures import Figure
from n3ic.util.process import run_tool

Simulator = Literal["auto", "verilator", "icarus"]
BENCH = Path(__file__).resolve().parent / "bench"
HARNESS = BENCH.with_name("running.h")  # C++ header of the simulated cards' programs
TAG_W = 16
ALONE = 8  # vectors that run one at a time, to measure the latency
SHORT_RUN = 3_000_000  # vectors x weights that Icarus computes faster than a C++ build takes
# For an unrolled core the limit counts vectors, as its build time grows with its logic.
SHORT_UNROLLED = 5_000
_SHORT_ROWS = 20_000  # the same limit for the input stage
# Verilator repeats a generate block 16 times as often at least; the widest input of a packet, which
# one block turns bit by bit, has 65,024 bits.
UNROLLED_LOOPS = 4096
BUILD_SECONDS = 1800
RUN_SECONDS = 3600


def choose_simulator(
    choice: Simulator = "auto", *, short: bool = False
) -> Literal["verilator", "icarus"]:
    """Choose a simulator.

    Args:
        choice: name of a simulator, or ``auto`` for Verilator if it is installed.
        short: whether ``auto`` prefers Icarus for a short run, as it needs no C++ compilation.

    Raises:
        MissingDependencyError: the named simulator, or with ``auto`` every simulator, is missing.
    """
    if choice == "auto" and short and shutil.which("iverilog"):
        return "icarus"
    has_verilator = shutil.which("verilator") is not None and shutil.which("g++") is not None
    if choice in ("auto", "verilator") and has_verilator:
        return "verilator"
    if choice in ("auto", "icarus") and shutil.which("iverilog"):
        return "icarus"
    name = "Verilator (with g++) or Icarus Verilog" if choice == "auto" else choice
    package = "iverilog" if choice == "icarus" else "verilator g++"
    raise MissingDependencyError(
        f"simulation needs {name}, which is not on the PATH: apt install {package}"
    )


@cache
def version(simulator: Literal["verilator", "icarus"]) -> str:
    """Return the name and version of a simulator."""
    command = ["verilator", "--version"] if simulator == "verilator" else ["iverilog", "-V"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    match = re.search(r"\d+\.\d+", text)
    name = "Verilator" if simulator == "verilator" else "Icarus Verilog"
    return f"{name} {match.group()}" if match else name


def call(
    command: Sequence[str], cwd: Path, seconds: int, what: str, keep: Sequence[str] = ()
) -> str:
    """Run a tool and return its output.

    Raises:
        VerifyError: the tool failed or timed out; the error holds the end of its output.
    """
    try:
        done = run_tool(command, seconds=seconds, cwd=cwd, keep=keep)
    except subprocess.TimeoutExpired as error:
        raise VerifyError(f"{what} took more than {seconds} s") from error
    output = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode != 0:
        raise VerifyError(f"{what} failed ({done.returncode}):\n{output[-2000:]}")
    return output


@dataclass(frozen=True, eq=False)
class SimulationRun:
    """Observations of a simulation.

    Attributes:
        inference: results of the design.
        latency: clocks from an input's offer to its result, with the design otherwise idle.
        interval: clocks between results with inputs back to back; None for too few vectors.
        simulator: name and version of the simulator.
    """

    inference: Inference
    latency: int
    interval: float | None
    simulator: str


def run_core(
    directory: Path, model: Classifier, words: Words, simulator: Simulator = "auto"
) -> SimulationRun:
    """Run the core of an export directory on packed inputs.

    Args:
        directory: an export directory, which is only read.
        model: the model, which gives the shapes.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
        simulator: the simulator, or ``auto`` for the fastest that is installed.

    Raises:
        MissingDependencyError: no simulator is installed.
        VerifyError: the design does not build, stops, or returns results out of order.
    """
    core = CorePorts.load(directory, model)
    chosen = choose_simulator(simulator, short=_short(core, model, len(words)))
    directory = directory.resolve()
    with tempfile.TemporaryDirectory(prefix="n3ic-sim-") as name:
        work = Path(name)
        vectors = work / "in.hex"
        vectors.write_text(hex_lines(words))
        binary = _build(directory, core, chosen, work)
        plus = [f"+in={vectors}", f"+out={work / 'out.txt'}", f"+alone={ALONE}"]
        cwd = memory_folder(directory, work)
        call([*binary, *plus], cwd, RUN_SECONDS, f"the simulation ({version(chosen)})")
        lines = (work / "out.txt").read_text().splitlines()
    return _parse(lines, core, model, len(words), version(chosen))


def verilate(
    top: str,
    sources: Sequence[str | Path],
    work: Path,
    *,
    prefix: str = "",
    parameters: Mapping[str, int] | None = None,
    defines: Sequence[str] = (),
    macros: Sequence[str] = (),
    waves: bool = False,
) -> Path:
    """Compile Verilog and its C++ driver to a program in ``work``.

    Args:
        top: name of the top module.
        sources: Verilog and C++ files.
        work: build folder.
        prefix: name of the module's C++ class; empty for ``V`` and the module's name.
        parameters: parameters of the top module.
        defines: macros of the Verilog.
        macros: macros of the C++.
        waves: whether the program can write its signals to an FST file.

    Raises:
        VerifyError: the program does not build.
    """
    name = prefix or f"V{top}"
    command = [
        "verilator", "--cc", "--exe", "--build", "-O3", "-Wno-fatal", "-Wno-lint",
        "--top-module", top, "--prefix", name, "--Mdir", str(work / "obj"),
        "--unroll-count", str(UNROLLED_LOOPS),
        *(("--trace-fst",) if waves else ()),
        # One unit: each file by itself would read Verilator's headers again, which takes as long.
        "-MAKEFLAGS", "OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O0 VM_PARALLEL_BUILDS=0",
        *(f"-D{define}" for define in defines),
        *(f"-G{key}={value}" for key, value in (parameters or {}).items()),
        "-CFLAGS", f"-I{HARNESS.parent}",
        *(part for macro in macros for part in ("-CFLAGS", f"-D{macro}")),
        *(str(source) for source in sources),
    ]  # fmt: skip
    call(command, work, BUILD_SECONDS, "the build with Verilator")
    return work / "obj" / name


def memory_folder(directory: Path, work: Path) -> Path:
    """Folder in which ``$readmemh`` finds the memory files of an export directory."""
    return directory / "mem" if (directory / "mem").is_dir() else work


def hex_lines(words: Words) -> str:
    """Format packed vectors for the test benches: one per line, the highest word first."""
    return "".join(" ".join(f"{int(w):08x}" for w in row[::-1]) + "\n" for row in words)


def _short(core: CorePorts, model: Classifier, count: int) -> bool:
    """Whether Icarus finishes the vectors before Verilator's C++ is compiled."""
    if core.style != "sequential" or not isinstance(model, BinaryModel):
        return count <= SHORT_UNROLLED
    return count * sum(layer.weights.size for layer in model.layers) <= SHORT_RUN


def run_features(
    directory: Path,
    model: Classifier,
    features: Mapping[str, Any],
    widths: Sequence[int],
    simulator: Simulator = "auto",
) -> Words:
    """Run the input stage of an export directory on integer features.

    Args:
        directory: an export directory with ``--input-stage features``.
        model: the model, which gives the features' names and the number of bits.
        features: integer arrays of shape ``(rows,)`` by name; clamped to 32 bits, as on the card.
        widths: width of each feature in bits; larger values are saturated.
        simulator: the simulator, or ``auto`` for the fastest that is installed.

    Returns:
        Packed inputs, uint32 array of shape ``(rows, n_words)``.

    Raises:
        MissingDependencyError: no simulator is installed.
        VerifyError: the input stage does not build or run.
    """
    columns = [
        np.clip(np.asarray(features[name], dtype=np.int64), 0, UINT32_MAX).tolist()
        for name in model.input.features
    ]
    width = sum(widths)
    numbers = [features_number(row, widths) for row in zip(*columns, strict=True)]
    # The bench reads each number as 32-bit hexadecimal words, the highest first.
    lines = [" ".join(textwrap.wrap(f"{n:0{8 * -(-width // 32)}x}", 8)) for n in numbers]
    chosen = choose_simulator(simulator, short=len(lines) <= _SHORT_ROWS)
    parameters = {"IN_W": width, "OUT_W": model.input.n_bits}
    with tempfile.TemporaryDirectory(prefix="n3ic-sim-") as name:
        work = Path(name)
        (work / "in.hex").write_text("".join(f"{line}\n" for line in lines))
        source = str(directory.resolve() / "rtl" / "n3ic_features.v")
        binary = compile_bench(work, chosen, "n3ic_features_tb", parameters, [], [source])
        plus = [f"+in={work / 'in.hex'}", f"+out={work / 'out.txt'}"]
        call([*binary, *plus], work, RUN_SECONDS, f"the simulation ({version(chosen)})")
        out = (work / "out.txt").read_text().split()
    if len(out) != len(lines):
        raise VerifyError(f"the input stage answered {len(out)} of {len(lines)} rows")
    octets = b"".join(int(text, 16).to_bytes(4 * model.input.n_words, "little") for text in out)
    return np.frombuffer(octets, dtype="<u4").astype(np.uint32).reshape(len(lines), -1)


def _build(
    directory: Path, core: CorePorts, simulator: Literal["verilator", "icarus"], work: Path
) -> list[str]:
    sources = [str(directory / s) for s in core.sources]
    parameters = {
        "N_IN": core.n_in,
        "N_CLASSES": core.n_classes,
        "CLASS_W": core.class_w,
        "SCORE_W": core.score_w,
        "TRACE_W": max(1, core.trace_w),
        "TAG_W": TAG_W,
        "WR_AW": max(1, core.wr_aw),
        "WR_DW": max(1, core.wr_dw),
    }
    defines = ["N3IC_TRACE", *(["N3IC_HIDDEN"] if core.trace_w else [])]
    defines += ["N3IC_WRITE_PORT"] if core.write_port else []
    defines += ["N3IC_SHUNTING"] if core.shunts else []
    return compile_bench(work, simulator, "n3ic_tb", parameters, defines, sources)


def compile_bench(
    work: Path,
    simulator: Literal["verilator", "icarus"],
    bench: str,
    parameters: Mapping[str, int],
    defines: Sequence[str],
    sources: Sequence[str],
) -> list[str]:
    """Compile a test bench of ``bench/`` and return the command that runs it."""
    files = [str(BENCH / f"{bench}.v"), *sources]
    if simulator == "verilator":
        binary = verilate(
            bench,
            [*files, BENCH / "clock.cpp"],
            work,
            prefix="Vbench",
            parameters=parameters,
            defines=defines,
        )
        return [str(binary)]
    command = [
        "iverilog", "-g2005", "-s", bench, "-o", str(work / "bench.vvp"),
        *(f"-D{d}" for d in defines),
        *(f"-P{bench}.{k}={v}" for k, v in parameters.items()), *files,
    ]  # fmt: skip
    call(command, work, BUILD_SECONDS, "the build with Icarus Verilog")
    return ["vvp", "-n", str(work / "bench.vvp")]


def _parse(
    lines: Sequence[str], core: CorePorts, model: Classifier, count: int, simulator: str
) -> SimulationRun:
    inputs_accepted = [line.split()[1:] for line in lines if line.startswith("i ")]
    results = [line.split()[1:] for line in lines if line.startswith("o ")]
    if len(inputs_accepted) != count or len(results) != count:
        raise VerifyError(
            f"{simulator}: of {count} vectors, the design took {len(inputs_accepted)} "
            f"and answered {len(results)}"
        )
    for i, fields in enumerate(results):
        if any(set(f) & set("xXzZ") for f in fields[1:]):
            raise VerifyError(f"vector {i}: the design answers unknown bits: {' '.join(fields)}")
        if int(fields[1], 16) != i % (1 << TAG_W):
            raise VerifyError(f"vector {i}: the result carries the tag {int(fields[1], 16)}")
    columns = [
        [int(f, 16) for f in column] for column in zip(*(r[2:] for r in results), strict=True)
    ]
    classes = np.array(columns[0], dtype=np.int64)
    trace = Inference(
        scores=_scores(columns[1], core),
        classes=classes,
        margins=np.array(columns[2], dtype=np.int32),
        hidden=_hidden(columns[4], model)
        if core.trace_w and isinstance(model, BinaryModel)
        else (),
        verdicts=np.where(columns[3], SHUNT, classes) if core.shunts else None,
    )
    out = np.array([int(r[0]) for r in results])
    offered = np.array([int(t[0]) for t in inputs_accepted])
    alone = min(ALONE, count)
    return SimulationRun(
        trace, int((out - offered)[:alone].max()), _interval(out[alone:], core.modules), simulator
    )


def _scores(packed: Sequence[int], core: CorePorts) -> NDArray[np.int32]:
    mask, half = (1 << core.score_w) - 1, 1 << (core.score_w - 1)
    rows = [
        [((value >> (core.score_w * c) & mask) ^ half) - half for c in range(core.n_classes)]
        for value in packed
    ]
    return np.array(rows, dtype=np.int32)


def _hidden(packed: Sequence[int], model: BinaryModel) -> tuple[Bits, ...]:
    total = sum(layer.n_outputs for layer in model.hidden)
    octets = b"".join(value.to_bytes(-(-total // 8), "little") for value in packed)
    table = np.frombuffer(octets, dtype=np.uint8).reshape(len(packed), -1)
    bits = np.unpackbits(table, axis=1, count=total, bitorder="little").astype(np.bool_)
    ends = np.cumsum([layer.n_outputs for layer in model.hidden])
    return tuple(np.split(bits, ends[:-1], axis=1))


def _interval(clocks: NDArray[np.int64], modules: int) -> float | None:
    """Mean number of clocks between results in the steady state.

    The first two rounds of the modules, and at least a fifth of the results, are skipped. The rest
    is counted in whole rounds, because the results of one round need not be evenly spaced.
    """
    steady = clocks[max(len(clocks) // 5, 2 * modules) :]
    results = (len(steady) - 1) // modules * modules
    if len(steady) < 8 or results == 0:
        return None
    return float((steady[results] - steady[0]) / results)


def as_run(simulation: SimulationRun, clock_mhz: float, paper: Mapping[str, float]) -> Execution:
    """Convert an observation to an execution, with its figures at the given clock."""
    source = f"{simulation.simulator}, {len(simulation.inference.classes)} vectors"
    at = f"{source}, at {clock_mhz:g} MHz"
    latency_ns = simulation.latency * 1000 / clock_mhz
    figures = [
        Figure("latency.clocks", simulation.latency, "clock", "simulated", source),
        Figure("latency", latency_ns, "ns", "simulated", at, paper.get("latency_ns")),
    ]
    if simulation.interval is not None:
        rate = clock_mhz * 1e6 / simulation.interval
        figures += [
            Figure("interval.clocks", simulation.interval, "clock", "simulated", source),
            Figure("throughput", rate, "inference/s", "simulated", at, paper.get("throughput")),
        ]
    return Execution(simulation.inference, simulation.simulator, tuple(figures))
