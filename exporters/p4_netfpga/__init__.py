"""The target ``p4-netfpga``: P4_16 for SimpleSumeSwitch, with the weights as constants."""

from n3ic.exporters.p4_netfpga.exporter import P4NetfpgaExporter

EXPORTER = P4NetfpgaExporter()
