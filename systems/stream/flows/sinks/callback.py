# SPDX-License-Identifier: Apache-2.0
"""A sink in Python: any function of a batch, or an object with ``write(batch)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from n3ic.errors import N3icError
from n3ic.systems.stream.batch import FlowBatch
from n3ic.systems.stream.flows.sink import StreamSink


class TakesFlows(Protocol):
    """An object that takes decided flows."""

    def write(self, batch: FlowBatch) -> object:
        """Take flows; an exception ends the stream, which can resume from its state."""
        ...


class CallbackSink(StreamSink):
    """Passes flows to a function of yours.

    With a state, flows come after a state that holds them is written. After a kill, the flows of
    the last state come again (at-least-once delivery); :attr:`first` tells which they are.

    Args:
        take: takes the flows; an exception ends the stream, which can resume from its state.
        name: its name in the state; must be the same when the stream resumes.

    Attributes:
        first: number of the first flow of the batch that is being written, since the stream began.
    """

    def __init__(self, take: Callable[[FlowBatch], object], name: str = "callback") -> None:
        self.name = name
        self.first = 0
        self._take = take

    def write(self, batch: FlowBatch, first: int) -> None:
        """See :meth:`StreamSink.write`.

        Raises:
            N3icError: The function raised an exception.
        """
        self.first = first
        try:
            self._take(batch)
        except N3icError:
            raise
        except Exception as error:
            raise N3icError(f"sink {self.name}: {type(error).__name__}: {error}") from error
