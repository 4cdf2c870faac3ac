# SPDX-License-Identifier: Apache-2.0
"""The accuracy that boosted trees, or a network, lose without columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import FlowTable
from n3ic.training.recipe import Recipe

_FOLDS = 3
_ROWS = 20_000
_ROUNDS = 60

Right = Callable[[tuple[str, ...]], NDArray[np.bool_]]


@dataclass(frozen=True)
class Loss:
    """Accuracy with and without columns, on the same held-out rows.

    Attributes:
        columns: the columns left out.
        kind: ``boosted trees`` or ``network``.
        rows: number of rows.
        before: accuracy with all audited columns.
        lost: drop in accuracy without the columns; negative for a gain.
        error: standard error of that difference over the rows.
    """

    columns: tuple[str, ...]
    kind: str
    rows: int
    before: float
    lost: float
    error: float

    @property
    def free(self) -> bool:
        """Whether the loss is within two standard errors."""
        return self.lost <= 2 * self.error


def losses(
    right: Right, kind: str, columns: Sequence[str], left_out: Sequence[tuple[str, ...]]
) -> tuple[Loss, ...]:
    """Compare a classifier with all columns and one without some of them.

    Args:
        right: function from columns to whether each held-out row is classified correctly, bool of
            shape ``(rows,)``.
        kind: the kind of classifier.
        columns: all columns.
        left_out: groups of columns to leave out, one group at a time.
    """
    column_sets = [column_set for column_set in left_out if set(columns) - set(column_set)]
    if not column_sets:
        return ()
    every = right(tuple(columns))
    out = []
    for column_set in column_sets:
        without = right(tuple(c for c in columns if c not in column_set))
        change = every.astype(np.float64) - without
        error = float(change.std() / np.sqrt(len(change)))
        out.append(
            Loss(column_set, kind, len(every), float(every.mean()), float(change.mean()), error)
        )
    return tuple(out)


def boosted(table: FlowTable, seed: int) -> Right:
    """Return a function that tests boosted trees: 60 rounds, three folds, at most 20,000 rows.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    from n3ic.training.input_bits import boosted_trees

    rng = np.random.default_rng((seed, 3))
    part = table.rows(rng.permutation(len(table))[:_ROWS])

    def right(columns: tuple[str, ...]) -> NDArray[np.bool_]:
        out = np.zeros(len(part), dtype=np.bool_)
        for fold in range(_FOLDS):
            in_fold = np.arange(len(part)) % _FOLDS == fold
            own = {name: part.features[name][~in_fold] for name in columns}
            trees = boosted_trees(own, part.label[~in_fold], rounds=_ROUNDS, seed=seed)
            out[in_fold] = trees.predict(part.rows(in_fold).matrix(columns)) == part.label[in_fold]
        return out

    return right


def network(table: FlowTable, recipe: Recipe, seed: int, notify: Callable[[str], object]) -> Right:
    """Return a function that trains a network and tests it on validation rows, never on test rows.

    Raises:
        MissingDependencyError: PyTorch is not installed.
    """
    from n3ic.data.split import split
    from n3ic.kernel.prediction import predict
    from n3ic.runs.experiment import Experiment, train
    from n3ic.runs.progress import TrainingProgress

    validation = table.rows(split(table, "random", seed).validation)

    def right(columns: tuple[str, ...]) -> NDArray[np.bool_]:
        own = replace(recipe, columns=columns)
        notify(f"training a network on {len(columns)} columns")
        result = train(Experiment(table, own, seed=seed, with_baselines=False), TrainingProgress())
        model = result.model
        columns_read = {name: validation.features[name] for name in model.input.features}
        verdicts = predict(model, model.encode(columns_read)).classes
        return np.asarray(verdicts == validation.label, dtype=np.bool_)

    return right
