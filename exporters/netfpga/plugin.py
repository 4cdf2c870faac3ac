# SPDX-License-Identifier: Apache-2.0
"""Writes the Verilog that puts an export, ``n3ic_axil_top``, into a shell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from n3ic.exporters.netfpga.block.ports import registers_ports
from n3ic.exporters.netfpga.block.registers import ADDRESS_BITS
from n3ic.exporters.netfpga.core import framed


def values_of(shape: str) -> dict[str, Any]:
    """What every shell's templates name: the shape, and the registers' bus."""
    return {"shape": shape, "bus": registers_ports(ADDRESS_BITS), "address_bits": ADDRESS_BITS}


def write_rtl(plugin: Path, shell: Path, tops: Mapping[str, str]) -> None:
    """Write ``rtl/`` of a plugin.

    Args:
        plugin: the plugin's folder below the export directory.
        shell: the folder of the shell's own sources; its ``rtl/`` is copied.
        tops: file names and texts of the Verilog that was rendered for the shell.
    """
    rtl = plugin / "rtl"
    rtl.mkdir(parents=True, exist_ok=True)
    for block in (shell / "rtl").glob("*.v"):
        (rtl / block.name).write_text(framed(block.read_text("utf-8")), "utf-8")
    for name, text in tops.items():
        (rtl / name).write_text(framed(text), "utf-8")
