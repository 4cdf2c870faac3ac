# SPDX-License-Identifier: Apache-2.0
"""Handle Ctrl-C, SIGTERM and SIGHUP alike, so that a command always ends, if late.

A signal raises a :class:`KeyboardInterrupt` wherever the program is. Libraries may swallow it:
numpy's reader of buffer formats does so below scikit-learn's boosted trees, and so does a bare
``except`` in Brevitas. The handler therefore remembers the signal, and :func:`check` raises it
again at the next epoch, and before a result replaces an older one.
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

    It has its own class because Python takes a plain KeyboardInterrupt that leaves an ``exec``
    (which dataclasses and named tuples use) for unhandled, and then ends by SIGINT in any case.
    """


class EndingHandler:
    """Handler of the signals that end a program.

    Attributes:
        received: the last signal that arrived; None before the first.
        arrivals: number of signals that arrived.
        holds: number of :func:`held` blocks that the program is in.
    """

    received: int | None = None
    arrivals: int = 0
    holds: int = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal and, unless it is held, raise :class:`EndedBySignal`."""
        self.received = number
        self.arrivals += 1
        if not self.holds:
            raise EndedBySignal


@contextmanager
def ending_signals() -> Iterator[EndingHandler]:
    """Handle the signals that end a program, within the block and in the main thread.

    Ignored signals stay ignored, as ``nohup`` and a shell's background jobs require.
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
    """Raise again for a signal that was swallowed; does nothing without our handler.

    Raises:
        EndedBySignal: a signal has arrived.
    """
    handler = _handler()
    if handler is not None and handler.received is not None:
        raise EndedBySignal


@contextmanager
def held() -> Iterator[None]:
    """Defer the ending signals within the block; processes started in it inherit the mask.

    The mask covers this thread only. A signal that another thread receives still reaches the
    handler, which keeps it until the block ends.

    Raises:
        EndedBySignal: a signal arrived within the block, and no other error was raised.
    """
    handler = _handler() or EndingHandler()
    arrivals = handler.arrivals
    handler.holds += 1
    can_mask = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING) if can_mask else set()
    try:
        yield
    finally:
        if can_mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        handler.holds -= 1
    if handler.arrivals > arrivals and not handler.holds:
        raise EndedBySignal


def _handler() -> EndingHandler | None:
    """The installed handler; None outside the main thread, which is the only one to run it."""
    if threading.current_thread() is not threading.main_thread():
        return None
    installed = (signal.getsignal(number) for number in ENDING)
    return next((handler for handler in installed if isinstance(handler, EndingHandler)), None)
