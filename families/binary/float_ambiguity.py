# SPDX-License-Identifier: Apache-2.0
"""Finds where a float network's rounding may decide, and reports it.

The integer network decides by exact sums. A float network adds its products in some order and
rounds each time. Where a sum lies that close to a threshold, the two networks may differ, and the
float network may differ between machines. Both the popcounts where this can happen and the inputs
that reach them are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from n3ic.families.binary.popcount_table import PopcountTable
from n3ic.families.binary.scores import Scores
from n3ic.model.bits import Bits, pack

if TYPE_CHECKING:
    from n3ic.model.network import BinaryModel


def facts(scores: PopcountTable, found: Scores, origin: str) -> dict[str, str]:
    """Describe, for a model's provenance, the network that it was made from.

    Args:
        scores: the network's score tensor, with the layers before it.
        found: the model's output layer.
        origin: what the network was, such as ``graph``.
    """
    said = {
        "scores": f"as in the {origin}"
        if found.exact
        else f"the {origin}'s class on every input; scores, margins and the order behind the best "
        f"are not the {origin}'s"
    }
    cells = [int(d.sum()) for d in scores.doubts]
    if any(cells):
        neurons = sum(int(d.any(axis=1).sum()) for d in scores.doubts)
        of = sum(int(layer.fan_in.sum()) + layer.n_outputs for layer in scores.before)
        said["rounding"] = (
            f"exact sums decide; float sums may round to the other side at {sum(cells):,} of "
            f"{of:,} popcounts, of {neurons:,} neurons"
        )
    if found.order != (*range(len(found.order)),):
        said["class_order"] = f"classes {', '.join(map(str, found.order))} of the {origin}"
    return said


def in_doubt(model: BinaryModel, scores: PopcountTable, found: Scores, bits: Bits) -> Bits:
    """Whether rounding may change the class of some inputs.

    Args:
        model: the integer network.
        scores: the score tensor that the network was made from.
        found: the network's output layer.
        bits: bool array of shape ``(rows, inputs)``.

    Returns:
        bool array of shape ``(rows,)``. False is certain: no rounding gives the row another class.
    """
    words = pack(bits)
    doubtful = np.zeros(len(bits), np.bool_)
    for layer, doubt in zip(model.hidden, scores.doubts, strict=True):
        counts = layer.popcounts(words)
        doubtful |= doubt[np.arange(layer.n_outputs), counts].any(axis=1)
        words = pack(counts >= layer.thresholds)
    counts = model.output.popcounts(words)
    columns = np.arange(counts.shape[1])
    low, high = found.low[columns, counts], found.high[columns, counts]
    best = (counts + model.output.bias).argmax(axis=1)[:, None]
    least, most = (np.take_along_axis(side, best, axis=1) for side in (low, high))
    open_ = (low != high) | (least != most)
    rivals = (high > least) | ((high == least) & open_)
    np.put_along_axis(rivals, best, False, axis=1)
    doubtful |= rivals.any(axis=1)
    return doubtful
