# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks for the host target."""

from n3ic.exporters.host.spn.exporter import HostSpnExporter

EXPORTER = HostSpnExporter()

__all__ = ["EXPORTER", "HostSpnExporter"]
