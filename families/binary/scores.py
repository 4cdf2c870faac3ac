# SPDX-License-Identifier: Apache-2.0
"""Makes the last layer: integer biases that order the classes as float scores do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError
from n3ic.families.binary.popcount_table import PopcountTable
from n3ic.model.bits import Bits
from n3ic.model.layers import OutputLayer

_MAX_CLASSES = 256
_LARGEST_BIAS = 1 << 20

Table = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scores:
    """An output layer, and how its scores relate to those of the original network.

    Attributes:
        layer: the output layer.
        exact: whether its scores equal the network's; otherwise only the best class is the same.
        order: for each class of the layer, the index of the network's class.
        low: least value that rounding may give the network's score, float64 array of shape
            ``(classes, largest popcount + 1)``.
        high: largest value, of the same shape.
    """

    layer: OutputLayer
    exact: bool
    order: tuple[int, ...]
    low: Table
    high: Table


def output_layer(signal: PopcountTable) -> Scores:
    """Compute the output layer of a score tensor.

    Scores that are popcounts plus integers are taken as they are. Others (another scale, real
    biases) become integers with the same arg max on every input, ties included. A tie of integers
    goes to the lower index. So if the scores of two classes differ by less than one popcount is
    worth, the class with the higher score comes first, and the order of the classes may change. A
    single score stands for two classes: above 0, the second wins.

    Raises:
        ModelError: no integer biases order the classes in the same way; the error names the scores.
    """
    if signal.weights is None:
        raise ModelError(f"{signal.by}: the scores come from no layer with weights")
    tables = [t.astype(np.float64) for t in signal.tables]
    if any(not np.isfinite(t[signal.used]).all() for t in tables):
        raise ModelError(f"{signal.by}: its scores are not finite")
    if signal.channels == 1:
        return _of_one(signal, signal.weights, tables)
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


def _of_one(signal: PopcountTable, weights: Bits, tables: list[Table]) -> Scores:
    """Make two classes of one score: a neuron and its inverse, with biases as the threshold."""
    n = int(signal.fan_in[0])
    above = tables[0][0, : n + 1] > 0  # a score of exactly 0 is the first class
    edges = np.flatnonzero(above[1:] != above[:-1])
    if len(edges) > 1:
        raise ModelError(
            f"{signal.activation or signal.by}: its score rises and falls with its popcount; "
            "return the score before it"
        )
    falls = bool(above[0]) and len(edges) == 1
    first = int(edges[0]) + 1 if len(edges) else (0 if above[0] else n + 1)
    if falls:  # it is above 0 up to a popcount: count disagreements instead
        first = n - first + 1
        tables = [t[:, n::-1] for t in tables]
    weights = ~weights if falls else weights
    # With p of n connections in agreement, the scores are n - p and p plus their biases. A tie goes
    # to the first class, so the second wins where 2 p > 2 first - 1, which is p >= first.
    bias = np.maximum(0, [2 * first - 1 - n, n - 2 * first + 1]).astype(np.int32)
    mask = None if signal.mask is None else np.repeat(signal.mask, 2, axis=0)
    layer = OutputLayer(np.concatenate([~weights, weights]), mask=mask, bias=bias)
    low, high = np.min(tables, axis=0)[0], np.max(tables, axis=0)[0]
    nothing = np.zeros_like(low)
    return Scores(layer, False, (0, 1), np.stack([nothing, low]), np.stack([nothing, high]))


def _ordered(signal: PopcountTable, tables: list[Table]) -> tuple[Whole, Whole]:
    """Find an order of the classes and biases that decide as the tables of the scores do.

    The first table is the network's own arithmetic, and integers decide as it does if they can.
    They cannot if it breaks some ties by rounding alone. Then all of these count as ties.
    """
    low, high = np.min(tables, axis=0), np.max(tables, axis=0)
    same, first = np.arange(signal.channels), tables[0]
    tries = [  # order, biases, and the least and the most that the scores may be
        (same, _ordering_bias(signal, first), first, first),
        (*_by_fraction(signal, first), first, first),
        (*_by_fraction(signal, tables[-1], float((high - low)[signal.used].max())), low, high),
        (*_by_fraction(signal, tables[-1]), tables[-1], tables[-1]),
    ]
    pair = (0, 0)
    for order, bias, least, most in tries:
        if (difference := _difference(signal, least, most, order, bias)) is None:
            return order, bias[order]
        pair = difference
    raise ModelError(
        f"{signal.by}: scores {pair[0]} and {pair[1]} have scales that no integer bias reproduces "
        "on every input; give all classes one scale: no batch norm behind the last layer, and one "
        "scale for all of its weights"
    )


def _by_fraction(signal: PopcountTable, table: Table, width: float = 0.0) -> tuple[Whole, Whole]:
    """Round biases up to whole popcounts; the classes that gain least by that come first.

    With equal popcounts the class with the higher bias wins. Biases within one popcount round up to
    the same integer, and the order breaks the tie: the class that gained less had the higher bias.

    Args:
        signal: the scores.
        table: their values.
        width: how far rounding may move them; scores that are this close count as tied.
    """
    last = np.take_along_axis(table, signal.fan_in[:, None], axis=1)[:, 0]
    worth = ((last - table[:, 0]) / np.maximum(signal.fan_in, 1)).max()
    with np.errstate(all="ignore"):
        beta = np.nan_to_num((table[:, 0] - table[0, 0]) / worth)
        near = min(max(1e-9, np.nan_to_num(2 * width / worth)), 0.01)
    beta = np.clip(beta, -_LARGEST_BIAS, _LARGEST_BIAS)
    bias = np.ceil(beta - near)
    gain = np.maximum(bias - beta, 0)
    ranks, rank, start = np.argsort(gain, kind="stable"), 0, 0.0
    places = np.zeros(len(gain), np.int64)
    for j in ranks:
        if gain[j] > start + near:
            rank, start = rank + 1, gain[j]
        places[j] = rank
    return np.argsort(places, kind="stable"), bias.astype(np.int64)


def _exact_bias(signal: PopcountTable, table: Table) -> NDArray[np.int32] | None:
    """The biases of scores that are popcounts plus integers, exact in float32; otherwise None."""
    bias = table[:, 0]
    columns = np.arange(table.shape[1])[None, :]
    same = (table == bias[:, None] + columns) | ~signal.used
    whole = bias == np.rint(bias)
    if not same.all() or not whole.all() or np.abs(bias).max() >= 1 << 24:
        return None
    return bias.astype(np.int32)


def _rising(signal: PopcountTable, tables: list[Table]) -> tuple[NDArray[np.bool_], list[Table]]:
    """Make every class's score grow with its popcount, by inverting the weights of falling rows."""
    weights = np.array(signal.weights)
    turned = [t.copy() for t in tables]
    for j in range(signal.channels):
        n = int(signal.fan_in[j])
        steps = np.diff(turned[-1][j, : n + 1])  # the table with most digits: it merges no values
        if n and (steps < 0).all():
            weights[j] = ~weights[j]
            for t in turned:
                t[j, : n + 1] = t[j, : n + 1][::-1]
        elif not (steps > 0).all():
            last = signal.activation or signal.by
            raise ModelError(
                f"{last}: score {j} neither grows nor falls with its popcount, so it loses the "
                "order of the classes; return the scores before it"
            )
    return weights, turned


