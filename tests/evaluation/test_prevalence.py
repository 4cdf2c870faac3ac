# SPDX-License-Identifier: Apache-2.0
"""Precision where attacks are rare: Bayes' rule, intervals that hold, a bias that is exported."""

import numpy as np
import pytest
from scipy.stats import beta, binom
from sklearn.metrics import precision_score

import n3ic
from n3ic.data.split import split
from n3ic.errors import UsageError
from n3ic.evaluation.held_out import held_out
from n3ic.evaluation.prevalence import (
    EVALUATION,
    OWN,
    SHARES,
    at_false_alarms,
    base_rate,
    confusion_counts,
)
from n3ic.families.tables.random_models import random_tables
from n3ic.model.bits import pack
from n3ic.model.network import BinaryModel
from n3ic.options import parse_options
from tests.support.small_flows import flows, trained


def ask(holdout, data=None, **typed):
    given = {name.replace("_", "-"): value for name, value in typed.items()}
    return EVALUATION.requested_figures(
        holdout, parse_options(EVALUATION.options, given, "test"), data, data
    )


def test_at_the_rows_own_share_it_is_the_precision_of_scikit_learn(model, table):
    holdout = held_out(model, table)
    share = float(holdout.label.mean())
    (own_rate,) = ask(holdout, prevalence=share)["rates"]
    want = precision_score(holdout.label, holdout.inference.classes)
    assert own_rate["precision"] == pytest.approx(want)
    (rare,) = ask(holdout, prevalence=0.001)["rates"]
    assert rare["precision"] == pytest.approx(_weighted(holdout, 0.001))
    assert rare["precision"] < want / 2
    assert [rate["prevalence"] for rate in ask(holdout)["rates"]] == [
        0.1,
        0.01,
        0.001,
    ]  # by default


def _weighted(holdout, share):
    """scikit-learn's precision of rows that are weighted to a share of attacks."""
    attacks = holdout.label.mean()
    weight = np.where(holdout.label == 1, share / attacks, (1 - share) / (1 - attacks))
    return precision_score(holdout.label, holdout.inference.classes, sample_weight=weight)


def test_the_band_is_of_exact_intervals():
    rate = base_rate((90, 100, 30, 1000), 0.01, 1e6)
    tail = (1 - np.sqrt(0.95)) / 2
    tpr = beta.ppf(tail, 90, 11), beta.ppf(1 - tail, 91, 10)
    fpr = beta.ppf(tail, 30, 971), beta.ppf(1 - tail, 31, 970)
    for got, t, f in (
        (rate.precision_low, tpr[0], fpr[1]),
        (rate.precision, 0.9, 0.03),
        (rate.precision_high, tpr[1], fpr[0]),
    ):
        assert got == pytest.approx(0.01 * t / (0.01 * t + 0.99 * f))
    assert rate.false_alarms == pytest.approx(0.03 * 0.99e6)
    assert rate.false_alarms_low == pytest.approx(beta.ppf(0.025, 30, 971) * 0.99e6)
    assert rate.false_alarms_high == pytest.approx(beta.ppf(0.975, 31, 970) * 0.99e6)


@pytest.mark.parametrize(("tpr", "fpr"), [(0.9, 0.05), (0.99, 0.001), (0.3, 0.0)])
def test_the_band_holds_the_precision_as_often_as_it_says(tpr, fpr):
    positives, negatives, share = 12, 60, 0.01
    want = share * tpr / (share * tpr + (1 - share) * fpr)
    covered = 0.0
    for hits in range(positives + 1):
        for alarms in range(13):
            rate = base_rate((hits, positives, alarms, negatives), share)
            if rate.precision_low <= want * (1 + 1e-12) and want <= rate.precision_high:
                chance = binom.pmf(hits, positives, tpr) * binom.pmf(alarms, negatives, fpr)
                covered += float(chance)
    assert covered >= 0.95


def test_no_alarms_say_little():
    rate = base_rate((0, 50, 0, 50), 0.001)
    assert (rate.precision, rate.precision_low, rate.precision_high) == (None, 0.0, 1.0)
    assert rate.false_alarms is None


def test_a_run_says_it_at_several_shares(model, table):
    holdout = held_out(model, table)
    figures = EVALUATION.figures(holdout, 0)
    assert [r["prevalence"] for r in figures["rates"]] == [*SHARES]
    assert {r["threshold"] for r in figures["rates"]} == {OWN}
    (shown,) = EVALUATION.tables(figures)
    assert [row[1] for row in shown.rows] == [f"{100 * share:g} %" for share in SHARES]
    assert "a day" not in shown.head[-1]
    with pytest.raises(ValueError, match="expected"):
        EVALUATION.tables({"rates": 3})


