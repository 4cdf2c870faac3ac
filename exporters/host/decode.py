# SPDX-License-Identifier: Apache-2.0
"""Reads the network of a host export back.

The code shares nothing with the writer, constants included, so that a mistake there shows here.
"""

from __future__ import annotations

import re
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from n3ic.errors import VerifyError
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded, DecodedField, DecodedLayer, read_artefact, unpack_bitwise

_BAKED = re.compile(rb"static const uint8_t baked\[(\d+)\] = \{([^{}]*)\};")
_BYTES = re.compile(rb"(?:\s*0x[0-9a-f]{2},?)*\s*")


def decode_directory(directory: Path, model: BinaryModel) -> tuple[Decoded, ...]:
    """Decode the networks in ``weights.bin`` and in the bytes that ``bnn.c`` compiles in.

    Raises:
        VerifyError: a file cannot be read or has the wrong format.
    """
    blob = decode_blob("weights.bin", read_artefact(directory / "weights.bin"), model)
    return blob, decode_blob("bnn.c", _baked(read_artefact(directory / "bnn.c")), model)


def decode_blob(artefact: str, data: bytes, model: BinaryModel) -> Decoded:
    """Decode the network in the bytes of a weights file; see docs/how-to/host.md.

    Raises:
        VerifyError: the bytes are not a weights file, or name other classes or features.
    """
    words = _Words(artefact, data)
    header = words.take(10)
    # Only networks that shunt have layout version 2.
    if header[:3] != [0x4F48334E, 2 if header[9] else 1, len(data)]:
        raise VerifyError(f"{artefact}: not weights for the host of this version and size")
    _, _, _, n_layers, n_inputs, n_fields, n_features, n_classes, n_cuts, shunt = header
    digest = struct.pack("<8I", *words.take(8)).hex()
    shapes = [words.take(4) for _ in range(n_layers)]
    rows = [words.take(4) for _ in range(n_fields)]
    if [(n, m) for n, m, *_ in shapes] != list(pairwise(model.shape)):
        raise VerifyError(f"{artefact}: the network's shape is not {model.shape_text}")
    if any(kind > 1 for _, kind, *_ in rows) or any(m > 1 or zero for _, _, m, zero in shapes):
        raise VerifyError(f"{artefact}: an unknown kind of layer or field")
    # take() refuses more words than are left, so a hostile width allocates nothing.
    cuts = [tuple(words.take(width if kind else 0)) for _, kind, width, _ in rows]
    layers = []
    for i, (inputs, outputs, masked, _) in enumerate(shapes):
        where, width = f"{artefact}, layer {i}", -(-inputs // 32)
        weights = unpack_bitwise(words.rows(outputs, width), inputs, 1, where)
        mask = unpack_bitwise(words.rows(outputs, width), inputs, 0, where) if masked else None
        limits = words.rows(outputs, 1)[:, 0].view(np.int32).astype(np.int64)
        layers.append(DecodedLayer(weights, limits, mask))
    pairs = [words.take(2) for _ in range(n_features)]
    scales = [struct.unpack("<d", struct.pack("<2I", *pair))[0] for pair in pairs]
    classes = [words.name() for _ in range(n_classes)]
    features = [words.name() for _ in range(n_features)]
    words.end()
    sums = [sum(width for _, _, width, _ in rows), sum(map(len, cuts)), len(layers[-1].weights)]
    if sums != [n_inputs, n_cuts, n_classes]:
        raise VerifyError(f"{artefact}: the header does not match the sizes of the data")
    if classes != _names(model.classes) or features != _names(model.input.features):
        raise VerifyError(f"{artefact}: the names of classes or features differ from the model's")
    if any(feature >= n_features for feature, *_ in rows):
        raise VerifyError(f"{artefact}: a field reads an unknown feature")
    fields = tuple(
        DecodedField(
            model.input.features[feature],
            "thermometer" if kind else "binary",
            width,
            clamp,
            scales[feature],
        )
        for feature, kind, width, clamp in rows
    )
    return Decoded(artefact, tuple(layers), tuple(cuts), fields, digest, shunt)


class _Words:
    """Words of a weights file; each is taken once, in order."""

    def __init__(self, artefact: str, data: bytes) -> None:
        if len(data) % 4 or zlib.crc32(data[:-4]) != _last(data):
            raise VerifyError(f"{artefact}: cut short or damaged (checksum)")
        self._artefact = artefact
        self._words = np.frombuffer(data[:-4], dtype="<u4")
        self._at = 0

    def rows(self, count: int, width: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
        """Rows of words: uint32 array of shape ``(count, width)``."""
        end = self._at + count * width
        if end > len(self._words):
            raise VerifyError(f"{self._artefact}: ends before the data that its header announces")
        words = self._words[self._at : end].reshape(count, width)
        self._at = end
        return words

    def take(self, count: int) -> list[int]:
        """Return the next ``count`` words as integers."""
        return [int(word) for word in self.rows(1, count)[0]]

    def name(self) -> bytes:
        """Read a name: its length in bytes, its bytes, and zeros up to the next word."""
        size = self.take(1)[0]
        octets = self.rows(1, -(-size // 4)).tobytes()
        if any(octets[size:]):
            raise VerifyError(f"{self._artefact}: a name's padding is not 0")
        return octets[:size]

    def end(self) -> None:
        """Check that no words are left."""
        if self._at != len(self._words):
            raise VerifyError(f"{self._artefact}: {len(self._words) - self._at} words too many")


def _last(data: bytes) -> int:
    return int.from_bytes(data[-4:], "little")


def _names(names: tuple[str, ...]) -> list[bytes]:
    """Names as C can hold them: without zero bytes, a question mark for invalid UTF-8."""
    return [name.replace("\0", "\ufffd").encode("utf-8", "replace") for name in names]


def _baked(source: bytes) -> bytes:
    arrays = _BAKED.findall(source)
    if len(arrays) != 1 or not _BYTES.fullmatch(arrays[0][1]):
        raise VerifyError("bnn.c: one array of bytes with the weights is expected")
    size, body = arrays[0]
    data = bytes(int(byte, 16) for byte in re.findall(rb"0x(..)", body))
    if int(size) != len(data):
        raise VerifyError(f"bnn.c: {len(data)} bytes of weights, {int(size)} are declared")
    return data
