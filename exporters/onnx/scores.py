# SPDX-License-Identifier: Apache-2.0
"""The last layer: integer biases that order the classes as a graph's float scores do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.exporters.onnx.signal import Signal
from n3ic.model.layers import OutputLayer

_MAX_CLASSES = 256


def output_layer(signal: Signal) -> tuple[OutputLayer, bool]:
    """Compute the output layer of a score tensor, and whether its scores equal the graph's.

    If they differ (another scale, real biases), the integer scores have the same arg max on every
    input, including ties.

    Raises:
        ModelError: no integer biases order the classes in the same way; the error names the scores.
    """
    if signal.weights is None:
        raise ModelError(f"{signal.by}: the scores come from no layer with weights")
    if signal.channels < 2:
        raise ModelError(
            f"{signal.by}: {signal.channels} score; a BinaryModel has one a class, at least two"
        )
    tables = [t.astype(np.float64) for t in signal.tables]
    if any(not np.isfinite(t[signal.used]).all() for t in tables):
        raise ModelError(f"{signal.by}: its scores are not finite")
    exact = _exact_bias(signal, tables[0]) if len(tables) == 1 else None
    if exact is not None:
        layer = OutputLayer(signal.weights, mask=signal.mask, bias=exact)
        return layer, True
    weights, tables = _rising(signal, tables)
    bias = _ordering_bias(signal, tables[0])
    for ours in tables:
        for theirs in tables:
            _prove(signal, ours, theirs, bias)
    return OutputLayer(weights, mask=signal.mask, bias=bias.astype(np.int32)), False


def _exact_bias(signal: Signal, table: NDArray[np.float64]) -> NDArray[np.int32] | None:
    bias = table[:, 0]
    columns = np.arange(table.shape[1])[None, :]
    same = (table == bias[:, None] + columns) | ~signal.used
    whole = bias == np.rint(bias)
    if not same.all() or not whole.all() or np.abs(bias).max() >= 1 << 24:
        return None
    return bias.astype(np.int32)


def _rising(
    signal: Signal, tables: list[NDArray[np.float64]]
) -> tuple[NDArray[np.bool_], list[NDArray[np.float64]]]:
    """Make every class's score grow with its popcount, by inverting the weights of falling rows."""
    weights = np.array(signal.weights)
    turned = [t.copy() for t in tables]
    for j in range(signal.channels):
        n = int(signal.fan_in[j])
        steps = [np.diff(t[j, : n + 1]) for t in turned]
        if all((s < 0).all() for s in steps) and n:
            weights[j] = ~weights[j]
            for t in turned:
                t[j, : n + 1] = t[j, : n + 1][::-1]
        elif not all((s > 0).all() for s in steps):
            raise ModelError(f"{signal.by}: score {j} neither grows nor falls with its popcount")
    return weights, turned


def _beats(
    signal: Signal, first: NDArray[Any], second: NDArray[Any], i: int, j: int
) -> NDArray[np.int64]:
    """For each popcount of class ``i``, the smallest popcount at which class ``j`` beats it."""
    ours, theirs = first[i, : signal.fan_in[i] + 1], second[j, : signal.fan_in[j] + 1]
    # A tie goes to the lower index.
    found = np.searchsorted(theirs, ours, side="right" if i < j else "left")
    return np.asarray(found, dtype=np.int64)


def _ordering_bias(signal: Signal, table: NDArray[np.float64]) -> NDArray[np.int64]:
    if signal.channels > _MAX_CLASSES:
        raise ModelError(f"{signal.by}: at most {_MAX_CLASSES} classes with scaled scores")
    bias = np.zeros(signal.channels, np.int64)
    for j in range(1, signal.channels):
        wins = _beats(signal, table, table, 0, j)
        popcounts = np.arange(len(wins))
        inside = np.flatnonzero((wins > 0) & (wins <= signal.fan_in[j]))
        if inside.size:
            at = int(inside[0])
            bias[j] = popcounts[at] + 1 - wins[at]
        else:
            bias[j] = int(signal.fan_in[0]) + 1 if not wins.any() else -int(signal.fan_in[j])
    return bias


def _prove(
    signal: Signal,
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    bias: NDArray[np.int64],
) -> None:
    """Check on all pairs of popcounts that the integer scores decide as the graph does."""
    for i in range(signal.channels):
        for j in range(i + 1, signal.channels):
            wins = _beats(signal, ours, theirs, i, j)
            integer = np.arange(len(wins)) + bias[i] - bias[j] + 1
            if not np.array_equal(wins, np.clip(integer, 0, signal.fan_in[j] + 1)):
                raise ModelError(
                    f"{signal.by}: scores {i} and {j} have scales or biases that no integer bias "
                    "reproduces on every input"
                )
