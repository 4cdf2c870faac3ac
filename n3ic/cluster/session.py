"""A session of a ring, seen from its home: rows in, scores out, several batches at once."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.cluster.home import Home, RowFlow
from n3ic.cluster.link import Timing
from n3ic.cluster.placement import Placement
from n3ic.cluster.protocol import BY_RANGE, HOME, Control, Packet, PacketType
from n3ic.cluster.station import CARD, Neighbour, Station
from n3ic.cluster.wire import Address, Faults, Wire, neighbours, run_station
from n3ic.errors import ClusterError
from n3ic.model.bits import checked_words
from n3ic.model.network import BinaryModel

_EPOCH = 1_577_836_800  # 2020-01-01, UTC
Scores = NDArray[np.int32]


def session_number() -> int:
    """A number greater than that of every session before: quarter seconds since 2020."""
    return int((time.time() - _EPOCH) * 4)


@dataclass(frozen=True)
class Link:
    """What a session needs to know of its ring.

    Attributes:
        addresses: of every node, by number; the home's own is not used.
        cards: nodes of the card subset.
        timing: of the home's links.
        faults: damage that the home does on purpose.
    """

    addresses: Mapping[int, Address]
    cards: Collection[int] = ()
    timing: Timing = Timing()  # noqa: RUF009 - frozen
    faults: Faults = Faults()  # noqa: RUF009 - frozen


def talk(number: int, nodes: int, cards: Collection[int]) -> Neighbour:
    """How a station talks to its successor."""
    return CARD if (number + 1) % (nodes + 1) in cards else Neighbour()


class HomeLoop:
    """The home's station on a thread of its own.

    Args:
        home: the handler.
        wire: the home's socket.
        station: the home's station.
        timing: of its links.
        begin: packets to send, asked for in every turn.
        waiting: whether something is expected from the ring.
        failed: told why the session has failed.
    """

    def __init__(
        self,
        home: Home,
        wire: Wire,
        station: Station,
        timing: Timing,
        begin: Callable[[], Iterable[Packet]],
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
        """Begin."""
        self._thread.start()

    def heard(self) -> None:
        """Something came home."""
        self._heard = time.monotonic()

    def wake(self) -> None:
        """There may be packets to send."""
        self._wire.ring()

    def end(self) -> None:
        """Let the ring end, and wait until it has."""
        with self.lock:
            self._ending = True
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        run_station(
            self._station,
            self._wire,
            timing=self._timing,
            each=self._turn,
            stopped=lambda: self._home.error is not None,
        )
        self._wire.close()
        if self._home.error is not None:
            with self.lock:
                self._failed(self._home.error)

    def _turn(self, now: float) -> None:
        with self.lock:
            limit = 2 * self._timing.limit
            if not self._waiting():
                self._heard = now
            elif now - self._heard > limit:
                self._home.fail(f"nothing came home for {limit:g} s")
            self._station.send(self._begin())
            if self._ending:
                self._ending = False
                terminate = Packet(PacketType.CONTROL, Control.TERMINATE, BY_RANGE, 0, 0, 0)
                self._station.send([terminate])


class _Batch:
    """Rows that were asked for together."""

    def __init__(self, rows: int, classes: int) -> None:
        self.future: Future[Scores] = Future()
        self.scores: Scores = np.zeros((rows, classes), dtype=np.int32)
        self.left = rows

    def put(self, index: int, scores: Scores) -> None:
        self.scores[index] = scores
        self.left -= 1
        if not self.left:
            self.future.set_result(self.scores)


class Session:
    """A binary model on a ring whose nodes run.

    Use it as a context manager: at its end the nodes are told to end.

    Args:
        model: the model that the nodes hold.
        placement: who holds what of it.
        ring: where the nodes are.
        sock: the home's socket, from :func:`~n3ic.cluster.wire.open_socket`; closed at the end.

    Raises:
        ClusterError: a node is silent, or holds something else than the plan says.

    Examples:
        >>> with Session(model, placement, ring, sock) as session:  # doctest: +SKIP
        ...     scores = session.scores(words)
    """

    def __init__(
        self, model: BinaryModel, placement: Placement, ring: Link, sock: socket.socket
    ) -> None:
        placement.check_model(model)
        self._bits = model.input.n_bits
        self._classes = placement.shape[-1]
        self._timing = ring.timing
        self._batches: dict[int, tuple[_Batch, int]] = {}
        self._started: Future[None] = Future()
        self._flow = RowFlow(placement, self._row)
        self._home = Home(placement.nodes, model.digest, self._came)
        self._placement = placement
        nodes = placement.nodes
        self.station = Station(
            self._home,
            nodes,
            successor=talk(HOME, nodes, ring.cards),
            timing=ring.timing,
            session=session_number(),
        )
        wire = Wire(sock, neighbours(HOME, nodes, ring.addresses), ring.faults)
        self._loop = HomeLoop(
            self._home, wire, self.station, ring.timing, self._begin, self._waits, self._failed
        )
        self.station.send([self._home.start()])
        self._loop.start()
        self._started.result()

    def submit(self, words: ArrayLike) -> Future[Scores]:
        """Send rows; their scores come later, and other batches may be sent meanwhile.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``, pad bits 0.

        Returns:
            A future of an int32 array of shape ``(rows, classes)``; its error is a
            :class:`ClusterError` where a node dies or fails.

        Raises:
            ModelError: the inputs are not packed inputs of this model.
            ClusterError: the session has failed before.
        """
        rows = checked_words(np.asarray(words), self._bits, "packed inputs")
        batch = _Batch(len(rows), self._classes)
        if not len(rows):
            batch.future.set_result(batch.scores)
            return batch.future
        with self._loop.lock:
            if self._home.error is not None:
                raise self._home.error
            first = self._flow.submit(rows)
            self._batches |= {first + i: (batch, i) for i in range(len(rows))}
        self._loop.wake()
        return batch.future

    def scores(self, words: ArrayLike) -> Scores:
        """Scores of packed inputs; see :meth:`submit`."""
        return self.submit(words).result()

    def close(self) -> None:
        """Tell the nodes to end; rows that are on their way are dropped."""
        self._loop.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _waits(self) -> bool:
        return not self._started.done() or not self._flow.idle

    def _begin(self) -> list[Packet]:
        """Check the ring once it is closed; then rows, as many as have room."""
        if not self._started.done():
            if not self._home.started:
                return []
            try:
                self._home.check(self._placement)
            except ClusterError as error:
                self._home.error = error
                return []
            self._flow.slots = self._home.slots
            self._started.set_result(None)
        return self._flow.admit()

    def _came(self, packet: Packet) -> list[Packet]:
        self._loop.heard()
        with self._loop.lock:
            return self._flow.take(packet)

    def _row(self, row: int, scores: Scores) -> None:
        batch, index = self._batches.pop(row)
        batch.put(index, scores)

    def _failed(self, error: ClusterError) -> None:
        missing = len(self._batches)
        said = f"{error}; {missing:,} rows have no scores" if missing else str(error)
        if not self._started.done():
            self._started.set_exception(error)
        for batch in {id(b): b for b, _ in self._batches.values()}.values():
            batch.future.set_exception(ClusterError(said))
        self._batches.clear()
