# SPDX-License-Identifier: Apache-2.0
"""Makes an integer model of fitted trees, with the classes of the library that fitted them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ModelError, N3icWarning
from n3ic.families.trees.network import MAX_NODES, MAX_TREES, TreesModel
from n3ic.families.trees.readers.columns import TreeColumns
from n3ic.families.trees.readers.comparison import (
    Trial,
    differing,
    float_error,
    sums_of,
    trial,
)
from n3ic.families.trees.readers.cuts import Comparisons, compared
from n3ic.families.trees.readers.ensemble import Ensemble, FittedTrees, Ints
from n3ic.families.trees.readers.leaves import RoundedLeaves, exact_lead, roundings
from n3ic.families.trees.simplify import possible, simplified
from n3ic.model.classifier import classes_of
from n3ic.model.summed import n_sums

_LISTED = 1000  # differing rows whose lead is computed


def converted(
    source: FittedTrees,
    columns: TreeColumns,
    classes: Sequence[str],
    *,
    name: str,
    kind: str,
    leaf_bits: int | None = None,
) -> TreesModel:
    """Make the integer model of fitted trees.

    Each scale of the leaf values is tried on the given rows and on rows at every cut, one below and
    one above, until the classes are the library's.

    Args:
        source: the trees, and their library.
        columns: the columns that they read.
        classes: names of the classes.
        name: the model's name.
        kind: where the trees come from, for the provenance.
        leaf_bits: bits of the largest leaf value; None for as many as the rows need.

    Raises:
        ModelError: the trees do not fit a model, or a class differs for no reason that is known.

    Warns:
        N3icWarning: rows have another class than the library gives them; says how many and why.
    """
    ensemble = source.ensemble
    _check_size(ensemble)
    comparisons = compared(source, columns)
    if not len(columns.rows):
        _warn_of_coarse_units(comparisons)
    draft, of = _draft(ensemble, columns, comparisons, classes)
    tested = trial(source, columns, comparisons, draft)
    reached = None
    if tested is not None:
        reached = draft.reached(draft.encode(columns.features(tested.integers)))
    wrong: Ints = np.zeros(0, dtype=np.int64)
    for rounded in roundings(ensemble, _tree_of(ensemble), leaf_bits):
        if tested is None or reached is None:
            continue
        scores = sums_of(rounded.leaves[of], rounded.bias, reached)
        wrong = differing(tested, classes_of(scores))
        if not len(wrong):
            break
    facts = {"source": kind, "rounding": _rounding_text(rounded)}
    if tested is not None and reached is not None:
        facts["compared"] = f"{tested.text}; {source.library} gives the same class to "
        facts["compared"] += "all" if not len(wrong) else f"all but {len(wrong):,}"
        if len(wrong):
            _explain(source, draft, of, tested, reached, rounded, wrong)
    model = replace(
        draft,
        leaves=rounded.leaves[of],
        bias=rounded.bias,
        name=name,
        provenance=facts,
        meter=columns.meter,
        table=None,
    )
    smaller = simplified(model).model
    rules = columns.rules and columns.rules.only(smaller.input.features)
    return replace(smaller, provenance=facts, table=rules)


def _warn_of_coarse_units(comparisons: Comparisons) -> None:
    """Warn if many thresholds lie between the same integers, as those of fractions do.

    Warns:
        N3icWarning: more than half of the different thresholds ask what others ask.
    """
    asked = len(comparisons.cuts)
    if comparisons.thresholds > 2 * asked:
        warnings.warn(
            f"the trees have {comparisons.thresholds:,} different thresholds, of which whole "
            f"numbers tell {asked:,} apart: if columns hold fractions, say so by rows= or "
            "inputs={name: integer units in one of yours} of n3ic.from_sklearn",
            N3icWarning,
            stacklevel=4,
        )


def _check_size(ensemble: Ensemble) -> None:
    if len(ensemble.roots) > MAX_TREES or len(ensemble.columns) > MAX_NODES:
        raise ModelError(
            f"{len(ensemble.roots):,} trees of {len(ensemble.columns):,} nodes; at most "
            f"{MAX_TREES:,} trees and {MAX_NODES:,} nodes are supported: fit fewer or smaller trees"
        )
    goals = np.concatenate([ensemble.left, ensemble.right, ensemble.roots])
    inner, leaves = goals[goals >= 0], ~goals[goals < 0]
    for ways, count in ((inner, len(ensemble.columns)), (leaves, len(ensemble.leaves))):
        if len(ways) != count or len(np.unique(ways)) != count:  # a circle would not end
            raise ModelError("the nodes are no trees: expected one way to each node and leaf")


def _draft(
    ensemble: Ensemble, columns: TreeColumns, comparisons: Comparisons, classes: Sequence[str]
) -> tuple[TreesModel, Ints]:
    """The trees with cuts and without leaf values, and the ensemble's leaf behind each leaf."""
    free = comparisons.bits >= 0
    zero = np.where(comparisons.zero_left, ensemble.left, ensemble.right)
    one = np.where(comparisons.zero_left, ensemble.right, ensemble.left)
    only = np.where(comparisons.always_left, ensemble.left, ensemble.right)
    goal = _beyond(only, free)
    sides = (zero, one, ensemble.roots)
    resolved = [np.where(side < 0, side, goal[np.maximum(side, 0)]) for side in sides]
    laid = possible(
        comparisons.input,
        resolved[2].tolist(),
        comparisons.bits.tolist(),
        resolved[0].tolist(),
        resolved[1].tolist(),
    )
    sums = n_sums(len(classes))
    model = TreesModel(
        input=comparisons.input,
        sizes=np.array(laid.sizes),
        bits=np.array(laid.bits),
        zero_sizes=np.array(laid.zero_sizes),
        leaves=np.zeros((len(laid.leaves), sums), dtype=np.int32),
        bias=np.zeros(sums, dtype=np.int32),
        classes=tuple(classes),
    )
    return model, np.array(laid.leaves, dtype=np.int64)


