# SPDX-License-Identifier: Apache-2.0
"""Models of one site on the flows of another: as they are, and with some labels of that site.

A fifth of each site's rows is held out; every figure comes from these rows. A site's model is
trained on its other rows, and the labelled flows of a new site are drawn from that site's others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from n3ic.data.split import MIN_ROWS, protocols_of, split
from n3ic.data.table import FlowTable
from n3ic.data.time_scale import powers
from n3ic.errors import UsageError
from n3ic.evaluation.metrics import evaluate
from n3ic.evaluation.out_of_distribution import OodMonitor, Traffic
from n3ic.evaluation.study import StudyResult
from n3ic.kernel.prediction import predict
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import UINT32_MAX
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment
from n3ic.runs.refresh import refreshed
from n3ic.studies.robustness.domain_tables import Sites
from n3ic.studies.robustness.shift_row import shift_row
from n3ic.training.recipe import Recipe
from n3ic.util.display import TextTable, listed
from n3ic.util.markdown import percent

AUGMENT = 16.0
"""Factor of the copies on other time scales, unless the recipe has one."""
NEW_LABELS = (50, 200, 1000)
"""Numbers of labelled flows of the new site."""
_WARNED = {"another": "yes", "same": "no", "unknown": "too few flows"}


@dataclass(frozen=True)
class DomainRequest:
    """What to measure between sites.

    Attributes:
        recipe: how the models are trained.
        augments: factors of the copies on other time scales, see
            :func:`n3ic.data.time_scale.with_time_scales`; 1 for no copies.
        new_labels: numbers of labelled flows of the new site.
        seeds: seeds of the splits, the trainings and the draws of labelled flows.

    Raises:
        UsageError: a number is below 1, or there is no seed.
    """

    recipe: Recipe
    augments: tuple[float, ...] = (1.0, AUGMENT)
    new_labels: tuple[int, ...] = NEW_LABELS
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.augments or min(self.augments) < 1:
            raise UsageError(f"augments: expected factors of 1 or more, got {self.augments}")
        if min(self.new_labels, default=1) < 1:
            raise UsageError(f"new labels: expected numbers from 1 on, got {self.new_labels}")
        if not self.seeds:
            raise UsageError("seeds: expected one or more")


@dataclass(frozen=True)
class DomainFacts:
    """A site's table.

    Attributes:
        name: its name.
        rows: number of rows.
        classes: number of rows of each shared class.
    """

    name: str
    rows: int
    classes: Mapping[str, int]


@dataclass(frozen=True)
class DomainCell:
    """The figures of a model of one site on held-out rows of a site.

    Attributes:
        trained: the site that the model was trained on; empty for a model that has seen nothing
            but the labelled flows of the tested site.
        tested: the site of the rows.
        augment: factor of the copies on other time scales; 1 without copies.
        new_labels: number of labelled flows of the tested site that the model learned from.
        seed: the seed.
        rows: number of held-out rows.
        accuracy: share of the verdicts that are right.
        macro_f1: mean of the F1 of the classes; None if the rows are of one class.
        recall: share of the rows of the class to detect that are called so; None without such rows.
        false_alarms: share of the other rows that get that class; None without such a class.
        traffic: whether the domain warning calls the rows other traffic than the training's.
        outside: share of the rows outside the range of the training rows; None if unknown.
        moved: number of the model's features that have moved.
    """

    trained: str
    tested: str
    augment: float
    new_labels: int
    seed: int
    rows: int
    accuracy: float
    macro_f1: float | None
    recall: float | None
    false_alarms: float | None
    traffic: Traffic
    outside: float | None
    moved: int


@dataclass(frozen=True, repr=False)
class DomainStudy(StudyResult):
    """The figures of every site's models on every site.

    Attributes:
        sites: the sites.
        columns: the columns that the models may read.
        classes: the classes; of two, the second is the one to detect.
        recipe: name of the recipe.
        cells: the figures, in the order of seeds and sites.
        notes: what was left out, as sentences.
    """

    sites: tuple[DomainFacts, ...]
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    recipe: str
    cells: tuple[DomainCell, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The sites, and the accuracy at home and elsewhere."""
        away = [c.accuracy for c in self.cells if c.trained != c.tested and not c.new_labels]
        home = [c.accuracy for c in self.cells if c.trained == c.tested]
        shares = [f"{percent(float(np.mean(of)))} right {where}"
                  for of, where in ((home, "at home"), (away, "elsewhere")) if of]  # fmt: skip
        return f"{len(self.sites)} sites, {len(self.columns)} shared columns: {', '.join(shares)}"

    @property
    def tables(self) -> tuple[TextTable, ...]:
        """A row for each pair of sites, factor and number of labels; figures are means of seeds."""
        groups: dict[tuple[str, str, float, int], list[DomainCell]] = {}
        for cell in self.cells:
            key = cell.trained, cell.tested, cell.augment, cell.new_labels
            groups.setdefault(key, []).append(cell)
        rows = tuple(
            (
                trained or "the labels alone",
                tested,
                f"{augment:g}",
                f"{labels:,}" if labels else "none" if trained != tested else "",
                *map(percent, (_mean(of, "accuracy"), _mean(of, "macro_f1"), _mean(of, "recall"),
                               _mean(of, "false_alarms"))),
                "" if labels else ", ".join(dict.fromkeys(_WARNED[c.traffic] for c in of)),
            )
            for (trained, tested, augment, labels), of in groups.items()
        )  # fmt: skip
        head = ("trained on", "tested on", "augment", "new labels", "accuracy", "macro F1",
                "recall", "false alarms", "domain warning")  # fmt: skip
        seeds = len({cell.seed for cell in self.cells})
        mean = f", mean of {seeds} seeds" if seeds > 1 else ""
        title = f"Across sites: {len(self.columns)} shared columns{mean}"
        sites = tuple(
            (site.name, f"{site.rows:,}", listed([f"{c} {n:,}" for c, n in site.classes.items()]))
            for site in self.sites
        )
        noted = tuple((note,) for note in self.notes)
        return (
            TextTable("Sites", ("site", "rows", "classes"), sites),
            TextTable(title, head, rows, left=2),
            *((TextTable("Left out", ("",), noted),) if noted else ()),
        )


