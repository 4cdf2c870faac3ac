"""Ctrl-C, SIGTERM and SIGHUP end a command alike: late at worst, and never unheard.

A signal raises a :class:`KeyboardInterrupt` where the program stands. Libraries may swallow that:
numpy's reader of buffer formats does below scikit-learn's boosted trees, and so does a bare
``except`` of Brevitas. The handler therefore remembers the signal, and :func:`check` raises again
at the next epoch, and before a result takes its place.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
ENDING = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class EndedBySignal(KeyboardInterrupt):
    """A signal ended the program.

    A class of its own: Python takes a plain KeyboardInterrupt that leaves an ``exec`` (dataclasses
    and named tuples use it) for unhandled, and then ends by SIGINT whatever the exit code.
    """


class EndingHandler:
    """Handler of the signals that end a program.

    Attributes:
        received: the last of them that came; None before.
    """

    received: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal and raise :class:`EndedBySignal`."""
        self.received = number
        raise EndedBySignal


@contextmanager
def ending_signals() -> Iterator[EndingHandler]:
    """Handle the signals that end a program, within the block and in the main thread.

    One that is ignored stays so, as ``nohup`` and a shell's background jobs want it.
    """
    handler = EndingHandler()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, old in before.items():
        if old is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield handler
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def check() -> None:
    """Raise again for a signal that came and was swallowed; nothing without a handler of ours.

    Raises:
        EndedBySignal: one came.
    """
    for number in ENDING:
        handler = signal.getsignal(number)
        if isinstance(handler, EndingHandler) and handler.received is not None:
            raise EndedBySignal


@contextmanager
def held() -> Iterator[None]:
    """Hold these signals back within the block; processes that it starts inherit that."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
