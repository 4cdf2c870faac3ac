# SPDX-License-Identifier: Apache-2.0
"""How much of its accuracy a model keeps at another site: the robustness rows of a run.

Every run has the cheap rows. Rows that train networks or meter captures are made on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.data.time_scale import mixed, powers, scaled
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import HeldOut
from n3ic.evaluation.plugin import EvaluationPlugin
from n3ic.evaluation.study import StudyResult
from n3ic.kernel.prediction import predict
from n3ic.model.bits import Bits, pack, unpack
from n3ic.options import Option, Options
from n3ic.studies.robustness.shift_row import ShiftRow, shift_row
from n3ic.util.display import TextTable
from n3ic.util.markdown import percent
from n3ic.util.plain_data import from_plain

FACTORS = (0.1, 0.5, 2.0, 10.0)
"""Ratios of the times at another site to those of the training."""


@dataclass(frozen=True, repr=False)
class ShiftFigures(StudyResult):
    """The figures of a model under every shift.

    Attributes:
        rows: one row per shift.
        scaled: columns of times and rates that the model reads.
        unscaled: columns computed from times or rates in a way that their unit does not show.
    """

    rows: tuple[ShiftRow, ...]
    scaled: tuple[str, ...]
    unscaled: tuple[str, ...]

    @property
    def title(self) -> str:
        """How many shifts, and the least accuracy of one."""
        least = min((of.accuracy for of in self.rows if of.accuracy is not None), default=None)
        return f"{len(self.rows)} rows at another site: {percent(least)} right in the worst of them"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """A row for each shift."""
        head = ("shift", "rows", "accuracy", "recall", "false alarms", "called so", "same verdict")
        rows = tuple(
            (
                of.shift,
                f"{of.rows:,}",
                *map(percent, (of.accuracy, of.recall, of.false_alarms, of.called, of.same)),
            )
            for of in self.rows
        )
        stay = len(self.unscaled)
        remark = f"; {stay} columns of mixed units stay as they are" if stay else ""
        return (TextTable(f"At another site{remark}", head, rows),)


def cheap_rows(sample: HeldOut, seed: int) -> Iterator[ShiftRow]:
    """Yield rows of scaled times and of permuted columns; the unchanged rows come first.

    A column is permuted among the rows of each class. Its distribution in each class stays the
    same, but its relation to the other columns is lost. Of the single columns, only the worst is
    reported; the last row permutes every column independently.

    Args:
        sample: a model, and rows that it was not trained on.
        seed: seed of the permutations.
    """
    names, label = sample.model.input.features, sample.label
    columns = {name: sample.table.features[name][sample.rows] for name in names}
    before, positive = sample.inference.classes, sample.positive
    yield shift_row("none", label, before, positive, before)
    held_rows = sample.table.rows(sample.rows)
    if powers(held_rows, names):
        for factor in FACTORS:
            words = sample.model.encode(scaled(held_rows, names, factor))
            shift = f"times x {factor:g}, rates x {1 / factor:g}"
            yield shift_row(shift, label, predict(sample.model, words).classes, positive, before)
    spec = sample.model.input
    bits = unpack(sample.model.encode(columns), spec.n_bits)
    feature_of = np.array([spec.feature_of(i) for i in range(spec.n_bits)])
    worst: ShiftRow | None = None
    every = bits.copy()
    for number, name in enumerate(names):
        places = np.flatnonzero(feature_of == name)
        order = _within_classes(label, np.random.default_rng((seed, number)))
        every[:, places] = bits[order[:, None], places]
        changed = bits.copy()
        changed[:, places] = every[:, places]
        row = shift_row(
            f"{name} permuted within a class", label, _classes(sample, changed), positive, before
        )
        if worst is None or (row.accuracy or 0) < (worst.accuracy or 0):
            worst = row
    if worst is not None:
        yield worst
    if len(names) > 1:
        shift = "every column permuted within a class"
        yield shift_row(shift, label, _classes(sample, every), positive, before)


def _classes(sample: HeldOut, bits: Bits) -> NDArray[np.int64]:
    return predict(sample.model, pack(bits)).classes.astype(np.int64)


def _within_classes(label: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A permutation of the rows that keeps each row's class."""
    order = np.arange(len(label))
    for c in np.unique(label):
        rows = np.flatnonzero(label == c)
        order[rows] = rng.permutation(rows)
    return order


