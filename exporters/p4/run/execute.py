# SPDX-License-Identifier: Apache-2.0
"""Runs a generated program in the interpreter, and reads its results back."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.p4.interpreter import Switch, SwitchOutcome
from n3ic.exporters.p4.interpreter.switch import FIELD_BITS
from n3ic.model.bits import Bits, Words
from n3ic.model.network import SHUNT, Inference
from n3ic.targets.base import Execution
from n3ic.targets.packets import (
    INGRESS,
    SCORE_BITS,
    PacketLayout,
    PacketResult,
    inputs_of,
)

_SIGN = 1 << (SCORE_BITS - 1)


@dataclass(frozen=True)
class LoadedProgram:
    """A program, its entries and its packets.

    Attributes:
        source: the P4 source.
        commands: table entries as ``simple_switch_CLI`` commands; empty if it has none.
        packets: layout of inputs and results in packets.
        hidden: number of neurons of each hidden layer.
        crossed: port of packets that are not shunted.
    """

    source: str
    commands: str
    packets: PacketLayout
    hidden: tuple[int, ...]
    crossed: int = INGRESS ^ 1

    def switch(self) -> Switch:
        """Return a switch that runs the program with its entries loaded.

        Raises:
            P4Error: a compiler or a switch would refuse the program or an entry.
        """
        # `check` reports fields that p4c refuses; a forced export must still run here.
        widest = max(FIELD_BITS, self.packets.input_bits, *self.hidden, 0)
        switch = Switch(self.source, field_bits=widest)
        switch.load(self.commands)
        return switch

    def requests(self, words: Words) -> list[bytes]:
        """Make one packet per input, each with its row number as the payload.

        Padding bits of the field, which the network must ignore, alternate between 0 and 1.
        """
        inputs = inputs_of(words)
        request = self.packets.request
        return [request(x, tag(row), fill=row % 2 == 1) for row, x in enumerate(inputs)]

    def port(self, verdict: int) -> int:
        """The port through which a packet with a verdict leaves."""
        shunted = self.packets.shunt_port
        return shunted if verdict == SHUNT and shunted is not None else self.crossed


def tag(row: int) -> bytes:
    """The payload of a request, by which its answer is recognised."""
    return b"n3ic" + row.to_bytes(4, "big")


def run_interpreter(program: LoadedProgram, words: Words) -> tuple[Execution, list[bytes]]:
    """Send one packet per input through the program.

    Returns:
        The results, and the packets that came back. Scores, verdict, class and margin come from the
        result header if it holds them. The others and the hidden bits come from the metadata at
        the end of the pipeline.

    Raises:
        P4Error: a compiler or switch would refuse the program or an entry, or a packet makes the
            program do something undefined.
        VerifyError: a packet comes back changed, or through another port.
    """
    switch = program.switch()
    packets = program.packets
    requests = program.requests(words)
    responses = []
    scores = np.empty((len(requests), packets.classes), dtype=np.int32)
    classes = np.empty(len(requests), dtype=np.int64)
    margins = np.empty(len(requests), dtype=np.int32)
    verdicts = np.empty(len(requests), dtype=np.int64)
    values: list[list[int]] = [[] for _ in program.hidden]
    for row, request in enumerate(requests):
        outcome = switch.process(request, INGRESS)
        result = read_result(packets, request, outcome.packet, row)
        responses.append(outcome.packet)
        scores[row] = result.scores if result.scores is not None else _scores(outcome, packets)
        verdict = _verdict(outcome, packets) if result.verdict is None else result.verdict
        has_class = (
            verdict != SHUNT and result.class_id is not None
        )  # a shunted header names no class
        classes[row] = verdict if has_class else outcome.value("metadata.class_id")
        margins[row] = _margin(outcome) if result.margin is None else result.margin
        verdicts[row] = verdict
        if outcome.port != program.port(verdict):
            raise VerifyError(
                f"vector {row}: the packet leaves through port {outcome.port}, "
                f"{program.port(verdict)} expected"
            )
        for index, bits in enumerate(values):
            bits.append(outcome.value(f"metadata.l{index}_y"))
    hidden = tuple(_unpack(v, n) for v, n in zip(values, program.hidden, strict=True))
    lark = importlib.metadata.version("lark")
    executor = f"n3ic P4 interpreter, {switch.architecture.name} (lark {lark})"
    inference = Inference(scores, classes, margins, hidden, verdicts)
    return Execution(inference, executor), responses


def read_result(packets: PacketLayout, request: bytes, response: bytes, row: int) -> PacketResult:
    """Read the result that a switch wrote, and check that all other bytes are unchanged.

    Raises:
        VerifyError: the result is missing, no network was loaded, or other bytes changed.
    """
    try:
        result = packets.result(response)
    except VerifyError as error:
        raise VerifyError(f"vector {row}: {error}") from error
    if result.model == 0:
        raise VerifyError(f"vector {row}: the result's model is 0, the entries are not loaded")
    # All bytes after the result header must be unchanged; a request in a field has no such header.
    after = 14 + (0 if packets.field else packets.result_bytes)
    if response[14 + packets.result_bytes :] != request[after:]:
        raise VerifyError(f"vector {row}: bytes after the result header changed on the way")
    if response[:12] != request[:12]:
        raise VerifyError(f"vector {row}: the Ethernet addresses changed on the way")
    return result


def _verdict(outcome: SwitchOutcome, packets: PacketLayout) -> int:
    shunted = packets.shunts and outcome.value("metadata.shunted")
    return SHUNT if shunted else outcome.value("metadata.class_id")


def _margin(outcome: SwitchOutcome) -> int:
    difference = outcome.value("metadata.best") - outcome.value("metadata.second")
    return difference % (1 << SCORE_BITS)  # wraps as in P4; a margin is never negative


def _scores(outcome: SwitchOutcome, packets: PacketLayout) -> list[int]:
    raw = (outcome.value(f"metadata.score{c}") for c in range(packets.classes))
    return [value - 2 * _SIGN if value & _SIGN else value for value in raw]


def _unpack(values: list[int], width: int) -> Bits:
    size = -(-width // 8)  # values are wider than numpy's integers, so unpack their bytes
    octets = np.frombuffer(b"".join(v.to_bytes(size, "little") for v in values), dtype=np.uint8)
    bits = np.unpackbits(octets.reshape(len(values), size), axis=1, bitorder="little")
    return bits[:, :width].astype(np.bool_)
