"""The target ``p4``: P4_16 for bmv2's v1model, with the weights in tables."""

from n3ic.exporters.p4.exporter import P4Exporter

EXPORTER = P4Exporter()
