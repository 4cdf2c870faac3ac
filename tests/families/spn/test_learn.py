# SPDX-License-Identifier: Apache-2.0
"""Learning sum-product networks: what is found in rows whose distribution is known."""

import numpy as np
import pytest

from n3ic.data.table import Feature, FlowTable
from n3ic.errors import UsageError
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.fold import _error, fold_spn
from n3ic.families.spn.learn import learn_spn
from n3ic.families.spn.network import CONSTANT
from n3ic.families.spn.settings import SpnTraining
from n3ic.families.spn.train import bin_fields, threshold_for, train_spn
from n3ic.model.bits import pack
from n3ic.model.inputs import Field, InputSpec

SIZES = [4, 3, 5, 2]


def mixture_rows(rows, seed):
    """Two kinds of flows, in each of which the features are independent."""
    rng = np.random.default_rng(seed)
    kind = rng.random(rows) < 0.3
    chances = [[rng.dirichlet(np.full(k, 0.3)) for k in SIZES] for _ in range(2)]
    out = np.empty((rows, len(SIZES)), dtype=np.int64)
    for j, k in enumerate(SIZES):
        drawn = [rng.choice(k, rows, p=chances[which][j]) for which in range(2)]
        out[:, j] = np.where(kind, drawn[1], drawn[0])
    log = [sum(np.log2(c[j])[out[:, j]] for j in range(len(SIZES))) for c in chances]
    return out, np.logaddexp2(log[0] + np.log2(0.7), log[1] + np.log2(0.3))


def columns(rows):
    return {f"x{j}": rows[:, j] for j in range(len(SIZES))}


def test_the_likelihood_of_a_mixture_is_found():
    rows, truth = mixture_rows(20_000, 1)
    network = learn_spn(rows, SIZES, SpnTraining(clusters=2, dependence=0.01), seed=3)
    test_rows, test_truth = rows[:5000], truth[:5000]
    assert abs(network.log2(test_rows).mean() - test_truth.mean()) < 0.02
    alone = learn_spn(rows, SIZES, SpnTraining(depth=0))
    assert alone.log2(test_rows).mean() < test_truth.mean() - 0.1


def test_probabilities_of_all_rows_add_to_one():
    rows, _ = mixture_rows(3000, 2)
    network = learn_spn(rows, SIZES, SpnTraining(min_rows=50, dependence=0.0))
    every = np.stack(np.meshgrid(*map(np.arange, SIZES)), axis=-1).reshape(-1, len(SIZES))
    assert np.exp2(network.log2(every)).sum() == pytest.approx(1)


def test_without_a_number_of_rows_it_is_a_fiftieth():
    rows, _ = mixture_rows(5000, 3)
    one, two = (
        learn_spn(rows, SIZES, SpnTraining(min_rows=n, dependence=0.01)).nodes for n in (0, 100)
    )
    assert [n.children for n in one] == [n.children for n in two]
    assert len(one) != len(
        learn_spn(rows, SIZES, SpnTraining(min_rows=1000, dependence=0.01)).nodes
    )


def test_independent_groups_become_factors():
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 3, 9000), rng.integers(0, 3, 9000)
    rows = np.stack([a, b, a, b], axis=1)
    network = learn_spn(rows, [3, 3, 3, 3], SpnTraining())
    root = network.nodes[-1]
    assert root.field < 0 and not len(root.parameters) and len(root.children) == 2


def test_the_same_rows_give_the_same_network():
    rows, _ = mixture_rows(5000, 5)
    settings = SpnTraining(min_rows=100, dependence=0.01)
    one, two = (
        learn_spn(rows[order], SIZES, settings, seed=7)
        for order in (slice(None), slice(None, None, -1))
    )
    assert len(one.nodes) == len(two.nodes)
    for mine, theirs in zip(one.nodes, two.nodes, strict=True):
        assert mine.children == theirs.children and mine.field == theirs.field
        assert np.array_equal(mine.parameters, theirs.parameters)


@pytest.mark.parametrize(
    ("arithmetic", "error"), [("log", 0.25), ("log", 4.0), ("linear", 1e-3), ("linear", 0)]
)
def test_the_error_that_was_asked_for_is_kept(arithmetic, error):
    rows, _ = mixture_rows(8000, 6)
    settings = SpnTraining(arithmetic=arithmetic, error=error, min_rows=100, dependence=0.01)
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, k)) for j, k in enumerate(SIZES)))
    network = learn_spn(rows, SIZES, settings)
    model = fold_spn([network], [1.0], spec, ("a", "b"), settings, name="m", provenance={})
    scores = model.scores(model.encode(columns(rows)))[:, 0].astype(np.int64)
    real = network.log2(rows) if arithmetic == "log" else np.exp2(network.log2(rows))
    assert np.abs(scores / 2.0**model.arithmetic.fraction - real).max() <= (error or 1e-7)
    assert model.error_bound * 2.0**-model.arithmetic.fraction <= (error or 1e-7)


@pytest.mark.parametrize("arithmetic", ["log", "linear"])
def test_one_network_scores_against_a_threshold_and_several_against_each_other(arithmetic):
    rows, _ = mixture_rows(500, 6)
    settings = SpnTraining(arithmetic=arithmetic, error=1.0 if arithmetic == "log" else 0.01)
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, k)) for j, k in enumerate(SIZES)))
    network = learn_spn(rows, SIZES, settings)
    alone = fold_spn([network], [0.25], spec, "ab", settings, name="m", provenance={})
    assert (alone.roots, alone.bias.tolist()) == ((len(alone.nodes) - 1, CONSTANT), [0, 0])
    both = fold_spn([network, network], [0.25, 0.75], spec, "ab", settings, name="m", provenance={})
    scores = both.scores(both.encode(columns(rows))) / 2.0**both.arithmetic.fraction
    if arithmetic == "log":
        assert len(both.nodes) == 2 * len(alone.nodes)
        assert (
            np.unique(scores[:, 0] - scores[:, 1]).size == 1 and (scores[:, 0] < scores[:, 1]).all()
        )
    else:
        assert both.bias.tolist() == [0, 0] and len(both.nodes) == 2 * len(alone.nodes) + 2
        assert (scores[:, 0] <= scores[:, 1]).all() and (scores[:, 0] < scores[:, 1]).any()


