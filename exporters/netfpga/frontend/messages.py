# SPDX-License-Identifier: Apache-2.0
"""Inference messages: rows to a card over UDP or TCP, and its results back.

A message is a header of 16 bytes and its body; all numbers are big-endian. A UDP datagram holds one
message, and messages follow each other over TCP. See ``docs/reference/formats.md``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from n3ic.errors import N3icError
from n3ic.model.bits import unpack
from n3ic.model.classifier import SHUNT, Classifier
from n3ic.model.inputs import UINT32_MAX

MAGIC = b"N3"
VERSION = 1
REQUEST, RESULTS, FAULT = 0, 1, 2
HEADER = struct.Struct(">2sBBIIHH")
FAULT_BODY = struct.Struct(">HH")
SHUNTED = 0xFFFF
VERDICT_BYTES = 2
PORT = 0x2323
FAULTS = {
    1: "shorter than a header",
    2: "not an inference message",
    3: "of another version, or no request",
    4: "for another model",
    5: "of rows of another size",
    6: "of no rows, or of too many",
    7: "of another length than its rows",
}


class MessageError(N3icError):
    """The bytes are not an inference message."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        kind: ``REQUEST``, ``RESULTS`` or ``FAULT``.
        number: identifier that an answer copies from its request, 32 bits.
        model: first four bytes of the model's digest; 0 in a request accepts any model.
        rows: number of rows or of results.
        size: bytes of each row or result; in a fault, bytes of a row that the card accepts.
        body: rows or results, concatenated; in a fault, its code and the maximum number of rows.
    """

    kind: int
    number: int
    model: int
    rows: int
    size: int
    body: bytes

    def to_bytes(self) -> bytes:
        """Serialise the message."""
        head = HEADER.pack(MAGIC, VERSION, self.kind, self.number, self.model, self.rows, self.size)
        return head + self.body

    @property
    def fault(self) -> tuple[int, int]:
        """Error code and maximum number of rows of a fault."""
        code, rows = FAULT_BODY.unpack(self.body)
        return code, rows


def message_bytes(head: bytes) -> int:
    """Length of the message that a header announces, in bytes, including the header.

    Raises:
        MessageError: the bytes are not the header of a message.
    """
    if len(head) < HEADER.size:
        raise MessageError(f"{len(head)} bytes: an inference message has a header of {HEADER.size}")
    magic, version, kind, _, _, rows, size = HEADER.unpack_from(head)
    if magic != MAGIC or version != VERSION or kind not in (REQUEST, RESULTS, FAULT):
        raise MessageError(f"not an inference message of version {VERSION}: {head[:4].hex(' ')}")
    return HEADER.size + (FAULT_BODY.size if kind == FAULT else rows * size)


def read_message(data: bytes) -> Message:
    """Parse one message, without bytes behind it.

    Raises:
        MessageError: the bytes are not exactly one message.
    """
    if message_bytes(data) != len(data):
        raise MessageError(f"{len(data)} bytes, the message has {message_bytes(data)}")
    _, _, kind, number, model, rows, size = HEADER.unpack_from(data)
    return Message(kind, number, model, rows, size, data[HEADER.size :])


def request(number: int, model: int, rows: NDArray[np.uint8]) -> Message:
    """Make a request of rows, a uint8 array of shape ``(rows, bytes per row)``."""
    return Message(REQUEST, number, model, len(rows), rows.shape[1], rows.tobytes())


def bit_rows(words: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Serialise packed inputs: big-endian rows with bit 0 the lowest of the last byte.

    Args:
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
        n_bits: number of input bits.

    Returns:
        uint8 array of shape ``(rows, bytes per row)``.
    """
    bits = unpack(np.asarray(words), n_bits)
    return np.ascontiguousarray(np.packbits(bits, axis=1, bitorder="little")[:, ::-1])


def feature_rows(columns: ArrayLike) -> NDArray[np.uint8]:
    """Serialise integer features, 32 bits each, in their order.

    Args:
        columns: integer array of shape ``(rows, features)``; values are clamped to 32 bits.

    Returns:
        uint8 array of shape ``(rows, 4 * features)``, big-endian.
    """
    values = np.clip(np.asarray(columns, dtype=np.int64), 0, UINT32_MAX).astype(">u4")
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)


def result_bytes(classes: int, *, full: bool = True) -> int:
    """Bytes of a result: verdict, class, margin and scores, or the verdict alone."""
    return 8 + 4 * classes if full else VERDICT_BYTES


@dataclass(frozen=True, eq=False)
class Results:
    """Results of a message.

    Attributes:
        verdicts: class, or ``SHUNT`` if the host decides, int64, shape ``(rows,)``.
        classes: class, int64, shape ``(rows,)``; None if the card sends verdicts alone.
        margins: best minus second best score, int64, shape ``(rows,)``, or None.
        scores: int64 array of shape ``(rows, classes)``, or None.
    """

    verdicts: NDArray[np.int64]
    classes: NDArray[np.int64] | None = None
    margins: NDArray[np.int64] | None = None
    scores: NDArray[np.int64] | None = None


def read_results(message: Message, classes: int) -> Results:
    """Read the results of a message.

    Raises:
        MessageError: the results have another size.
    """
    if message.kind == RESULTS and message.size == VERDICT_BYTES:
        return Results(_verdicts(np.frombuffer(message.body, ">u2")))
    if message.kind != RESULTS or message.size != result_bytes(classes):
        raise MessageError(
            f"results of {message.size} bytes, a model of {classes} classes has "
            f"{result_bytes(classes)} or {VERDICT_BYTES}"
        )
    layout = np.dtype(
        [("verdict", ">u2"), ("class", ">u2"), ("margin", ">u4"), ("scores", ">i4", (classes,))]
    )
    rows = np.frombuffer(message.body, layout)
    return Results(
        _verdicts(rows["verdict"]),
        rows["class"].astype(np.int64),
        rows["margin"].astype(np.int64),
        rows["scores"].astype(np.int64),
    )


def results_body(model: Classifier, words: ArrayLike, *, full: bool = True) -> bytes:
    """Compute the results of packed inputs as the card sends them: the reference for its answers.

    Args:
        model: the model.
        words: packed inputs, uint32 array of shape ``(rows, n_words)``.
        full: whether results hold class, margin and scores in addition to the verdict.
    """
    inference = model.infer(words)
    verdicts = model.verdicts(inference.scores) if model.shunt else inference.classes
    wire = np.where(verdicts == SHUNT, SHUNTED, verdicts)
    if not full:
        return wire.astype(">u2").tobytes()
    columns = [wire.astype(">u2"), inference.classes.astype(">u2"), inference.margins.astype(">u4")]
    parts = [c.view(np.uint8).reshape(len(wire), -1) for c in columns]
    parts.append(np.ascontiguousarray(inference.scores.astype(">i4")).view(np.uint8))
    return np.concatenate(parts, axis=1).tobytes()


def _verdicts(wire: NDArray[np.uint16]) -> NDArray[np.int64]:
    return np.where(wire == SHUNTED, SHUNT, wire.astype(np.int64))
