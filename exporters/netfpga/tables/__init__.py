# SPDX-License-Identifier: Apache-2.0
"""Boosted look-up tables for the NetFPGA: every entry in logic, one input per clock."""
