# SPDX-License-Identifier: Apache-2.0
"""Shunting: which margin sends which share of the flows to the host, and how accuracy changes."""
