# SPDX-License-Identifier: Apache-2.0
"""The last layer: integer biases that order the classes as a network's float scores do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.families.binary.signal import Signal
from n3ic.model.layers import OutputLayer

_MAX_CLASSES = 256
_LARGEST_BIAS = 1 << 20

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """An output layer and what its scores are to those of the network that it came from.

    Attributes:
        layer: the output layer.
        exact: whether its scores are the network's; else it has the same best class.
        order: the network's class that each class of the layer is.
        low: the least that rounding may make of the network's score, float64 array of shape
            ``(classes, largest popcount + 1)``.
        high: the most.
    """

    layer: OutputLayer
    exact: bool
    order: tuple[int, ...]
    low: Table
    high: Table


def output_layer(signal: Signal) -> Scores:
    """Compute the output layer of a score tensor.

    If its scores are not integers of its own (another scale, real biases), the integer scores have
    the same arg max on every input, ties included. Ties of integers go to the lower index, so the
    order of the classes may have to be another: of two classes whose scores differ by less than a
    popcount is worth, the higher one comes first. One score tells two classes apart: above 0 it
    is the second.

    Raises:
        ModelError: no integer biases order the classes in the same way; the error names the scores.
    """
    if signal.weights is None:
        raise ModelError(f"{signal.by}: the scores come from no layer with weights")
    tables = [t.astype(np.float64) for t in signal.tables]
    if any(not np.isfinite(t[signal.used]).all() for t in tables):
        raise ModelError(f"{signal.by}: its scores are not finite")
    if signal.channels == 1:
        return _of_one(signal, tables)
    exact = _exact_bias(signal, tables[0])
    if exact is not None and all(np.array_equal(tables[0], t) for t in tables[1:]):
        layer = OutputLayer(signal.weights, mask=signal.mask, bias=exact)
        return Scores(layer, True, (*range(signal.channels),), tables[0], tables[0])
    if signal.channels > _MAX_CLASSES:
        raise ModelError(f"{signal.by}: at most {_MAX_CLASSES} classes with scaled scores")
    weights, tables = _rising(signal, tables)
    order, bias = _ordered(signal, tables)
    low, high = np.min(tables, axis=0), np.max(tables, axis=0)
    mask = None if signal.mask is None else signal.mask[order]
    layer = OutputLayer(weights[order], mask=mask, bias=bias.astype(np.int32))
    return Scores(layer, False, tuple(order.tolist()), low[order], high[order])


def _of_one(signal: Signal, tables: list[Table]) -> Scores:
    """Two classes of one score: a neuron and its inverse, with biases that make a threshold."""
    assert signal.weights is not None
    n = int(signal.fan_in[0])
    above = tables[0][0, : n + 1] > 0
    edges = np.flatnonzero(above[1:] != above[:-1])
    if len(edges) > 1:
        raise ModelError(f"{signal.by}: its score rises and falls with its popcount")
    falls = bool(above[0]) and len(edges) == 1
    first = int(edges[0]) + 1 if len(edges) else (0 if above[0] else n + 1)
    if falls:  # above 0 below a popcount: count disagreements instead
        first = n - first + 1
        tables = [t[:, n::-1] for t in tables]
    weights = ~signal.weights if falls else signal.weights
    # With p of n connections in agreement, the second wins where 2 p > 2 first - 1.
    bias = np.maximum(0, [2 * first - 1 - n, n - 2 * first + 1]).astype(np.int32)
    mask = None if signal.mask is None else np.repeat(signal.mask, 2, axis=0)
    layer = OutputLayer(np.concatenate([~weights, weights]), mask=mask, bias=bias)
    low, high = np.min(tables, axis=0)[0], np.max(tables, axis=0)[0]
    nothing = np.zeros_like(low)
    return Scores(layer, False, (0, 1), np.stack([nothing, low]), np.stack([nothing, high]))


def _ordered(
    signal: Signal, tables: list[Table]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of the classes, and biases by which they decide as a table of scores does.

    The first table is the network's own arithmetic. Where its rounding follows no integers, the
    last one is taken, which has the most digits.
    """
    same = np.arange(signal.channels)
    found = ""
    for table in (tables[0], tables[-1]):
        for order, bias in ((same, _ordering_bias(signal, table)), _by_fraction(signal, table)):
            found = _difference(signal, table, order, bias)
            if not found:
                return order, bias[order]
    raise ModelError(f"{signal.by}: {found}")


def _by_fraction(signal: Signal, table: Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Biases in popcounts rounded up, the classes that gain least by that first."""
    last = np.take_along_axis(table, signal.fan_in[:, None], axis=1)[:, 0]
    worth = ((last - table[:, 0]) / np.maximum(signal.fan_in, 1)).max()
    with np.errstate(all="ignore"):
        beta = (table[:, 0] - table[0, 0]) / worth
        beta = np.clip(np.nan_to_num(beta), -_LARGEST_BIAS, _LARGEST_BIAS)
    whole = np.rint(beta)
    beta = np.where(np.abs(beta - whole) < 1e-9, whole, beta)
    bias = np.ceil(beta)
    order = np.argsort(np.round(bias - beta, 9), kind="stable")
    return order, bias.astype(np.int64)


def _exact_bias(signal: Signal, table: Table) -> NDArray[np.int32] | None:
    bias = table[:, 0]
    columns = np.arange(table.shape[1])[None, :]
    same = (table == bias[:, None] + columns) | ~signal.used
    whole = bias == np.rint(bias)
    if not same.all() or not whole.all() or np.abs(bias).max() >= 1 << 24:
        return None
    return bias.astype(np.int32)


def _rising(
    signal: Signal, tables: list[Table]
) -> tuple[NDArray[np.bool_], list[Table]]:
    """Make every class's score grow with its popcount, by inverting the weights of falling rows."""
    weights = np.array(signal.weights)
    turned = [t.copy() for t in tables]
    for j in range(signal.channels):
        n = int(signal.fan_in[j])
        steps = np.diff(turned[-1][j, : n + 1])  # the way of most digits: it merges no two
        if n and (steps < 0).all():
            weights[j] = ~weights[j]
            for t in turned:
                t[j, : n + 1] = t[j, : n + 1][::-1]
        elif not (steps > 0).all():
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


def _ordering_bias(signal: Signal, table: Table) -> NDArray[np.int64]:
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


def _difference(
    signal: Signal, table: Table, order: NDArray[np.int64], bias: NDArray[np.int64]
) -> str:
    """Where the integer scores decide otherwise than a table, on all pairs of popcounts.

    Returns:
        What is wrong and what to do; nothing if they decide alike.
    """
    place = np.argsort(order)
    for i in range(signal.channels):
        for j in range(i + 1, signal.channels):
            wins = _beats(signal, table, table, i, j)
            # A tie of integers goes to the class that comes first in the order.
            integer = np.arange(len(wins)) + bias[i] - bias[j] + int(place[i] < place[j])
            if not np.array_equal(wins, np.clip(integer, 0, signal.fan_in[j] + 1)):
                return (
                    f"scores {i} and {j} have scales that no integer bias reproduces on every "
                    "input; give all classes one scale: no batch norm behind the last layer, and "
                    "one scale for all of its weights"
                )
    return ""
