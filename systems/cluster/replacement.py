# SPDX-License-Identifier: Apache-2.0
"""A ring that goes on when a node is lost: it starts again, and computes the missing rows again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.coordinator import NodeLostError
from n3ic.systems.cluster.launch import ModelWork, Ring, RingOptions, ring_on, workers
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.systems.cluster.session import RowSession, Scores, Session

Lasting = TypeVar("Lasting", bound=RowSession[np.int32])


class LastingRing(Generic[Lasting]):
    """A ring whose lost nodes are replaced.

    Use it as a context manager.

    Args:
        start: starts a ring; called again after a loss, when it finds the nodes that are there.
        replacements: most losses; the next one is an error.

    Attributes:
        lost: texts of the losses, which name the nodes.
    """

    def __init__(
        self, start: Callable[[], AbstractContextManager[Ring[Lasting]]], replacements: int
    ) -> None:
        self.lost: list[str] = []
        self._start = start
        self._most = replacements
        # One thread starts rings one after another and sends the rows of lost ones again.
        self._mending = ThreadPoolExecutor(1, thread_name_prefix="n3ic cluster")
        self._stack = ExitStack()
        self._ring = self._stack.enter_context(start())

    @property
    def running(self) -> Ring[Lasting]:
        """The ring of now."""
        return self._ring

    def submit(self, rows: ArrayLike) -> Future[Scores]:
        """Send rows, as the session's ``submit`` takes them."""
        rows = np.array(rows)  # the caller may change its array meanwhile
        future: Future[Scores] = Future()
        future.set_running_or_notify_cancel()
        self._send(rows, future)
        return future

    def scores(self, rows: ArrayLike) -> Scores:
        """Compute the scores of rows; see :meth:`submit`."""
        return self.submit(rows).result()

    def _send(self, rows: NDArray[Any], future: Future[Scores]) -> None:
        ring = self._ring
        try:
            sent = ring.session.submit(rows)
        except NodeLostError as error:
            self._mending.submit(self._mend, ring, error, rows, future)
            return
        sent.add_done_callback(partial(self._arrived, ring, rows, future))

    def _arrived(
        self,
        ring: Ring[Lasting],
        rows: NDArray[Any],
        future: Future[Scores],
        sent: Future[Scores],
    ) -> None:
        error = sent.exception()
        # The ring's own thread calls this. It cannot wait for its own end, so another one mends.
        if isinstance(error, NodeLostError):
            self._mending.submit(self._mend, ring, error, rows, future)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(sent.result())

    def _mend(
        self,
        ring: Ring[Lasting],
        error: NodeLostError,
        rows: NDArray[Any],
        future: Future[Scores],
    ) -> None:
        """Start the ring again unless another batch has, and send rows again."""
        try:
            if ring is self._ring:
                if len(self.lost) == self._most:
                    raise error
                self.lost.append(str(error))
                self._stack.close()
                self._ring = self._stack.enter_context(self._start())
            self._send(rows, future)
        except Exception as failure:  # noqa: BLE001 - who waits for the rows must hear of it
            future.set_exception(failure)

    def close(self) -> None:
        """Tell the nodes to stop."""
        self._mending.shutdown(cancel_futures=True)
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def lasting_ring(
    model: BinaryModel, placement: ModelPlacement, options: RingOptions
) -> Iterator[LastingRing[Session]]:
    """Start a ring for a binary model, which replaces up to ``options.replacements`` nodes.

    Where no process takes a lost node's place, another process holds its part, too.

    Args:
        model: the model.
        placement: placement of the model.
        options: how to start the ring.

    Raises:
        ClusterError: A node does not start, does not answer, or holds something else.
        MissingDependencyError: distributed is not installed.
    """
    work = ModelWork(model, placement)
    with (
        workers(placement.nodes - len(options.cards), options.dask) as client,
        LastingRing(partial(ring_on, client, work, options), options.replacements) as ring,
    ):
        yield ring
