# SPDX-License-Identifier: Apache-2.0
"""Tools for the programs on a machine: load, update, watch, unload."""
