# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a simulated card: a program that is started, queried and stopped."""

from __future__ import annotations

import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from n3ic.errors import N3icError

_STOP_SECONDS = 10
_READY_SECONDS = 120


@dataclass(frozen=True)
class SimulatorProgram:
    """The program of a simulated card.

    Attributes:
        command: program and arguments.
        folder: working directory, where ``$readmemh`` finds its files; None for the current one.
        descriptors: file descriptors that the program inherits.
    """

    command: Sequence[str]
    folder: Path | None = None
    descriptors: Sequence[int] = ()


class SimulatedCardProcess(ABC):
    """A simulated card whose program runs inside a ``with`` block.

    The program prints ``ready`` when it works. At the end it is terminated, prints its counters,
    and everything that was created for it is removed in any case.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def _plug_in(self, stack: ExitStack) -> SimulatorProgram:
        """Build the card's program and its environment; the stack removes both."""

    def _count(self, text: str) -> None:  # noqa: B027 - a card may count nothing
        """Read the counters that the program printed at its end."""

    def __enter__(self) -> Self:
        """Build the card and start it.

        Raises:
            MissingDependencyError: a tool is missing.
            VerifyError: the Verilog does not build.
            N3icError: its devices cannot be created, or the program did not start.
        """
        with ExitStack() as stack:
            program = self._plug_in(stack)
            process = subprocess.Popen(
                program.command,
                cwd=program.folder,
                pass_fds=program.descriptors,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._process = process
            stack.callback(self._stop, process)
            timer = threading.Timer(_READY_SECONDS, process.kill)
            timer.start()
            line = self._pipes()[1].readline()
            timer.cancel()
            if line.strip() != "ready":
                raise N3icError(f"the simulated card did not start (exit code {self._exit_code()})")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the card and remove everything that was created for it."""
        self._stack.close()

    @property
    def running(self) -> bool:
        """Whether the card is running."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the program without cleaning up: its devices stay, and nothing answers."""
        if self._process is not None:
            self._process.kill()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        """Standard input and output of the program."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise N3icError("the card is not running: use it inside its with block")
        return process.stdin, process.stdout

    def _exit_code(self) -> int | None:
        """Wait for the program's end and return its exit code."""
        return None if self._process is None else self._process.wait()

    def _stop(self, process: subprocess.Popen[str]) -> None:
        process.terminate()
        try:
            text, _ = process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            text, _ = process.communicate()
        if process.returncode == 0:
            self._count(text)


def serve(card: SimulatedCardProcess, ready: Callable[[], None]) -> None:
    """Run a card until Ctrl-C, SIGTERM, or its program ends.

    Raises:
        N3icError: see :meth:`SimulatedCardProcess.__enter__`.
    """
    with _until_signal() as stop, card:
        ready()
        while card.running and not stop.wait(0.2):
            pass


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
