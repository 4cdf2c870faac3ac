# SPDX-License-Identifier: Apache-2.0
"""A bounded queue between two threads, which either of them can end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ChannelEnded(Exception):  # noqa: N818 - not an error: the other thread ended the channel
    """The channel was broken by :meth:`Channel.stop`."""


class Channel(Generic[T]):
    """A bounded queue: a writer that is ahead waits, which is the stream's back-pressure.

    Args:
        room: the most items that may wait.

    Attributes:
        highest: the most items that have waited.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.highest = 0
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = self._stopped = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item, and wait for room if the channel is full.

        Raises:
            ChannelEnded: The channel was closed or stopped.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopped or self._closed or len(self._items) < self.room
            )
            if self._stopped or self._closed:
                raise ChannelEnded
            self._items.append(item)
            self.highest = max(self.highest, len(self._items))
            self._changed.notify_all()

    def close(self) -> None:
        """Declare that no more items will come; waiting items can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def stop(self) -> None:
        """End both sides at once; items that wait are lost."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Yield the items in their order, until the channel is closed.

        Raises:
            ChannelEnded: The channel was stopped.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._items or self._closed)
                if self._stopped:
                    raise ChannelEnded
                if not self._items:
                    return
                item = self._items.popleft()
                self._changed.notify_all()
            yield item
