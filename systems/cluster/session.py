# SPDX-License-Identifier: Apache-2.0
"""A session of a ring, seen from its coordinator: rows in, scores out, several batches at once."""

from __future__ import annotations

import random
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import ClusterError
from n3ic.kernel import prediction
from n3ic.model.bits import Words, checked_words
from n3ic.model.network import BinaryModel
from n3ic.systems.cluster.coordinator import Coordinator, RingFlow, RowFlow, TaggedRows
from n3ic.systems.cluster.dense import GemmFlow
from n3ic.systems.cluster.endpoint import CARD, Endpoint, Neighbour
from n3ic.systems.cluster.kernels import OPERAND, GemmKernel, JobFlow, Kernel
from n3ic.systems.cluster.link import LinkTiming
from n3ic.systems.cluster.memory import TileMemory
from n3ic.systems.cluster.placement import ModelPlacement
from n3ic.systems.cluster.protocol import BY_RANGE, HOME, ControlId, PacketType, TaskPacket
from n3ic.systems.cluster.udp import Address, FaultInjection, UdpEndpoint, neighbours, run_endpoint

_EPOCH = 1_577_836_800  # 2020-01-01, UTC
SAMPLED = 64
"""Of so many rows, one is computed by the coordinator, too."""
Scores = NDArray[np.int32]
Row = TypeVar("Row", np.int32, np.int64)


def session_number() -> int:
    """Return a number greater than that of any earlier session: quarter seconds since 2020."""
    # Quarter seconds fit 32 bits for 34 years, and no ring starts twice within one.
    return int((time.time() - _EPOCH) * 4)


@dataclass(frozen=True)
class RingLink:
    """The ring as a session sees it.

    Attributes:
        addresses: address of every node, by number; the coordinator's own is not used.
        cards: nodes of the card subset.
        timing: timing of the coordinator's links.
        faults: faults that the coordinator injects.
        tile_bytes: maximum bytes of numbers in a tile; 0 if cards need packets of 512 bits.
        memory: memory that all nodes share; None if packets carry the numbers.
        key: key of the datagrams' tags; empty for a CRC-32, which is what cards have.
    """

    addresses: Mapping[int, Address]
    cards: Collection[int] = ()
    timing: LinkTiming = LinkTiming()  # noqa: RUF009 - frozen
    faults: FaultInjection = FaultInjection()  # noqa: RUF009 - frozen
    tile_bytes: int = 0
    memory: TileMemory | None = None
    key: bytes = field(default=b"", repr=False)


def talk(number: int, nodes: int, cards: Collection[int]) -> Neighbour:
    """Return how an endpoint sends to its successor."""
    return CARD if (number + 1) % (nodes + 1) in cards else Neighbour()


def _some(numbers: NDArray[Any]) -> str:
    """The first of some numbers as text."""
    return f"{numbers[:8].tolist()}{f' and {len(numbers) - 8:,} more' if len(numbers) > 8 else ''}"


class CoordinatorLoop:
    """Runs the coordinator's endpoint in its own thread.

    Args:
        home: the handler.
        wire: the coordinator's socket.
        station: the coordinator's endpoint.
        timing: timing of its links.
        begin: called in every turn; returns packets to send.
        waiting: returns whether something is expected from the ring.
        failed: called with the reason when the session fails.
    """

    def __init__(
        self,
        home: Coordinator,
        wire: UdpEndpoint,
        station: Endpoint,
        timing: LinkTiming,
        begin: Callable[[], Iterable[TaskPacket]],
        waiting: Callable[[], bool],
        failed: Callable[[ClusterError], None],
    ) -> None:
        self.lock = threading.RLock()
        self._home = home
        self._wire = wire
        self._station = station
        self._timing = timing
        self._begin = begin
        self._waiting = waiting
        self._failed = failed
        self._heard = time.monotonic()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="n3ic cluster", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def heard(self) -> None:
        """Note that a packet returned home."""
        self._heard = time.monotonic()

    def wake(self) -> None:
        """Wake the thread because there may be packets to send."""
        self._wire.ring()

    def end(self) -> None:
        """Stop the ring and wait until it has stopped."""
        with self.lock:
            self._ending = True
        self.wake()
        # end() returns after the last acknowledgement, so no node is left waiting for one.
        self._thread.join()

    def _run(self) -> None:
        try:
            run_endpoint(
                self._station,
                self._wire,
                timing=self._timing,
                each=self._turn,
                stopped=lambda: self._home.error is not None,
            )
        finally:
            self._wire.close()
            with self.lock:
                self._home.fail("the ring has ended")
                self._failed(self._home.error or ClusterError("the ring has ended"))

    def _turn(self, now: float) -> None:
        with self.lock:
            # Twice the links' limit: a broken link is reported by its own node before this time is
            # up.
            limit = 2 * self._timing.limit
            if not self._waiting():
                self._heard = now
            # Only silence while work is pending counts; an idle ring is quiet for as long as it
            # likes.
            elif now - self._heard > limit:
                self._home.fail(f"nothing has arrived from the ring for {limit:g} s")
            self._station.send(self._begin())
            if self._ending:
                self._ending = False
                terminate = TaskPacket(PacketType.CONTROL, ControlId.TERMINATE, BY_RANGE, 0, 0, 0)
                self._station.send([terminate])


