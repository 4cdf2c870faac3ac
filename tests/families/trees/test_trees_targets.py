# SPDX-License-Identifier: Apache-2.0
"""A forest that scikit-learn fitted, on every target that takes it, as a user of Python does it."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

import n3ic
from n3ic import plugins
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.random_models import random_trees
from n3ic.meter.standard import standard_spec
from n3ic.model.bits import pack
from n3ic.model.family import family, graph_of
from n3ic.model.graph.evaluate import scores
from n3ic.model.graph.operations import Add, Choose, Constant, Offset
from n3ic.targets.base import exporter
from tests.support.traffic import labelled_capture

pytest.importorskip("treelite")
TARGETS = [t for t in plugins.names("n3ic.exporters") if TreesModel.family in exporter(t).families]


def test_the_targets_that_write_graphs_take_trees():
    assert {"host", "dpdk", "onnx", "netfpga", "nfp", "xdp"} <= {*TARGETS}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_the_graph_computes_the_models_scores_on_any_bits(classes, seed):
    """On valid codes and on others: no node asks what those above it decide."""
    rng = np.random.default_rng(seed)
    model = random_trees(rng, classes=classes, trees=20, depth=6, features=5, cuts=9)
    graph = graph_of(model)
    assert graph.kinds <= {Choose, Add, Offset, Constant}
    for words in (
        pack(rng.random((200, model.input.n_bits)) < 0.5),
        family(model.family).vectors(family(model.family).simplified(model), 200, seed),
    ):
        assert (scores(graph, words) == model.scores(words)).all()


def test_two_classes_have_a_constant_score():
    model = random_trees(np.random.default_rng(3))
    graph = graph_of(model)
    assert graph.steps[graph.scores[0]] == Constant(0)
    assert graph.bounds[graph.scores[1]] == tuple(model.sum_bounds[:, 0].tolist())


@pytest.fixture(scope="module", name="flows")
def some_flows():
    """Rows and their classes: a forest of two, boosted trees of three."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5000, (500, 6))
    facts = (X[:, 0] > 900, X[:, 1] > 2500, X[:, 2] > X[:, 3])
    return X, np.sum(facts, axis=0)


@pytest.mark.first_case
@pytest.mark.parametrize("target", TARGETS)
def test_a_forest_reaches_a_target_in_four_lines(flows, target, tmp_path, quick_build):
    X, y = flows
    forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(X, y > 1)

    model = n3ic.from_sklearn(forest, X)
    n3ic.export(model, target, tmp_path / "out")
    done = n3ic.verify(tmp_path / "out", vectors=300)

    assert done.ok
    inference = n3ic.predict(model, {f"x{i}": column for i, column in enumerate(X.T)})
    assert (np.array(model.classes)[inference.classes] == forest.predict(X).astype(str)).all()


@pytest.mark.slow
def test_a_forest_on_metered_flows_carries_their_meter(tmp_path, quick_build):
    """So an export reads packets: a table of n3ic.extract names its meter."""
    packets, table = labelled_capture(120)
    (tmp_path / "a.pcap").write_bytes(packets)
    (tmp_path / "labels.csv").write_bytes(table)
    frame = n3ic.extract(tmp_path / "a.pcap", labels=tmp_path / "labels.csv")
    names = [n for n in frame.columns if n in standard_spec().units][:6]
    X, y = frame[names], frame["label"].fillna("none").astype(str)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y)

    model = n3ic.from_sklearn(forest, X)
    assert model.meter is not None and {*model.input.features} <= {*names}
    n3ic.export(model, "host", tmp_path / "out")
    assert n3ic.verify(tmp_path / "out", captures=[tmp_path / "a.pcap"], vectors=50).flows > 50
    classes = np.array(model.classes)[n3ic.predict(model, tmp_path / "a.pcap").classes]
    assert len(classes) == len(frame) and (classes == forest.predict(X)).all()


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_boosted_trees_of_three_classes_reach_a_target(flows, target, tmp_path, quick_build):
    X, y = flows
    boosted = HistGradientBoostingClassifier(max_iter=8, max_leaf_nodes=8, random_state=0)
    boosted.fit(X, np.minimum(y, 2))
    model = n3ic.from_sklearn(boosted, X)
    n3ic.export(model, target, tmp_path / "out", verify=False)
    assert n3ic.verify(tmp_path / "out", vectors=300).ok
