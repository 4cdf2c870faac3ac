# SPDX-License-Identifier: Apache-2.0
"""The registers of an export: the AXI4-Lite slave, and the map as others read it."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.netfpga.block.registers import MAP_VERSION, registers
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.model.classifier import Classifier
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

HERE = Path(__file__).parent
OPTIONS = [{"shunting": "all"}, {"style": "unrolled"}, {"front-end": "udp"}]


def model_of(seed: int, shunt: int = 0) -> Classifier:
    return random_model((40, 8, 4, 3), np.random.default_rng(seed), extremes=False).with_shunt(
        shunt
    )


@pytest.mark.skipif(not shutil.which("iverilog"), reason="needs iverilog")
@pytest.mark.parametrize(
    "options",
    [{"shunting": "all"}, pytest.param({"modules": "3"}, marks=pytest.mark.slow)],
    ids=["shunting", "modules"],
)
def test_the_slave_under_random_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    monkeypatch.syspath_prepend(str(HERE))  # where the simulator finds axil_bench
    for name, seed in (("a", 26), ("b", 28)):
        shunt = 3 * (name == "b" and "shunting" in options)
        model, out = model_of(seed, shunt), tmp_path / name
        export(model, "netfpga", out, options=options, verify=False, simplify=False)
    runner = get_runner("icarus")
    runner.build(
        sources=sorted((tmp_path / "a" / "rtl").glob("*.v")),
        hdl_toplevel="n3ic_axil_top",
        build_dir=tmp_path / "build",
        build_args=["-g2005"],
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel="n3ic_axil_top",
        test_module="axil_bench",
        build_dir=tmp_path / "build",
        test_dir=shutil.copytree(tmp_path / "a" / "mem", tmp_path / "run"),
        results_xml=str(tmp_path / "results.xml"),
        extra_env={
            "N3IC_EXPORT": str(tmp_path / "a"),
            "N3IC_OTHER": str(tmp_path / "b"),
        },
    )
    assert get_results(results) == (6, 0)


def maps(folder: Path) -> dict[str, dict[str, int]]:
    """Names and addresses of registers by the file that has them."""
    verilog = (folder / "rtl" / "n3ic_axil.v").read_text()
    header = (folder / "registers" / "n3ic_registers.h").read_text()
    page = (folder / "registers" / "registers.md").read_text()
    listings = {
        "verilog": re.findall(r"12'h(\w{3}): s_axil_rdata <= [^;]+;  // (\w+)", verilog),
        "header": re.findall(r"N3IC_REG_(?P<n>\w+) 0x(\w{3})u /\*", header),
        "page": re.findall(r"^\| `0x(\w{3})` \| `(\w+)` \|", page, re.MULTILINE),
    }
    listings["header"] = [(at, name.lower()) for name, at in listings["header"]]
    return {kind: {name: int(at, 16) for at, name in rows} for kind, rows in listings.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_form_of_the_map_is_the_same(tmp_path: Path, options: dict[str, str]) -> None:
    compiler = pytest.importorskip("systemrdl").RDLCompiler()
    model = model_of(26)
    export(model, "netfpga", tmp_path / "e", options=options, verify=False)
    core = CorePorts.load(tmp_path / "e")
    table = registers(core, model.digest, front="front-end" in options)
    expected = {r.name: r.offset for r in table}
    assert len(set(expected.values())) == len(table)
    assert maps(tmp_path / "e") == dict.fromkeys(("verilog", "header", "page"), expected)
    compiler.compile_file(str(tmp_path / "e" / "registers" / "n3ic.rdl"))
    compiled = {r.inst_name: r for r in compiler.elaborate().top.registers()}
    assert {name: r.absolute_address for name, r in compiled.items()} == expected
    access = {(True, False): "ro", (True, True): "rw", (False, True): "wo"}
    for r in table:
        node = compiled[r.name]
        assert access[node.has_sw_readable, node.has_sw_writable] == r.access
        for (high, low, field), node_field in zip(r.bits, node.fields(), strict=True):
            assert (node_field.high, node_field.low) == (high, low)
            assert (node_field.inst_name, node_field.get_property("reset")) == (field.name, r.reset)
    assert compiled["version"].size == 4 and MAP_VERSION == 0x10001


def test_the_header_is_c(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    model = model_of(26)
    export(model, "netfpga", tmp_path / "e", verify=False)
    source = tmp_path / "use.c"
    source.write_text(
        '#include "n3ic_registers.h"\n#include "n3ic_registers.h"\n'
        "int main(void) { return N3IC_REG_COMMIT == 0x18 && N3IC_REG_STATUS_BUSY == 1 ? 0 : 1; }\n"
    )
    folder, program = tmp_path / "e" / "registers", tmp_path / "use"
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run(["gcc", *strict, f"-I{folder}", "-o", program, source], check=True, timeout=60)
    assert subprocess.run([program], timeout=60, check=False).returncode == 0
