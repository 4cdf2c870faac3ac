# SPDX-License-Identifier: Apache-2.0
"""The best model within a budget of bytes, by validation rows, beside trees of as many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import UsageError
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier, family_text
from n3ic.runs.learner import Candidate, Learned, learner
from n3ic.runs.preparation import prepare, with_baselines
from n3ic.runs.prepared import Experiment, Prepared
from n3ic.runs.progress import TrainingProgress
from n3ic.util.markdown import percent

if TYPE_CHECKING:
    from n3ic.training.packed_trees import PackedTrees

TREE, FOREST = "tree, packed", "forest, packed"


def best_within(
    this: Experiment, progress: TrainingProgress
) -> tuple[Learned, tuple[Candidate, ...], tuple[str, ...]]:
    """Train every family that fits a budget of bytes, and keep the best on validation rows.

    The best is right on most rows, or on the largest mean share of a class if the recipe weighs
    classes; of equals, the first.

    Args:
        this: the experiment, with its budget and the recipes of other families.
        progress: receives messages on the way.

    Returns:
        The model, all that was tried with the kept one first, and a line on each packed tree or
        forest that is better, which no target takes.

    Raises:
        UsageError: no model fits.
    """
    by_class = this.recipe.training.class_weight != "none"

    def worth(candidate: Candidate) -> float:
        return candidate.balanced if by_class else candidate.accuracy

    found: list[tuple[Candidate, Learned]] = []
    beside: list[Candidate] = []
    prepared: Prepared | None = None
    for recipe in (this.recipe, *this.rivals):
        own = replace(this, recipe=recipe, rivals=())
        trees = prepared.trees if prepared else None
        prepared = prepare(own, progress.stage, trees, baselines=False)
        learned = learner(recipe.family).train(prepared, progress)
        found.append((_tried(learned), learned))
        beside += learned.beside
    fitting = [entry for entry in found if entry[0].bytes <= this.budget]
    if not fitting:
        said = ", ".join(f"{c.name} {c.bytes:,} bytes" for c, _ in found)
        raise UsageError(f"no model fits {this.budget:,} bytes: {said}; take more bytes")
    kept, learned = max(fitting, key=lambda entry: worth(entry[0]))
    rows = learned.prepared
    progress.stage(f"growing trees of {this.budget:,} bytes")
    packed = [_packed(name, trees, rows) for name, trees in trees_within(rows, this.budget)]
    others = sorted([*(c for c, _ in found if c is not kept), *beside, *packed], key=worth)
    notes = tuple(
        f"{c.name}: right on more validation rows in as many bytes ({percent(worth(c))} in "
        f"{c.bytes:,} B, the {kept.name} {percent(worth(kept))} in {kept.bytes:,} B); no target "
        "takes it"
        for c in packed
        if worth(c) > worth(kept)
    )
    learned = replace(learned, prepared=with_baselines(rows, progress.stage))
    return learned, (replace(kept, kept=True), *reversed(others)), notes


def candidate(name: str, model: Classifier, prepared: Prepared) -> Candidate:
    """A trained model on the validation rows.

    Args:
        name: what it is.
        model: the model.
        prepared: the rows, encoded by the model's input.
    """
    held = prepared.validation
    return _on_rows(name, model.memory, model.scores(pack(held.bits)), held.label)


def _tried(learned: Learned) -> Candidate:
    model = learned.model
    return candidate(learned.name or family_text(model.family), model, learned.prepared)


def trees_within(prepared: Prepared, budget: int) -> Iterator[tuple[str, PackedTrees]]:
    """A tree on the columns within a number of bytes, and the best of several forests, if any.

    Args:
        prepared: the rows; validation rows choose the forest.
        budget: most bytes of each.
    """
    from n3ic.training.packed_trees import forests_within, tree_within

    rows, held, this = prepared.train, prepared.validation, prepared.experiment
    asked = rows.columns, rows.label, budget, len(this.table.classes), this.seed
    if tree := tree_within(*asked):
        yield TREE, tree

    def right(forest: PackedTrees) -> int:
        return int((forest.votes(held.columns).argmax(axis=1) == held.label).sum())

    if forests := [*forests_within(*asked)]:
        yield FOREST, max(forests, key=right)


def _packed(name: str, trees: PackedTrees, prepared: Prepared) -> Candidate:
    held = prepared.validation
    memory = {"input_bytes": trees.cut_bytes, "index_bytes": len(trees.data) - trees.cut_bytes}
    found = _on_rows(name, memory, trees.votes(held.columns), held.label)
    return replace(found, exported=False)


def _on_rows(
    name: str, memory: Mapping[str, int], scores: NDArray[np.integer], label: NDArray[np.int64]
) -> Candidate:
    right = scores.argmax(axis=1) == label
    shares = [right[label == c].mean() for c in np.unique(label)]
    return Candidate(name, dict(memory), float(right.mean()), float(np.mean(shares)))
