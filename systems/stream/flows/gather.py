# SPDX-License-Identifier: Apache-2.0
"""Reads packets from libpcap, batch by batch, into arrays that one thread hands to another."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import cache, partial
from pathlib import Path

import numpy as np

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.kernel import build
from n3ic.meter.capture import libpcap
from n3ic.meter.compiled import Frames
from n3ic.util.cache import Cache

SOURCE = Path(__file__).parent / "c" / "gather.c"
LARGEST = 1 << 18  # bytes of a packet that are kept, as in the C file
ROOM = 16 * LARGEST  # bytes of a batch, as in the C file
PACKETS = 4096  # most packets of a batch
WAIT_S = 0.01  # longest wait of a packet for others
_CACHE = "stream"

Dispatch = Callable[[Callable[[ctypes.c_void_p], int]], bool]
"""``Capture.dispatch_by``: passes packets by a function of libpcap's handle; whether it had any."""


class _Gather(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("offset", ctypes.c_void_p),
        ("time", ctypes.c_void_p),
        ("captured", ctypes.c_void_p),
        ("length", ctypes.c_void_p),
        ("used", ctypes.c_uint64),
        ("packets", ctypes.c_uint64),
    )


class PacketGatherer:
    """Memory for a batch of packets, which is reused for each batch.

    Raises:
        MissingDependencyError: No C compiler is installed.
        N3icError: The C code cannot be built.
    """

    def __init__(self) -> None:
        self._c = _library()
        self._dispatch = ctypes.cast(libpcap().pcap_dispatch, ctypes.c_void_p)
        self._data = np.empty(ROOM, dtype=np.uint8)
        self._offset, self._time = (np.empty(PACKETS, dtype=np.uint64) for _ in range(2))
        self._captured, self._length = (np.empty(PACKETS, dtype=np.uint32) for _ in range(2))
        self._gather = _Gather(
            *(a.ctypes.data for a in (self._data, self._offset, self._time)),
            *(a.ctypes.data for a in (self._captured, self._length)),
        )
        self._filling: Future[bool] | None = None
        self._taken = 0

    def read(self, dispatch: Dispatch, most: int = PACKETS) -> tuple[Frames, bool]:
        """Read a batch, which ends when it is full or ``dispatch`` has no more.

        Args:
            dispatch: where the packets come from.
            most: maximum number of packets, up to :data:`PACKETS`.

        Returns:
            Copies of the packets, with times in nanoseconds since 1970, and whether ``dispatch``
            had no more.
        """
        more = self._fill(dispatch, most)
        return self._frames(0, int(self._gather.packets)), not more

    def read_within(
        self, dispatch: Dispatch, most: int = PACKETS, wait_s: float = WAIT_S
    ) -> tuple[Frames, bool]:
        """As :meth:`read`, but packets wait for the next ones only so long.

        libpcap returns when it has all the packets that it was asked for, so that a thread waits
        for it.

        Args:
            dispatch: where the packets come from; it is still in use between two calls.
            most: maximum number of packets, up to :data:`PACKETS`.
            wait_s: longest time in seconds that a packet waits for others.
        """
        if self._filling is None:
            self._taken, self._filling = 0, _started(partial(self._fill, dispatch, most))
        while True:
            ended = bool(wait([self._filling], wait_s).done)
            count = int(self._c.gathered_packets(ctypes.byref(self._gather)))
            if ended or count > self._taken:
                break
        frames, self._taken = self._frames(self._taken, count), count
        if not ended:
            return frames, False
        filling, self._filling = self._filling, None
        return frames, not filling.result()

    @property
    def is_reading(self) -> bool:
        """Whether ``dispatch`` is still in use between two calls."""
        return self._filling is not None and not self._filling.done()

    def _fill(self, dispatch: Dispatch, most: int) -> bool:
        """Fill the arrays anew; returns whether ``dispatch`` may have more."""
        g = self._gather
        g.used = g.packets = 0
        more = True
        while more and g.packets < most and ROOM - g.used >= LARGEST:
            more = dispatch(lambda pcap: self._gathered(pcap, most - int(g.packets)))
        return more

    def _gathered(self, pcap: ctypes.c_void_p, most: int) -> int:
        return int(self._c.gather_dispatch(ctypes.byref(self._gather), self._dispatch, pcap, most))

    def _frames(self, first: int, end: int) -> Frames:
        offset, captured = self._offset[first:end], self._captured[first:end]
        start = int(offset[0]) if len(offset) else 0
        used = int(captured.sum())
        return Frames(
            self._data[start : start + max(1, used)].copy(),
            offset - np.uint64(start),
            captured.copy(),
            self._length[first:end].copy(),
            self._time[first:end].copy(),
        )


def _started(function: Callable[[], bool]) -> Future[bool]:
    """Run a function in a thread that does not keep the program from ending."""
    future: Future[bool] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@cache
def _library() -> ctypes.CDLL:
    try:
        compiler = build.find_compiler()
        cache_of = Cache.open(_CACHE)
        name = build.library_name("gather", compiler, [SOURCE.read_bytes()])
        path = cache_of.find(name)
        if path is None:
            with cache_of.new_file(name) as out:
                build.compile_shared(compiler, SOURCE, out)
            path = cache_of.directory / name
    except build.NoCompilerError as error:
        raise MissingDependencyError(
            "a stream needs a C compiler: install gcc or clang, or name one in CC"
        ) from error
    except (build.BuildError, OSError) as error:
        raise N3icError(f"the stream's C code cannot be built: {error}") from error
    library = ctypes.CDLL(str(path))
    library.gathered_packets.restype = ctypes.c_uint64
    pointer = ctypes.c_void_p
    library.gather_dispatch.argtypes = [pointer, pointer, pointer, ctypes.c_uint32]
    return library
