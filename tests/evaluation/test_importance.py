# SPDX-License-Identifier: Apache-2.0
"""What a network rests on does not depend on units, and is nothing where it does not look."""

import numpy as np
import pytest

from n3ic.evaluation.importance import _figures, bits_chi2, permutation_importance
from n3ic.evaluation.metrics import evaluate
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import OutputLayer
from n3ic.model.network import BinaryModel

ROWS = 600
NAMES = ("rate", "flag", "idle")


def columns(scale=1):
    rng = np.random.default_rng(1)
    return {n: rng.integers(0, 40, ROWS) * (scale if n == "rate" else 1) for n in NAMES}


def model(scale=1):
    """Of two classes: ``rate`` counts most, ``flag`` less, and ``idle`` is masked out."""
    unit = {"rate": scale}
    spec = InputSpec(
        tuple(Field.thermometer(n, [c * unit.get(n, 1) for c in range(5, 40, 5)]) for n in NAMES)
    )
    weights = np.stack([np.zeros(21, dtype=bool), np.ones(21, dtype=bool)])
    mask = np.ones((2, 21), dtype=bool)
    mask[:, 7:11] = mask[:, 14:] = False
    output = OutputLayer(weights, mask=mask, bias=np.zeros(2, dtype=np.int32))
    return BinaryModel(input=spec, hidden=(), output=output, classes=("low", "high"), name="m")


def label_of(of, values):
    return of.infer(of.encode(values)).classes


def test_a_column_that_the_network_does_not_count_is_worth_exactly_nothing():
    of, values = model(), columns()
    label = label_of(of, values)
    by_feature = {f.feature: f for f in permutation_importance(of, values, label)}
    assert set(by_feature) == set(NAMES) and by_feature["rate"].accuracy > 0.05
    idle = by_feature["idle"]
    assert (idle.accuracy, idle.accuracy_std, idle.macro_f1, idle.macro_f1_std) == (0, 0, 0, 0)
    assert idle.bits == 7 and 14 <= idle.bit < 21


def test_a_column_that_the_network_does_not_read_is_not_there():
    of, values = model(), columns()
    label = label_of(of, values)
    more = values | {"other": label * 10**9}
    assert permutation_importance(of, more, label) == permutation_importance(of, values, label)


@pytest.mark.parametrize("scale", [1000, 10**7])
def test_the_unit_of_a_column_changes_nothing(scale):
    chi2 = pytest.importorskip("sklearn.feature_selection").chi2
    label = label_of(model(), columns())
    small = permutation_importance(model(), columns(), label)
    large = permutation_importance(model(scale), columns(scale), label)
    assert small == large
    raw = [chi2(np.stack([*columns(s).values()], 1), label)[0][0] for s in (1, scale)]
    assert raw[1] == pytest.approx(scale * raw[0])  # what the integers say does


def test_the_fall_is_that_of_permuted_columns():
    of, values = model(), columns()
    label = np.where(np.arange(ROWS) % 3, label_of(of, values), 0)
    (only,) = [f for f in permutation_importance(of, values, label, repeats=3, seed=5)
               if f.feature == "flag"]  # fmt: skip
    rng = np.random.default_rng((5, 1))
    falls = []
    before = evaluate(label, label_of(of, values), None, 2)
    for _ in range(3):
        permuted = values | {"flag": values["flag"][rng.permutation(ROWS)]}
        after = evaluate(label, label_of(of, permuted), None, 2)
        falls.append((before.accuracy - after.accuracy, before.macro_f1 - after.macro_f1))
    assert (only.accuracy, only.macro_f1) == pytest.approx(tuple(np.mean(falls, 0)))
    assert (only.accuracy_std, only.macro_f1_std) == pytest.approx(tuple(np.std(falls, 0)))


