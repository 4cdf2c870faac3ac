# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as one P4 program whose weight tables are keyed by the graph.

It imports the core, ``systems/card/`` and the exporter ``p4``.
"""
