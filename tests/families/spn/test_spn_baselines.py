# SPDX-License-Identifier: Apache-2.0
"""Detectors beside a sum-product network: all read logarithms of normal rows alone."""

import numpy as np
import pytest

from n3ic.training.baselines import BaselineRows

pytest.importorskip("sklearn")


def rows(count, seed, anomalies=0.3, power=1.0):
    """Two counters with long tails that grow together; of an anomaly one is large, one small."""
    rng = np.random.default_rng(seed)
    label = (rng.random(count) < anomalies).astype(np.int64)
    size = rng.normal(14, 2, count)
    other = np.where(label == 1, 28 - size + 3 * np.sign(14 - size), size)
    logs = np.stack([size, other + rng.normal(0, 0.3, count)], axis=1)
    columns = np.rint(2.0 ** (power * np.clip(logs, 6, 22))).astype(np.int64)
    return BaselineRows(np.zeros((count, 1), np.uint8), columns, label)


def baselines(power=1.0):
    from n3ic.families.spn.baselines import unsupervised_baselines

    train, validation, test = (
        rows(n, seed, power=power) for n, seed in ((1200, 1), (400, 2), (600, 3))
    )
    return {p.name: p for p in unsupervised_baselines(train, validation, test, 1, 0.05, 0)}


def test_the_gaussian_is_that_of_independent_logarithms_and_the_mixture_knows_their_relation():
    from sklearn.metrics import roc_auc_score

    of = baselines()
    assert [*of][:3] == ["diagonal_gaussian", "gaussian_mixture", "isolation_forest"]
    train, test = rows(1200, 1), rows(600, 3)
    logs = np.log2(1.0 + train.columns[train.label == 0])
    z = (np.log2(1.0 + test.columns) - logs.mean(axis=0)) / logs.std(axis=0)
    assert np.allclose(of["diagonal_gaussian"].scores[:, 1], np.square(z).mean(axis=1))
    auc = {n: roc_auc_score(test.label, p.scores[:, 1]) for n, p in of.items()}
    assert auc["gaussian_mixture"] > 0.95 > auc["diagonal_gaussian"]
    normal = of["gaussian_mixture"].predicted[test.label == 0]
    assert 0 < (normal == 1).mean() < 0.15  # the threshold is that of 5 % of validation rows


@pytest.mark.slow
def test_every_detector_reads_logarithms():
    """Squares of the columns are their logarithms twice: standardised, the same."""
    of, squared = baselines(), baselines(power=2.0)
    for name in ("diagonal_gaussian", "gaussian_mixture", "isolation_forest"):
        one, other = of[name].scores[:, 1], squared[name].scores[:, 1]
        assert np.corrcoef(one, other)[0, 1] > 0.99, name
