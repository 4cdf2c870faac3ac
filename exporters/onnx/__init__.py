"""Target ``onnx``: a graph of standard operators, and the way back from one."""

from __future__ import annotations

from n3ic.exporters.onnx.exporter import OnnxExporter

EXPORTER = OnnxExporter()

__all__ = ["EXPORTER", "OnnxExporter"]