def _mean(cells: Sequence[DomainCell], name: str) -> float | None:
    values = [value for cell in cells if (value := getattr(cell, name)) is not None]
    return float(np.mean(values)) if values else None


def across_domains(
    sites: Sites, request: DomainRequest, notify: Callable[[str], object] = lambda _: None
) -> DomainStudy:
    """Train on each site and test on every site.

    A site whose rows are all of one class is only tested on. For labelled flows of a new site, the
    model keeps its input bits and its shape, and only its numbers change, as a stream's model does
    (:func:`n3ic.runs.refresh.refreshed`), so a device loads them in place.
    Beside it stand models that learned from the labelled flows alone.

    Args:
        sites: the sites' tables, see :func:`~n3ic.studies.robustness.domain_tables.shared_sites`.
        request: what to measure.
        notify: called with a line about each training.

    Raises:
        UsageError: no site has two classes, the recipe does not fit the columns, or models of its
            family are not trained further.
        DataError: a site has too few rows.
    """
    tables = sites.tables
    trainable = [n for n, table in tables.items() if len(np.unique(table.label)) > 1]
    if not trainable:
        raise UsageError(
            f"--domains: expected a site with rows of two classes or more of "
            f"{listed(sites.classes)}, got {listed([*tables])} with one each"
        )
    factors, unscaled = _factors(sites, request.augments)
    notes = (*sites.notes, *unscaled, *_untried(sites, request, trainable))
    cells: list[DomainCell] = []
    for seed in request.seeds:
        parts = {name: _parts(table, seed) for name, table in tables.items()}
        for augment in factors:
            recipe = request.recipe.with_options({"augment": augment})
            for name in trainable:
                notify(f"training on {name}, augment {augment:g}, seed {seed}")
                cells += _of_site(name, parts, recipe, request.new_labels, seed)
            for name, (pool, tested) in parts.items():
                notify(f"training on labels of {name} alone, augment {augment:g}, seed {seed}")
                for labels in request.new_labels:
                    labelled_rows = _labelled(pool, labels, seed)
                    if (
                        labelled_rows is not None
                        and labels >= MIN_ROWS
                        and len(np.unique(labelled_rows.label)) > 1
                    ):
                        alone = _trained(labelled_rows, recipe, seed)
                        cells.append(_cell(("", name, augment), labels, seed, alone, tested))
    facts = tuple(
        DomainFacts(name, len(table), dict(zip(sites.classes, _counts(table), strict=True)))
        for name, table in tables.items()
    )
    return DomainStudy(
        facts, sites.columns, sites.classes, request.recipe.name, tuple(cells), notes
    )


