# SPDX-License-Identifier: Apache-2.0
"""A test bench for the front end: sends frames at given clocks, and records when frames leave."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.frontend.parameters import COUNTERS, FOLDER, TOP
from n3ic.exporters.netfpga.tools import simulate
from n3ic.exporters.netfpga.tools.simulator_process import SimulatedCardProcess, SimulatorProgram

MAC = bytes.fromhex("024e33000001")
PORT = 0x2323
RESEND = 20_000  # clocks per tick of the TCP timers
KEY = 0x0F1E2D3C4B5A6978  # of a bench's SYN cookies; a card at a device has a random one
QUIET = 50_000  # clocks without a beat; longer than the rows of one datagram need
_MOST = 50_000_000


@dataclass(frozen=True)
class OfferedFrame:
    """A frame to send into the card.

    Attributes:
        data: bytes of the frame, without frame check sequence.
        clock: earliest clock in which its first beat is offered.
        damaged: whether the MAC reports an error with the last beat.
    """

    data: bytes
    clock: int = 0
    damaged: bool = False


@dataclass(frozen=True)
class AcceptedFrame:
    """When a frame was accepted: clocks of its first and last beat, and clocks it had to wait."""

    first: int
    last: int
    stalls: int


@dataclass(frozen=True)
class SentFrame:
    """A frame that left the card: clocks of its first and last beat, and its bytes."""

    first: int
    last: int
    data: bytes


@dataclass(frozen=True)
class BenchRun:
    """Observations of one run.

    Attributes:
        taken: times of each frame that went in.
        left: frames that left the card.
        counters: the card's counters since its start, by name.
        clock: clock in which the run ended.
    """

    taken: tuple[AcceptedFrame, ...]
    left: tuple[SentFrame, ...]
    counters: dict[str, int]
    clock: int


def front_program(
    directory: Path,
    work: Path,
    ip: bytes,
    *,
    resend: int = RESEND,
    key: int = KEY,
    bad_cable: int = 0,
    device: int | None = None,
    waves: Path | None = None,
) -> SimulatorProgram:
    """Compile the front end of an export directory to a program in ``work``.

    Args:
        directory: an export directory with a front end, which is only read.
        work: an empty folder.
        ip: IPv4 address of the card.
        resend: clocks per tick of its TCP timers.
        key: of the SYN cookies, 64 bits.
        bad_cable: percentage of frames that are lost, duplicated and delayed.
        device: descriptor of a TAP device; None for a bench, which is given its frames.
        waves: FST file for all signals, whose folder exists; None for none.

    Raises:
        MissingDependencyError: Verilator is not installed.
        VerifyError: the Verilog does not build.
    """
    simulate.choose_simulator("verilator")
    top = (directory / "rtl" / f"{TOP}.v").read_text(encoding="utf-8")
    macros = ["N3IC_WRITE_PORT"] if "wr_swap," in top else []
    macros += ["N3IC_TCP"] if "cfg_resend," in top else []
    sources = [*sorted((directory / "rtl").glob("*.v")), FOLDER / "front.cpp"]
    binary = simulate.verilate(TOP, sources, work, macros=macros, waves=waves is not None)
    where = "-" if device is None else str(device)
    command = [str(binary), where, MAC.hex(), ip.hex(), f"{PORT:x}", f"{resend:x}", f"{key:x}"]
    command += [f"{bad_cable:x}", *([] if waves is None else [str(waves.resolve())])]
    folder = simulate.memory_folder(directory, work)
    return SimulatorProgram(command, folder, () if device is None else (device,))


class FrontBench(SimulatedCardProcess):
    """The front end of an export directory in simulation, running inside a ``with`` block.

    Attributes:
        ip: IPv4 address of the card.
    """

    def __init__(
        self,
        directory: Path,
        *,
        ip: bytes = bytes((10, 23, 23, 2)),
        resend: int = RESEND,
        quiet: int = QUIET,
        waves: Path | None = None,
    ) -> None:
        """Prepare a bench; nothing is built before the ``with`` block.

        Args:
            directory: an export directory with a front end, which is only read.
            ip: IPv4 address of the card.
            resend: clocks per tick of its TCP timers.
            quiet: number of clocks without a beat after which a run ends.
            waves: FST file for all signals, whose folder exists; None for none.
        """
        super().__init__()
        self.directory = directory.resolve()
        self.ip, self.resend, self.quiet = ip, resend, quiet
        self.waves = waves

    def _plug_in(self, stack: ExitStack) -> SimulatorProgram:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-front-")))
        return front_program(self.directory, work, self.ip, resend=self.resend, waves=self.waves)

    def run(
        self, frames: Sequence[OfferedFrame | bytes] = (), clocks: int = _MOST, quiet: int = 0
    ) -> BenchRun:
        """Send frames back to back, and run until nothing happens any more.

        Args:
            frames: frames to send.
            clocks: maximum number of clocks.
            quiet: clocks without a beat after which the run ends; 0 for the bench's default.

        Raises:
            VerifyError: the simulation ended, or frames still wait although nothing happens.
        """
        for frame in frames:
            one = frame if isinstance(frame, OfferedFrame) else OfferedFrame(frame)
            self._say(f"f {one.clock} {int(one.damaged)} {one.data.hex()}")
        self._say(f"r {clocks} {quiet or self.quiet}")
        commands, answers = self._pipes()
        commands.flush()
        accepted_frames, sent_frames, counters = [], [], {}
        for line in answers:
            what, _, rest = line.strip().partition(" ")
            fields = rest.split()
            if what == "i":
                accepted_frames.append(AcceptedFrame(*(int(f) for f in fields)))
            elif what == "o":
                sent_frames.append(
                    SentFrame(int(fields[0]), int(fields[1]), bytes.fromhex(fields[2]))
                )
            elif what == "n":
                counters = dict(zip(COUNTERS, (int(f) for f in fields), strict=False))
            elif what == "=":
                return BenchRun(
                    tuple(accepted_frames), tuple(sent_frames), counters, int(fields[0])
                )
        raise VerifyError(f"the simulated front end ended (exit code {self._exit_code()})")

    def _say(self, text: str) -> None:
        self._pipes()[0].write(text + "\n")
