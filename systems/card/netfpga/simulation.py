# SPDX-License-Identifier: Apache-2.0
"""Run a card's Verilog: packets and control operations in, packets and counters out."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from n3ic.errors import VerifyError
from n3ic.exporters.netfpga.tools import simulate
from n3ic.systems.card.netfpga.image import NetfpgaCardImage
from n3ic.systems.card.netfpga.traffic import FIRST_CLOCK, TrafficPacket, packets_text
from n3ic.systems.card.tasks.kind import Entries, writes

COUNTERS = ("admitted", "beyond", "overflow", "results", "cut_off", "left")
# Kinds of registers.
GRAPH, TENANT, REGION, COUNTER, COUNT, PAGE, PAGE_COUNT = range(7)
GIVE = 1 << 31
_DRAINED = 48
"""Clocks for each packet that a queue holds, in which all leave after the last was sent."""

_WORD_CLOCKS, _PAGE_CLOCKS = 4, 16  # that the bench's memory takes for zeros, at most on average

Operation = tuple[int, int, int, int]


def register(kind: int, index: int, word: int = 0) -> int:
    """Return the address of a register; see ``n3ic_card_control``."""
    return kind << 12 | index << 3 | word


def set_register(address: int, value: int) -> Operation:
    """Make an operation that sets a register."""
    return (0, address, value, 0)


def read_register(address: int) -> Operation:
    """Make an operation that reads a register."""
    return (1, address, 0, 0)


def wait_sent(packets: int) -> Operation:
    """Make an operation that waits until a number of packets were sent."""
    return (2, packets, 0, 0)


def wait_register(address: int, mask: int, value: int) -> Operation:
    """Make an operation that waits until a register's bits have a value."""
    return (3, address, mask, value)


def wait_left(queue: int) -> Operation:
    """Make an operation that waits until the packets now on the card from a queue have left."""
    admitted, departed = (register(COUNTER, queue, COUNTERS.index(n)) for n in ("admitted", "left"))
    return (8, admitted, departed, 0)


def wait_clocks(clocks: int) -> Operation:
    """Make an operation that waits for a number of clocks."""
    return (6, clocks, 0, 0)


def announce(beats: int) -> Operation:
    """Make an operation that says how many more beats are in the input of a live bench."""
    return (9, beats, 0, 0)


def wait_clock(clock: int) -> Operation:
    """Make an operation that waits until a clock, and then tells the present one."""
    return (10, clock, 0, 0)


def program_text(program: Iterable[Operation]) -> str:
    """Format operations for ``n3ic_card_tb.v``."""
    return "".join(f"{kind:x} {a:x} {b:x} {c:x}\n" for kind, a, b, c in program)


def load(region: int, model: int, writes: Iterable[tuple[int, int]]) -> list[Operation]:
    """Make operations that write a network into the unused bank, and swap the banks."""
    at = region << 8 | model
    return [
        (7, region, 0, 0),
        # The unused bank may only be written while no swap is pending.
        *((4, address, word, at) for address, word in writes),
        (5, 0, 0, at),
        (7, region, 0, 0),
    ]


def load_table(region: int, place: int, entries: Entries) -> list[Operation]:
    """Make operations that write entries of the table of a packet task, each at once."""
    return [(4, address, word, region << 8 | 0x80 | place) for address, word in writes(entries)]


def read_count(region: int, place: int, address: int) -> list[Operation]:
    """Make operations that read a word that a packet task counts."""
    at = region << 24 | place << 16 | address
    return [set_register(register(COUNT, 0), at), wait_clocks(4), read_register(register(COUNT, 0))]


def move_pages(entries: Iterable[int], *, give: bool) -> list[Operation]:
    """Make operations that give entries of the page table their pages, filled with zeros.

    Or that take them. Entry and page have the same number, as after a reset.
    """
    at = register(PAGE, 0)
    return [
        op
        for n in entries
        for op in (
            wait_register(at, 1, 0),
            set_register(at, (GIVE if give else 0) | n << 16 | n),
            wait_register(at, 1, 0),
        )
    ]


