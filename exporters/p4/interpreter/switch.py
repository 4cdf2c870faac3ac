# SPDX-License-Identifier: Apache-2.0
"""A switch that runs P4 source: packets in, packets out, entries changed at run time.

The source is checked as a P4 compiler would check it. Then every expression and statement becomes a
Python closure over a frame of slots, so that a packet costs one call per operation.
"""

from __future__ import annotations

from dataclasses import dataclass

from n3ic.exporters.p4.interpreter import syntax as s
from n3ic.exporters.p4.interpreter.architecture import Architecture
from n3ic.exporters.p4.interpreter.commands import (
    Command,
    CommandReader,
    SetDefault,
    SetRates,
    TableAdd,
    TableClear,
    TableModify,
)
from n3ic.exporters.p4.interpreter.compiler import ProgramCompiler
from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.meters import RuntimeMeter
from n3ic.exporters.p4.interpreter.steps import KEPT, READER, WRITER, Reader, Writer
from n3ic.exporters.p4.interpreter.tables import RuntimeTable
from n3ic.exporters.p4.interpreter.types import Frame, bits_of

_MAX_PASSES = 256  # passes of one packet
_RESUBMITTED = 6  # instance_type of a resubmitted packet on bmv2
FIELD_BITS = 2048  # maximum field width of a default build of p4c


@dataclass(frozen=True, eq=False)
class SwitchOutcome:
    """Result of a packet.

    Attributes:
        port: port that it left through; None if it was dropped.
        packet: bytes of the packet when it left.
        passes: all values at the end of each pass; a resubmitted packet has several passes.
        leaves: slot of each variable, by full name.
    """

    port: int | None
    packet: bytes
    passes: tuple[Frame, ...]
    leaves: dict[str, int]

    def value(self, name: str, number: int = -1) -> int:
        """The value of a variable at the end of a pass, such as ``metadata.l0_y``.

        Args:
            name: full name of the variable.
            number: index of the pass, from 0; the last one by default.

        Raises:
            P4Error: no such variable exists, or it was never written.
        """
        if name not in self.leaves:
            raise P4Error(f"the program has no variable {name}")
        value = self.passes[number][self.leaves[name]]
        if value is None:
            raise P4Error(f"{name} was never written")
        return int(value)


class Switch:
    """A running P4 program.

    Attributes:
        architecture: architecture that the program is written for.
        tables: tables by control-plane name.
        meters: meters by control-plane name.
    """

    def __init__(self, source: str, field_bits: int = FIELD_BITS) -> None:
        try:
            compiler = ProgramCompiler(s.parse(source), field_bits)
        except RecursionError as error:
            raise P4Error("the program is nested too deeply") from error
        self.architecture: Architecture = compiler.architecture
        self.tables: dict[str, RuntimeTable] = compiler.tables
        self.meters: dict[str, RuntimeMeter] = compiler.meters
        self.metadata_bits = bits_of(compiler.roles["metadata"])
        self.header_bits = bits_of(compiler.roles["headers"])
        self._initial = compiler.layout.initial
        self._leaves = compiler.layout.leaves
        self._parse = compiler.parse
        self._blocks = compiler.blocks
        self._deparse = compiler.deparse

    def read(self, commands: str) -> list[Command]:
        """Read the commands of a ``simple_switch_CLI`` file without running them.

        Raises:
            P4Error: ``simple_switch_CLI`` would refuse or misread a line, or the line does not suit
                the program; the error names the line.
        """
        return CommandReader(self.tables, self.meters).read(commands)

    def load(self, commands: str) -> int:
        """Run the commands of a ``simple_switch_CLI`` file; see :class:`CommandReader`.

        Returns:
            Number of commands that were run.

        Raises:
            P4Error: a line is not a valid command for the program, and no command was run; or a
                table refuses a command after the commands before it were run. The error names the
                line.
        """
        read = self.read(commands)
        for position, command in enumerate(read, 1):
            try:
                self._run(command)
            except P4Error as error:
                raise P4Error(f"entry {position}: {error}") from error
        return len(read)

    def _run(self, command: Command) -> None:
        match command:
            case SetDefault(table, action, data):
                self.tables[table].set_default(action, data)
            case TableAdd(table, action, keys, data, priority):
                self.tables[table].add(action, keys, data, priority)
            case TableClear(table):
                self.tables[table].clear()
            case TableModify(table, action, handle, data):
                self.tables[table].modify(action, handle, data)
            case SetRates(meter, index, rates):
                self.meters[meter].set_rates(index, *rates)

    def process(self, packet: bytes, ingress: int, now: int = 0) -> SwitchOutcome:
        """Send a packet through the switch.

        Args:
            packet: bytes of the packet, from the Ethernet header on.
            ingress: port that it comes from; a one-hot value if ports are bit sets.
            now: arrival time in microseconds, by which meters fill their buckets.

        Raises:
            P4Error: the program does something that the language leaves undefined.
        """
        passes: list[Frame] = []
        preserved: dict[int, int] = {}
        while len(passes) < _MAX_PASSES:
            frame = self._initial.copy()
            for slot, value in preserved.items():
                frame[slot] = value
            self._set(frame, packet_length=len(packet), ingress_global_timestamp=now % (1 << 48))
            if passes:
                self._set(frame, instance_type=_RESUBMITTED)
            passes.append(frame)
            port, packet_out = self._pass(frame, packet, ingress)
            if frame[KEPT] is None:
                return SwitchOutcome(port, packet_out, tuple(passes), self._leaves)
            # bmv2 resubmits the packet as it arrived, with only the listed metadata.
            preserved = {slot: frame[slot] for slot in frame[KEPT]}
        raise P4Error(f"a packet is resubmitted more than {_MAX_PASSES} times")

    def _set(self, frame: Frame, **values: int) -> None:
        """Set intrinsic metadata fields that the architecture has."""
        for name, value in values.items():
            slot = self._leaves.get(f"intrinsic.{name}")
            if slot is not None:
                frame[slot] = value

    def _pass(self, frame: Frame, packet: bytes, ingress: int) -> tuple[int | None, bytes]:
        """Run one pass of the pipeline; return the port and the bytes that leave it."""
        architecture = self.architecture
        source = Reader(int.from_bytes(packet, "big"), 8 * len(packet))
        sink = Writer()
        frame[READER], frame[WRITER] = source, sink
        frame[self._leaves[".".join(architecture.ingress)]] = ingress
        egress_slot = self._leaves[".".join(architecture.egress)]
        if architecture.sends:
            frame[egress_slot] = architecture.drop
        self._parse(frame)
        for title, block in self._blocks:
            # bmv2 drops and resubmits packets at the end of the ingress: no egress sees them.
            if title == "egress" and (
                frame[KEPT] is not None or frame[egress_slot] == architecture.drop
            ):
                break
            for step in block:
                step(frame)
        egress = frame[egress_slot]
        if frame[KEPT] is not None or egress == architecture.drop:
            return None, b""
        for step in self._deparse:
            step(frame)
        # The bytes that the parser did not extract follow the emitted headers.
        rest = source.value & ((1 << source.left) - 1)
        sink.parts.append(rest.to_bytes(source.left // 8, "big"))
        return egress, b"".join(sink.parts)
