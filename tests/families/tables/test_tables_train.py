# SPDX-License-Identifier: Apache-2.0
"""``--family tables`` from a table of flows to a run, and entries alone for a kept model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import n3ic
from n3ic.data.table import Feature, FlowTable
from n3ic.errors import ModelError, UsageError
from n3ic.families.tables.learner import LEARNER
from n3ic.families.tables.network import TablesModel
from n3ic.model.bits import pack
from n3ic.runs.experiment import TrainingResult, train
from n3ic.runs.preparation import Experiment, prepare
from n3ic.runs.progress import TrainingProgress
from n3ic.training.recipe import Recipe
from n3ic.usecases.request import TrainRequest
from n3ic.usecases.training import train_use_case

pytest.importorskip("sklearn")
NAMES = ("left", "middle", "right")
SMALL = {"tables": 6, "table_bits": 3, "teacher": 0.0}
QUICK = Recipe("quick", "", "quantile", 24, family="tables").with_options(SMALL)


def flows(seed: int, scale: float, classes: int = 2) -> FlowTable:
    """Flows whose class tells on which side of some planes their values lie."""
    rng = np.random.default_rng(seed)
    rows = (rng.gamma(2, 300, (400, 3)) * scale).astype(np.int64)
    label = (rows[:, 0] + rows[:, 1] > 1200 * scale).astype(np.int64)
    label += (classes > 2) * (rows[:, 2] > 700 * scale)
    return FlowTable(
        name=f"flows-{seed}",
        features=dict(zip(NAMES, rows.T, strict=True)),
        catalogue=tuple(Feature(n, n, "", "", 1.0, 32, True, "counted") for n in NAMES),
        label=label,
        classes=("mail", "web", "call")[:classes],
        synthetic=True,
        sha256=f"{seed}",
    )


def learned(table: FlowTable, recipe: Recipe = QUICK, **more: object) -> TrainingResult:
    return train(Experiment(table, recipe, with_baselines=False, **more))


class StepCounter:
    """Progress that counts the tasks of each step: ``steps`` has their number and those done."""

    def __init__(self, stop: tuple[str, int] = ("", 0)) -> None:
        self.steps: dict[str, tuple[int, int]] = {}
        self.stop = stop
        self.progress = TrainingProgress(begin=self.begin, task=self.task)

    def begin(self, text: str, count: int) -> None:
        self.steps[text] = (count, 0)

    def task(self, name: str) -> None:
        step = list(self.steps)[-1]
        count, done = self.steps[step]
        self.steps[step] = (count, done + 1)
        if step.startswith(self.stop[0]) and done + 1 == self.stop[1]:
            raise KeyboardInterrupt


@pytest.mark.parametrize("classes", [2, 3])
def test_a_table_of_flows_gives_a_model_with_its_figures(classes: int) -> None:
    progress = StepCounter()
    table = flows(1, 1, classes)
    experiment = Experiment(table, QUICK, with_baselines=False)
    result = train(experiment, progress.progress)
    model = result.model
    assert isinstance(model, TablesModel) and len(model.tables) <= 6
    assert result.test.accuracy > (0.85 if classes == 2 else 0.7)
    assert result.history == ()
    # Cuts that no table reads are gone, and the rates are those of the cuts that stay.
    assert model.input.n_bits == len({b for t in model.tables for b in t.bits}) < 24
    assert all(len(f.rates) == f.width for f in model.input.fields)
    scores = model.scores(pack(model.input.encode(table.features)))
    assert (scores.argmax(axis=1) == table.label).mean() > 0.7
    # Each step says how many tasks it has, and does as many, rounding at most.
    assert len(progress.steps) == 3 and all(
        "look-up tables" in name for name in list(progress.steps)[:2]
    )
    assert all(done == count for count, done in list(progress.steps.values())[:2])
    count, done = progress.steps["rounding the entries"]
    assert 6 <= done <= count


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    request = TrainRequest("flows", table=flows(1, 1), recipe=QUICK, out=tmp_path / "run")
    progress = StepCounter(("growing 6", 3))
    with pytest.raises(KeyboardInterrupt):
        train_use_case(request, progress.progress)
    assert list(progress.steps.values()) == [(6, 6), (6, 3)]
    assert list(tmp_path.iterdir()) == []


def test_training_again_gives_the_same_model() -> None:
    assert learned(flows(1, 1)).model.digest == learned(flows(1, 1)).model.digest


def test_a_teacher_is_believed_as_far_as_the_recipe_says() -> None:
    """One that calls each row by the other class."""
    for weight, right in ((0.4, True), (0.6, False)):
        recipe = QUICK.with_options({"teacher": weight, "bits": 24, "encoding": "weighted"})
        experiment = Experiment(flows(1, 1), recipe, with_baselines=False)
        prepared = prepare(experiment, lambda _: None)
        assert prepared.teacher is not None
        cuts = [(f.feature, c) for f in prepared.spec.fields for c in f.cuts]
        assert len(cuts) == len(set(cuts))  # no copies, which weighted bits of binary networks have
        wrong = 1 - np.eye(2)[prepared.train.label]
        model = LEARNER.train(replace(prepared, teacher=wrong), TrainingProgress()).model
        scores = model.scores(pack(model.input.encode(experiment.table.features)))
        share = (scores.argmax(axis=1) == experiment.table.label).mean()
        assert (share > 0.8) if right else (share < 0.2)


def test_a_budget_of_bytes_bounds_all_parts() -> None:
    recipe = QUICK.with_options({"table_bytes": 90, "tables": 100})
    model = learned(flows(1, 1), recipe).model
    assert isinstance(model, TablesModel)
    assert 50 < model.total_bytes == sum(model.memory.values()) <= 90


@pytest.mark.slow
def test_validation_rows_choose_the_prior() -> None:
    """Labels that are noise: who learns few of them by heart is right more often."""
    table = flows(1, 1)
    noise = np.random.default_rng(7).random(len(table.label)) < 0.3
    table = replace(table, label=np.where(noise, 1 - table.label, table.label))
    sizes = {"tables": 20, "table_bits": 4}
    results = {
        prior: learned(table, QUICK.with_options({**sizes, "cell_prior": prior}))
        for prior in (0.0, 3.0, 30.0, 100.0)
    }
    right = {prior: result.validation.accuracy for prior, result in results.items() if prior}
    best = max(right, key=lambda prior: right[prior])
    assert results[0.0].model.digest == results[best].model.digest and right[best] > right[3.0]


def test_cuts_are_as_coarse_as_the_recipe_says() -> None:
    """Of a power of two, only the bits above it are compared."""
    zeros = {}
    for share in (0.0, 0.05):
        model = learned(flows(1, 1), QUICK.with_options({"coarse_cuts": share})).model
        cuts = [cut for field in model.input.fields for cut in field.cuts]
        zeros[share] = np.mean([(cut & -cut).bit_length() for cut in cuts])
    assert zeros[0.05] > zeros[0.0] + 1


def test_weights_of_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="only binary networks"):
        learned(flows(1, 1), QUICK.with_options({"class_weight": "balanced"}))


def test_entries_alone_are_new() -> None:
    one = learned(flows(1, 1)).model
    assert isinstance(one, TablesModel)
    two = learned(flows(2, 1.7), keeps=one).model
    assert isinstance(two, TablesModel)
    assert two.digest != one.digest and two.input == one.input
    assert [(t.bits, t.width) for t in two.tables] == [(t.bits, t.width) for t in one.tables]
    assert two.provenance["input_of"] == f"{one.name} {one.digest}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of both families in files, and a table of flows as CSV."""
    top = tmp_path_factory.mktemp("kept")
    learned(flows(1, 1)).model.save(top / "tables.n3ic")
    binary = Recipe("binary", "", "quantile", 24).with_options({"hidden": (4,), "epochs": 1})
    learned(flows(1, 1), binary).model.save(top / "binary.n3ic")
    table = flows(2, 1.7)
    rows = zip(*table.features.values(), table.label, strict=True)
    lines = [",".join(map(str, [*row, table.classes[label]])) for *row, label in rows]
    (top / "b.csv").write_text("\n".join([",".join([*table.features, "app"]), *lines, ""]))
    return top