def _beats(
    signal: PopcountTable, first: NDArray[Any], second: NDArray[Any], i: int, j: int
) -> NDArray[np.int64]:
    """For each popcount of class ``i``, the smallest popcount at which class ``j`` beats it."""
    first_values, second_values = (
        first[i, : signal.fan_in[i] + 1],
        second[j, : signal.fan_in[j] + 1],
    )
    # A tie goes to the lower index.
    popcounts = np.searchsorted(second_values, first_values, side="right" if i < j else "left")
    return np.asarray(popcounts, dtype=np.int64)


def _ordering_bias(signal: PopcountTable, table: Table) -> NDArray[np.int64]:
    """Choose biases by which each class first meets class 0 where the table says so."""
    bias = np.zeros(signal.channels, np.int64)
    for j in range(1, signal.channels):
        wins = _beats(signal, table, table, 0, j)
        popcounts = np.arange(len(wins))
        inside = np.flatnonzero((wins > 0) & (wins <= signal.fan_in[j]))  # neither always wins
        if inside.size:
            at = int(inside[0])
            bias[j] = popcounts[at] + 1 - wins[at]  # class 0 wins a tie: one more beats it
        else:
            bias[j] = int(signal.fan_in[0]) + 1 if not wins.any() else -int(signal.fan_in[j])
    return bias


def _difference(
    signal: PopcountTable, low: Table, high: Table, order: Whole, bias: Whole
) -> tuple[int, int] | None:
    """Find two classes that integer scores order in a way that no rounding of the scores does.

    All pairs of popcounts are compared: for each popcount of one class, the first popcount at which
    the other beats it must lie between the first that may and the first that is sure to.

    Args:
        signal: the scores.
        low: their least values.
        high: their largest values.
        order: the order of the classes; a tie of integers goes to the one that comes first.
        bias: their biases, in the order of the scores.
    """
    place = np.argsort(order)
    for i in range(signal.channels):
        first_bounds = low[i, : signal.fan_in[i] + 1], high[i, : signal.fan_in[i] + 1]
        popcounts = np.arange(signal.fan_in[i] + 1)
        for j in range(i + 1, signal.channels):
            n = int(signal.fan_in[j])
            second_bounds = low[j, : n + 1], high[j, : n + 1]
            # `lost`: how many popcounts of j lose to i for sure; `won`: the first that beats i for
            # sure. An exact tie, with no rounding on either side, surely goes to i.
            lost = np.searchsorted(second_bounds[1], first_bounds[0], side="left")
            tie = np.minimum(lost, n)
            sure = (first_bounds[0] == first_bounds[1]) & (second_bounds[0][tie] == first_bounds[0])
            sure &= second_bounds[1][tie] == first_bounds[0]
            lost = np.where(
                sure, np.searchsorted(second_bounds[1], first_bounds[0], side="right"), lost
            )
            won = np.searchsorted(second_bounds[0], first_bounds[1], side="right")
            integer = popcounts + bias[i] - bias[j] + int(place[i] < place[j])
            integer = np.clip(integer, 0, n + 1)
            if ((integer < lost) | (integer > won)).any():
                return i, j
    return None
