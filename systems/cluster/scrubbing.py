# SPDX-License-Identifier: Apache-2.0
"""Weights in a node's memory, which are compared with their digest from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ClusterError

SCRUBBED = 4096
"""Rows after which a node compares its weights with their digest."""


@dataclass
class CheckedWeights:
    """Weights in memory, which are compared with their digest.

    Attributes:
        compute: function from rows, an array of shape ``(rows, n)``.
        digest: function that reads the weights and returns their digest.
    """

    compute: Callable[[NDArray[Any]], Any]
    digest: Callable[[], object]

    def __post_init__(self) -> None:
        self._first = self.digest()
        self._rows = 0

    def results(self, rows: NDArray[Any], what: str) -> Any:
        """Compute rows, and compare the weights with their digest every :data:`SCRUBBED` rows.

        Args:
            rows: array of shape ``(rows, n)``.
            what: what has these weights, for the error.

        Raises:
            ClusterError: The weights have changed in memory.
        """
        results = self.compute(rows)
        self._rows += len(rows)
        if self._rows >= SCRUBBED:
            self._rows = 0
            if self.digest() != self._first:
                raise ClusterError(f"{what}: weights changed in memory")
        return results


def array_digest(arrays: Iterable[NDArray[Any]]) -> int:
    """CRC-32 of the bytes of arrays, which one or two bits that change always alter."""
    digest = 0
    for array in arrays:
        digest = crc32(np.ascontiguousarray(array).data, digest)
    return digest
