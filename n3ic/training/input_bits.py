"""Choice of input bits: which features, and where they are cut.

Every function takes integer columns of training rows and gives fields of an
:class:`~n3ic.model.inputs.InputSpec`. Nothing here may see validation or test rows. All choices are
deterministic; ties go to the earlier name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import MissingDependencyError, UsageError
from n3ic.model.inputs import UINT32_MAX, Field, InputSpec

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

__all__ = [
    "binary_fields",
    "boosted_cuts",
    "boosted_fields",
    "boosted_trees",
    "chi2_features",
    "chi2_scores",
    "quantile_fields",
    "share_bits",
    "thermometer_fields",
    "weighted_fields",
]

Columns = Mapping[str, NDArray[np.int64]]
Cut = tuple[str, int]  # a feature and the integer that its value is compared with


def _missing() -> MissingDependencyError:
    return MissingDependencyError(
        "choosing input bits needs scikit-learn; install it with: pip install 'n3ic[train]'"
    )


def _table(columns: Columns, label: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names and the matrix ``(rows, features)`` of columns that fit the label."""
    if not columns:
        raise UsageError("there is no feature to choose from; name at least one")
    rows = len(label)
    wrong = [name for name, column in columns.items() if np.shape(column) != (rows,)]
    if wrong:
        raise UsageError(f"column {wrong[0]}: {rows} rows expected, as many as labels")
    return tuple(columns), np.stack([np.asarray(c, dtype=np.int64) for c in columns.values()], 1)


def _meta(catalogue: Mapping[str, Feature] | None, name: str) -> tuple[str, float]:
    """Integer unit and scale of a feature, where a catalogue tells them."""
    if catalogue is None or name not in catalogue:
        return "", 1.0
    return catalogue[name].unit, catalogue[name].scale


def chi2_scores(columns: Columns, label: NDArray[np.int64]) -> dict[str, float]:
    """Chi-squared statistic of each feature against the label, scikit-learn's ``chi2``.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows, not negative.
        label: class index of each row, shape ``(rows,)``.

    Returns:
        The statistic per feature, in the order of ``columns``; 0 for a column of zeros.
    """
    try:
        from sklearn.feature_selection import chi2
    except ImportError as error:
        raise _missing() from error
    names, matrix = _table(columns, label)
    clean = np.zeros(len(names))
    used = matrix.any(axis=0)
    if used.any():
        clean[used] = chi2(matrix[:, used].astype(np.float64), label)[0]
    return dict(zip(names, clean.tolist(), strict=True))


def chi2_features(columns: Columns, label: NDArray[np.int64], k: int) -> tuple[str, ...]:
    """The ``k`` features with the largest chi-squared statistic, the largest first.

    The statistic grows with a feature's unit, so large units come first; that is how the paper
    chose, and the ``paper`` recipe keeps to it.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows, not negative.
        label: class index of each row, shape ``(rows,)``.
        k: how many to take.

    Raises:
        UsageError: there are fewer than ``k`` features.
    """
    if not 1 <= k <= len(columns):
        raise UsageError(f"{k} features asked for, {len(columns)} are there to choose from")
    scores = chi2_scores(columns, label)
    return tuple(sorted(scores, key=lambda name: -scores[name])[:k])


def binary_fields(
    names: Sequence[str], width: int = 16, *, catalogue: Mapping[str, Feature] | None = None
) -> tuple[Field, ...]:
    """One field of ``width`` raw bits a feature; larger values clamp to the largest that fits.

    Args:
        names: the features, in the order of their bits.
        width: bits a feature, 1 to 32.
        catalogue: what the features mean, for their units.
    """
    fields = []
    for name in names:
        unit, scale = _meta(catalogue, name)
        fields.append(Field.binary(name, width, unit=unit, scale=scale))
    return tuple(fields)


