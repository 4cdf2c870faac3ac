"""Targets: what an exporter is, export directories, verification, reports, co-location."""
