# SPDX-License-Identifier: Apache-2.0
"""Columns of a table that are an address, a TTL or a time by another name."""
