"""Target ``nfp``: micro-C for the Netronome NFP4000."""

from __future__ import annotations

from n3ic.exporters.nfp.exporter import NfpExporter

EXPORTER = NfpExporter()

__all__ = ["EXPORTER", "NfpExporter"]
