# SPDX-License-Identifier: Apache-2.0
"""Words of rows that arrive in parts: the freeze queue of a node."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from n3ic.systems.cluster.node import ROW_SLOTS
from n3ic.systems.cluster.protocol import ProtocolError

Word = TypeVar("Word", np.uint32, np.uint8)


class Gathering(Generic[Word]):
    """Words of incomplete rows.

    Args:
        words: number of words of a row.
        kind: their type.
    """

    def __init__(self, words: int, kind: type[Word]) -> None:
        self._size = words
        self._kind: type[Word] = kind
        self._rows: dict[int, tuple[NDArray[Word], NDArray[np.bool_]]] = {}

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def add_words(self, row: int, at: int, words: NDArray[Word]) -> NDArray[Word] | None:
        """Store some words of rows.

        Args:
            row: tag of the rows.
            at: number of the first word.
            words: array of shape ``(rows, n)``.

        Returns:
            All words of these rows, of shape ``(rows, words)``; None while words are missing.

        Raises:
            ProtocolError: words came before, or lie outside; or too many rows are incomplete.
        """
        if row not in self._rows:
            self._begin(row, np.zeros((len(words), self._size), dtype=self._kind))
        self._mark(row, at, *words.shape)[:, at : at + words.shape[1]] = words
        return self._whole(row)

    def add_placed(
        self, row: int, at: int, count: int, place: NDArray[Word]
    ) -> NDArray[Word] | None:
        """Note that some words are in a place that their sender shares; see :meth:`add_words`.

        Args:
            row: tag of the rows.
            at: number of the first word.
            count: number of words.
            place: array of shape ``(rows, words)`` that all words of these rows come to.
        """
        if row not in self._rows:
            self._begin(row, place)
        self._mark(row, at, len(place), count)
        return self._whole(row)

    def _begin(self, row: int, place: NDArray[Word]) -> None:
        # The bound keeps a sender that never completes a row from filling the memory.
        if len(self._rows) == ROW_SLOTS:
            raise ProtocolError(f"row {row}: more than {ROW_SLOTS} rows at once")
        self._rows[row] = place, np.zeros(self._size, dtype=np.bool_)

    def _mark(self, row: int, at: int, rows: int, count: int) -> NDArray[Word]:
        """Note that words of rows have arrived; return where all words of these rows come to."""
        complete, present = self._rows[row]
        if len(complete) != rows:
            raise ProtocolError(f"tile {row}: of {len(complete)} and of {rows} rows")
        end = at + count
        # Links deliver each packet once, so a word that comes twice is an error of the sender.
        if not 0 <= at < end <= self._size or present[at:end].any():
            raise ProtocolError(f"row {row}: words {at} to {end} of {self._size}")
        present[at:end] = True
        return complete

    def _whole(self, row: int) -> NDArray[Word] | None:
        complete, present = self._rows[row]
        if not present.all():
            return None
        del self._rows[row]
        return complete
