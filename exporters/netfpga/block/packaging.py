# SPDX-License-Identifier: Apache-2.0
"""Writes what makes an export a block of Vivado: IP-XACT, Tcl and constraints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from n3ic.exporters.netfpga.block.ports import Port, registers_ports
from n3ic.exporters.netfpga.block.registers import ADDRESS_BITS, BusRegister
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
BOARDS = {  # part, and the clock of its packet path in MHz
    "sume": ("xc7vx690tffg1761-3", 200),  # NetFPGA SUME
    "u200": ("xcu200-fsgd2104-2-e", 250),  # NetFPGA PLUS
    "u250": ("xcu250-figd2104-2L-e", 250),  # NetFPGA PLUS, OpenNIC
    "u280": ("xcu280-fsvh2892-2L-e", 250),  # NetFPGA PLUS, OpenNIC
}
VERSION = "1.0"


def write(table: Sequence[BusRegister], passed: Sequence[Port], shape: str, out: Path) -> None:
    """Write ``component.xml`` and ``vivado/`` below an export directory.

    Args:
        table: the registers.
        passed: the ports beside clock, reset and registers.
        shape: the model's shape, for descriptions.
        out: the export directory, with all Verilog and memory files.
    """
    clocked = [("input", 1, "axis_aclk"), ("input", 1, "axis_resetn")]
    ports = [*clocked, *registers_ports(ADDRESS_BITS), *passed]
    streams = sorted({name.rpartition("_")[0] for _, _, name in passed if "tdata" in name})
    values = {
        "registers": table,
        "address_bits": ADDRESS_BITS,
        "ports": ports,
        "buses": [
            {
                "name": bus,
                "master": bus.startswith("m_"),
                "signals": [
                    (name.rpartition("_")[2].upper(), name)
                    for _, _, name in ports
                    if name.rpartition("_")[0] == bus
                ],
            }
            for bus in ("s_axil", *streams)
        ],
        "streams": streams,
        "shape": shape,
        "version": VERSION,
        "boards": BOARDS,
        "sources": [f"rtl/{p.name}" for p in sorted((out / "rtl").glob("*.v"))],
        "memories": [f"mem/{p.name}" for p in sorted((out / "mem").glob("*.mem"))],
    }
    (out / "component.xml").write_text(render(FOLDER, "component.xml.j2", values), "utf-8")
    folder = out / "vivado"
    folder.mkdir(exist_ok=True)
    for name in ("package.tcl", "project.tcl"):
        text = render(FOLDER / "vivado", f"{name}.j2", values)
        (folder / name).write_text(text, "utf-8")
    for mhz in sorted({clock for _, clock in BOARDS.values()}):
        for kind in ("xdc", "sdc"):  # Vivado's constraints, and those of other tools
            text = render(FOLDER / "vivado", "clock.xdc.j2", {"mhz": mhz, "kind": kind})
            (folder / f"clock_{mhz}mhz.{kind}").write_text(text, "utf-8")
