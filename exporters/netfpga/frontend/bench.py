"""The front end in simulation: frames in at a clock, frames out with theirs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.core import Core
from n3ic.exporters.netfpga.frontend.form import COUNTERS, FOLDER, TOP
from n3ic.exporters.netfpga.tools import simulate
from n3ic.exporters.netfpga.tools.running import Program, RunningCard

MAC = bytes.fromhex("024e33000001")
PORT = 0x2323
RESEND = 20_000  # clocks of a tick of the TCP timers
QUIET = 50_000  # clocks without a beat: more than the rows of a datagram take
_MOST = 50_000_000


@dataclass(frozen=True)
class Offered:
    """A frame that goes in.

    Attributes:
        data: its bytes, without frame check sequence.
        clock: when its first beat is offered, at the earliest.
        damaged: whether the MAC says so with the last beat.
    """

    data: bytes
    clock: int = 0
    damaged: bool = False


@dataclass(frozen=True)
class Taken:
    """When a frame went in: clocks of its first and last beat, and those in which it waited."""

    first: int
    last: int
    stalls: int


@dataclass(frozen=True)
class Left:
    """A frame that came out: clocks of its first and last beat, and its bytes."""

    first: int
    last: int
    data: bytes


@dataclass(frozen=True)
class Seen:
    """What a run showed.

    Attributes:
        taken: of each frame that went in.
        left: the frames that came out.
        counters: of the card since its start, by name.
        clock: when the run ended.
    """

    taken: tuple[Taken, ...]
    left: tuple[Left, ...]
    counters: dict[str, int]
    clock: int


def front_program(
    directory: Path,
    work: Path,
    ip: bytes,
    *,
    resend: int = RESEND,
    bad_cable: int = 0,
    device: int | None = None,
) -> Program:
    """The front end of an export directory, compiled to a program in ``work``.

    Args:
        directory: an export directory with a front end; it is read and not changed.
        work: an empty folder.
        ip: the card's address.
        resend: clocks of a tick of its TCP timers.
        bad_cable: percentage of the frames that are lost, doubled and delayed.
        device: descriptor of a TAP device; None for a bench, which is told what goes in.

    Raises:
        MissingDependencyError: Verilator is not installed.
        VerifyError: the Verilog does not build.
    """
    simulate.choose("verilator")
    top = (directory / "rtl" / f"{TOP}.v").read_text(encoding="utf-8")
    macros = ["N3IC_WRITE_PORT"] if Core.load(directory).write_port else []
    macros += ["N3IC_TCP"] if "cfg_resend," in top else []
    sources = [*sorted((directory / "rtl").glob("*.v")), FOLDER / "front.cpp"]
    binary = simulate.verilate(TOP, sources, work, macros=macros)
    where = "-" if device is None else str(device)
    command = [str(binary), where, MAC.hex(), ip.hex(), f"{PORT:x}", f"{resend:x}"]
    folder = simulate.memory_folder(directory, work)
    return Program([*command, f"{bad_cable:x}"], folder, () if device is None else (device,))


class FrontBench(RunningCard):
    """The front end of an export directory in simulation, while a ``with`` block runs.

    Attributes:
        ip: the card's address.
    """

    def __init__(
        self,
        directory: Path,
        *,
        ip: bytes = bytes((10, 23, 23, 2)),
        resend: int = RESEND,
        quiet: int = QUIET,
    ) -> None:
        """Describe a bench; nothing is built before the ``with`` block.

        Args:
            directory: an export directory with a front end; it is read and not changed.
            ip: the card's address.
            resend: clocks of a tick of its TCP timers.
            quiet: clocks without a beat that end a run.
        """
        super().__init__()
        self.directory = directory.resolve()
        self.ip, self.resend, self.quiet = ip, resend, quiet

    def _plug_in(self, stack: ExitStack) -> Program:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="n3ic-front-")))
        return front_program(self.directory, work, self.ip, resend=self.resend)

    def hold(self, clocks: int) -> None:
        """Let the far end take nothing for some clocks from now on."""
        self._say(f"h {clocks}")

    def run(
        self, frames: Sequence[Offered | bytes] = (), clocks: int = _MOST, quiet: int = 0
    ) -> Seen:
        """Offer frames one behind another, and run until nothing happens any more.

        Args:
            frames: what goes in.
            clocks: most clocks to run.
            quiet: clocks without a beat that end the run; 0 for the bench's own.

        Raises:
            VerifyError: the simulation ended, or frames wait to go in though nothing happens.
        """
        for frame in frames:
            one = frame if isinstance(frame, Offered) else Offered(frame)
            self._say(f"f {one.clock} {int(one.damaged)} {one.data.hex()}")
        self._say(f"r {clocks} {quiet or self.quiet}")
        asked, answered = self._pipes()
        asked.flush()
        taken, left, counters = [], [], {}
        for line in answered:
            what, _, rest = line.strip().partition(" ")
            fields = rest.split()
            if what == "i":
                taken.append(Taken(*(int(f) for f in fields)))
            elif what == "o":
                left.append(Left(int(fields[0]), int(fields[1]), bytes.fromhex(fields[2])))
            elif what == "n":
                counters = dict(zip(COUNTERS, (int(f) for f in fields), strict=False))
            elif what == "=":
                return Seen(tuple(taken), tuple(left), counters, int(fields[0]))
        raise VerifyError(f"the simulated front end ended (exit code {self._exit_code()})")

    def _say(self, text: str) -> None:
        self._pipes()[0].write(text + "\n")
