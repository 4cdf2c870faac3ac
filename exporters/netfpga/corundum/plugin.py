# SPDX-License-Identifier: Apache-2.0
"""Writes an export as the application block of Corundum; see ``ports`` for the source of facts."""

from __future__ import annotations

from pathlib import Path

from n3ic.exporters.netfpga.corundum.ports import APP_ID, NETWORK, PARAMETERS, PORTS, STREAMS
from n3ic.exporters.netfpga.plugin import values_of, write_rtl
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
TOP = "mqnic_app_block.v"


def write(shape: str, out: Path) -> None:
    """Write ``corundum/`` below an export directory.

    Args:
        shape: the model's shape, for descriptions.
        out: the export directory, with ``rtl/n3ic_axil_top.v``.
    """
    values = {
        **values_of(shape),
        "app_id": APP_ID,
        "parameters": PARAMETERS,
        "ports": PORTS,
        "streams": STREAMS,
        "network": NETWORK,
    }
    plugin = out / "corundum"
    write_rtl(plugin, FOLDER, {TOP: render(FOLDER, f"{TOP}.j2", values)})
    for name in ("n3ic.mk", "n3ic.tcl"):
        (plugin / name).write_text(render(FOLDER, f"{name}.j2", values), "utf-8")
