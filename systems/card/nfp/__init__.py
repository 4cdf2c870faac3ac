# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants as one NFP firmware: networks in CLS, threads shared by the plan."""
