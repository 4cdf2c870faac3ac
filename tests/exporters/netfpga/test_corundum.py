# SPDX-License-Identifier: Apache-2.0
"""The application block of Corundum: packets with results come back from it, whatever pauses."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exporters.netfpga.shell_bench import RUNS, beats, lint, packets, simulate, written

BENCH = Path(__file__).with_name("corundum_tb.v")
OPTIONS = {"shell": "corundum"}
SIDE = 97 + 8 + 1  # bits of tuser (time stamp and error), tdest and tid
DRIVEN = ("clk", "rst", "s_axil_app_ctrl_", "s_axis_if_rx_", "m_axis_if_rx_")  # by the bench


def header_of(out: Path) -> list[tuple[str, str, str]]:
    """Direction, range and name of each port of the block."""
    text = (out / "corundum" / "rtl" / "mqnic_app_block.v").read_text()
    return re.findall(r"^ +(input|output) +wire (\[.+:0\] )?(\w+),?$", text, re.MULTILINE)


def write_ports(out: Path) -> None:
    """Write what the bench includes: noise on every input that it does not drive, and checks."""
    declared, connected, noisy, checks = [], [], [], []
    ports = header_of(out)
    assert len(ports) == 336
    names = {name for _, _, name in ports}
    for index, (direction, width, name) in enumerate(ports):
        connected.append(f".{name}({name})")
        if name.startswith(DRIVEN):
            continue
        if direction == "input":
            declared.append(f"reg {width}{name};")
            noisy.append(f"{name} <= noise >> {index};")
            continue
        declared.append(f"wire {width}{name};")
        twin = name.replace("m_axis_", "s_axis_") if name[0] == "m" else "m" + name[1:]
        if re.match(r"[ms]_axis_(direct|sync|if)_", name):
            wanted = twin
        elif name == "jtag_tdo":
            wanted = "jtag_tdi"
        elif "_dma_ram_" in name and not name.endswith("data"):
            kind = name.split("_")[0]
            wanted = {
                "wr_cmd_ready": "2'b11",
                "wr_done": f"{kind}_dma_ram_wr_cmd_valid",
                "rd_cmd_ready": f"{kind}_dma_ram_rd_resp_ready",
                "rd_resp_valid": f"{kind}_dma_ram_rd_cmd_valid",
            }[name.split("_dma_ram_")[1]]
        else:
            wanted = "1" if name in ("m_axil_ctrl_bready", "m_axil_ctrl_rready") else "0"
        assert wanted in names or wanted[0] in "012"
        checks.append(f'if ({name} !== {wanted}) fail("{name}", clocks);')
    folder = out / "mem"
    (folder / "declared.vh").write_text("\n".join(declared) + "\n")
    (folder / "connected.vh").write_text(",\n".join(connected) + "\n")
    (folder / "noisy.vh").write_text("\n".join(noisy) + "\n")
    (folder / "checks.vh").write_text("\n".join(checks) + "\n")
    assert len(checks) > 100


@pytest.mark.parametrize(("simulator", "pauses"), RUNS)
def test_packets_pass_the_block(tmp_path: Path, simulator: str, pauses: int) -> None:
    """Bytes, and the sideband of every beat: the NIC reads the time stamp with the last one."""
    out = written(tmp_path / "e", OPTIONS)
    write_ports(out)
    made = packets(OPTIONS)
    sent, due = (
        beats(frames, SIDE, lambda index, at: random.Random(2000 * index + at).getrandbits(SIDE))
        for frames in zip(*made, strict=True)
    )
    defines = {"PACKETS": len(made), "PAUSES": pauses}
    simulate(out, BENCH, "corundum", simulator, (sent, due), defines)


@pytest.mark.parametrize("options", [OPTIONS, {**OPTIONS, "style": "unrolled"}], ids=str)
def test_linters_find_nothing_in_the_block(tmp_path: Path, options: dict[str, str]) -> None:
    lint(written(tmp_path / "e", options), "corundum", "mqnic_app_block")


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_the_build_takes_this_block_for_the_template(tmp_path: Path) -> None:
    out = written(tmp_path / "e", OPTIONS)
    text = "SYN_FILES = rtl/fpga.v app/template/rtl/mqnic_app_block.v\n"
    text += f"include {out}/corundum/n3ic.mk\nall:\n\t@echo $(SYN_FILES)\n"
    (tmp_path / "Makefile").write_text(text)
    done = subprocess.run(["make", "-s"], cwd=tmp_path, capture_output=True, text=True, check=True)
    files = done.stdout.split()
    assert files[0] == "rtl/fpga.v"
    assert "app/template/rtl/mqnic_app_block.v" not in files
    folders = (out / "rtl", out / "corundum" / "rtl", out / "mem")
    suffixes = {".v", ".mem"}
    due = [p for folder in folders for p in folder.iterdir() if p.suffix in suffixes]
    assert sorted(files[1:]) == sorted(map(str, due))