def _untried(sites: Sites, request: DomainRequest, trainable: Sequence[str]) -> Iterator[str]:
    """Sentences about sites that are not trained on, and numbers of labels that they lack."""
    for name, table in sites.tables.items():
        if name not in trainable:
            yield f"{name} has rows of one class, so it is only tested on"
        least = min(len(_parts(table, seed)[0]) for seed in request.seeds)
        for labels in request.new_labels:
            if labels > least:
                yield f"{name} has {least:,} rows to label, not {labels:,}"


def _of_site(
    name: str,
    parts: Mapping[str, tuple[FlowTable, FlowTable]],
    recipe: Recipe,
    new_labels: Sequence[int],
    seed: int,
) -> Iterator[DomainCell]:
    """The figures of a site's model on every site, as it is and with labels of the others."""
    own = parts[name][0]
    model = _trained(own, recipe, seed)
    for new, (pool, tested) in parts.items():
        at = name, new, recipe.augment
        yield _cell(at, 0, seed, model, tested)
        for labels in new_labels if new != name else ():
            labelled_rows = _labelled(pool, labels, seed)
            if labelled_rows is not None:
                yield _cell(at, labels, seed, _fine_tuned(model, own, labelled_rows, seed), tested)


def _trained(table: FlowTable, recipe: Recipe, seed: int) -> Classifier:
    return train(Experiment(table, recipe, seed=seed, with_baselines=False)).model


def _counts(table: FlowTable) -> list[int]:
    counted: list[int] = np.bincount(table.label, minlength=len(table.classes)).tolist()
    return counted


def _factors(sites: Sites, requested: Sequence[float]) -> tuple[list[float], list[str]]:
    """The factors that make a difference, and a sentence about the others."""
    first = next(iter(sites.tables.values()))
    if powers(first, sites.columns) or {*requested} == {1.0}:
        return [*dict.fromkeys(requested)], []
    why = "no shared column has a unit of time or rate, so there are no copies on other time scales"
    return [1.0], [why]


def _parts(table: FlowTable, seed: int) -> tuple[FlowTable, FlowTable]:
    """The rows to train on or to draw labels from, and a fifth that is held out."""
    whole = "conversation" in protocols_of(table)
    parts = split(table, "conversation" if whole else "random", seed)
    if whole:  # rows of a conversation are on the same side
        return table.rows(np.sort(np.concatenate([parts.train, parts.validation]))), table.rows(
            parts.test
        )
    return table.rows(parts.train), table.rows(
        np.sort(np.concatenate([parts.validation, parts.test]))
    )


def _labelled(pool: FlowTable, labels: int, seed: int) -> FlowTable | None:
    """Random rows of a site, of which a larger number contains the smaller; None if too few."""
    order = np.random.default_rng(seed).permutation(len(pool))
    return pool.rows(order[:labels]) if labels <= len(pool) else None


def _fine_tuned(model: Classifier, old: FlowTable, new: FlowTable, seed: int) -> Classifier:
    """The model with its input bits and shape, trained further on labelled flows of a new site.

    As many rows of the old site are rehearsed, as a stream's learner does with its anchors.
    """
    old_rows = _labelled(old, min(len(new), len(old)), seed)
    rows = [part for part in (new, old_rows) if part is not None]
    features = np.concatenate([part.matrix(model.input.features) for part in rows])
    label = np.concatenate([part.label for part in rows])
    clipped = np.clip(features, 0, UINT32_MAX).astype(np.uint32)
    return refreshed(model, clipped, label, np.ones(len(model.classes)), seed=seed)


def _cell(
    at: tuple[str, str, float], labels: int, seed: int, model: Classifier, tested: FlowTable
) -> DomainCell:
    """The figures of a model on held-out rows."""
    columns = {name: tested.features[name] for name in model.input.features}
    verdicts: NDArray[np.int64] = predict(model, model.encode(columns)).classes.astype(np.int64)
    classes = len(model.classes)
    figures = evaluate(tested.label, verdicts, None, classes)
    row = shift_row("", tested.label, verdicts, 1 if classes == 2 else None)
    monitor = OodMonitor(model.input)
    monitor.add(columns)
    report = monitor.report()
    trained, new, augment = at
    return DomainCell(
        trained=trained,
        tested=new,
        augment=augment,
        new_labels=labels,
        seed=seed,
        rows=len(tested),
        accuracy=figures.accuracy,
        macro_f1=figures.macro_f1 if len(np.unique(tested.label)) > 1 else None,
        recall=row.recall,
        false_alarms=row.false_alarms,
        traffic=report.traffic,
        outside=report.outside,
        moved=len(report.moved),
    )