def asked(folder: Path, name: str, out: str, **more: object) -> n3ic.Run:
    return n3ic.train(
        "flows",
        data=folder / "b.csv",
        options={"label": "app"},
        input_of=folder / f"{name}.n3ic",
        out=folder / out,
        **more,
    )


@pytest.mark.parametrize(
    ("name", "overrides", "error", "message"),
    [
        ("tables", {"family": "tables", "bits": 9}, UsageError, "leave bits out"),
        ("tables", {"family": "tables", "table_bits": 3}, UsageError, "leave table_bits out"),
        ("binary", {"family": "tables"}, UsageError, "expected look-up tables"),
        ("tables", {}, ModelError, "expected a binary network"),
        ("tables", {"family": "spn"}, UsageError, "family spn chooses"),
    ],
)
def test_what_contradicts_a_kept_model_is_refused(
    folder: Path, name: str, overrides: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        asked(folder, name, "refused", overrides=overrides)
    assert not (folder / "refused").exists()


@pytest.mark.slow
def test_the_run_of_a_kept_model_says_how_it_is_repeated(folder: Path) -> None:
    run = asked(folder, "tables", "run", overrides={"family": "tables", "teacher": 0.0})
    model = n3ic.load(run.path)
    assert model.input == n3ic.load(folder / "tables.n3ic").input
    words = json.loads((run.path / "options.json").read_text())["command"]
    assert f"--input-of={folder / 'tables.n3ic'}" in words and "--family=tables" in words
    again = n3ic.train(config=run.path / "options.json", out=folder / "again")
    assert (again.path / "model.n3ic").read_bytes() == (run.path / "model.n3ic").read_bytes()
