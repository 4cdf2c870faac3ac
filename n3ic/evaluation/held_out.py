# SPDX-License-Identifier: Apache-2.0
"""A model's answers to labelled rows that it was not trained on.

Only such rows say something about accuracy, margins, calibration and ROC on other traffic.
Functions that plot or count them take a :class:`HeldOut`, and :func:`held_out` selects the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import SplitProtocol, protocols_of, split
from n3ic.data.table import FlowTable
from n3ic.errors import DataError, UsageError
from n3ic.evaluation.calibration import MarginGroup, calibration, calibration_table
from n3ic.evaluation.importance import REPEATS, FeatureImportance, permutation_importance
from n3ic.evaluation.metrics import against_rest, counted_class, evaluate
from n3ic.evaluation.roc import RocCurve, roc_curve
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier, Inference
from n3ic.util.display import Displayed, View
from n3ic.util.markdown import percent


@dataclass(frozen=True, eq=False, repr=False)
class HeldOut(Displayed):
    """A model's answers to labelled rows that it was not trained on; see :func:`held_out`.

    Attributes:
        model: the model.
        table: all the flows.
        rows: indices of the held-out flows in the table, int64 array of shape ``(rows,)``.
        label: class index of each row, by the model's classes, int64 array of that shape.
        inference: the model's answers.
        positive: index of the positive class; None for several classes without one.
        origin: description of the rows, such as ``the 8,234 test rows of unsw-nb15``.
    """

    model: Classifier
    table: FlowTable
    rows: NDArray[np.int64]
    label: NDArray[np.int64]
    inference: Inference
    positive: int | None
    origin: str

    def view(self) -> View:
        """The title and the tables that are displayed."""
        accuracy = f"{percent(float(self.right.mean()))} right" if len(self.rows) else "no rows"
        tables = (calibration_table(self.calibration(), self.origin),)
        return View(f"{self.model.name} on {self.origin}: {accuracy}", tables)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the model is right on each row, bool array of shape ``(rows,)``."""
        return np.asarray(self.inference.classes == self.label)

    @property
    def roc(self) -> RocCurve | None:
        """The ROC of the positive class; None without one, or if all rows are of one kind."""
        if self.positive is None or len(np.unique(self.label == self.positive)) < 2:
            return None
        score = against_rest(self.inference.scores.astype(np.float64), self.positive)
        return roc_curve(self.label == self.positive, score)

    def by_packet(self) -> list[dict[str, int | float]]:
        """Figures at each packet of the meter's schedule, the end (0) last; empty without one."""
        if self.table.point is None:
            return []
        points = self.table.point[self.rows]
        records: list[dict[str, int | float]] = []
        for packet in sorted({*points.tolist()}, key=lambda p: (not p, p)):  # 0, the end, last
            at = points == packet
            classes = self.inference.classes[at].astype(np.int64)
            of = evaluate(self.label[at], classes, None, len(self.model.classes))
            record = {"packet": packet, "flows": of.rows, "accuracy": of.accuracy}
            records.append({**record, "macro_f1": of.macro_f1})
        return records

    def calibration(self, groups: int = 10) -> tuple[MarginGroup, ...]:
        """Observed accuracy by margin; see :func:`~n3ic.evaluation.calibration.calibration`."""
        return calibration(self.right, self.inference.margins, groups)

    def importance(self, repeats: int = REPEATS, seed: int = 0) -> tuple[FeatureImportance, ...]:
        """See :func:`~n3ic.evaluation.importance.permutation_importance`."""
        columns = {name: self.table.features[name][self.rows] for name in self.model.input.features}
        return permutation_importance(self.model, columns, self.label, repeats=repeats, seed=seed)


def held_out(
    model: Classifier,
    table: FlowTable,
    *,
    label: NDArray[np.int64] | None = None,
    positive: int | None = None,
) -> HeldOut:
    """Select the test rows of a model's training; for flows it was not trained on, all rows.

    Args:
        model: a trained model, whose provenance names its training table and the split.
        table: labelled flows; the training table must be whole to be split in the same way.
        label: the model's class index of each flow, int64 array of shape ``(rows,)``; None takes
            the table's classes by name.
        positive: index of the positive class; None for the second of two classes.

    Raises:
        UsageError: the model was trained on these flows, but does not record on which of them.
        DataError: a class of the table is unknown to the model.
        ModelError: the table lacks a feature that the model reads.
    """
    protocol, seed, trained = known_split(model, table)
    every = np.arange(len(table), dtype=np.int64)
    rows = split(table, protocol, seed).test if trained else every
    columns = {n: table.features[n][rows] for n in model.input.features if n in table.features}
    inference = predict(model, model.encode(columns))
    label = labels_of(model, table) if label is None else label
    which = f"the {len(rows):,} test rows" if trained else f"{len(rows):,} rows of other flows"
    return HeldOut(
        model=model,
        table=table,
        rows=rows,
        label=label[rows],
        inference=inference,
        positive=counted_class(len(model.classes), positive),
        origin=f"{which} of {table.name}",
    )


def known_split(model: Classifier, table: FlowTable) -> tuple[SplitProtocol, int, bool]:
    """Protocol and seed of the split, and whether the model was trained with it.

    Raises:
        UsageError: the model was trained on these rows, but does not record on which of them.
    """
    known = model.provenance
    allowed = protocols_of(table)
    protocol = next((p for p in allowed if p == known.get("protocol")), None)
    # The digest decides: a table of another name may hold the training rows.
    if known.get("data_sha256") != table.sha256:
        return protocol or "random", 0, False
    # The split is a function of table, protocol and seed, so these give the same test rows again.
    seed = known.get("seed", "")
    if protocol is None or not seed.isdecimal():
        raise UsageError(
            f"{model.name} was trained on these rows, and does not say on which of them: no row is "
            "known to be unseen; take other flows with --data"
        )
    return protocol, int(seed), True


def labels_of(model: Classifier, table: FlowTable) -> NDArray[np.int64]:
    """The model's class index of each flow, int64 array of shape ``(rows,)``.

    Raises:
        DataError: a class of the table is unknown to the model.
    """
    unknown = [c for c in table.classes if c not in model.classes]
    if unknown:
        raise DataError(
            f"{table.name}: class {unknown[0]!r} is not one of the network's: "
            f"{', '.join(model.classes)}"
        )
    index = np.array([model.classes.index(c) for c in table.classes], dtype=np.int64)
    return index[table.label]
