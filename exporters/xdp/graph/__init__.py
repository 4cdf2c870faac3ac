# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in an XDP program: walks down trees, whose leaves are summed."""
