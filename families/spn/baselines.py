# SPDX-License-Identifier: Apache-2.0
"""Runs baselines that learn only from normal rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from n3ic.training.baselines import BaselineRows, Prediction

_MOST_ROWS = 4096  # a one-class support vector machine takes time with the square of its rows
_GAUSSIANS = 8


def unsupervised_baselines(
    train: BaselineRows,
    validation: BaselineRows,
    test: BaselineRows,
    anomaly: int,
    false_positives: float,
    seed: int,
) -> Iterator[Prediction]:
    """Run anomaly detectors on the integer columns, one after the other.

    They are a Gaussian of independent columns, a mixture of eight Gaussians, an isolation forest,
    a one-class support vector machine on at most 4,096 rows, and an autoencoder with a bottleneck
    of an eighth of the columns. All read logarithms of the columns, standardised. Like the network,
    each learns from normal training rows and takes its threshold from normal validation rows.

    Args:
        train: rows to fit.
        validation: rows that choose the threshold.
        test: rows to predict.
        anomaly: index of the one of two classes that is not learned.
        false_positives: share of the normal validation rows above the threshold.
        seed: seed of every baseline.
    """
    from sklearn.ensemble import IsolationForest
    from sklearn.mixture import GaussianMixture
    from sklearn.neural_network import MLPRegressor
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import OneClassSVM

    normal = train.columns[train.label != anomaly]
    validation_columns = validation.columns[validation.label != anomaly]

    def prediction(
        name: str, held_odd: NDArray[np.float64], odd: NDArray[np.float64]
    ) -> Prediction:
        """Turn anomaly scores of validation and test rows into a detector's prediction."""
        threshold = np.quantile(held_odd, 1 - false_positives, method="higher")
        scores = np.where(np.arange(2) == anomaly, odd[:, None], -odd[:, None])
        predicted = np.where(odd > threshold, anomaly, 1 - anomaly).astype(np.int64)
        return Prediction(name, predicted, scores)

    # Counters have long tails: on their own scale, a few large flows would hide all others.
    scaler = StandardScaler().fit(np.log2(1.0 + normal))

    def scaled(columns: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(scaler.transform(np.log2(1.0 + columns)), dtype=np.float64)

    learned, held_scaled, tested = scaled(normal), scaled(validation_columns), scaled(test.columns)
    # Of standardised columns, the squared distance is the Gaussian's negative log-likelihood.
    yield prediction(
        "diagonal_gaussian", np.square(held_scaled).mean(axis=1), np.square(tested).mean(axis=1)
    )
    forest = IsolationForest(n_estimators=200, random_state=seed)
    mixture = GaussianMixture(_GAUSSIANS, reg_covar=1e-3, random_state=seed)
    for name, model in (("gaussian_mixture", mixture), ("isolation_forest", forest)):
        model.fit(learned)
        yield prediction(name, -model.score_samples(held_scaled), -model.score_samples(tested))
    rows = np.random.default_rng(seed).permutation(len(normal))[:_MOST_ROWS]
    machine = OneClassSVM(nu=max(false_positives, 1e-3), gamma="scale").fit(learned[rows])
    yield prediction(
        "one_class_svm",
        -machine.score_samples(held_scaled),
        -machine.score_samples(tested),
    )
    width = normal.shape[1]
    encoder = MLPRegressor(
        hidden_layer_sizes=(max(2, width // 2), max(2, width // 8), max(2, width // 2)),
        max_iter=60,
        early_stopping=True,
        random_state=seed,
    ).fit(learned, learned)

    def lost(x: NDArray[np.float64]) -> NDArray[np.float64]:
        error = np.square(encoder.predict(x) - x).mean(axis=1)
        return np.asarray(error, dtype=np.float64)

    yield prediction("autoencoder", lost(held_scaled), lost(tested))
