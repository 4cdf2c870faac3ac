# SPDX-License-Identifier: Apache-2.0
"""The part of a network that is compiled into the program; the network's numbers are in a map.

Networks that share a structure can be swapped in the map. The counts of a structure are the maxima
over its networks, rounded up where that costs nothing. Rows that a network does not use are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from n3ic.errors import ExportError
from n3ic.exporters.xdp.network.sums import (
    GRAPHS,
    MAX_INPUTS,
    TABLES,
    HiddenSums,
    LayerPlan,
    Structure,
    as_bits,
    hidden_sums,
    kernel_of,
    layer_groups,
    outline_of,
    score_offset,
    within_reach,
)
from n3ic.model.classifier import Classifier
from n3ic.model.network import BinaryModel


def structure_of(models: Sequence[Classifier], *, bits: bool = False) -> Structure:
    """Compute the structure that several networks share.

    Args:
        models: one or more networks of one family: binary networks with the same number of layers,
            or models whose family gives graphs, with the same number of classes.
        bits: whether the features are the packed input bits.

    Raises:
        ExportError: a network exceeds the limits of BPF, or two networks have no common structure.
    """
    if not models:
        raise ExportError("a structure needs at least one network")
    families = sorted({model.family for model in models})
    if len(families) > 1:
        raise ExportError(
            f"networks of one program must be of one family, these are of {' and '.join(families)}"
        )
    kernels = sorted({kernel_of(model) for model in models})
    if len(kernels) > 1:
        raise ExportError(f"a program computes either {kernels[0]} or {kernels[1]}")
    if kernels == [GRAPHS]:
        from n3ic.exporters.xdp.graph.structure import graph_structure

        return graph_structure(models, bits=bits)
    if kernels == [TABLES]:
        from n3ic.exporters.xdp.graph.bit_tables.structure import tables_structure

        return tables_structure(models, bits=bits)
    return _binary_structure(cast("Sequence[BinaryModel]", models), bits)


def _binary_structure(models: Sequence[BinaryModel], bits: bool) -> Structure:
    depth = len(models[0].layers)
    for model in models:
        if len(model.layers) != depth:
            raise ExportError(
                f"{model.name!r} has {len(model.layers)} layers and {models[0].name!r} {depth}: "
                "networks of one program must have the same number of layers"
            )
        for i, layer in enumerate(model.hidden):
            if layer.n_inputs > MAX_INPUTS:
                raise ExportError(
                    f"layer {i} reads {layer.n_inputs:,} bits, XDP programs sum {MAX_INPUTS:,}"
                )
    models = [as_bits(model) for model in models] if bits else models
    outline = outline_of([model.input for model in models], bits)
    features, selectors = outline.features, outline.selectors
    layers: list[LayerPlan] = []
    for i in range(depth):
        outputs = max(model.layers[i].n_outputs for model in models)
        if i == depth - 1:
            layers.append(LayerPlan(outputs, _score_lane(outputs, models)))
            continue
        before = layers[-1] if layers else None
        plan = LayerPlan(outputs, 8)
        outputs = 8 * plan.words  # neurons up to the end of the last word cost nothing
        sums = [
            hidden_sums(m.hidden[i], layer_groups(outline, before, m.input), plan) for m in models
        ]
        layers.append(LayerPlan(outputs, 8, *_segments(sums)))
    return within_reach(Structure(features, selectors, tuple(layers), bits))


def _score_lane(classes: int, models: Sequence[BinaryModel]) -> int:
    fits = all(
        m.output.n_inputs + int(np.abs(m.output.bias.astype(np.int64)).max()) < score_offset(16)
        for m in models
    )
    return 16 if classes > 2 and fits else 32


def _segments(sums: Sequence[HiddenSums]) -> tuple[tuple[int, ...], bool]:
    """Return the groups in each run that is summed in bytes, and whether two halves suffice."""
    if all(each.fits_bytes for each in sums):
        return (), False
    ranges = np.concatenate([each.ranges for each in sums], axis=1)
    segments, sums_so_far = [0], np.zeros(ranges.shape[1], dtype=np.int64)
    for group in ranges:
        # Byte lanes must not carry into each other: widen before any lane could exceed 255.
        if (sums_so_far + group > 255).any():
            segments.append(0)
            sums_so_far = np.zeros_like(sums_so_far)
        sums_so_far = sums_so_far + group
        segments[-1] += 1
    if len(segments) == 1 and len(ranges) > 1:
        segments = [len(ranges) - len(ranges) // 2, len(ranges) // 2]
    halves = len(segments) == 2 and all(each.fits_halves for each in sums)
    return tuple(segments), halves
