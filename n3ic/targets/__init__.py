"""Targets: the exporter interface, export directories, verification, reports, co-location."""
