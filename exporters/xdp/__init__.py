"""The target ``xdp``: meter, network and verdict in the Linux kernel."""

from n3ic.exporters.xdp.exporter import XdpExporter

EXPORTER = XdpExporter()
