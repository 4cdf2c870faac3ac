# SPDX-License-Identifier: Apache-2.0
"""The threshold by kinds that the network has not seen."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import UsageError
from n3ic.kernel.prediction import predict
from n3ic.model.random_models import random_model
from n3ic.studies.shunt.left_out import LeftOutKind, left_out_kinds, threshold_for_kinds
from n3ic.studies.shunt.result import ThresholdObjective
from n3ic.usecases.evaluation import LabelledFlows
from tests.support.small_flows import RECIPE, flows, trained


def kinds(*blocked_to):
    return [LeftOutKind(f"kind {i}", 9, 5, to) for i, to in enumerate(blocked_to)]


def test_no_kind_may_be_blocked_if_they_are_few():
    left_out = kinds(15, 11, -1, -1, -1, -1, -1, -1, -1, -1)  # none of 10 shows 25.9 % at most
    assert threshold_for_kinds(left_out, 0.26, 0.95) == 16
    # One of ten blocked shows 39.4 % at most, two show 50.7 %.
    assert threshold_for_kinds(left_out, 0.40, 0.95) == 12
    assert threshold_for_kinds(left_out, 0.51, 0.95) == 0


def test_the_first_threshold_that_fails_ends_the_tests():
    left_out = kinds(9, 9, -1, -1, -1, -1, -1, -1, -1, -1)
    assert threshold_for_kinds(left_out, 0.40, 0.95) == 10


def test_too_few_kinds_show_nothing():
    with pytest.raises(
        UsageError, match=r"2 left-out kinds .* at most 77.6 % .* record more kinds"
    ):
        threshold_for_kinds(kinds(-1, -1), 0.3, 0.95)
    with pytest.raises(UsageError, match="0 left-out kinds"):
        threshold_for_kinds([], 0.3, 0.95)


def test_the_promise_holds_for_kinds_that_are_drawn_alike():
    rng = np.random.default_rng(5)
    broken = 0
    for _ in range(400):
        left_out = kinds(*np.where(rng.random(20) < 0.5, rng.integers(0, 30, 20), -1).tolist())
        threshold = threshold_for_kinds(left_out, 0.2, 0.95)
        broken += 0.5 * max(0, 30 - threshold) / 30 > 0.2
    assert broken <= 400 * 0.05 + 15  # three deviations


def test_only_one_aim_is_given():
    with pytest.raises(UsageError, match="only one of them"):
        ThresholdObjective(margin=3, left_out=0.2)
    with pytest.raises(UsageError, match="share of left-out kinds must be"):
        ThresholdObjective(left_out=2)
    with pytest.raises(UsageError, match="blocked after 1 flow"):
        ThresholdObjective(left_out=0.1, times=0)
    assert "30.0 % at most of left-out kinds" in str(ThresholdObjective(left_out=0.3))


def kinds_of_flows(table):
    """Honest flows of three kinds, of which the fast ones look like attacks, and one is rare."""
    kind = np.where(table.features["rtt"] < 500, "fast", "slow")
    kind[np.flatnonzero(table.label == 0)[:2]] = "rare"
    return replace(table, category=np.where(table.label, "flood", kind))


@pytest.mark.slow
def test_a_kind_is_judged_by_a_network_that_did_not_see_it():
    table = kinds_of_flows(flows(1500))
    model = trained(table, epochs=2)
    labelled = LabelledFlows(model, table, table.label, 1, ())
    recipe = RECIPE.with_options({"epochs": 2})
    by_kind = {k.kind: k for k in left_out_kinds(labelled, recipe, "random", 0, 3)}
    honest = table.label == 0
    assert {name: kind.flows for name, kind in by_kind.items()} == {
        name: int((honest & (table.category == name)).sum()) for name in ("fast", "slow")
    }
    fast = table.features["rtt"] < 500
    seen = predict(model, model.encode({n: v[honest & fast] for n, v in table.features.items()}))
    share = {name: kind.called / kind.flows for name, kind in by_kind.items()}
    assert share["fast"] > max(2 * share["slow"], np.mean(seen.classes == 1))
    assert min(kind.blocked_to for kind in by_kind.values()) >= 0
    again = left_out_kinds(labelled, recipe, "random", 0, 3)
    assert again == tuple(by_kind.values())


def test_flows_without_kinds_are_refused():
    table = flows(200)
    model = replace(random_model((24, 4, 2), np.random.default_rng(0)), classes=table.classes)
    labelled = LabelledFlows(model, table, table.label, 1, ())
    for other, positive, message in (
        (replace(table, category=None), 1, "give the table of hosts a column kind"),
        (table, None, "train with --positive"),
        (table, 1, "two kinds or more that are not attack, got none"),
    ):
        case = replace(labelled, table=other, positive=positive)
        with pytest.raises(UsageError, match=message):
            left_out_kinds(case, RECIPE, "random", 0, 3)
