# SPDX-License-Identifier: Apache-2.0
"""Writes an export as a user plugin for the 250 MHz box of OpenNIC shell.

Ports, widths and the meaning of sidebands are those of the shell's README and of its sample plugin
``p2p`` (https://github.com/Xilinx/open-nic-shell, version of January 2025).
"""

from __future__ import annotations

from pathlib import Path

from n3ic.exporters.netfpga.plugin import values_of, write_rtl
from n3ic.util.templates import render

FOLDER = Path(__file__).resolve().parent
STREAMS = (  # name, direction, direction of tready
    ("s_axis_qdma_h2c", "input ", "output"),
    ("m_axis_qdma_c2h", "output", "input "),
    ("m_axis_adap_tx_250mhz", "output", "input "),
    ("s_axis_adap_rx_250mhz", "input ", "output"),
)


def write(shape: str, out: Path) -> None:
    """Write ``opennic/`` below an export directory.

    Args:
        shape: the model's shape, for descriptions.
        out: the export directory, with ``rtl/n3ic_axil_top.v``.
    """
    values = {
        **values_of(shape),
        "streams": STREAMS,
        "ignored": ("s_axis_qdma_h2c", "s_axis_adap_rx_250mhz"),
    }
    plugin = out / "opennic"
    write_rtl(plugin, FOLDER, {"n3ic_opennic.v": render(FOLDER, "n3ic_opennic.v.j2", values)})
    (plugin / "box_250mhz").mkdir(exist_ok=True)
    for same in sorted((FOLDER / "box_250mhz").glob("box_*")):
        (plugin / "box_250mhz" / same.name).write_bytes(same.read_bytes())
    for name in ("box_250mhz/user_plugin_250mhz_inst.vh", "build_box_250mhz.tcl"):
        source = FOLDER / name
        text = render(source.parent, f"{source.name}.j2", values)
        (plugin / name).write_text(text, "utf-8")