def test_the_same_seed_gives_the_same_and_another_another():
    """Of five permutations, as docs/reference/formats.md says."""
    of, values = model(), columns()
    label = label_of(of, values)
    first = permutation_importance(of, values, label)
    again = permutation_importance(of, values, label, repeats=5)
    assert first == again != permutation_importance(of, values, label, seed=1)
    assert [f.accuracy for f in first] == sorted((f.accuracy for f in first), reverse=True)
    turned = permutation_importance(of, values, 1 - label)  # always wrong: less wrong without
    assert [f.feature for f in turned] == [f.feature for f in first]
    assert turned[0].accuracy < turned[1].accuracy < turned[2].accuracy == 0


@pytest.mark.parametrize("classes", [2, 4])
def test_chi2_is_that_of_the_table_of_counts(classes):
    contingency = pytest.importorskip("scipy.stats.contingency")
    from scipy.stats import chi2_contingency

    rng = np.random.default_rng(0)
    label = rng.integers(0, classes, 500)
    bits = rng.random((500, 6)) < 0.2 + 0.1 * label[:, None]
    bits[:, 5] = True
    chi2 = bits_chi2(bits, label)
    for i in range(5):
        table = contingency.crosstab(bits[:, i], label).count
        assert chi2[i] == pytest.approx(chi2_contingency(table, correction=False)[0])
    assert chi2[5] == 0
    assert np.allclose(chi2, bits_chi2(~bits, label))
    largest_chi2 = bits_chi2((label == 1)[:, None], label)[0]
    assert largest_chi2 <= 500 * (1 + 1e-12) and (classes > 2 or largest_chi2 == pytest.approx(500))


def test_bits_of_a_feature_are_permuted_together_and_the_best_bit_is_named():
    of, values = model(), columns()
    label = (values["rate"] >= 20).astype(np.int64)
    by_feature = {f.feature: f for f in permutation_importance(of, values, label)}
    best = by_feature["rate"]
    assert (best.bit, best.bits, best.phi2) == (3, 7, 1.0)  # the cut at 20
    assert best.chi2 == ROWS
    assert all(f.phi2 == f.chi2 / ROWS for f in by_feature.values())
    bits = of.input.encode(values)
    chi2 = bits_chi2(bits, label)
    for number, name in enumerate(NAMES):
        own = chi2[7 * number : 7 * number + 7]
        assert (by_feature[name].chi2, by_feature[name].bit) == (
            own.max(),
            7 * number + own.argmax(),
        )


def test_a_class_that_no_row_has_changes_nothing():
    """Neither true nor called: the confusion has its row and column all the same."""
    of, values = model(), columns()
    label = label_of(of, values)
    weights = np.concatenate([of.output.weights, np.zeros((1, 21), bool)])
    output = OutputLayer(
        weights, mask=np.concatenate([of.output.mask, np.zeros((1, 21), bool)]),
        bias=np.array([0, 0, -1], np.int32),
    )  # fmt: skip
    three = BinaryModel(of.input, (), output, ("low", "high", "none"))
    assert permutation_importance(three, values, label) == permutation_importance(of, values, label)


def test_figures_of_a_confusion_are_shares():
    assert _figures(np.zeros((2, 2), np.int64)) == (0.0, 0.0)
    assert _figures(np.array([[1, 0], [0, 0]])) == (1.0, 1.0)
    assert _figures(np.array([[0, 1], [0, 0]])) == (0.0, 0.0)
    # F1 of 2 * 3 / (5 + 4) and 2 * 2 / (3 + 3); nobody is of the third class
    figures = _figures(np.array([[3, 1, 1], [1, 2, 0], [0, 0, 0]]))
    assert figures == (5 / 8, pytest.approx((6 / 9 + 4 / 6) / 2))


def test_no_rows_give_no_figures():
    empty = {n: np.zeros(0, dtype=np.int64) for n in NAMES}
    importance = permutation_importance(model(), empty, np.zeros(0, dtype=np.int64))
    assert [f.accuracy for f in importance] == [f.chi2 for f in importance] == [0, 0, 0]
