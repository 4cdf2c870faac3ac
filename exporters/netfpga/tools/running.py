"""The life of a simulated card: a program that is started, asked and ended."""

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
class Program:
    """What runs as a card.

    Attributes:
        command: program and arguments.
        folder: where it runs, which is where ``$readmemh`` finds its files; None for here.
        descriptors: open files that it gets.
    """

    command: Sequence[str]
    folder: Path | None = None
    descriptors: Sequence[int] = ()


class RunningCard(ABC):
    """A card whose program runs while a ``with`` block does.

    The program says ``ready`` when it works. It is terminated at the end, and prints then what it
    counted. What was made for it goes too, whatever happens.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def _plug_in(self, stack: ExitStack) -> Program:
        """Build the card's program and what it is plugged into; the stack takes both away."""

    def _count(self, text: str) -> None:  # noqa: B027 - a card may count nothing
        """Take what the program printed at its end, after what was read of it before."""

    def __enter__(self) -> Self:
        """Build the card and start it.

        Raises:
            MissingDependencyError: a tool is missing.
            VerifyError: the Verilog does not build.
            N3icError: what it is plugged into cannot be made, or it did not start.
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
        """End the card and remove all that was made for it."""
        self._stack.close()

    @property
    def running(self) -> bool:
        """Whether the card works."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Pull the card's plug: its devices stay, and nothing answers there."""
        if self._process is not None:
            self._process.kill()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        """What the program reads and what it prints."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise N3icError("the card does not run: it does within its with block")
        return process.stdin, process.stdout

    def _exit_code(self) -> int | None:
        """What the program ends with; waits for its end."""
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


def serve(card: RunningCard, ready: Callable[[], None]) -> None:
    """Run a card until Ctrl-C, SIGTERM, or its program ends.

    Args:
        card: what runs.
        ready: called when it works.

    Raises:
        N3icError: see ``__enter__`` of :class:`RunningCard`.
    """
    with _until_signal() as stop, card:
        ready()
        while card.running and not stop.wait(0.2):
            pass


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, for the length of the block."""
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
