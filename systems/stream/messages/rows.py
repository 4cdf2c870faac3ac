# SPDX-License-Identifier: Apache-2.0
"""Hands rows of the device's tensor to messages, batch by batch."""

from __future__ import annotations

import heapq

from n3ic.errors import UsageError


class BatchRows:
    """Rows in batches, each of which is filled, computed and freed as a whole.

    A new message goes to the oldest batch that is not full. A row that a lost message frees goes to
    the next message, so no batch waits for ever while messages come.

    Args:
        batches: number of batches, at least one; with two, one fills while the other is computed.
        rows: messages of a batch.
    """

    def __init__(self, batches: int, rows: int) -> None:
        if batches < 1 or rows < 1:
            raise UsageError(f"expected at least one batch of one row, got {batches} of {rows}")
        self.rows = rows
        self._free = list(range(batches))
        self._complete: dict[int, list[int]] = {}  # complete rows of each batch that is filling
        self._order: dict[int, int] = {}  # the order in which batches began to fill
        self._open: list[tuple[int, int]] = []  # (order, row): the oldest batch fills first
        self._begun = 0

    @property
    def free(self) -> int:
        """Number of rows that messages may take now."""
        return len(self._open) + self.rows * len(self._free)

    def take_row(self) -> int | None:
        """Take a row for a new message; None if all are in use."""
        if not self._open:
            if not self._free:
                return None
            batch = self._free.pop(0)
            self._complete[batch] = []
            self._order[batch] = self._begun
            self._begun += 1
            first = batch * self.rows
            self._open = [(self._order[batch], row) for row in range(first, first + self.rows)]
        return heapq.heappop(self._open)[1]

    def give_back(self, row: int) -> None:
        """Free the row of a message that will not be complete."""
        heapq.heappush(self._open, (self._order[row // self.rows], row))

    def complete(self, row: int) -> list[int] | None:
        """Note that a row's message is complete; return the batch's rows if that was the last."""
        batch = row // self.rows
        self._complete[batch].append(row)
        return self._end(batch) if len(self._complete[batch]) == self.rows else None

    def flush(self) -> list[list[int]]:
        """Return the complete rows of every batch that is not full, oldest batch first.

        Only for the end of a stream: incomplete messages are lost.
        """
        self._open.clear()
        batches = sorted(self._complete, key=self._order.__getitem__)
        return [rows for rows in map(self._end, batches) if rows]

    def release(self, row: int) -> None:
        """Free the batch of a row, whose messages have been computed."""
        self._free.append(row // self.rows)

    def _end(self, batch: int) -> list[int]:
        del self._order[batch]
        return sorted(self._complete.pop(batch))
