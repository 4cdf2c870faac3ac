# SPDX-License-Identifier: Apache-2.0
"""Graphs of integer operations as ternary match-action tables, one or more trees each."""
