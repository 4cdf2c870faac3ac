# SPDX-License-Identifier: Apache-2.0
"""A wanted false-alarm rate, of a model of every family: kept by a bias, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from n3ic import plugins
from n3ic.data.split import split
from n3ic.errors import UsageError
from n3ic.evaluation.false_alarms import _step
from n3ic.model.bits import pack
from n3ic.model.classifier import Classifier
from n3ic.model.family import family
from n3ic.model.simplified import unchanged
from tests.support.family_models import FAMILIES, small_model
from tests.support.random_graphs import GraphModel, graph_family


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


@pytest.mark.parametrize("name", FAMILIES)
def test_a_class_is_favoured_by_the_step(name: str) -> None:
    model = small_model(name)
    if type(model).favouring is Classifier.favouring:
        biased = "binary-network, decision-trees, look-up-tables, sum-product-network"
        with pytest.raises(UsageError, match=f"family {name} have none: expected .* {biased}"):
            model.favouring(1, 3, "three")
        return
    words = family(name).vectors(unchanged(model), 50, 0)
    for positive in range(len(model.classes)):
        rivals = np.delete(np.arange(len(model.classes)), positive)
        lead = [
            m.scores(words)[:, positive, None].astype(int) - m.scores(words)[:, rivals]
            for m in (model, model.favouring(positive, 3, "three"))
        ]
        assert np.array_equal(lead[1], lead[0] + 3)


def test_the_rates_of_rows_and_of_flows_are_told() -> None:
    """Of ten honest rows one may be called so; three of the four others then are."""
    scores = np.array([[0, s] for s in [*range(-9, 1), -5, 0, 1, 2]], dtype=np.int32)
    label = np.array([0] * 10 + [1] * 4)
    model = small_model("look-up-tables")

    def rates(flow: np.ndarray | None = None) -> str:
        return _step(model.classes[:2], scores, label, 1, 0.1, flow)[1].replace(" %", "%")

    name = model.classes[1]
    assert rates() == f"10.0% at most of 10 validation rows: 10.0%, with 75.0% of {name} found"
    pairs = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    assert rates(pairs).endswith(f"of 5 validation flows: 0.0%, with 50.0% of {name} found")
    honest = _step(model.classes[:2], scores[:10], label[:10], 1, 0.1, None)[1]
    assert honest.endswith(f"with 0.0 % of {name} found")


def test_only_the_family_of_tests_has_no_bias() -> None:
    without = [n for n in FAMILIES if type(small_model(n)).favouring is Classifier.favouring]
    assert without == [GraphModel.family]


@pytest.mark.parametrize(
    "name",
    [n if n == "spn" else pytest.param(n, marks=pytest.mark.slow)
     for n in plugins.names("n3ic.learners")],
)  # fmt: skip
def test_every_learner_keeps_the_rate_on_validation_rows(name: str) -> None:
    from tests.support.small_flows import flows, trained

    table = flows(1500)
    model = trained(table, family=name, false_alarms=0.05)
    rows = split(table, "random", 0).validation
    words = pack(model.input.encode({n: table.features[n][rows] for n in model.input.features}))
    others = table.label[rows] == 0
    assert 0 < (model.scores(words).argmax(axis=1)[others] == 1).mean() <= 0.05
    assert "5.0 % at most" in model.provenance["false_alarms"]
