# SPDX-License-Identifier: Apache-2.0
"""Writes a binary network as a graph of integer operations: thresholds of popcounts."""

from __future__ import annotations

from n3ic.model.graph.dense import DenseLayers, dense_graph
from n3ic.model.graph.operations import Graph
from n3ic.model.network import BinaryModel


def network_graph(model: BinaryModel) -> Graph:
    """Write a network's neurons as thresholds of popcounts, and its scores as popcounts."""
    return dense_graph(model.input, DenseLayers(model.hidden, model.output))
