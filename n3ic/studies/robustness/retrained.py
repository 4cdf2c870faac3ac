# SPDX-License-Identifier: Apache-2.0
"""Networks trained with a run's recipe on some of the rows, and tested on rows of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol, protocols_of, split
from n3ic.data.table import FlowTable
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import HeldOut, labels_of
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment
from n3ic.studies.robustness.shift_row import ShiftRow, shift_row
from n3ic.training.recipe import Recipe

EACH = "each"


def by_time(sample: HeldOut, recipe: Recipe) -> Iterator[ShiftRow]:
    """Train a network on the earlier rows and yield its figures on the last fifth.

    Raises:
        UsageError: The table has no order in time.
    """
    if "time" not in protocols_of(sample.table):
        raise UsageError(
            f"--time-order: the rows of {sample.table.name} have no order in time; expected a "
            "table with times, such as UNSW-NB15's raw files or metered captures"
        )
    model = _trained(sample, recipe, sample.table, "time")
    rows = split(sample.table, "time", seed_of(sample.model)).test
    yield _row("trained on earlier rows, on later ones", sample, model, sample.table.rows(rows))


def without_category(sample: HeldOut, recipe: Recipe, category: str) -> Iterator[ShiftRow]:
    """Yield two rows per category of attacks: of the network, and of one trained without it.

    The first row counts the network's test rows. The second network has seen no row of the
    category, so all rows of the category test it; its false alarms come from its own test rows.

    Args:
        sample: the model and its table.
        recipe: how the network was trained.
        category: name of the category, or ``each``.

    Raises:
        UsageError: The table has no categories, lacks this one, or has no other.
    """
    table, positive = sample.table, sample.positive
    if table.category is None or positive is None:
        raise UsageError(
            f"--leave-out: {table.name} has no categories of a class to detect; expected a data "
            "set whose catalogue names a category column"
        )
    is_attack = labels_of(sample.model, table) == positive
    known = sorted({*table.category[is_attack].tolist()})
    if category != EACH and category not in known:
        raise UsageError(f"--leave-out {category}: expected {EACH} or one of {', '.join(known)}")
    if len(known) < 2:
        raise UsageError(f"--leave-out {category}: it is the only category to be found")
    for name in known if category == EACH else [category]:
        of = (table.category == name) & is_attack
        of_category = np.flatnonzero(of[sample.rows])
        of_other_classes = np.flatnonzero(sample.label != positive)
        compared = np.concatenate([of_category, of_other_classes])
        verdicts = sample.inference.classes[compared]
        yield shift_row(f"{name}, trained on", sample.label[compared], verdicts, positive)
        remainder = table.rows(~of)
        model = _trained(sample, recipe, remainder, "random")
        tested = remainder.rows(split(remainder, "random", seed_of(sample.model)).test)
        tested = tested.rows(labels_of(sample.model, tested) != positive)
        unseen = table.rows(of)
        label = np.concatenate([labels_of(sample.model, unseen), labels_of(sample.model, tested)])
        answers = np.concatenate([_classes(model, part) for part in (unseen, tested)])
        yield shift_row(f"{name}, not trained on", label, answers, positive)


def _row(name: str, sample: HeldOut, model: Classifier, table: FlowTable) -> ShiftRow:
    return shift_row(name, labels_of(sample.model, table), _classes(model, table), sample.positive)


def _classes(model: Classifier, table: FlowTable) -> NDArray[np.int64]:
    inference = predict(model, model.encode({n: table.features[n] for n in model.input.features}))
    return inference.classes.astype(np.int64)


def seed_of(model: Classifier) -> int:
    """The seed that a model was trained with; 0 if it does not say one."""
    seed_text = model.provenance.get("seed", "")
    return int(seed_text) if seed_text.isdecimal() else 0


def _trained(
    sample: HeldOut, recipe: Recipe, table: FlowTable, protocol: SplitProtocol
) -> Classifier:
    """Train a recipe on a table, with the classes in the order of the model's."""
    label = labels_of(sample.model, table)
    ordered = replace(table, label=label, classes=sample.model.classes)
    experiment = Experiment(
        ordered,
        recipe,
        protocol,
        seed_of(sample.model),
        positive=sample.positive,
        with_baselines=False,
    )
    return train(experiment).model
