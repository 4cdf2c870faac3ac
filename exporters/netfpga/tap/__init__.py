"""A virtual card: the Verilated design between two TAP devices."""

from __future__ import annotations

from n3ic.exporters.netfpga.tap.nic import Counters, VirtualNic, serve

__all__ = ["Counters", "VirtualNic", "serve"]
