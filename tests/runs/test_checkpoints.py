# SPDX-License-Identifier: Apache-2.0
"""Trainings that are done are kept, and taken again only for what they are."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import UsageError
from n3ic.runs import schedule
from n3ic.runs.checkpoints import training_checkpoints
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.schedule import TrainingJob, train_jobs
from n3ic.training.recipe import Recipe, Training

QUICK = Recipe("q", "quick", "quantile", 32, training=Training(hidden=(8,), epochs=1))
SHAPES = ((8,), (4,))
PLAN = [TrainingJob("tor0_server0", "time", seed, SHAPES, False) for seed in (0, 1)]


@pytest.fixture(scope="module")
def table():
    (queue,) = queue_tables(DATASET.load().rows(np.arange(600)), "0").values()
    return queue


@pytest.fixture(scope="module")
def experiments(table):
    ours = Experiment(table, QUICK, "time", name="x", with_baselines=False)
    return {"tor0_server0": ours}


def trained(tasks, parts, plan=PLAN, note=lambda text: None):
    return train_jobs(plan, tasks, TrainingProgress(note=note), jobs=1, dask=None, parts=parts)


def plain(results_by_task):
    """All that a run is written from, by value."""
    return {
        (*key, shape): {
            **{name: repr(value) for name, value in vars(r).items()},
            "model": r.model.to_bytes(),
            "scores": {n: (s.dtype, s.tobytes()) for n, s in r.test_scores.items()},
            "label": r.test_label.tobytes(),
        }
        for key, results in results_by_task.items()
        for shape, r in results.items()
    }


@pytest.mark.slow
def test_what_was_trained_is_read_and_the_rest_is_trained(experiments, tmp_path, monkeypatch):
    whole = trained(experiments, None)
    notes = []

    def interrupted(unit):
        if unit.seed == 1:
            raise KeyboardInterrupt

    train = schedule._train_job
    monkeypatch.setattr(
        schedule, "_train_job", lambda own, unit, progress: interrupted(unit) or train(own, unit)
    )
    with (
        pytest.raises(KeyboardInterrupt),
        training_checkpoints(tmp_path / "run", notes.append) as parts,
    ):
        trained(experiments, parts)
    assert [p.name for p in tmp_path.iterdir()] == [".run.n3ic-parts"]
    assert "a trained part is kept in" in notes[0]
    asked = []
    monkeypatch.setattr(
        schedule, "_train_job", lambda own, unit, progress: asked.append(unit) or train(own, unit)
    )
    with training_checkpoints(tmp_path / "run", notes.append) as parts:
        again = trained(experiments, parts, note=notes.append)
    assert asked == PLAN[1:]
    assert notes[1:] == ["resuming: 1 of 2 parts were trained before"]
    assert plain(again) == plain(whole)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_part_is_taken_for_the_same_alone(experiments, table, tmp_path):
    with training_checkpoints(tmp_path / "run", print) as parts:
        ours = experiments["tor0_server0"]
        trained(experiments, parts)
        assert parts.find(ours, SHAPES) is not None
        label = 1 - table.label
        rates = dict(table.features)
        first = next(iter(rates))
        rates[first] = rates[first] + 1
        for other in (
            replace(ours, seed=2),
            replace(ours, protocol="random"),
            replace(ours, name="y"),
            replace(ours, with_baselines=True),
            replace(ours, recipe=QUICK.with_options({"epochs": 2})),
            replace(ours, table=replace(table, label=label)),
            replace(ours, table=replace(table, features=rates)),
        ):
            assert parts.find(other, SHAPES) is None
        assert parts.find(ours, SHAPES[:1]) is None


@pytest.mark.slow
def test_a_damaged_part_is_trained_again(experiments, tmp_path):
    with training_checkpoints(tmp_path / "run", print) as parts:
        whole = trained(experiments, parts)
        first, second = sorted(parts.folder.iterdir())
        data = bytearray(first.read_bytes())
        data[len(data) // 2] ^= 1
        first.write_bytes(data)
        second.write_bytes(second.read_bytes()[:-40])
        ours = experiments["tor0_server0"]
        assert [parts.find(replace(ours, seed=s), SHAPES) for s in (0, 1)] == [None, None]
        assert plain(trained(experiments, parts)) == plain(whole)


def test_a_folder_of_others_is_left_alone(tmp_path):
    folder = tmp_path / ".run.n3ic-parts"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with (
        pytest.raises(UsageError, match=r"notes\.txt, which n3ic did not write"),
        training_checkpoints(tmp_path / "run", print),
    ):
        raise AssertionError
    assert (folder / "notes.txt").read_text() == "mine"
    with training_checkpoints(tmp_path / "other", print):  # noqa: SIM117 - one holds it, one wants it
        with (
            pytest.raises(UsageError, match="by another n3ic"),
            training_checkpoints(tmp_path / "other", print),
        ):
            raise AssertionError


@pytest.mark.slow
def test_layers_that_a_budget_chose_in_training_are_kept(experiments, tmp_path):
    ours, alone = replace(experiments["tor0_server0"], budget=150), ((8,),)
    plan = [replace(unit, shapes=alone) for unit in PLAN]  # a single unit would not be kept
    with training_checkpoints(tmp_path / "run", print) as parts:
        result = trained({"tor0_server0": ours}, parts, plan)["tor0_server0", "time", 0]
        hidden = result[8,].recipe.training.hidden
        assert hidden == result[8,].model.shape[1:-1] != (8,)
        assert result[8,].model.total_bytes <= 150
        assert parts.find(ours, alone)[8,].recipe == result[8,].recipe
