# SPDX-License-Identifier: Apache-2.0
"""Runs the program that answers inference packets, in test runs."""

from __future__ import annotations

import numpy as np

from n3ic.errors import VerifyError
from n3ic.exporters.xdp import libbpf
from n3ic.exporters.xdp.resident import check_slot, rule_table, swap
from n3ic.model.bits import Words
from n3ic.model.network import SHUNT, Inference
from n3ic.targets.packets import PacketLayout, inputs_of

ANSWER = "n3ic_answer"
COUNTS = ("answered", "short", "no_model", "other")
TX = 3
SHUNT_CLASS = 0xFFFF


class AnswerProgram(libbpf.Closing):
    """The program of an object file, loaded into the kernel until it is closed.

    Args:
        image: bytes of the object file.
        name: name for messages.
        packets: layout of inputs and results in packets.

    Raises:
        MissingDependencyError: libbpf is not installed.
        BpfError: the kernel refuses the program.
    """

    def __init__(self, image: bytes, name: str, packets: PacketLayout) -> None:
        self.packets = packets
        self.object = libbpf.BpfObject(image, name)
        self.program = self.object.programs[ANSWER]
        swap(self.object.maps["dispatch"], 0, rule_table((), 0))

    def close(self) -> None:
        """Close maps and programs."""
        self.object.close()

    def set_model(self, slot: int, value: bytes) -> None:
        """Put a model into a slot; see :meth:`~.program.MeterPrograms.set_model`."""
        check_slot(slot)
        swap(self.object.maps["models"], slot, value)

    def counters(self) -> dict[str, int]:
        """Return the numbers of packets answered, cut short, without a model, and others."""
        counted = self.object.maps["counted"]
        return {
            name: sum(int.from_bytes(value, "little") for value in counted.each_cpu(i))
            for i, name in enumerate(COUNTS)
        }

    def ask(self, words: Words) -> Inference:
        """Compute scores, classes, margins and verdicts of packed inputs, one packet each.

        In every other packet the padding bits of the input's first byte are set, because they must
        not count.

        Args:
            words: packed inputs, uint32 array of shape ``(rows, n_words)``.

        Raises:
            VerifyError: a packet comes back without an answer.
        """
        scores, classes, margins = [], [], []
        for row, x in enumerate(inputs_of(words)):
            request = self.packets.request(x, b"n3ic", fill=row % 2 == 1)
            run = self.program.test_run(request, output=True)
            result = self.packets.result(run.data)
            if run.result != TX or run.data[:12] != request[6:12] + request[:6]:
                raise VerifyError(f"a request came back with action {run.result}, {TX} expected")
            if result.scores is None or result.class_id is None or result.margin is None:
                raise VerifyError("the packets do not hold class, margin and scores")
            scores.append(result.scores)
            classes.append(result.class_id)
            margins.append(result.margin)
        wire_classes = np.array(classes, dtype=np.int64)
        table = np.array(scores, dtype=np.int32).reshape(len(words), self.packets.classes)
        verdicts = np.where(wire_classes == SHUNT_CLASS, SHUNT, wire_classes)
        best = np.argmax(table, axis=1)
        return Inference(
            table,
            np.where(wire_classes == SHUNT_CLASS, best, wire_classes),
            np.array(margins, dtype=np.int32),
            verdicts=verdicts,
        )
