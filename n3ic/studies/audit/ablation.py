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
    asked = [one for one in left_out if set(columns) - set(one)]
    if not asked:
        return ()
    every = right(tuple(columns))
    out = []
    for one in asked:
        without = right(tuple(c for c in columns if c not in one))
        change = every.astype(np.float64) - without
        error = float(change.std() / np.sqrt(len(change)))
        out.append(Loss(one, kind, len(every), float(every.mean()), float(change.mean()), error))
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
            held = np.arange(len(part)) % _FOLDS == fold
            own = {name: part.features[name][~held] for name in columns}
            trees = boosted_trees(own, part.label[~held], rounds=_ROUNDS, seed=seed)
            out[held] = trees.predict(part.rows(held).matrix(columns)) == part.label[held]
        return out

    return right


def network(table: FlowTable, recipe: Recipe, seed: int, tell: Callable[[str], object]) -> Right:
    """Return a function that trains a network and tests it on validation rows, never on test rows.

    Raises:
        MissingDependencyError: PyTorch is not installed.
    """
    from n3ic.data.split import split
    from n3ic.kernel.prediction import predict
    from n3ic.runs.experiment import Experiment, train
    from n3ic.runs.progress import TrainingProgress

    held = table.rows(split(table, "random", seed).validation)

    def right(columns: tuple[str, ...]) -> NDArray[np.bool_]:
        own = replace(recipe, columns=columns)
        tell(f"training a network on {len(columns)} columns")
        found = train(Experiment(table, own, seed=seed, with_baselines=False), TrainingProgress())
        model = found.model
        asked = {name: held.features[name] for name in model.input.features}
        verdicts = predict(model, model.encode(asked)).classes
        return np.asarray(verdicts == held.label, dtype=np.bool_)

    return right
