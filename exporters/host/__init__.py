"""Host CPU: C11 with kernels for AVX-512, AVX2, NEON and any other CPU, and ``bnn-exec``."""

from n3ic.exporters.host.exporter import HostExporter

EXPORTER = HostExporter()

__all__ = ["EXPORTER", "HostExporter"]
