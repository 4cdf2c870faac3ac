# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as one NFP firmware: networks in CLS, threads divided by the plan.

It imports the core, ``systems/card/`` and the exporter ``nfp``.
"""
