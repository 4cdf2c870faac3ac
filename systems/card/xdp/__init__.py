# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as an XDP program: networks by slot, a token bucket a tenant."""