def test_the_wanted_rate_is_a_bias_chosen_on_validation_rows(model, table, tmp_path):
    holdout = held_out(model, table)
    changed = at_false_alarms(holdout, 0.02)
    assert isinstance(changed, BinaryModel)
    assert not np.array_equal(changed.output.bias, model.output.bias)
    rows = split(table, "random", 0).validation
    words = pack(model.input.encode({n: v[rows] for n, v in table.features.items()}))
    others = table.label[rows] == 0
    classes = changed.scores(words).argmax(axis=1)
    assert classes[others].mean() <= 0.02 < model.scores(words).argmax(axis=1)[others].mean()
    out = tmp_path / "m.n3ic"
    own, wanted = ask(holdout, prevalence=0.001, false_alarms=0.02, write_model=str(out))["rates"]
    assert n3ic.load(out).digest == changed.digest
    assert wanted["threshold"] == "2.00 % false alarms" and own["threshold"] == OWN
    tested = changed.infer(changed.encode({n: v[holdout.rows] for n, v in table.features.items()}))
    counts = confusion_counts(holdout.label, tested.classes, 1)
    assert wanted["false_alarm_rate"] == counts[2] / counts[3] < own["false_alarm_rate"]


@pytest.mark.usefixtures("quick_build", "compiler")
def test_the_bias_reaches_an_exported_program(model, table, tmp_path):
    """Other targets: tests/e2e/test_every_model.py has such a network for each."""
    changed = at_false_alarms(held_out(model, table), 0.02)
    assert "false_alarms" in changed.provenance and isinstance(changed, BinaryModel)
    exported = n3ic.export(changed, "host", tmp_path / "host", verify=False)
    assert n3ic.verify(exported.path, vectors=40, record=False).ok
    assert np.array_equal(exported.network.model.output.bias, changed.output.bias)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_build", "compiler")
def test_look_up_tables_have_the_wanted_rate_in_their_bias(table, tmp_path):
    own = trained(table, family="tables", tables=6, table_bits=3)
    holdout = held_out(own, table)
    changed = at_false_alarms(holdout, 0.02)
    rows = split(table, "random", 0).validation
    words = own.encode({n: v[rows] for n, v in table.features.items()})
    others = table.label[rows] == 0
    assert changed.infer(words).classes[others].mean() <= 0.02
    assert own.infer(words).classes[others].mean() > 0.02
    more = changed.favouring(1, 1, "one more")
    assert more.infer(words).classes[others].mean() > 0.02
    changed.save(tmp_path / "m.n3ic")
    assert n3ic.load(tmp_path / "m.n3ic").digest == changed.digest
    exported = n3ic.export(changed, "host", tmp_path / "host", verify=False)
    assert n3ic.verify(exported.path, vectors=40, record=False).ok


def test_look_up_tables_favour_a_class_by_as_much_as_is_said():
    for classes, positive in ((2, 0), (2, 1), (3, 1)):
        other = random_tables(np.random.default_rng(classes), classes=classes)
        words = np.random.default_rng(5).integers(0, 2**32, (50, 1), dtype=np.uint32)
        words &= np.uint32((1 << min(32, other.input.n_bits)) - 1)
        if other.input.n_bits > 32:
            words = np.pad(words, ((0, 0), (0, (other.input.n_bits - 1) // 32)))
        rivals = np.delete(np.arange(classes), positive)
        lead = [m.scores(words)[:, positive, None] - m.scores(words)[:, rivals]
                for m in (other, other.favouring(positive, 7, "seven"))]  # fmt: skip
        assert np.array_equal(lead[1], lead[0] + 7)


@pytest.mark.parametrize("share", ["-0.1", "1.1", "2"])
def test_a_prevalence_is_a_share(share):
    (option,) = (o for o in EVALUATION.options if o.name == "prevalence")
    assert [option.parse(text) for text in ("0", "1")] == [0.0, 1.0]
    with pytest.raises(UsageError, match=r"--prevalence: .* is (below 0|above 1)"):
        option.parse(share)


def test_arguments_of_prevalence_that_contradict_are_refused(model, table):
    holdout = held_out(model, flows(seed=5))
    with pytest.raises(UsageError, match="validation rows choose the threshold"):
        ask(holdout, false_alarms=0.01)
    with pytest.raises(UsageError, match="beside --false-alarms"):
        ask(holdout, write_model="m.n3ic")
    benign = flows(seed=6, share=0.0)
    with pytest.raises(UsageError, match="rows of it and of others"):
        ask(held_out(model, benign), prevalence=0.1)
    assert EVALUATION.figures(held_out(model, benign), 0) == {}
