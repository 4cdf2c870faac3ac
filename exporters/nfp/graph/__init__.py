# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations in micro-C."""
