# SPDX-License-Identifier: Apache-2.0
"""Writes the packet path between streams of 512 bits into the folder of a shell's plugin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.block.ports import registers_ports
from n3ic.exporters.netfpga.block.registers import ADDRESS_BITS
from n3ic.exporters.netfpga.core import framed
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent


def values_of(shape: str) -> dict[str, Any]:
    """What every shell's templates name: the shape, and the registers' bus."""
    return {"shape": shape, "bus": registers_ports(ADDRESS_BITS), "address_bits": ADDRESS_BITS}


def write_rtl(plugin: Path, shell: Path, tops: Mapping[str, str]) -> None:
    """Write ``rtl/`` of a shell's plugin.

    Args:
        plugin: the plugin's folder below the export directory.
        shell: the folder of the shell's own sources; its ``rtl/`` is copied.
        tops: file names and texts of the Verilog that was rendered for the shell.
    """
    rtl = plugin / "rtl"
    rtl.mkdir(parents=True, exist_ok=True)
    for block in (path for folder in (FOLDER, shell) for path in (folder / "rtl").glob("*.v")):
        (rtl / block.name).write_text(framed(block.read_text("utf-8")), "utf-8")
    name = "n3ic_axis_512.v"
    every = {**tops, name: render(FOLDER, f"{name}.j2", values_of(""))}
    for name, text in every.items():
        (rtl / name).write_text(framed(text), "utf-8")
