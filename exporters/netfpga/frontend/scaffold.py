# SPDX-License-Identifier: Apache-2.0
"""A kernel of the user's own behind the front end of an export: Verilog, bench and test."""

from __future__ import annotations

from pathlib import Path

from n3ic.exporters.netfpga.core import copy_blocks
from n3ic.exporters.netfpga.frontend.messages import HEADER
from n3ic.exporters.netfpga.frontend.parameters import (
    COUNTERS,
    FOLDER,
    TOP,
    UDP_HEADERS,
    frontend_parameters,
)
from n3ic.targets.base import exporter
from n3ic.targets.manifest import exported_network, read_manifest
from n3ic.util.files import new_directory
from n3ic.util.templates import render

TEMPLATES = FOLDER / "scaffold"
IDENTIFIER = 1  # of the kernel in messages, where a network has the start of its digest
_FILES = {
    "rtl/kernel.v": "kernel.v.j2",
    f"rtl/{TOP}.v": f"{TOP}.v.j2",
    "test_kernel.py": "test_kernel.py.j2",
    "README.md": "README.md.j2",
}


def write_scaffold(directory: Path, out: Path) -> None:
    """Write a kernel that takes the place of an export's network, and its test, to a new folder.

    Args:
        directory: an export directory with a front end, which gives all sizes.
        out: the folder to make.

    Raises:
        ExportError: ``directory`` is not an export.
        UsageError: ``out`` exists.
    """
    manifest = read_manifest(directory)
    model = exported_network(directory, manifest).model
    tool = exporter(manifest["target"]).for_family(model.family).for_options(manifest["options"])
    front = frontend_parameters(model, tool.parse_options(manifest["options"]))
    values = {
        "front": front,
        "counters": len(COUNTERS),
        "names": COUNTERS,
        "identifier": IDENTIFIER,
        "most": min(front.max_rows, (front.mtu - UDP_HEADERS - HEADER.size) // front.row),
    }
    with new_directory(out) as folder:
        copy_blocks(folder, FOLDER / "rtl")
        for name, template in _FILES.items():
            (folder / name).write_text(render(TEMPLATES, template, values), encoding="utf-8")
