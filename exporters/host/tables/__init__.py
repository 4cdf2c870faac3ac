# SPDX-License-Identifier: Apache-2.0
"""Look-up tables for the host target."""

from n3ic.exporters.host.tables.exporter import HostTablesExporter

EXPORTER = HostTablesExporter()

__all__ = ["EXPORTER", "HostTablesExporter"]
