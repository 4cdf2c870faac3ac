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

ROWS = 4096  # inputs to try: all if there are no more


def facts(scores: PopcountTable, output: Scores, origin: str) -> dict[str, str]:
    """Describe, for a model's provenance, the network that it was made from.

    Args:
        scores: the network's score tensor, with the layers before it.
        output: the model's output layer.
        origin: what the network was, such as ``graph``.
    """
    by_sums = " by exact sums" if rounds(scores, output) else ""
    entries = {
        "scores": f"as in the {origin}{by_sums}"
        if output.exact
        else f"the {origin}'s class{by_sums or ' on every input'}; scores, margins and the order "
        f"behind the best are not the {origin}'s"
    }
    cells = [int(d.sum()) for d in scores.doubts]
    if any(cells):
        neurons = sum(int(d.any(axis=1).sum()) for d in scores.doubts)
        of = sum(int(layer.fan_in.sum()) + layer.n_outputs for layer in scores.before)
        entries["rounding"] = (
            f"exact sums decide; float sums may round to the other side at {sum(cells):,} of "
            f"{of:,} popcounts, of {neurons:,} neurons"
        )
    if output.order != (*range(len(output.order)),):
        entries["class_order"] = f"classes {', '.join(map(str, output.order))} of the {origin}"
    return entries


def rounds(scores: PopcountTable, output: Scores) -> bool:
    """Whether rounding may change a hidden bit or a score."""
    return any(d.any() for d in scores.doubts) or bool((output.low != output.high).any())


def sample(width: int) -> Bits:
    """All inputs of up to 12 bits, or random ones of all densities: bool ``(rows, width)``."""
    if width <= 12:
        codes = np.arange(1 << width, dtype=np.int64)[:, None]
        return np.asarray((codes >> np.arange(width)) & 1, dtype=np.bool_)
    rng = np.random.default_rng(0)
    return np.asarray(rng.random((ROWS, width)) < rng.random((ROWS, 1)))


def tried(model: BinaryModel, scores: PopcountTable, output: Scores) -> str:
    """Say on how many inputs rounding may decide; the arguments are those of :func:`in_doubt`."""
    bits = sample(model.input.n_bits)
    doubtful = int(in_doubt(model, scores, output, bits).sum())
    return (
        f"a runtime's class, such as onnxruntime's with a batch norm folded into the weights, may "
        f"be another on at most {doubtful:,} of {len(bits):,} inputs tried"
    )


def in_doubt(model: BinaryModel, scores: PopcountTable, output: Scores, bits: Bits) -> Bits:
    """Whether rounding may change the class of some inputs.

    Args:
        model: the integer network.
        scores: the score tensor that the network was made from.
        output: the network's output layer.
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
    low, high = output.low[columns, counts], output.high[columns, counts]
    best = (counts + model.output.bias).argmax(axis=1)[:, None]
    least, most = (np.take_along_axis(side, best, axis=1) for side in (low, high))
    open_ = (low != high) | (least != most)
    rivals = (high > least) | ((high == least) & open_)
    np.put_along_axis(rivals, best, False, axis=1)
    doubtful |= rivals.any(axis=1)
    return doubtful