class _Batch(Generic[Row]):
    """Rows that were submitted together."""

    def __init__(self, rows: int, width: int, kind: type[Row]) -> None:
        self.future: Future[NDArray[Row]] = Future()
        self.future.set_running_or_notify_cancel()  # rows in flight cannot be cancelled
        self.results: NDArray[Row] = np.zeros((rows, width), dtype=kind)
        self.missing = rows

    def set_results(self, first: int, results: NDArray[Row]) -> None:
        self.results[first : first + len(results)] = results
        self.missing -= len(results)
        if not self.missing:
            self.future.set_result(self.results)


class CoordinatorSession(ABC):
    """A session of a running ring.

    Use it as a context manager: at the end of the block the nodes are told to stop.

    Args:
        nodes: number of nodes beside the coordinator.
        digest: SHA-256 of the model or kernel that they hold.
        flow: the work of the ring.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket, from :func:`~n3ic.systems.cluster.udp.open_socket`; closed
            at the end.

    Attributes:
        station: endpoint of the coordinator.

    Raises:
        ClusterError: A node does not answer, or holds something else.
    """

    def __init__(
        self, nodes: int, digest: str, flow: RingFlow, ring: RingLink, sock: socket.socket
    ) -> None:
        self._started: Future[None] = Future()
        self._sent_with = flow
        self.home = Coordinator(nodes, digest, self._came)
        self.station = Endpoint(
            self.home,
            nodes,
            successor=talk(HOME, nodes, ring.cards),
            timing=ring.timing,
            session=session_number(),
            key=ring.key,
        )
        wire = UdpEndpoint(sock, neighbours(HOME, nodes, ring.addresses), ring.faults)
        self._loop = CoordinatorLoop(
            self.home, wire, self.station, ring.timing, self._begin, self._waits, self._failed
        )
        self.station.send([self.home.start()])
        self._loop.start()
        self._started.result()

    def check(self) -> None:
        """Check what the nodes hold; unless overridden, they must not hold a binary model.

        Raises:
            ClusterError: A node does not hold what it should.
        """
        for share in self.home.holdings:
            raise ClusterError(f"node {share.node} holds layer {share.array} of a binary model")

    @abstractmethod
    def drop(self, error: ClusterError) -> None:
        """Fail all pending futures because the session has failed."""

    def close(self) -> None:
        """Tell the nodes to stop; rows in flight are dropped."""
        self._loop.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Queue work for the ring within the block.

        Raises:
            ClusterError: The session has already failed.
        """
        with self._loop.lock:
            if self.home.error is not None:
                raise self.home.error
            yield
        self._loop.wake()

    def _waits(self) -> bool:
        return not self._started.done() or not self._sent_with.idle

    def _begin(self) -> list[TaskPacket]:
        """Check the ring once it is closed; from then on, return the packets that have room."""
        if not self._started.done():
            if not self.home.started:
                return []
            try:
                self.check()
            except ClusterError as error:
                self.home.error = error
                return []
            self._sent_with.slots = self.home.slots
            self._started.set_result(None)
        return self._sent_with.admit()

    def _came(self, packet: TaskPacket) -> list[TaskPacket]:
        self._loop.heard()
        with self._loop.lock:
            return self._sent_with.accept_data(packet)

    def _failed(self, error: ClusterError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
        self.drop(error)


class RowSession(CoordinatorSession, Generic[Row]):
    """A session with many rows in flight, in batches that overlap.

    One of :data:`SAMPLED` rows, at random, is computed here too. The session fails if the results
    differ: a node's memory or processor changes bits that no checksum covers.

    Args:
        nodes: number of nodes beside the coordinator.
        digest: SHA-256 of what the nodes hold.
        flow: the rows in flight.
        width: numbers of a result.
        kind: their type.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket; closed at the end.

    Raises:
        ClusterError: A node does not answer, or does not hold what it should.
    """

    def __init__(
        self,
        nodes: int,
        digest: str,
        flow: TaggedRows[Row],
        width: int,
        kind: type[Row],
        ring: RingLink,
        sock: socket.socket,
    ) -> None:
        self._flow: TaggedRows[Row] = flow
        self._width = width
        self._kind: type[Row] = kind
        self._batches: set[_Batch[Row]] = set()
        self._random = random.Random()  # noqa: S311 - a choice of rows, no secret
        self._unsampled = 0
        super().__init__(nodes, digest, flow, ring, sock)

    @abstractmethod
    def submit(self, rows: ArrayLike, /) -> Future[NDArray[Row]]:
        """Send rows; other batches may be sent before their results arrive."""

    @abstractmethod
    def compute(self, rows: NDArray[Any]) -> NDArray[Row]:
        """Compute rows in this process, as the ring does."""

    def submit_rows(self, rows: NDArray[Any], *, copied: bool = True) -> Future[NDArray[Row]]:
        """Send rows that the caller has checked.

        Args:
            rows: the rows.
            copied: whether to copy them, because the caller may change its array meanwhile.
        """
        batch = _Batch(len(rows), self._width, self._kind)
        if not len(rows):
            batch.future.set_result(batch.results)
            return batch.future

        own = rows.copy() if copied else rows

        def done(first: int, results: NDArray[Any]) -> None:
            if not self.accept_results(own[first : first + len(results)], results):
                return  # the session has failed, and with it the batch
            batch.set_results(first, results)
            if not batch.missing:
                self._batches.remove(batch)

        with self.sending():
            self._flow.submit(own, done)
            self._batches.add(batch)
        return batch.future

    def accept_results(self, rows: NDArray[Any], results: NDArray[Row]) -> bool:
        """Whether the results of some rows may be given out; else the session has failed."""
        self._unsampled += len(rows)
        if self._unsampled < SAMPLED:
            return True
        self._unsampled = 0
        row = self._random.randrange(len(rows))
        expected = self.compute(rows[row : row + 1])[0]
        if np.array_equal(results[row], expected):
            return True
        self.home.fail(
            f"a node's memory or processor is faulty: the ring has {_some(results[row])} "
            f"for a row, one process has {_some(expected)}"
        )
        return False

    def drop(self, error: ClusterError) -> None:
        """Fail the futures of all pending rows."""
        # One error per batch: several rows share a future, which may fail only once.
        missing = sum(batch.missing for batch in self._batches)
        failure = type(error)(f"{error}; {missing:,} rows have no scores")
        for batch in self._batches:
            batch.future.set_exception(failure)
        self._batches.clear()


class Session(RowSession[np.int32]):
    """A binary model on a ring.

    Args:
        model: the model that the nodes hold.
        placement: placement of the model.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket; closed at the end.

    Raises:
        ClusterError: A node does not answer, or does not hold what the plan says.

    Examples:
        >>> with Session(model, placement, ring, sock) as session:  # doctest: +SKIP
        ...     scores = session.scores(words)
    """

    def __init__(
        self, model: BinaryModel, placement: ModelPlacement, ring: RingLink, sock: socket.socket
    ) -> None:
        placement.check_model(model)
        self._bits = model.input.n_bits
        self._placement = placement
        self._own = prediction.load_into_kernel(model) or model
        flow = RowFlow(placement, ring.tile_bytes, ring.memory)
        width = placement.shape[-1]
        super().__init__(placement.nodes, model.digest, flow, width, np.int32, ring, sock)

    def check(self) -> None:
        """Check that the nodes hold what the plan says."""
        self.home.check(self._placement)

    def submit(self, words: ArrayLike) -> Future[Scores]:
        """Send rows; other batches may be sent before their scores arrive.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            A future of an int32 array of shape ``(rows, classes)``; it raises
            :class:`ClusterError` if a node dies or fails.

        Raises:
            ModelError: The inputs are not packed inputs of this model.
            ClusterError: The session has already failed.
        """
        return self.submit_rows(self._checked(words))

    def _checked(self, words: ArrayLike) -> Words:
        return checked_words(np.asarray(words), self._bits, "packed inputs")

    def compute(self, rows: Words) -> Scores:
        """Compute the model's scores in this process."""
        return self._own.scores(rows)

    def scores(self, words: ArrayLike) -> Scores:
        """Compute the scores of packed inputs; see :meth:`submit`."""
        return self.submit_rows(self._checked(words), copied=False).result()


