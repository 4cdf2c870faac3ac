# SPDX-License-Identifier: Apache-2.0
"""Finds fully connected binary layers in a graph: neurons that are thresholds of popcounts.

Targets have a kernel for such graphs, whichever family gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from n3ic.errors import ModelError
from n3ic.model.bits import Bits
from n3ic.model.graph.builder import GraphBuilder
from n3ic.model.graph.operations import Constant, Graph, Offset, Popcount, Threshold
from n3ic.model.graph.popcounts import popcount_rows
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer

_LAYERS = frozenset({Constant, Offset, Popcount, Threshold})


@dataclass(frozen=True, eq=False)
class DenseLayers:
    """Binary layers, from the input bits to a score for each class.

    Attributes:
        hidden: layers of neurons that fire at a threshold, none or more.
        output: the layer of scores.
    """

    hidden: tuple[HiddenLayer, ...]
    output: OutputLayer


def dense_graph(spec: InputSpec, layers: DenseLayers) -> Graph:
    """The graph of binary layers, in which :func:`dense_layers` finds them again.

    Neurons keep all their inputs, even those without an effect: a device may load other weights
    of that shape.

    Args:
        spec: the input.
        layers: the layers; the first reads all input bits.

    Raises:
        ModelError: the first layer does not have as many inputs as there are input bits.
    """
    if (n := (*layers.hidden, layers.output)[0].n_inputs) != spec.n_bits:
        raise ModelError(f"the first layer reads {n} bits, the input has {spec.n_bits}")
    builder = GraphBuilder(spec)
    bits, values = tuple(range(spec.n_bits)), tuple[int, ...]()
    for layer in layers.hidden:
        fired = []
        for j, threshold in enumerate(layer.thresholds.tolist()):
            mask = None if layer.mask is None else layer.mask[j]
            popcount = builder.popcount(bits, values, layer.weights[j], mask, shaped=True)
            fired.append(builder.threshold(popcount, threshold, shaped=True))
        bits, values = (), tuple(fired)
    output, scores = layers.output, []
    for c, bias in enumerate(output.bias.tolist()):
        mask = None if output.mask is None else output.mask[c]
        popcount = builder.popcount(bits, values, output.weights[c], mask, shaped=True)
        scores.append(builder.offset(popcount, bias))
    return builder.build(scores)


@dataclass(frozen=True)
class _Shifted:
    """A popcount plus a constant, or a constant alone."""

    popcount: Popcount | None
    by: int = 0

    @property
    def counted(self) -> int:
        return 0 if self.popcount is None else self.popcount.counted


@lru_cache(maxsize=4)  # an export asks for the same layers several times
def dense_layers(graph: Graph) -> DenseLayers | None:
    """The binary layers that a graph consists of; None if it has other parts.

    Each score is a popcount plus a constant, and each neuron that it counts is the threshold of a
    popcount of the layer below. The first layer reads input bits only. Constant neurons and scores
    have no connections. Neurons have the order in which those above list them.

    Args:
        graph: the operations of a model.
    """
    if Popcount not in graph.kinds or graph.kinds - _LAYERS:
        return None
    hidden: list[HiddenLayer] = []
    try:
        scores = [_shifted(graph, i) for i in graph.scores]
        weights, mask, values = _connections(graph, scores)
        output = OutputLayer(weights, mask=mask, bias=np.array([s.by for s in scores]))
        while values:
            neurons = [_fires(graph, value) for value in values]
            weights, mask, values = _connections(graph, neurons)
            # A neuron fires where its popcount reaches the constant that is taken from it.
            limits = np.array([min(max(-n.by, 0), n.counted + 1) for n in neurons])
            hidden.append(HiddenLayer(weights, mask=mask, thresholds=limits))
    except ModelError:  # other parts, more neurons than layers have, or larger biases
        return None
    return DenseLayers(tuple(reversed(hidden)), output)


def _shifted(graph: Graph, at: int) -> _Shifted:
    """A value as a popcount plus a constant.

    Raises:
        ModelError: it is another.
    """
    step, by = graph.steps[at], 0
    while isinstance(step, Offset):
        by += step.by
        step = graph.steps[step.a]
    if isinstance(step, Constant):
        return _Shifted(None, by + step.value)
    if isinstance(step, Popcount):
        return _Shifted(step, by)
    raise ModelError(f"step {at} is no popcount plus a constant")


def _fires(graph: Graph, at: int) -> _Shifted:
    """What is 0 or more where a value of 0 or 1 is 1."""
    step = graph.steps[at]
    a, limit = (step.a, step.limit) if isinstance(step, Threshold) else (at, 1)
    fired = _shifted(graph, a)
    return _Shifted(fired.popcount, fired.by - limit)


def _connections(
    graph: Graph, neurons: Sequence[_Shifted]
) -> tuple[Bits, Bits | None, tuple[int, ...]]:
    """Weights and mask of a layer, and the values that it reads; none if it reads input bits.

    Raises:
        ModelError: it reads both, or all its neurons are constant.
    """
    steps = {j: n.popcount for j, n in enumerate(neurons) if n.popcount is not None}
    rows = popcount_rows([*steps.values()])
    if rows.bits and rows.values:
        raise ModelError("neurons of a layer read input bits and other neurons")
    width = len(rows.values) or graph.input.n_bits
    weights, mask = np.zeros((2, len(neurons), width), dtype=np.bool_)
    columns = np.arange(width) if rows.values else np.array(rows.bits, dtype=np.int64)
    at = np.ix_(np.array([*steps]), columns)
    weights[at], mask[at] = rows.weights, rows.mask
    return weights, None if mask.all() else mask, rows.values
