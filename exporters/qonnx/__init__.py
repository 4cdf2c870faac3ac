"""Target ``qonnx``: a graph of XnorPopcountMatMul and MultiThreshold nodes."""

from __future__ import annotations

from n3ic.exporters.qonnx.exporter import QonnxExporter

EXPORTER = QonnxExporter()

__all__ = ["EXPORTER", "QonnxExporter"]
