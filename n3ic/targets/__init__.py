# SPDX-License-Identifier: Apache-2.0
"""Targets: the exporter interface, export directories, verification, reports, co-location.

May import meter, data, kernel, model and the first floor; docs/explanation/architecture.md has the
order.
"""
