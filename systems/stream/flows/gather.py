# SPDX-License-Identifier: Apache-2.0
"""Reads packets from libpcap, batch by batch, into arrays that one thread hands to another."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.kernel import build
from n3ic.meter.compiled import Frames
from n3ic.util.cache import Cache

SOURCE = Path(__file__).parent / "c" / "gather.c"
LARGEST = 1 << 18  # bytes of a packet that are kept, as in the C file
ROOM = 16 * LARGEST  # bytes of a batch
PACKETS = 4096  # most packets of a batch
_CACHE = "stream"

Dispatch = Callable[[Any, ctypes.c_void_p, int], bool]
"""``Capture.dispatch``: passes a limited number of packets to a C function; whether it had any."""


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
        self._handler = ctypes.cast(_library().gather_packet, ctypes.c_void_p)
        self._data = np.empty(ROOM, dtype=np.uint8)
        self._offset, self._time = (np.empty(PACKETS, dtype=np.uint64) for _ in range(2))
        self._captured, self._length = (np.empty(PACKETS, dtype=np.uint32) for _ in range(2))
        self._gather = _Gather(
            *(a.ctypes.data for a in (self._data, self._offset, self._time)),
            *(a.ctypes.data for a in (self._captured, self._length)),
        )

    def read(
        self, dispatch: Dispatch, most: int = PACKETS, hurry: Callable[[], bool] = lambda: False
    ) -> tuple[Frames, bool]:
        """Read a batch.

        Args:
            dispatch: where the packets come from.
            most: maximum number of packets, up to :data:`PACKETS`.
            hurry: tells whether the next packet may be long in coming, so that the batch ends.

        Returns:
            Copies of the packets, with times in nanoseconds since 1970, and whether ``dispatch``
            had no more.
        """
        g = self._gather
        g.used = g.packets = 0
        more = True
        # Never ask for more packets than are sure to fit.
        while more and (step := min(most - g.packets, (ROOM - g.used) // LARGEST)) > 0:
            slow = hurry()
            more = dispatch(
                self._handler, ctypes.c_void_p(ctypes.addressof(g)), 1 if slow else step
            )
            if slow:
                break
        count = g.packets
        frames = Frames(
            self._data[: max(1, g.used)].copy(),
            self._offset[:count].copy(),
            self._captured[:count].copy(),
            self._length[:count].copy(),
            self._time[:count].copy(),
        )
        return frames, not more


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
    return ctypes.CDLL(str(path))
