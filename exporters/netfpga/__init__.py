"""NetFPGA-SUME: Verilog executors, their packet wrapper, simulation and synthesis."""

from __future__ import annotations

from n3ic.exporters.netfpga.exporter import NetfpgaExporter

EXPORTER = NetfpgaExporter()