def thermometer_fields(
    cuts: Sequence[Cut],
    order: Sequence[str],
    *,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of loose cuts, one a feature, in the order of ``order``."""
    fields = []
    for name in order:
        own = sorted({cut for feature, cut in cuts if feature == name})
        if own:
            unit, scale = _meta(catalogue, name)
            fields.append(Field.thermometer(name, own, unit=unit, scale=scale))
    return tuple(fields)


def quantile_fields(
    columns: Columns, bits: int, *, catalogue: Mapping[str, Feature] | None = None
) -> tuple[Field, ...]:
    """Thermometer fields whose cuts are quantiles, ``bits`` bits in total.

    Each feature gets an equal share; what a feature of few values cannot use goes to the others,
    one cut at a time, those with the most values first.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        bits: total bit budget.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of exactly ``bits`` bits, or of fewer where the features have no more values.
    """
    if not columns or bits < 1:
        raise UsageError("quantile cuts need at least one feature and one bit")
    rows = len(next(iter(columns.values())))
    names, matrix = _table(columns, np.zeros(rows, dtype=np.int64))
    values = [np.clip(np.unique(matrix[:, j]), 0, UINT32_MAX) for j in range(len(names))]
    room = np.array([max(0, len(np.unique(v)) - 1) for v in values])
    share = np.zeros(len(names), dtype=np.int64)
    left = bits
    while left and (share < room).any():
        open_ = np.flatnonzero(share < room)
        if left >= len(open_):
            take = np.minimum(room[open_] - share[open_], left // len(open_))
            share[open_] += take
            left -= int(take.sum())
        else:
            first = sorted(open_, key=lambda j: (-room[j], j))[:left]
            share[first] += 1
            left = 0
    cuts = []
    for j, name in enumerate(names):
        cuts += [(name, cut) for cut in _quantile_cuts(matrix[:, j], int(share[j]))]
    return thermometer_fields(cuts, names, catalogue=catalogue)


def _quantile_cuts(column: NDArray[np.int64], count: int) -> list[int]:
    """``count`` distinct cuts, as near to equal shares of the rows as the values allow."""
    values, counts = np.unique(np.clip(column, 0, UINT32_MAX), return_counts=True)
    candidates = values[1:]  # a cut at the least value would be true of every row
    below = np.cumsum(counts)[:-1] / len(column)  # share of rows below each candidate
    chosen: list[int] = []
    free = np.ones(len(candidates), dtype=np.bool_)
    for target in (np.arange(count) + 1) / (count + 1):
        distance = np.where(free, np.abs(below - target), np.inf)
        best = int(np.argmin(distance))
        free[best] = False
        chosen.append(int(candidates[best]))
    return sorted(chosen)


def boosted_trees(
    columns: Columns,
    label: NDArray[np.int64],
    *,
    rounds: int = 200,
    leaves: int = 31,
    seed: int = 0,
) -> HistGradientBoostingClassifier:
    """Gradient-boosted trees, fitted to integer columns; the same on any number of cores.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        rounds: boosting rounds.
        leaves: largest number of leaves a tree.
        seed: seed of the boosting.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise _missing() from error
    _, matrix = _table(columns, label)
    trees = HistGradientBoostingClassifier(
        max_iter=rounds, max_leaf_nodes=leaves, early_stopping=False, random_state=seed
    )
    # One thread: parallel sums of floats would make the cuts depend on the number of cores.
    with threadpool_limits(1):
        return trees.fit(np.clip(matrix, 0, UINT32_MAX), label)


def boosted_cuts(names: Sequence[str], trees: HistGradientBoostingClassifier) -> dict[Cut, float]:
    """Cuts that gradient-boosted trees split at, with the loss that each saved in total.

    Args:
        names: the features that the trees were fitted to, in that order.
        trees: see :func:`boosted_trees`.

    Returns:
        Gain per cut ``(feature, value)``, ``value >= cut`` being the right branch.
    """
    gains: dict[Cut, float] = {}
    # scikit-learn keeps the trees of this estimator in `_predictors` alone: one list a round,
    # one tree a class, each with its nodes as a record array.
    for round_ in trees._predictors:
        for tree in round_:
            for node in tree.nodes:
                threshold = float(node["num_threshold"])
                if node["is_leaf"] or not math.isfinite(threshold):
                    continue
                cut = (names[int(node["feature_idx"])], math.floor(threshold) + 1)
                if 1 <= cut[1] <= UINT32_MAX:
                    gains[cut] = gains.get(cut, 0.0) + float(node["gain"])
    return gains


def boosted_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of the ``bits`` cuts that serve gradient-boosted trees best.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        seed: seed of the boosting.
        trees: those of :func:`boosted_trees` on these columns, where they are fitted already.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total, in the order of ``columns``; quantile cuts fill up
        where the trees split at fewer places, and fewer bits come where values are too few.
    """
    if bits < 1:
        raise UsageError(f"{bits} input bits asked for; take at least 1")
    gains = boosted_cuts(tuple(columns), trees or boosted_trees(columns, label, seed=seed))
    chosen = sorted(gains, key=lambda cut: (-gains[cut], cut))[:bits]
    if len(chosen) < bits:
        chosen += _spare_cuts(columns, chosen, bits - len(chosen))
    return thermometer_fields(chosen, tuple(columns), catalogue=catalogue)


def weighted_fields(
    columns: Columns,
    label: NDArray[np.int64],
    bits: int,
    *,
    hidden: tuple[int, ...] = (32, 16),
    candidates: int = 384,
    most_copies: int = 16,
    seed: int = 0,
    trees: HistGradientBoostingClassifier | None = None,
    catalogue: Mapping[str, Feature] | None = None,
) -> tuple[Field, ...]:
    """Thermometer fields of boosted cuts, each cut there as often as it earns.

    Gradient-boosted trees choose the candidates. A network with real first weights tells how
    much weight each deserves (:func:`n3ic.training.importance.bit_importance`). The bits then go
    one by one to the candidate with the largest weight a copy. Since weights are +1 or -1, two
    copies of a bit give a neuron the weights -2, 0 and 2 to choose from.

    Args:
        columns: int64 array of shape ``(rows,)`` per feature, of training rows.
        label: class index of each row, shape ``(rows,)``.
        bits: total bit budget.
        hidden: hidden layers of the network that the bits are for.
        candidates: how many cuts to choose from.
        most_copies: most bits of one cut.
        seed: seed of the boosting and of the network.
        trees: those of :func:`boosted_trees` on these columns, where they are fitted already.
        catalogue: what the features mean, for their units.

    Returns:
        Fields of ``bits`` bits in total. The first field of a feature has each of its cuts
        once; further fields of it have the cuts that are there again.
    """
    fields = boosted_fields(columns, label, candidates, seed=seed, trees=trees, catalogue=catalogue)
    if not fields:
        return ()
    try:
        from n3ic.training.importance import bit_importance
    except ImportError as error:
        raise MissingDependencyError(
            "choosing input bits by weight needs PyTorch; install it with: "
            f"pip install 'n3ic[train]' ({error})"
        ) from error
    encoded = InputSpec(fields).encode(columns)
    weight = bit_importance(encoded, label, hidden=hidden, seed=seed)
    copies = share_bits(weight, bits, most_copies)
    cuts = [(f.feature, cut) for f in fields for cut in f.cuts]
    out: tuple[Field, ...] = ()
    for level in range(int(copies.max(initial=0))):
        again = [cut for cut, count in zip(cuts, copies, strict=True) if count > level]
        out += thermometer_fields(again, tuple(columns), catalogue=catalogue)
    return out


def share_bits(weight: NDArray[np.float64], bits: int, most: int) -> NDArray[np.int64]:
    """Copies of each candidate: every bit in turn to the largest weight a copy.

    Args:
        weight: what each candidate deserves, float64 of shape ``(candidates,)``, not negative.
        bits: how many to give away.
        most: most copies of one candidate.

    Returns:
        int64 array of shape ``(candidates,)`` that sums to ``bits``, or to ``most`` times the
        candidates where that is less.
    """
    copies = np.zeros(len(weight), dtype=np.int64)
    for _ in range(min(bits, most * len(weight))):
        worth = np.where(copies < most, weight / (copies + 1), -1.0)
        copies[int(np.argmax(worth))] += 1
    return copies


def _spare_cuts(columns: Columns, taken: Sequence[Cut], count: int) -> list[Cut]:
    """Up to ``count`` quantile cuts that are not taken yet."""
    used = set(taken)
    for bits in (count + len(taken), sum(len(np.unique(c)) for c in columns.values())):
        fields = quantile_fields(columns, max(1, bits))
        spare = [(f.feature, c) for f in fields for c in f.cuts if (f.feature, c) not in used]
        if len(spare) >= count:
            break
    return spare[:count]
