# SPDX-License-Identifier: Apache-2.0
"""What the cuts that tables read take in bytes, while the tables grow."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from n3ic.model.bits import bytes_for
from n3ic.model.inputs import InputSpec

_MOST_OF_A_BYTE = 63  # cuts of a field whose form takes one byte


class CutCosts:
    """Bytes of some bits of an input, as ``InputSpec.memory_bytes`` counts them.

    Args:
        spec: the input, of which no bit repeats another.
    """

    def __init__(self, spec: InputSpec) -> None:
        self._fields = len(spec.fields)
        self._field = np.repeat(np.arange(self._fields), [f.width for f in spec.fields])
        widths = [map(bytes_for, f.cuts) if f.cuts else [0] * f.width for f in spec.fields]
        self._width = np.array([*chain(*widths)], dtype=np.int64)  # raw bits take none

    def of(self, read: NDArray[np.bool_]) -> int:
        """Count the bytes of the bits that are read.

        Args:
            read: bool array of shape ``(n_bits,)``.
        """
        count, width = self._by_field(read)
        form = 1 + int(count.max() > _MOST_OF_A_BYTE)
        return int((form * (count > 0) + count * width).sum())

    def of_each(self, read: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the bytes that each further bit takes beside those that are read.

        Args:
            read: bool array of shape ``(n_bits,)``.

        Returns:
            int64 array of shape ``(n_bits,)``; bits that are read take none.
        """
        count, width = self._by_field(read)
        form = 1 + int(count.max() > _MOST_OF_A_BYTE)
        own, old = count[self._field], width[self._field]
        wider = np.maximum(self._width, old)
        cost = wider * (own + 1) - old * own + form * (own == 0)
        cost += np.where((form == 1) & (own == _MOST_OF_A_BYTE), (count > 0).sum(), 0)
        return np.where(read | (self._width == 0), 0, cost)

    def _by_field(self, read: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cuts that are read of each field, and the bytes of one: shape ``(fields,)``."""
        cuts = read & (self._width > 0)
        width = np.zeros(self._fields, dtype=np.int64)
        np.maximum.at(width, self._field[cuts], self._width[cuts])
        return np.bincount(self._field[cuts], minlength=self._fields), width
