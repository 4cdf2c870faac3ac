# SPDX-License-Identifier: Apache-2.0
"""The compiled meter: C generated from a specification, built on first use, run by ctypes."""

from __future__ import annotations

import ctypes
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import MissingDependencyError, N3icError
from n3ic.kernel import build
from n3ic.meter.packet import REASONS
from n3ic.meter.reference import End
from n3ic.meter.source import meter_source
from n3ic.model.meter_spec import MeterSpec
from n3ic.util.cache import Cache

ENDS: tuple[End, ...] = get_args(End)
ASIDE = (*REASONS, "flow cache full")
STAMPS = ("back", "ahead", "steps")  # counters of Clock
# A flow's key, as struct key in C; an address takes the first `address_bytes` bytes.
KEY = (
    ("source", np.uint8, 16),
    ("destination", np.uint8, 16),
    ("source_port", np.uint16),
    ("destination_port", np.uint16),
    ("protocol", np.uint8),
    ("address_bytes", np.uint8),
    ("pad", np.uint8, 2),
)
SECRET_BYTES = 16  # key of the flow tables' SipHash, so that no sender can make keys collide
_CACHE = "meters"
_U64 = np.ctypeslib.ndpointer(dtype=np.uint64, flags="C_CONTIGUOUS")
_U32 = np.ctypeslib.ndpointer(dtype=np.uint32, flags="C_CONTIGUOUS")
_U8 = np.ctypeslib.ndpointer(dtype=np.uint8, flags="C_CONTIGUOUS")
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "meter_open": (ctypes.c_void_p, [ctypes.c_uint32, ctypes.c_char_p]),
    "meter_hide_sources": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "meter_close": (None, [ctypes.c_void_p]),
    "meter_count": (None, [ctypes.c_void_p, ctypes.c_size_t, _U8, _U64, _U32, _U32, _U64]),
    "meter_finish": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t]),
    "meter_records": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
    "meter_record_bytes": (ctypes.c_size_t, []),
    "meter_counters": (None, [ctypes.c_void_p, _U64]),
    "meter_state_bytes": (ctypes.c_size_t, [ctypes.c_void_p]),
    "meter_save": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "meter_restore": (None, [ctypes.c_void_p, ctypes.c_char_p]),
}

Records = NDArray[np.void]


