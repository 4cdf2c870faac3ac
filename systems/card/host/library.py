# SPDX-License-Identifier: Apache-2.0
"""Compile a card's library, and call it through ctypes."""

from __future__ import annotations

import ctypes
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.host.compilation import find_compiler
from n3ic.kernel import build
from n3ic.systems.card.frames import FrameResult
from n3ic.systems.card.host.write import ACTIONS, NETWORKS, PACKET_TASKS, SOURCES
from n3ic.systems.card.tasks.kind import Write

WIRE = 0xFFFFFFFF


class CallStatus(IntEnum):
    """Return codes of the calls; see ``n3ic_card.h``."""

    OK = 0
    OTHER = 1
    UNKNOWN = 2
    FOREIGN = 3
    MALFORMED = 4
    FULL = 5
    ABSENT = 6
    EMPTY = 7
    BAD_MODEL = 8
    NO_MEMORY = 9
    BAD_RATE = 10
    NO_TABLE = 11


@dataclass(frozen=True)
class CardLimits:
    """Maximum sizes in ``card_plan.h``: branches, all their scores, and bytes of a head."""

    branches: int
    scores: int
    head: int = 0


@dataclass(frozen=True)
class CardAnswer:
    """An answer of the card.

    Attributes:
        cookie: cookie of the submitted frame.
        graph: index of the graph.
        action: forward, drop, mark or mirror.
        value: port or DSCP of the action.
        results: results after the join.
        scores: scores of all branches, concatenated and padded with 0.
        head: headers after the packet tasks; empty on a card without any.
    """

    cookie: int
    graph: int
    action: str
    value: int
    results: tuple[FrameResult, ...]
    scores: tuple[int, ...]
    head: bytes


