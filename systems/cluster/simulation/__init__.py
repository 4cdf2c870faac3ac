# SPDX-License-Identifier: Apache-2.0
"""Simulation of a ring of nodes, by packets or trains of packets.

It imports the core and ``systems/cluster/``.
"""