def record_type(spec: MeterSpec) -> np.dtype[np.void]:
    """The structured type of a flow record, ``struct record`` of the generated C.

    Fields: ``source`` and ``destination`` (16 bytes each; the address takes the first
    ``address_bytes``), ``source_port``, ``destination_port``, ``protocol``, ``address_bytes``,
    ``why`` (index in :data:`ENDS`), ``number``, ``first``, ``last``, ``packets``, ``registers``
    (uint64, one each) and ``features`` (uint32, one each, in the order of their names).
    """
    return np.dtype(
        [
            *KEY,
            ("why", np.uint32),
            ("pad2", np.uint32),
            ("number", np.uint64),
            ("first", np.uint64),
            ("last", np.uint64),
            ("packets", np.uint64),
            ("registers", np.uint64, max(1, len(spec.registers))),
            ("features", np.uint32, len(spec.feature_names)),
        ],
        align=True,
    )


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames, concatenated in memory.

    Attributes:
        data: bytes of all frames, uint8.
        offset: start of each frame, uint64 array of shape ``(frames,)``.
        captured: captured bytes of each frame, uint32.
        length: bytes of each frame on the wire, uint32.
        time: time of each frame in the meter's unit, uint64.
    """

    data: NDArray[np.uint8]
    offset: NDArray[np.uint64]
    captured: NDArray[np.uint32]
    length: NDArray[np.uint32]
    time: NDArray[np.uint64]

    @classmethod
    def of(cls, frames: Sequence[tuple[bytes, int, int]]) -> Frames:
        """Concatenate frames; each has its bytes, its length on the wire and its time."""
        captured = np.array([len(f) for f, _, _ in frames], dtype=np.uint32)
        offset = np.zeros(len(frames), dtype=np.uint64)
        offset[1:] = np.cumsum(captured[:-1], dtype=np.uint64)
        return cls(
            np.frombuffer(b"".join(f for f, _, _ in frames) or b"\0", dtype=np.uint8),
            offset,
            captured,
            np.array([length for _, length, _ in frames], dtype=np.uint32),
            np.array([time for _, _, time in frames], dtype=np.uint64),
        )

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """Offset, captured bytes, length and time of each frame."""
        return self.offset, self.captured, self.length, self.time

    def first(self, count: int) -> Frames:
        """The first ``count`` frames."""
        return Frames(self.data, *(column[:count] for column in self.columns))

    def each(self) -> Iterator[tuple[bytes, int, int]]:
        """Bytes, length on the wire and time of each frame."""
        for start, size, length, time in zip(*(c.tolist() for c in self.columns), strict=True):
            yield self.data[start : start + size].tobytes(), length, time


class CompiledMeter:
    """A metering process in C; equal to the reference meter, record by record.

    Args:
        spec: definition of a flow and of the integers kept for it.
        link: link type of the frames (LINKTYPE_ numbers).
        live: whether whoever sends the frames may try to learn which sources share a place: the
            hashes of the table of sources get a random key, and differ from run to run.

    Raises:
        MissingDependencyError: no C compiler is installed.
        N3icError: the meter cannot be built, or there is too little memory for its flow cache.
    """

    def __init__(self, spec: MeterSpec, link: int, *, live: bool = False) -> None:
        self.spec, self.link = spec, link
        self._type = record_type(spec)
        self.library = _library(spec)
        # numpy must pad the structure as the compiler does.
        if self.library.meter_record_bytes() != self._type.itemsize:
            raise N3icError("the compiled meter's records have an unexpected layout")
        secret = secrets.token_bytes(SECRET_BYTES)
        self._meter = ctypes.c_void_p(self.library.meter_open(link, secret))
        if self._meter.value is None:
            raise N3icError(f"no memory for a flow cache of {spec.cache_flows:,} flows")
        if live:
            self.library.meter_hide_sources(self._meter, secret)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the meter's memory."""
        self.library.meter_close(self._meter)
        self._meter = ctypes.c_void_p()

    @property
    def pointer(self) -> ctypes.c_void_p:
        """The ``struct meter *``, as ``meter_packet`` of the library takes it."""
        return self._meter

    def count(self, frames: Sequence[tuple[bytes, int, int]]) -> Records:
        """Count frames (bytes, length on the wire, time); return :meth:`records`."""
        self.count_frames(Frames.of(frames))
        return self.records()

    def count_frames(self, frames: Frames) -> None:
        """Count frames that lie in memory."""
        self.library.meter_count(self._meter, len(frames.time), frames.data, *frames.columns)

    def finish(self) -> Records:
        """End the remaining flows and return their records."""
        self.end(self.spec.cache_flows)
        return self.records()

    def end(self, most: int) -> bool:
        """End at most ``most`` of the remaining flows; return whether more are left."""
        return bool(self.library.meter_finish(self._meter, most))

    def records(self) -> Records:
        """Return the flows decided since the last call: array of :func:`record_type`, ``(flows,)``.

        Raises:
            N3icError: there is too little memory for the records.
        """
        count = ctypes.c_size_t()
        start = self.library.meter_records(self._meter, ctypes.byref(count))
        if self.counters()["memory"]:
            raise N3icError("no memory for the flow records")
        if not count.value:
            return np.empty(0, dtype=self._type)
        # A copy: the meter reuses its memory at the next call.
        raw = ctypes.string_at(start, count.value * self._type.itemsize)
        return np.frombuffer(raw, dtype=self._type)

    def save(self) -> bytes:
        """Serialise the state, without records that are not yet fetched; see :meth:`restore`."""
        state = ctypes.create_string_buffer(self.library.meter_state_bytes(self._meter))
        self.library.meter_save(self._meter, state)
        return state.raw

    def restore(self, state: bytes) -> None:
        """Resume from a state saved by a meter of the same specification and code.

        Only its length is checked, so it must come from a place that nobody else can write to.

        Raises:
            N3icError: the state has the wrong length.
        """
        size = self.library.meter_state_bytes(self._meter)
        if len(state) != size:
            raise N3icError(f"a meter's state has {size:,} bytes, got {len(state):,}")
        self.library.meter_restore(self._meter, state)

    def counters(self) -> dict[str, int]:
        """Return the meter's counters by name.

        They count packets (all, late, put aside by reason, in tunnels that are not opened), time
        stamps that go back or jump (:data:`STAMPS`), evicted flows, forgotten sources and failed
        allocations.
        """
        names = ("packets", "late", "evicted", "memory", *STAMPS, "tunnelled", "forgotten", *ASIDE)
        out = np.zeros(len(names), dtype=np.uint64)
        self.library.meter_counters(self._meter, out)
        return dict(zip(names, out.tolist(), strict=True))


@lru_cache(maxsize=8)
def _library(spec: MeterSpec) -> ctypes.CDLL:
    try:
        path = _built(meter_source(spec))
    except build.NoCompilerError as error:
        raise MissingDependencyError(
            "the compiled meter needs a C compiler: install gcc or clang, or name one in CC"
        ) from error
    except build.BuildError as error:
        raise N3icError(f"the meter cannot be built: {error}") from error
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _built(sources: dict[str, str]) -> Path:
    compiler = build.find_compiler()
    cache = Cache.open(_CACHE)
    name = build.library_name("meter", compiler, [s.encode() for s in sources.values()])
    library = cache.find(name)
    if library:
        return library
    with tempfile.TemporaryDirectory(prefix="n3ic-meter-") as scratch, cache.new_file(name) as out:
        for file, text in sources.items():
            (Path(scratch) / file).write_text(text, encoding="utf-8")
        build.compile_shared(compiler, Path(scratch) / "meter.c", out)
    return cache.directory / name
