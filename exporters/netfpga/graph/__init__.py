# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations for the NetFPGA: a fully spatial pipeline, one input per clock."""