def test_an_error_that_no_width_keeps_is_refused():
    rows, _ = mixture_rows(500, 7)
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, k)) for j, k in enumerate(SIZES)))
    settings = SpnTraining(error=1e-9)
    with pytest.raises(UsageError, match="12 fraction bits"):
        fold_spn(
            [learn_spn(rows, SIZES, settings)], [1.0], spec, "ab", settings, name="", provenance={}
        )


@pytest.mark.parametrize("arithmetic", ["log", "linear"])
@pytest.mark.parametrize("error", [1000.0, 4.5, 3.0, 0.5, 0.02])
def test_the_narrowest_width_that_keeps_the_error_is_chosen(arithmetic, error):
    """Its bound, half a step for the bias included, and not that of one bit less.

    With few bits a linear product's error counts more steps: one bit keeps 4.5 by the steps of the
    widest arithmetic, but not by its own.
    """
    rows, _ = mixture_rows(500, 6)
    settings = SpnTraining(arithmetic=arithmetic, error=error)
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, k)) for j, k in enumerate(SIZES)))
    network = learn_spn(rows, SIZES, settings)
    folded_model = fold_spn([network], [1.0], spec, "ab", settings, name="m", provenance={})
    width = folded_model.arithmetic.fraction
    assert folded_model.error_bound * 2.0**-width <= error
    assert _error(network, folded_model.arithmetic) == folded_model.error_bound
    least = 0 if arithmetic == "log" else 1
    assert (width == least) == (error >= (4.0 if arithmetic == "log" else 5.5))
    if width > least:
        of = LogArithmetic.of if arithmetic == "log" else LinearArithmetic
        assert _error(network, of(width - 1)) * 2.0 ** (1 - width) > error


def test_the_network_of_the_largest_error_sets_the_width():
    rows, _ = mixture_rows(3000, 6)
    settings = SpnTraining(error=0.02, clusters=2, dependence=0.01)
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, k)) for j, k in enumerate(SIZES)))
    flat, deep = learn_spn(rows, SIZES, SpnTraining(depth=0)), learn_spn(rows, SIZES, settings)

    def width(*networks):
        priors = [1 / len(networks)] * len(networks)
        folded_model = fold_spn(networks, priors, spec, "ab", settings, name="m", provenance={})
        return folded_model.arithmetic.fraction

    assert width(flat) < width(deep) == width(flat, deep) == width(deep, flat)


def table_of(columns):
    catalogue = tuple(Feature(n, "what", "", "", 1.0, 32, True, "counted") for n in columns)
    arrays = {name: np.array(values) for name, values in columns.items()}
    rows = len(next(iter(arrays.values())))
    label = np.zeros(rows, dtype=np.int64)
    return FlowTable("t", arrays, catalogue, label, ("a", "b"), True, "")


def test_what_no_row_had_is_a_bin_of_its_own():
    table = table_of({"a": [0, 5, 9], "b": [7, 7, 7], "c": [0, 2**32 - 1, 1]})
    spec = bin_fields(table, ("a", "b", "c"), SpnTraining())
    assert [f.cuts for f in spec.fields] == [(5, 9, 10), (8,), (1, 2**32 - 1)]


def test_the_threshold_leaves_the_share_below_it():
    scores = np.repeat(np.arange(100, dtype=np.int32), 3)
    for share in (0.0, 0.05, 0.5):
        threshold = threshold_for(scores, share)
        assert (scores < threshold).mean() <= share < (scores <= threshold).mean()
    assert threshold_for(np.array([5, 5, 5, 5], dtype=np.int32), 0.3) == 5


def classes_of_model(task, anomaly, classes=("normal", "attack")):
    rng = np.random.default_rng(8)
    label = rng.integers(0, 2, 4000)
    bins = np.where(
        label[:, None] == 0, rng.integers(0, 3, (4000, 3)), rng.integers(1, 5, (4000, 3))
    )
    spec = InputSpec(tuple(Field.thermometer(f"x{j}", range(1, 5)) for j in range(3)))
    bits = np.concatenate([np.arange(4) < bins[:, [j]] for j in range(3)], axis=1)
    model = train_spn(
        bits,
        label,
        (bits, label),
        spec,
        classes,
        SpnTraining(spn_task=task),
        anomaly=anomaly,
        seed=0,
        name="m",
        provenance={},
        stage=lambda _: None,
    )
    return model, model.infer(pack(bits)).classes, label


def test_anomalies_are_what_does_not_fit():
    model, classes, label = classes_of_model("anomaly", 1)
    assert model.classes == ("normal", "attack")
    assert (classes[label == 0] == 1).mean() <= 0.05
    assert (classes[label == 1] == 1).mean() > 0.7


def test_the_anomaly_may_be_the_first_class():
    model, classes, label = classes_of_model("anomaly", 0, ("attack", "normal"))
    assert model.classes == ("attack", "normal")
    assert (classes[label == 1] == 0).mean() <= 0.05
    assert (classes[label == 0] == 0).mean() > 0.3


def test_each_class_may_be_learned():
    model, classes, label = classes_of_model("classes", None)
    assert (classes == label).mean() > 0.85
    assert len(set(model.roots)) == 2
