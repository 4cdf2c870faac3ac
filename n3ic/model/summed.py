# SPDX-License-Identifier: Apache-2.0
"""What models have in common whose scores are sums with a bias."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import bytes_for
from n3ic.model.classifier import Classifier


def n_sums(classes: int) -> int:
    """Number of sums that a model of some classes computes: one for two classes."""
    return 1 if classes == 2 else classes


class SummedModel(Classifier):
    """A model with a sum a class; two classes have one together, and their scores are ``0, s``.

    Attributes:
        bias: what each sum starts from, int32 array of shape ``(sums,)``.
    """

    bias: NDArray[Any]

    @property
    @abstractmethod
    def sum_bounds(self) -> NDArray[np.int64]:
        """Least and largest value of each sum: int64 array of shape ``(2, sums)``."""

    @property
    def bias_bytes(self) -> int:
        """Bytes of the biases: 1, 2 or 4 each."""
        return len(self.bias) * bytes_for(2 * int(np.abs(self.bias.astype(np.int64)).max()))

    @property
    def score_bounds(self) -> tuple[int, int]:
        """Bounds of the scores of all classes."""
        ends = self._as_scores(self.sum_bounds)
        return int(ends.min()), int(ends.max())

    def favouring(self, positive: int, step: int, rates: str) -> Self:
        """The model with a step added to the score of a class, by its bias.

        Args:
            positive: index of the class; for the first of two classes, the one sum falls instead.
            step: the integer that is added.
            rates: the false alarms in words, for the provenance.

        Raises:
            ModelError: a bias or a sum is out of its range.
        """
        bias, two = self.bias.astype(np.int64), len(self.bias) == 1
        bias[0 if two else positive] += -step if two and positive == 0 else step
        return self.changed(bias=bias, provenance={**self.provenance, "false_alarms": rates})

    def _as_scores(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Scores of sums: shape ``(rows, sums)`` to ``(rows, classes)``."""
        if sums.shape[1] == 1:
            return np.concatenate([np.zeros_like(sums), sums], axis=1)
        return sums
