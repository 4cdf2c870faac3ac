# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as an XDP program: networks in slots, a token bucket per tenant.

It imports the core, ``systems/card/`` and the exporter ``xdp``.
"""
