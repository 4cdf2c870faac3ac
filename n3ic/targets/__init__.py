# SPDX-License-Identifier: Apache-2.0
"""Targets: the exporter interface, export directories, verification, reports, co-location.

May import meter, data, kernel, model and the packages of layer 1; see
docs/explanation/architecture.md.
"""
