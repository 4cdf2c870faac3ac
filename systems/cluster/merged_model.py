# SPDX-License-Identifier: Apache-2.0
"""Merge several networks into one wide network that a cluster computes in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError
from n3ic.model.columns import ColumnRule, TableRules
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel


def merge_models(models: Mapping[str, BinaryModel]) -> BinaryModel:
    """Make one network whose layers are those of several networks, side by side.

    The input has each field of the networks once. Masks restrict each neuron to the inputs of its
    own network. Classes are named ``network/class``, and the scores of the networks follow one
    another. Provenance and meter are those of the first network. A table is read with the columns
    of all.

    Args:
        models: networks of equal depth, by name.

    Raises:
        ClusterError: No networks are given, their depths differ, or they read a column of a table
            differently.
    """
    parts = list(models.values())
    if not parts:
        raise ClusterError("no networks to merge")
    first = parts[0]
    for name, model in models.items():
        if len(model.layers) != len(first.layers):
            raise ClusterError(
                f"{name} has {len(model.layers)} layers, {next(iter(models))} "
                f"{len(first.layers)}: merged networks need the same number of layers"
            )
    spec, places = _inputs(parts)
    hidden = []
    for depth in range(len(first.hidden)):
        layers = [model.hidden[depth] for model in parts]
        weights, mask = _joined(layers, places)
        thresholds = np.concatenate([layer.thresholds for layer in layers])
        hidden.append(HiddenLayer(weights, mask=mask, thresholds=thresholds))
        sizes = np.cumsum([0, *(layer.n_outputs for layer in layers)])
        places = [np.arange(a, b) for a, b in pairwise(sizes)]
    outputs = [model.output for model in parts]
    weights, mask = _joined(outputs, places)
    return BinaryModel(
        input=spec,
        hidden=tuple(hidden),
        output=OutputLayer(weights, mask=mask, bias=np.concatenate([o.bias for o in outputs])),
        classes=tuple(f"{name}/{c}" for name, model in models.items() for c in model.classes),
        name="side by side",
        provenance=first.provenance,
        meter=first.meter,
        table=_table(models, spec),
    )


def _table(models: Mapping[str, BinaryModel], spec: InputSpec) -> TableRules | None:
    """Merge the columns that the networks read; None if they do not cover every feature."""
    columns: dict[str, ColumnRule] = {}
    for name, model in models.items():
        for column, rule in (model.table.columns if model.table else {}).items():
            if columns.setdefault(column, rule) != rule:
                raise ClusterError(
                    f"{name} reads the column {column!r} differently from a network before it: "
                    "merged networks must read the table alike"
                )
    first = next(iter(models.values())).table
    table = replace(first, columns=columns) if first else None
    return table if table and {*spec.features} <= {*table.features} else None


def _inputs(models: Sequence[BinaryModel]) -> tuple[InputSpec, list[NDArray[np.intp]]]:
    """Return an input with all fields, and the positions of each network's bits in it."""
    # A dict keeps the first occurrence of each field and its order, which is that of the networks.
    fields = dict.fromkeys(field for model in models for field in model.input.fields)
    spec = InputSpec(tuple(fields))
    start = dict(zip(spec.fields, spec.offsets, strict=True))
    places = [
        np.concatenate([start[f] + np.arange(f.width) for f in model.input.fields])
        for model in models
    ]
    return spec, places


def _joined(
    layers: Sequence[Connections], places: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    """Join the weights and masks of layers whose inputs are at ``places`` of one input."""
    columns = 1 + max(int(place.max()) for place in places)
    shape = (sum(layer.n_outputs for layer in layers), columns)
    # Weights outside a network's own inputs are masked; ones are the format's padding.
    weights, mask = np.ones(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    row = 0
    for layer, place in zip(layers, places, strict=True):
        neurons = slice(row, row + layer.n_outputs)
        weights[neurons, place] = layer.weights
        mask[neurons, place] = True if layer.mask is None else layer.mask
        row += layer.n_outputs
    return weights, None if mask.all() else mask