class CardCounters(ctypes.Structure):
    """``struct card_counters``."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("admitted", "answered", "beyond", "other", "unknown", "foreign"),
            *("malformed", "full", "absent"),
        )
    )

    def to_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {field[0]: int(getattr(self, field[0])) for field in self._fields_}


class _Result(ctypes.Structure):
    _fields_ = (
        ("model", ctypes.c_uint32),
        ("verdict", ctypes.c_uint32),
        ("margin", ctypes.c_int32),
    )


class CardLibrary:
    """The C of a card as a loaded library.

    Args:
        directory: a card's export; a person who can write to it can run code in this process.
        shape: sizes of its plan.

    Raises:
        MissingDependencyError: no C compiler is installed.
        VerifyError: the C does not compile, or the library lacks functions.
    """

    def __init__(self, directory: Path, shape: CardLimits) -> None:
        compiler = find_compiler()
        self.compiler = compiler.version
        self.shape = shape
        first, *others = (str((directory / name).resolve()) for name in SOURCES)
        networks = [
            str(path.resolve())
            for pattern in (NETWORKS, PACKET_TASKS)
            for path in sorted(directory.glob(pattern))
        ]
        extra = (*others, *networks, "-pthread", f"-I{directory.resolve()}")
        try:
            with tempfile.TemporaryDirectory(prefix="n3ic-card-") as folder:
                out = Path(folder) / "card.so"
                build.compile_shared(compiler, Path(first), out, extra)
                self.handle = ctypes.CDLL(str(out))
        except build.BuildError as error:
            raise VerifyError(f"the card does not compile: {str(error)[:2000]}") from error
        except OSError as error:
            raise VerifyError(f"the card's library does not load: {error}") from error
        c32, c64 = ctypes.c_uint32, ctypes.c_uint64
        card, size = ctypes.c_void_p, ctypes.c_size_t
        # ctypes would pass a pointer as a 32-bit int where no types are declared.
        for name, result, arguments in (
            ("card_open", ctypes.c_int, [card, c32]),
            ("card_close", None, [card]),
            ("card_submit", ctypes.c_int, [card, c32, ctypes.c_char_p, size, c64, c64]),
            ("card_work", size, [card, size]),
            ("card_wait", None, [card]),
            ("card_next", ctypes.c_int, [card, c32, card, card]),
            ("card_write", None, [card, card]),
            ("card_load", ctypes.c_int, [card, c32, c32, ctypes.c_char_p, size]),
            ("card_count", None, [card, c32, card]),
            ("card_rate", ctypes.c_int, [card, c32, c32, c64, c64, c64]),
            ("card_asked", c64, [card, c32]),
            ("card_table", ctypes.c_int, [card, c32, c32, card, size]),
            ("card_task_read", c32, [card, c32, c32]),
        ):
            function = getattr(self.handle, name)
            function.restype, function.argtypes = result, arguments

    def open(self, threads: int) -> OpenCard:
        """Open a card with a thread pool; with 0 threads, :meth:`OpenCard.work` computes.

        Raises:
            VerifyError: the library refuses a network's weights.
        """
        pointer = ctypes.c_void_p()
        status = CallStatus(self.handle.card_open(ctypes.byref(pointer), threads))
        if status:
            raise VerifyError(f"the card does not open: {status.name.lower()}")
        return OpenCard(self, pointer)


class OpenCard:
    """An open card, with the calls of ``n3ic_card.h``."""

    def __init__(self, library: CardLibrary, pointer: ctypes.c_void_p) -> None:
        self._c = library.handle
        self._card = pointer
        shape = library.shape
        self._scores = (ctypes.c_int32 * shape.scores)()

        # The layout depends on the plan, so each card gets a structure of its own.
        class _Answer(ctypes.Structure):
            _fields_ = (
                ("cookie", ctypes.c_uint64),
                ("graph", ctypes.c_uint32),
                ("action", ctypes.c_uint32),
                ("value", ctypes.c_uint32),
                ("results", ctypes.c_uint32),
                ("result", _Result * shape.branches),
                ("head", ctypes.c_uint8 * (shape.head + 1)),
            )

        self._answer = _Answer()
        # The threads of the pool end with the object, even if the caller forgets it.
        weakref.finalize(self, library.handle.card_close, pointer)

    def submit(self, frame: bytes, now_ns: int, cookie: int = 0, source: int = WIRE) -> CallStatus:
        """Submit a frame."""
        return CallStatus(
            self._c.card_submit(self._card, source, frame, len(frame), now_ns, cookie)
        )

    def work(self, most: int) -> int:
        """Compute up to ``most`` frames in this thread."""
        return int(self._c.card_work(self._card, most))

    def wait(self) -> None:
        """Wait until all admitted frames are computed."""
        self._c.card_wait(self._card)

    def next(self, tenant: int) -> CardAnswer | None:
        """Take the next answer for a tenant; None if it is not ready."""
        answer = self._answer
        if self._c.card_next(self._card, tenant, ctypes.byref(answer), self._scores):
            return None
        results = tuple(
            FrameResult(r.model, r.verdict, r.margin) for r in answer.result[: answer.results]
        )
        return CardAnswer(
            answer.cookie,
            answer.graph,
            ACTIONS[answer.action],
            answer.value,
            results,
            tuple(self._scores),
            bytes(answer.head)[:-1],
        )

    def load(self, network: int, weights: bytes | None, caller: int = WIRE) -> CallStatus:
        """Load, replace or (with None) remove a network."""
        size = len(weights) if weights is not None else 0
        return CallStatus(self._c.card_load(self._card, caller, network, weights, size))

    def set_table(self, task: int, writes: Iterable[Write], caller: int = WIRE) -> CallStatus:
        """Write words of the table of a packet task, all at once."""
        words = [value for pair in writes for value in pair]
        array = (ctypes.c_uint32 * len(words))(*words)
        return CallStatus(self._c.card_table(self._card, caller, task, array, len(words) // 2))

    def read_task(self, task: int, address: int) -> int:
        """Read a word that a packet task counts."""
        return int(self._c.card_task_read(self._card, task, address))

    def set_rate(
        self, tenant: int, rate: int, burst: int, now_ns: int, caller: int = WIRE
    ) -> CallStatus:
        """Change a tenant's guarantee: bytes per second, and bytes of its bucket."""
        return CallStatus(self._c.card_rate(self._card, caller, tenant, rate, burst, now_ns))

    def asked(self, graph: int) -> int:
        """Return how many frames named a graph and were allowed to, admitted or not."""
        return int(self._c.card_asked(self._card, graph))

    def discard(self, tenant: int) -> int:
        """Take the answers for a tenant that are ready, and return how many."""
        count = 0
        while not self._c.card_next(self._card, tenant, ctypes.byref(self._answer), None):
            count += 1
        return count

    def counters(self, tenant: int = WIRE) -> dict[str, int]:
        """Return the counters of a tenant, or of frames without one."""
        counters = CardCounters()
        self._c.card_count(self._card, tenant, ctypes.byref(counters))
        return counters.to_dict()
