"""Run a generated program in the interpreter and read back what it computed."""

from __future__ import annotations

import importlib.metadata

import numpy as np
from n3ic.exporters.p4.interpreter import Outcome, Switch
from n3ic.exporters.p4.packets import PacketFormat, inputs_of

from n3ic.bits import Bits, Words
from n3ic.errors import VerifyError
from n3ic.export import Run
from n3ic.model import Trace

SIGN = 1 << 31


def run_interpreter(
    source: str,
    commands: str,
    packets: PacketFormat,
    hidden: tuple[int, ...],
    words: Words,
) -> Run:
    """Send one packet an input through the program.

    Args:
        source: the P4 program.
        commands: its table entries; empty where there are none.
        packets: how inputs and results lie in packets.
        hidden: neurons of each hidden layer.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.

    Returns:
        Scores, class and margin from the result header as far as it holds them, the rest and
        the hidden bits from the metadata at the end of the pipeline.

    Raises:
        P4Error: a compiler or a switch would refuse the program, an entry or its behaviour.
        VerifyError: a packet comes back wrong.
    """
    switch = Switch(source)
    switch.load(commands)
    inputs = inputs_of(words, packets.input_bits)
    rows = len(inputs)
    scores = np.empty((rows, packets.classes), dtype=np.int32)
    classes = np.empty(rows, dtype=np.int64)
    margins = np.empty(rows, dtype=np.int32)
    values: list[list[int]] = [[] for _ in hidden]
    ingress = 1
    for row, x in enumerate(inputs):
        request = packets.request(x, b"payload")
        outcome = switch.process(request, ingress)
        result = packets.result(outcome.packet)
        _check_untouched(packets, request, outcome, row)
        if result.model == 0:
            raise VerifyError(f"vector {row}: the result's model is 0: no entry was loaded for it")
        computed = _metadata_scores(outcome, packets.classes)
        scores[row] = computed if result.scores is None else result.scores
        if result.class_id is None or result.margin is None:
            classes[row] = outcome.value("metadata.class_id")
            margins[row] = outcome.value("metadata.best") - outcome.value("metadata.second")
        else:
            classes[row], margins[row] = result.class_id, result.margin
        for index, bits in enumerate(values):
            bits.append(outcome.value(f"metadata.l{index}_y"))
    trace = Trace(
        scores,
        classes,
        margins,
        tuple(_unpack(v, n) for v, n in zip(values, hidden, strict=True)),
    )
    lark = importlib.metadata.version("lark")
    return Run(trace, f"n3ic P4 interpreter, {switch.architecture.name} (lark {lark})")


def _check_untouched(packets: PacketFormat, request: bytes, outcome: Outcome, row: int) -> None:
    # In both modes what follows the result header must leave as it came.
    after = 14 + (0 if packets.field else packets.result_bytes)
    if outcome.packet[14 + packets.result_bytes :] != request[after:]:
        raise VerifyError(f"vector {row}: bytes behind the result header changed on the way")
    if outcome.packet[:12] != request[:12]:
        raise VerifyError(f"vector {row}: the Ethernet addresses changed on the way")


def _metadata_scores(outcome: Outcome, classes: int) -> list[int]:
    raw = (outcome.value(f"metadata.score{c}") for c in range(classes))
    return [value - 2 * SIGN if value & SIGN else value for value in raw]


def _unpack(values: list[int], width: int) -> Bits:
    size = -(-width // 8)
    octets = np.frombuffer(b"".join(v.to_bytes(size, "little") for v in values), dtype=np.uint8)
    bits = np.unpackbits(octets.reshape(len(values), size), axis=1, bitorder="little")
    return bits[:, :width].astype(np.bool_)