class GemmSession(RowSession[np.int64]):
    """Products with a matrix whose columns are distributed over a ring.

    Args:
        kernel: the matrix.
        nodes: number of nodes of the ring.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket; closed at the end.
    """

    def __init__(self, kernel: GemmKernel, nodes: int, ring: RingLink, sock: socket.socket) -> None:
        self._kernel, self._nodes = kernel, nodes
        columns, windows = kernel.whole_matrix.matrix.shape[1], kernel.whole_matrix.windows
        flow = GemmFlow(OPERAND, columns, windows)
        super().__init__(nodes, kernel.digest, flow, windows * columns, np.int64, ring, sock)

    def check(self) -> None:
        """Check that the nodes hold the kernel's columns."""
        self.home.check_shares(self._kernel.expected_shares(self._nodes), "array")

    def submit(self, operand: ArrayLike) -> Future[NDArray[np.int64]]:
        """Combine an operand with the matrix.

        Args:
            operand: what :meth:`GemmKernel.rows` takes: rows of 32-bit integers for GEMM.

        Returns:
            A future of the kernel's result.

        Raises:
            ClusterError: The operand is invalid, or the session has already failed.
        """
        made: Future[NDArray[np.int64]] = Future()
        made.set_running_or_notify_cancel()

        def done(rows: Future[NDArray[np.int64]]) -> None:
            error = rows.exception()
            if error is None:
                made.set_result(self._kernel.result(rows.result()))
            else:
                made.set_exception(error)

        self.submit_rows(self._kernel.rows(operand)).add_done_callback(done)
        return made

    def compute(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Combine rows with the matrix in this process; the kernel bounds the sums."""
        return self._kernel.whole_matrix.results(rows).reshape(len(rows), -1)


class JobSession(CoordinatorSession):
    """Jobs of a kernel on a ring, run one after another.

    Args:
        kernel: the kernel.
        nodes: number of nodes of the ring.
        ring: addresses and timing of the ring.
        sock: the coordinator's socket; closed at the end.
    """

    def __init__(self, kernel: Kernel, nodes: int, ring: RingLink, sock: socket.socket) -> None:
        self._kernel = kernel
        self._nodes = nodes
        self._flow = JobFlow()
        self._futures: list[Future[Any]] = []
        super().__init__(nodes, kernel.digest, self._flow, ring, sock)

    def submit(self, *operands: Any) -> Future[NDArray[np.int64]]:
        """Start a job; see the kernel's ``job``.

        Raises:
            ClusterError: The operands do not fit the kernel, or the session has already failed.
        """
        job = self._kernel.job(self._nodes, *operands)
        future: Future[NDArray[np.int64]] = Future()
        future.set_running_or_notify_cancel()
        with self.sending():
            self._futures.append(future)
            self._flow.submit(job, lambda result: self._done(future, result))
        return future

    def _done(self, future: Future[Any], result: Any) -> None:
        self._futures.remove(future)
        future.set_result(result)

    def drop(self, error: ClusterError) -> None:
        """Fail the futures of all pending jobs."""
        for future in self._futures:
            future.set_exception(error)
        self._futures.clear()
