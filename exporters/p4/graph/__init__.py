# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations on v1model: look-up tables, and trees as ternary tables."""