class Shifts(EvaluationPlugin):
    """Robustness rows: scaled times, permuted columns, other rows, lost packets, new networks."""

    name: ClassVar[str] = "shifts"
    summary: ClassVar[str] = "accuracy at another site"
    options: ClassVar[tuple[Option, ...]] = (
        Option("shift", "rows of scaled times and permuted columns", False),
        Option("capture", "with --shift: verdicts on a capture with packets lost and sampled", ""),
        Option("other-rows", "with --shift: other labelled flows of the same kind, such as the "
               "data set's other partition", ""),
        Option("exchange", "with --shift: columns exchanged between rows to detect and others with "
               "a mark, such as tcprtt,synack:sttl=31", ""),
        Option("time-order", "with --shift: a network trained on earlier rows", False),
        Option("leave-out", "with --shift: networks trained without this category of attacks; "
               "'each' for each of them in turn", ""),
    )  # fmt: skip

    def figures(self, sample: HeldOut, seed: int) -> Mapping[str, Any]:
        """Compute the cheap rows, on the test rows."""
        return _figures(sample, list(cheap_rows(sample, seed))) if len(sample.rows) else {}

    def requested_figures(
        self, sample: HeldOut, options: Options, source: Path, data: Path | None
    ) -> Mapping[str, Any]:
        """Compute the cheap rows and the requested ones.

        Raises:
            UsageError: The model has no meter for a capture, the flows have no categories or no
                order in time, or the run does not record its recipe.
        """
        from n3ic.studies.robustness.column_permutation import exchanged_rows
        from n3ic.studies.robustness.lost_packets import capture_rows
        from n3ic.studies.robustness.other_rows import rows_of
        from n3ic.studies.robustness.retrained import by_time, seed_of, without_category
        from n3ic.usecases.config import recipe_of

        further = ("capture", "other-rows", "exchange", "time-order", "leave-out")
        requested = [n for n in further if options[n]]
        if requested and not options["shift"]:
            raise UsageError(f"--{requested[0]}: expected beside --shift")
        if not options["shift"]:
            return {}
        classes = len(sample.model.classes)
        seed = seed_of(sample.model)
        rows = [*cheap_rows(sample, seed)]
        if options["exchange"]:
            rows += exchanged_rows(sample, str(options["exchange"]), seed)
        if options["capture"]:
            rows += capture_rows(sample.model, Path(str(options["capture"])), sample.positive)
        if options["other-rows"]:
            rows += rows_of(sample, Path(str(options["other-rows"])))
        if options["time-order"]:
            rows += by_time(sample, recipe_of(source, classes))
        if options["leave-out"]:
            recipe = recipe_of(source, classes)
            rows += without_category(sample, recipe, str(options["leave-out"]))
        return _figures(sample, rows)

    def tables(self, figures: Mapping[str, Any]) -> Sequence[TextTable]:
        """A table with a row for each shift."""
        return figures_of(figures).tables


def figures_of(figures: Mapping[str, Any]) -> ShiftFigures:
    """The figures read from plain data; raises ValueError if they are malformed."""
    return from_plain(ShiftFigures, figures)


def _figures(sample: HeldOut, rows: Sequence[ShiftRow]) -> dict[str, Any]:
    names = sample.model.input.features
    scaled_ones = tuple(sorted(powers(sample.table, names)))
    return asdict(ShiftFigures(tuple(rows), scaled_ones, tuple(mixed(sample.table, names))))


EVALUATION = Shifts()