@dataclass(frozen=True)
class SentPacket:
    """A packet that left: its number, the clock of its last beat, ``tuser`` and its bytes."""

    number: int
    clock: int
    user: int
    data: bytes


@dataclass(frozen=True)
class ObservedInference:
    """An executor's output: region, packet, model, and scores and hidden bits as numbers."""

    region: int
    graph: int
    queue: int
    seq: int
    branch: int
    leg: int
    model: int
    scores: int
    hidden: int


@dataclass(frozen=True)
class SimulationLog:
    """Observations of a run.

    Attributes:
        departures: packets in the order in which they left.
        sent: clock of each packet's last beat at the input.
        counters: counters of each tenant, and of packets that name no graph, by name.
        inferred: results of the executors, in the order of their clocks.
        registers: clock, address and value of each register that the program read.
        simulator: name of the simulator.
    """

    departures: tuple[SentPacket, ...]
    sent: tuple[int, ...]
    counters: tuple[dict[str, int], ...]
    inferred: tuple[ObservedInference, ...]
    registers: tuple[tuple[int, int, int], ...]
    simulator: str

    def latencies(self, numbers: Iterable[int]) -> list[int]:
        """Return the clocks from the last beat in to the last beat out of packets that left."""
        clocks = {p.number: p.clock for p in self.departures}
        return [clocks[n] - self.sent[n] for n in numbers if n in clocks]


def run(
    directory: Path,
    image: NetfpgaCardImage,
    packets: Sequence[TrafficPacket],
    program: Sequence[Operation] = (),
    *,
    simulator: simulate.Simulator = "auto",
    pauses: bool = False,
    trace: bool = True,
) -> SimulationLog:
    """Run the card of a directory.

    Args:
        directory: directory that :func:`write_card` wrote; only read.
        image: the card.
        packets: packets to send.
        program: operations of the control plane during the run.
        simulator: the simulator to use.
        pauses: whether the receiver pauses at random.
        trace: whether to observe scores and hidden bits of the executors.

    Raises:
        MissingDependencyError: No simulator is installed.
        VerifyError: The card does not build or stops, or leaves a packet unfinished.
    """
    tool = simulate.choose_simulator(simulator, short=True)
    queues = len(image.tenants) + 1
    reads = [read_register(register(COUNTER, q, k)) for q in range(queues) for k in range(6)]
    drained = wait_clocks(_DRAINED << image.seq_w)
    text = program_text([*program, wait_sent(len(packets)), drained, *reads])
    with tempfile.TemporaryDirectory(prefix="n3ic-card-") as name:
        work = Path(name)
        (work / "in.txt").write_text(packets_text(packets, FIRST_CLOCK + zeroed(image)))
        (work / "program.txt").write_text(text)
        binary = build(directory, image, work, tool, trace=trace)
        plus = [f"+{k}={work / f'{k}.txt'}" for k in ("in", "out", "program")]
        plus += [f"+pauses={int(pauses)}", "+quiet=100"]
        what = f"the card ({simulate.version(tool)})"
        output = simulate.call(
            [*binary, *plus], directory.resolve() / "mem", simulate.RUN_SECONDS, what
        )
        lines = (work / "out.txt").read_text().splitlines()
    check_output(output, what)
    return _log(lines, output, image, simulate.version(tool))


def build(
    directory: Path,
    image: NetfpgaCardImage,
    work: Path,
    tool: Literal["verilator", "icarus"],
    *,
    trace: bool = False,
) -> list[str]:
    """Compile the card of a directory and its bench in ``work``; return the command that runs it.

    Raises:
        VerifyError: The card does not build.
    """
    rtl = directory.resolve() / "rtl"
    sources = sorted(str(p) for p in rtl.rglob("*.v"))
    parameters = {"WR_AW": image.wr_aw, "REGIONS": len(image.regions)}
    defines = ["N3IC_TRACE"] if trace else []
    if image.memory_stages:
        parameters |= {"FRAME_W": image.frame_w, "PAGE_W": image.page_w}
        defines.append("MEMORY")
    return simulate.compile_bench(work, tool, "n3ic_card_tb", parameters, defines, sources)


