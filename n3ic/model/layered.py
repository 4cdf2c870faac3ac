# SPDX-License-Identifier: Apache-2.0
"""The form in which targets write a model: layers of neurons as a binary network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from n3ic.model.classifier import Classifier
from n3ic.model.family import graph_of
from n3ic.model.network import BinaryModel
from n3ic.model.passes import Simplified, simplify, unchanged


def in_layers(model: Classifier) -> Classifier:
    """A model whose graph consists of binary layers, as the network of these; others as they are.

    Targets compute such networks by kernels of their own. The network has the model's scores on
    all inputs that features can have. A shunting threshold above its largest margin becomes the
    lowest such threshold.

    Args:
        model: a model of any family.

    Raises:
        ModelError: a value of its graph may exceed 64 bits, or a score 32 bits.
    """
    if isinstance(model, BinaryModel):
        return model
    from n3ic.model.graph.dense import dense_layers

    layers = dense_layers(graph_of(model))
    if layers is None:
        return model
    plain = BinaryModel(
        input=model.input,
        hidden=layers.hidden,
        output=layers.output,
        classes=model.classes,
        name=model.name,
        provenance={**model.provenance, "layers of": model.digest},
        meter=model.meter,
        table=model.table,
    )
    return plain.with_shunt(min(model.shunt, plain.largest_margin + 1))


def written(model: Classifier, *, smaller: bool) -> Simplified[Any]:
    """What a target writes for a model: its layers as a network, without needless parts.

    Args:
        model: a model of any family.
        smaller: whether to leave out parts that do not affect the scores.
    """
    form = in_layers(model)
    network: Simplified[Any] = simplify(form) if smaller else unchanged(form)
    return replace(network, source=model)
