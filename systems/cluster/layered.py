# SPDX-License-Identifier: Apache-2.0
"""Which models a ring of nodes computes: those made of layers."""

from __future__ import annotations

from n3ic.errors import ClusterError
from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.graph.operations import in_words
from n3ic.model.layered import in_layers
from n3ic.model.network import BinaryModel


def layered(model: Classifier) -> BinaryModel:
    """The network of a model's layers, which a ring spreads over its nodes.

    Raises:
        ClusterError: the model has no layers; the error names its operations.
    """
    if isinstance(network := in_layers(model), BinaryModel):
        return network
    kinds = sorted(in_words(kind) for kind in graph_of(model).kinds)
    raise ClusterError(
        f"{model.name}: a ring spreads the fully connected layers of a binary network, got a model "
        f"of family {model.family} of operations {', '.join(kinds)}, which has no layers: run it "
        "on one node, such as n3ic export --target host"
    )