def check_output(output: str, what: str) -> None:
    """Check that the bench had nothing to complain of.

    Args:
        output: its standard output.
        what: what ran, for the error.

    Raises:
        VerifyError: The card held its input up, or a wait of the program took too long.
    """
    for line in output.splitlines():
        if line.startswith(("the card", "the program")):
            raise VerifyError(f"{what}: {line}")


class BenchLines:
    """Reads what the bench writes, line by line.

    Attributes:
        sent: clock of each packet's last beat at the input.
        registers: clock, address and value of each register that was read.
        reached: clocks until which the program waited.
        beats: fields of the beats of a packet that has not left whole.
    """

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.registers: list[tuple[int, int, int]] = []
        self.reached: list[int] = []
        self.beats: list[list[str]] = []

    def take(self, line: str) -> SentPacket | None:
        """Read a line; return the packet whose last beat it is.

        Raises:
            VerifyError: A value has unknown bits.
        """
        kind, *fields = line.split()
        if kind == "i":
            self.sent.append(int(fields[0]))
        elif kind == "c":
            self.reached.append(int(fields[0]))
        elif kind == "r":
            self.registers.append((int(fields[0]), int(fields[1], 16), _number(fields[2], 10)))
        else:
            self.beats.append(fields)
            if fields[1] == "1":
                packet = _left(self.beats)
                self.beats = []
                return packet
        return None


def zeroed(image: NetfpgaCardImage) -> int:
    """Clocks after a reset in which the tenants get their pages of on-board memory."""
    if not image.memory_stages:
        return 0
    filled = sum(image.page_limits) * (_WORD_CLOCKS * (1 << image.page_w) + _PAGE_CLOCKS)
    return image.memory_pages + filled


def _log(
    lines: Sequence[str], output: str, image: NetfpgaCardImage, simulator: str
) -> SimulationLog:
    bench = BenchLines()
    departures = tuple(packet for line in lines if (packet := bench.take(line)))
    if bench.beats:
        raise VerifyError(f"the card: a packet of {len(bench.beats)} beats has no end")
    count = 6 * (len(image.tenants) + 1)
    values = [value for _, _, value in bench.registers[-count:]]
    counters = [
        dict(zip(COUNTERS, values[at : at + 6], strict=True)) for at in range(0, len(values), 6)
    ]
    inferences = tuple(
        _inferred(line, image) for line in output.splitlines() if line.startswith("t ")
    )
    return SimulationLog(
        departures,
        tuple(bench.sent),
        tuple(counters),
        inferences,
        tuple(bench.registers[:-count]),
        simulator,
    )


def _left(beats: Sequence[Sequence[str]]) -> SentPacket:
    data = b""
    for _, _, keep, _, words in beats:
        octets = bytes.fromhex(_known(words))[::-1]
        mask = int(_known(keep), 16)
        data += octets[: mask.bit_length()]
    user = int(_known(beats[-1][3]), 16)
    return SentPacket(user >> 32 & 0xFFFFFFFF, int(beats[-1][0]), user, data)


def _known(text: str) -> str:
    """Check that a number has no unknown bits.

    Raises:
        VerifyError: The number has unknown bits.
    """
    if re.search("[xXzZ]", text):
        raise VerifyError(f"the card: unknown bits leave it: {text}")
    return text


def _number(text: str, base: int) -> int:
    return int(_known(text), base)


def _inferred(line: str, image: NetfpgaCardImage) -> ObservedInference:
    _, region, side, model, scores, hidden = line.split()
    value = _number(side, 16)
    fields = []
    for width in (image.leg_w, image.branch_w, image.seq_w, image.queue_w, image.graph_w):
        fields.append(value & (1 << width) - 1)
        value >>= width
    leg, branch, seq, queue, graph = fields
    return ObservedInference(
        int(region), graph, queue, seq, branch, leg,
        _number(model, 16), _number(scores, 16), _number(hidden, 16),
    )  # fmt: skip