def _beyond(only: Ints, free: NDArray[np.bool_]) -> Ints:
    """Where the way from each node leads that passes nodes which always answer alike."""
    goal = np.where(free, np.arange(len(free)), only)
    while True:
        inner = goal >= 0
        further = goal.copy()
        further[inner] = np.where(free[goal[inner]], goal[inner], only[goal[inner]])
        if (further == goal).all():
            return goal
        goal = further


def _tree_of(ensemble: Ensemble) -> Ints:
    """The tree of each leaf, int64 array of shape ``(leaves,)``."""
    out = np.zeros(len(ensemble.leaves), dtype=np.int64)
    at, tree = np.asarray(ensemble.roots), np.arange(len(ensemble.roots))
    while len(at):
        out[~at[at < 0]] = tree[at < 0]
        inner = at >= 0
        at, tree = (
            np.concatenate([ensemble.left[at[inner]], ensemble.right[at[inner]]]),
            np.tile(tree[inner], 2),
        )
    return out


def _rounding_text(rounded: RoundedLeaves) -> str:
    if not rounded.lead:
        return f"none: leaf values are whole in steps of {rounded.steps}"
    return (
        f"leaf values in steps of {rounded.steps}: the class can differ only where the best one "
        f"leads by {rounded.lead:.3g} or less in the sums of leaf values"
    )


def _explain(
    source: FittedTrees,
    draft: TreesModel,
    of: Ints,
    tested: Trial,
    reached: NDArray[np.int32],
    rounded: RoundedLeaves,
    wrong: Ints,
) -> None:
    """Say why rows have another class than the library gives them.

    Raises:
        ModelError: some row is neither nearly a tie nor between two integers of a column.

    Warns:
        N3icWarning: some rows differ.
    """
    limit = rounded.lead + float_error(source, source.ensemble.leaves)
    lead = np.array([exact_lead(source.ensemble, of[reached[row]]) for row in wrong[:_LISTED]])
    coarse = tested.coarse[wrong[:_LISTED]]
    unknown = wrong[:_LISTED][(lead > limit) & ~coarse]
    if len(unknown):
        row = int(unknown[0])
        raise ModelError(
            f"{source.library} gives class {draft.classes[tested.classes[row]]!r} to the row "
            f"{(tested.integers[row]).tolist()[:20]} (in integer units), its trees by their "
            "arrays another one, and it is no tie: this version of the library computes otherwise "
            "than expected; report it"
        )
    given, near = int((wrong < tested.given).sum()), int((~coarse).sum())
    reasons = []
    if near:
        reasons.append(
            f"{near:,} are ties or nearly: the classes lead by at most {lead[~coarse].max():.3g}, "
            "where the library's own floats round otherwise than exact sums"
        )
    if coarse.any():
        reasons.append(
            f"{int(coarse.sum()):,} hold numbers between two integers of a column's unit; finer "
            "units are given by inputs={name: units in one of the rows'}"
        )
    warnings.warn(
        f"{len(wrong):,} of {len(tested.integers):,} rows ({given:,} of {tested.given:,} given) "
        f"have another class than {source.library} gives them: {'; '.join(reasons)}",
        N3icWarning,
        stacklevel=4,
    )
