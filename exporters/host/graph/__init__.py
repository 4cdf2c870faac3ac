# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations for the host target."""

from n3ic.exporters.host.graph.exporter import HostGraphExporter

EXPORTER = HostGraphExporter()

__all__ = ["EXPORTER", "HostGraphExporter"]
