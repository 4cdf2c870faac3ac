# SPDX-License-Identifier: Apache-2.0
"""A card's Verilog that runs while its packets and control operations are still being decided."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.tools import simulate
from n3ic.systems.card.netfpga.image import NetfpgaCardImage
from n3ic.systems.card.netfpga.simulation import (
    BenchLines,
    Operation,
    SentPacket,
    announce,
    build,
    check_output,
    program_text,
    wait_clock,
)
from n3ic.util.process import running_tool
from n3ic.util.signals import held

_PROCESSOR_SECONDS = 24 * simulate.RUN_SECONDS
_ANSWER_SECONDS = 600  # a million clocks of a large card in Icarus
_END_SECONDS = 20
MOST_TEXT = 1 << 16  # bytes that fit into a pipe


class LiveBench:
    """The test bench of a card with pipes for its packets, its program and its output.

    Its clock stands still between two calls of :meth:`step`.

    Args:
        directory: directory that :func:`~n3ic.systems.card.netfpga.write.write_card` wrote; it is
            not read after this call.
        image: the card.
        departed: called with each packet that leaves.
        simulator: the simulator; with ``auto``, Verilator if it is installed.

    Attributes:
        simulator: name and version of the simulator.
        process: its process.

    Raises:
        MissingDependencyError: No simulator is installed.
        VerifyError: The card does not build.
    """

    def __init__(
        self,
        directory: Path,
        image: NetfpgaCardImage,
        departed: Callable[[SentPacket], object],
        simulator: simulate.Simulator = "auto",
    ) -> None:
        tool = simulate.choose_simulator(simulator)
        self.simulator = simulate.version(tool)
        self._departed = departed
        self._bench = BenchLines()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with ExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-card-")))
            command = build(directory, image, work, tool)
            # The bench reads the memory files after this call.
            shutil.copytree(directory / "mem", work / "mem")
            self._start(stack, command, work)
            self._stack = stack.pop_all()

    def _start(self, stack: ExitStack, command: Sequence[str], work: Path) -> None:
        ends = {name: os.pipe() for name in ("in", "program", "out")}
        own = {name: pair[0 if name == "out" else 1] for name, pair in ends.items()}
        its = {name: pair[1 if name == "out" else 0] for name, pair in ends.items()}
        plus = [f"+{name}=/dev/fd/{its[name]}" for name in ends]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - the stack closes it
        stack.enter_context(self._output)
        reader = threading.Thread(target=self._read, args=(own["out"],), daemon=True)
        try:
            self.process = stack.enter_context(
                running_tool(
                    [*command, *plus, "+live=1", "+quiet=100"],
                    seconds=_PROCESSOR_SECONDS,
                    out=self._output,
                    err=self._output,
                    cwd=work / "mem",
                    pipes=tuple(its.values()),
                )
            )
        finally:
            for descriptor in its.values():
                os.close(descriptor)
            with held():  # an interrupt is the main thread's
                reader.start()  # it closes its end of the pipe
        self._in, self._program = (
            stack.enter_context(os.fdopen(own[name], "w", buffering=1 << 16))
            for name in ("in", "program")
        )

    def step(
        self, packets: str, beats: int, program: Sequence[Operation], clock: int,
        reads: Sequence[Operation] = (),
    ) -> list[int]:  # fmt: skip
        """Run until a clock.

        Args:
            packets: packets, as :func:`~n3ic.systems.card.netfpga.traffic.packet_text` writes them,
                at most ``MOST_TEXT`` bytes; their clocks are not beyond ``clock``.
            beats: their beats.
            program: operations, which run beside the packets; the clock is later if they take
                longer.
            clock: the clock.
            reads: operations that read registers then.

        Returns:
            Values of the registers. An interrupt waits until all that was written is answered.

        Raises:
            VerifyError: The simulation has ended, or an operation waited for too long.
        """
        text = program_text([announce(beats), *program, wait_clock(clock), *reads])
        bench = self._bench
        with held():
            try:
                # The bench has read all that was written before, so the packets fit into the pipe.
                self._in.write(packets)
                self._in.flush()
                self._program.write(text)
                self._program.flush()
            except OSError as error:
                raise self._ended() from error
            while not bench.reached or len(bench.registers) < len(reads):
                try:
                    line = self._lines.get(timeout=_ANSWER_SECONDS)
                except queue.Empty:
                    line = ""
                if not line:
                    raise self._ended()
                if packet := bench.take(line):
                    self._departed(packet)
            values = [value for _, _, value in bench.registers]
            for each in (bench.reached, bench.registers, bench.sent):
                each.clear()
        return values

    def close(self) -> None:
        """End the simulation, and remove its files.

        Raises:
            VerifyError: The card held its input up.
        """
        with self._stack:
            for pipe in (self._in, self._program):
                with suppress(OSError):  # the simulation has ended
                    pipe.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)
            check_output(self._text(), f"the card ({self.simulator})")

    def _ended(self) -> VerifyError:
        last = self._text()[-2000:].strip() or f"no answer in {_ANSWER_SECONDS} s"
        return VerifyError(f"the card ({self.simulator}) has stopped: {last}")

    def _text(self) -> str:
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")
