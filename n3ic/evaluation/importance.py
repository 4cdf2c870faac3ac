# SPDX-License-Identifier: Apache-2.0
"""The contribution of each feature to a network's accuracy, independent of units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.kernel.prediction import scores
from n3ic.model.bits import Bits, pack, unpack
from n3ic.model.classifier import Classifier, classes_of

REPEATS = 5


@dataclass(frozen=True)
class FeatureImportance:
    """The loss of a network when one feature is made uninformative.

    Attributes:
        feature: name of the feature.
        bits: number of its input bits.
        accuracy: mean decrease of the accuracy over the permutations; negative for an increase.
        accuracy_std: standard deviation of that decrease.
        macro_f1: mean decrease of the macro F1.
        macro_f1_std: standard deviation of that decrease.
        chi2: Pearson's chi-squared statistic of its bit that is most informative about the class.
        phi2: ``chi2`` over the number of rows: 0 for no information, 1 for full information.
        bit: index of that bit among all input bits.
    """

    feature: str
    bits: int
    accuracy: float
    accuracy_std: float
    macro_f1: float
    macro_f1_std: float
    chi2: float
    phi2: float
    bit: int


def permutation_importance(
    model: Classifier,
    columns: Mapping[str, NDArray[np.int64]],
    label: NDArray[np.int64],
    *,
    repeats: int = REPEATS,
    seed: int = 0,
) -> tuple[FeatureImportance, ...]:
    """Decrease of accuracy and macro F1 when one feature's values are permuted among the rows.

    This is the permutation importance of Breiman (Random Forests, 2001, section 10). It does not
    depend on units. Features with the same information cover for each other, so each seems to
    matter little; :func:`bits_chi2` measures the information of each bit by itself.

    Args:
        model: a model.
        columns: int64 array of shape ``(rows,)`` per feature, of held-out rows.
        label: class index of each of these rows, shape ``(rows,)``.
        repeats: permutations of each feature.
        seed: seed of the permutations.

    Returns:
        One entry per feature that the model reads, the largest change of the accuracy first.

    Raises:
        ModelError: the columns lack a feature that the model reads.
    """
    spec = model.input
    bits = unpack(model.encode({name: columns[name] for name in spec.features}), spec.n_bits)
    chi2 = bits_chi2(bits, label)
    n_classes, rows = len(model.classes), max(len(label), 1)
    feature_of = [spec.feature_of(i) for i in range(spec.n_bits)]

    def figures(of: Bits) -> tuple[float, float]:
        predicted = classes_of(scores(model, pack(of)))
        counts = np.bincount(label * n_classes + predicted, minlength=n_classes**2)
        return _figures(counts.reshape(n_classes, n_classes))

    before = np.array(figures(bits))
    out = []
    for number, feature in enumerate(spec.features):
        places = np.flatnonzero([of == feature for of in feature_of])
        rng = np.random.default_rng((seed, number))  # features' permutations are independent
        falls = []
        for _ in range(repeats):
            permuted = bits.copy()
            # All bits of a feature move together: no row gets a value that does not exist.
            permuted[:, places] = bits[rng.permutation(len(bits))[:, None], places]
            falls.append(before - figures(permuted))
        mean, deviation = np.mean(falls, axis=0).tolist(), np.std(falls, axis=0).tolist()
        best = int(places[np.argmax(chi2[places])])
        most = float(chi2[best])
        figures_of = (mean[0], deviation[0], mean[1], deviation[1], most, most / rows)
        out.append(FeatureImportance(feature, len(places), *figures_of, best))
    return tuple(sorted(out, key=lambda feature: -abs(feature.accuracy)))


def bits_chi2(bits: Bits, label: NDArray[np.int64]) -> NDArray[np.float64]:
    """Pearson's chi-squared statistic of each bit against the class, from its table of counts.

    Args:
        bits: bool array of shape ``(rows, n_bits)``.
        label: class index of each row, shape ``(rows,)``.

    Returns:
        float64 array of shape ``(n_bits,)``; 0 for a constant bit.
    """
    sizes = np.bincount(label, minlength=1)
    ones = np.stack([bits[label == c].sum(axis=0) for c in range(len(sizes))]).astype(np.float64)
    share = bits.mean(axis=0) if len(bits) else np.zeros(bits.shape[1])
    expected = sizes[:, None] * share
    spread = expected * (1 - share)
    # Both cells of a bit in a class deviate by the same d: d^2/e1 + d^2/e0 = d^2 n / (e1 e0).
    terms = np.divide((ones - expected) ** 2, spread, where=spread > 0, out=np.zeros_like(ones))
    return np.asarray(terms.sum(axis=0), dtype=np.float64)


def _figures(confusion: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy, and macro F1 over the classes that occur; rows are true classes."""
    true, predicted, right = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    occurs = true > 0
    f1 = 2 * right[occurs] / (true + predicted)[occurs]
    return float(right.sum() / max(confusion.sum(), 1)), float(f1.mean()) if len(f1) else 0.0
