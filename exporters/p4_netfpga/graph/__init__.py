# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations for SimpleSumeSwitch: look-up tables, and statements."""
