# SPDX-License-Identifier: Apache-2.0
"""What a run trains, and how its errors name what they are about."""

from typing import ClassVar

import numpy as np
import pytest

from n3ic.datasets.ns3_tomography import DATASET
from n3ic.datasets.ns3_tomography.table import queue_tables
from n3ic.errors import DataError, UsageError
from n3ic.runs.preparation import Experiment
from n3ic.runs.progress import TrainingProgress
from n3ic.runs.schedule import TrainingJob, schedule, train_jobs
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases import training as usecase_training
from n3ic.usecases import training_data
from n3ic.usecases.base import UseCase
from n3ic.usecases.request import TrainRequest

QUICK = Recipe("q", "quick", "quantile", 32, training=Training(hidden=(8,), epochs=1))


def test_every_network_of_a_run_is_planned_once_the_longest_first():
    plan = schedule(["a", "b"], ("time", "random"), [3, 4], (8,), ((16,), (4,)))
    assert plan == [
        TrainingJob("a", "time", 3, ((8,), (16,), (4,)), True),
        TrainingJob("b", "time", 3, ((8,), (16,), (4,)), True),
        TrainingJob("a", "random", 3, ((8,),), False),
        TrainingJob("b", "random", 3, ((8,),), False),
        TrainingJob("a", "time", 4, ((8,),), False),
        TrainingJob("b", "time", 4, ((8,),), False),
    ]


def test_a_single_network_has_its_baselines_under_every_protocol():
    plan = schedule([""], ("random", "time"), [0], (8,), ())
    assert [unit.with_baselines for unit in plan] == [True, True]


def experiments():
    tables = queue_tables(DATASET.load().rows(np.arange(2000)), "0,1")
    return {queue: Experiment(table, QUICK, name="x") for queue, table in tables.items()}


@pytest.mark.slow
def test_what_is_told_counts_every_network():
    steps = []
    watch = TrainingProgress(begin=lambda text, n: steps.append(n), task=steps.append)
    plan = schedule(experiments(), ("time",), [0], (8,), ((4,),))
    results = train_jobs(plan, experiments(), watch, jobs=1, dask=None)
    assert steps[0] == 4
    assert sorted(steps[1:]) == ["tor0_server0"] * 2 + ["tor1_agg0"] * 2
    assert {key: tuple(r) for key, r in results.items()} == {
        ("tor0_server0", "time", 0): ((8,), (4,)),
        ("tor1_agg0", "time", 0): ((8,), (4,)),
    }


def test_an_error_names_the_network():
    plan = [TrainingJob("tor0_server0", "partition", 0, ((8,),), False)]
    with pytest.raises(DataError, match=r"^tor0_server0: .*partition"):
        train_jobs(plan, experiments(), TrainingProgress(), jobs=1, dask=None)


class Wordless(UseCase):
    name, summary = "w", "no word"
    dataset = default = "d"
    recipes: ClassVar = {"default": QUICK}
    names: ClassVar = ("a", "b")

    def tasks(self, table, options):
        return dict.fromkeys(self.names, table)


class Colliding(Wordless):
    """Both networks would be written to ``queue_3.n3ic``."""

    group = "queue"
    names: ClassVar = ("queue 3", "queue_3")


@pytest.mark.parametrize(
    ("case", "message"),
    [(Wordless(), "no name for one"), (Colliding(), "names of networks .* got 'queue 3'")],
)
def test_networks_of_a_use_case_need_a_word_and_names_for_paths(
    case, message, monkeypatch, tmp_path
):
    monkeypatch.setattr(training_data, "use_case", lambda name: case)
    with pytest.raises(UsageError, match=message):
        usecase_training.train_use_case(
            TrainRequest("w", table=DATASET.load(), out=tmp_path / "run")
        )
    assert list(tmp_path.iterdir()) == []
