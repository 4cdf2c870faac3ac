# SPDX-License-Identifier: Apache-2.0
"""The Verilog files of a cluster's card."""

from __future__ import annotations

from pathlib import Path

from n3ic.exporters import netfpga

_HERE = Path(__file__).resolve().parent
_NETFPGA = Path(netfpga.__file__).resolve().parent
_POPCOUNT = ("n3ic_popcount", "n3ic_count", "n3ic_compress", "n3ic_tables")
TOP = "n3ic_cluster_node"


def layer_sources() -> tuple[Path, ...]:
    """Return the files of ``n3ic_cluster_layer``, the binary layer alone."""
    own = (_HERE / "rtl" / f"n3ic_cluster_{name}.v" for name in ("layer", "ram"))
    shared = (_NETFPGA / "sequential" / "rtl" / f"{name}.v" for name in _POPCOUNT)
    return (*own, *shared)


def node_sources() -> tuple[Path, ...]:
    """Return the files of ``n3ic_cluster_node``, the whole card."""
    own = sorted((_HERE / "rtl").glob("*.v"))
    # The first two of layer_sources() are among the node's own files.
    return (*own, *layer_sources()[2:], _NETFPGA / "rtl" / "n3ic_fifo.v")
