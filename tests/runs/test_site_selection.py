# SPDX-License-Identifier: Apache-2.0
"""A budget of LUT sites: sizes of every family within it, the best by validation rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from n3ic.datasets.iscx_tor2016 import DATASET
from n3ic.errors import UsageError
from n3ic.runs.checkpoints import experiment_digest, training_checkpoints
from n3ic.runs.experiment import train
from n3ic.runs.experiment_spec import Experiment, SiteBudget
from n3ic.runs.report import candidate_table, metrics_of, summary_markdown
from n3ic.runs.site_selection import sites_of
from n3ic.studies.sweep.request import SweepRequest
from n3ic.training.recipe import Recipe, Training
from n3ic.usecases.base import use_case
from n3ic.usecases.config import train_request
from n3ic.usecases.request import TrainRequest, command_words

FOREST = Training(method="trees", trees=1)


@pytest.fixture(scope="module")
def stairs():
    """A table whose classes three cuts tell, but for one row in eight."""
    table = DATASET.load().rows(np.arange(0, 14_000, 14))
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 40, (2, len(table)))
    label = (np.where(x < 20, y < 13, y >= 26) ^ (rng.random(len(table)) < 0.125)) * 1
    columns = {**table.features, table.usable[0]: x, table.usable[1]: y}
    return replace(table, features=columns, label=label, classes=("a", "b"))


def experiment(table, most, *, cuts=False, fixed=("trees",), **changed):
    recipe = Recipe("r", "", "quantile", bits=40, columns=table.usable[:2], training=FOREST)
    budget = SiteBudget(most, cuts, fixed)
    base_experiment = Experiment(table, recipe, seed=2, with_baselines=False, sites=budget)
    return replace(base_experiment, **changed)


def tables_of(table):
    own = experiment(table, 60, fixed=("family", "renewals", "teacher")).recipe
    return own.with_options({"family": "tables", "renewals": 0, "teacher": 0.0})


def test_sizes_approach_the_sites_and_validation_rows_choose(stairs, tmp_path):
    both = experiment(stairs, 40, rivals=(tables_of(stairs),))
    result = train(both)
    winner, *others = result.candidates
    assert winner.kept and not any(c.kept for c in others)
    assert {c.name for c in result.candidates} == {"voting trees", "look-up tables"}
    assert winner.accuracy == max(c.accuracy for c in result.candidates if c.fits)
    assert winner.accuracy == result.validation.accuracy
    assert winner.sites == sites_of(result.model, cuts=False)
    assert all(sum(c.sites.values()) <= 40 for c in result.candidates if c.fits)
    (one, *_) = (c for c in result.candidates if c.name == "voting trees")
    assert one.values["leaves"] > 2
    shapes = (both.recipe.training.hidden,)
    with training_checkpoints(tmp_path / "run", lambda text: None) as parts:
        parts.write(both, shapes, {shapes[0]: result})
        assert parts.find(both, shapes)[shapes[0]].candidates == result.candidates
    assert experiment_digest(both) != experiment_digest(replace(both, sites=SiteBudget(61)))
    metrics = metrics_of("x", "", stairs, 0, {"random": {"": result}}, [], {"": []})
    page, shown = summary_markdown(metrics), candidate_table(metrics)
    assert shown.title == "within the budget of LUT sites (estimated)"
    assert "sites: core" in page and f"leaves {one.values['leaves']}" in page


@pytest.mark.slow
def test_comparisons_are_counted_if_the_card_makes_them(stairs):
    own_experiment = experiment(stairs, 60, cuts=True)
    result, again = train(own_experiment), train(own_experiment)
    assert again.candidates == result.candidates and again.model.digest == result.model.digest
    parts = result.candidates[0].sites
    assert parts == sites_of(result.model, cuts=True)
    assert parts["core"] == sites_of(result.model, cuts=False)["core"]
    assert 0 < parts["comparisons"] <= 60 - parts["core"]


def test_the_smallest_is_named_if_nothing_fits(stairs):
    with pytest.raises(
        UsageError, match=r"no model fits 4 LUT sites: the smallest is .*, \d+ sites; take more"
    ):
        train(experiment(stairs, 4, cuts=True))


def test_what_cannot_be_trained_is_told_if_nothing_else_can(stairs):
    noise = replace(stairs, label=np.random.default_rng(0).permutation(stairs.label))
    with pytest.raises(UsageError, match="no tree has a split"):
        train(experiment(noise, 1))


def test_every_family_with_sites_takes_part_unless_one_is_named():
    case = use_case("anomaly")
    asked = TrainRequest("anomaly", sites=400)
    assert {other.family for other in asked.rivals(case)} == {"tables", "trees"}
    assert asked.site_budget(case) == SiteBudget(400)
    named = TrainRequest("anomaly", overrides={"family": "tables", "tables": 9}, sites=400)
    assert named.rivals(case) == ()
    assert named.site_budget(case).fixed == ("family", "tables")
    assert TrainRequest("anomaly").site_budget(case) is None
    spn = TrainRequest("anomaly", overrides={"family": "spn"}, sites=400)
    with pytest.raises(UsageError, match="does not choose the size of family spn"):
        spn.site_budget(case)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sites": 0}, "sites must be 1 or more"),
        ({"sites": 400, "budget_bytes": 400}, "sites and budget_bytes both choose the size"),
        ({"sites": 400, "input_of": "run"}, "sites and input_of both choose the size"),
        ({"cuts_on_card": True}, "give sites, too"),
    ],
)
def test_another_choice_of_the_size_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        TrainRequest("anomaly", **given)


def test_a_sweep_varies_sizes_itself():
    with pytest.raises(UsageError, match="a sweep varies sizes"):
        SweepRequest(TrainRequest("anomaly", sites=400))


def test_the_command_and_its_file_ask_for_the_sites_again(tmp_path):
    case = use_case("anomaly")
    request = TrainRequest("anomaly", sites=400, cuts_on_card=True, overrides={"gce_q": 0.5})
    words = command_words(request, case, request.chosen_recipe(case), {}, "random") or []
    assert {"--sites=400", "--cuts-on-card", "--gce-q=0.5"} <= {*words}
    assert not any(word.startswith(("--bits", "--hidden", "--tables")) for word in words)
    file = tmp_path / "options.toml"
    file.write_text("sites = 400\ncuts-on-card = true\n")
    read = train_request(file, use_case="anomaly")
    assert (read.sites, read.cuts_on_card) == (400, True)
