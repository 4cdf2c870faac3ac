# SPDX-License-Identifier: Apache-2.0
"""Reads the network of an NFP export back.

The code shares nothing with the writer, constants included, so that a mistake there shows here.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np

from n3ic.errors import VerifyError
from n3ic.model.bits import Words
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded, DecodedField, DecodedLayer, read_artefact, unpack_bitwise

_ARRAY = re.compile(r"n3ic_words\[N3IC_WORDS\] = \{((?:\s*0x[0-9a-f]{8},?)*\s*)\};")


def decode_directory(directory: Path, model: BinaryModel) -> tuple[Decoded, ...]:
    """Decode the networks in ``weights.bin`` and in the words that ``n3ic_weights.h`` compiles in.

    Raises:
        VerifyError: a file cannot be read or has the wrong format.
    """
    return tuple(decode_words(name, words, model) for name, words in read_words(directory).items())


def read_words(directory: Path) -> dict[str, Words]:
    """Read the words of ``weights.bin`` and ``n3ic_weights.h``, uint32 arrays by file name.

    Raises:
        VerifyError: a file cannot be read or holds no words.
    """
    data = read_artefact(directory / "weights.bin")
    if len(data) % 4:
        raise VerifyError(f"weights.bin: {len(data)} bytes, a multiple of 4 is expected")
    header = _ARRAY.findall(read_artefact(directory / "n3ic_weights.h").decode("latin-1"))
    if len(header) != 1:
        raise VerifyError("n3ic_weights.h: one array of words is expected")
    compiled = np.array([int(w, 16) for w in re.findall(r"0x(\w+)", header[0])], dtype=np.uint32)
    return {"weights.bin": np.frombuffer(data, "<u4"), "n3ic_weights.h": compiled}


def decode_words(artefact: str, words: Words, model: BinaryModel) -> Decoded:
    """Decode the network in the words of a weights file; see docs/how-to/nfp.md.

    Rows, fields and cuts are read at the positions that the words give, as the micro-C does.

    Raises:
        VerifyError: the words are not a weights file of this version and size.
    """

    def at(start: int, count: int) -> Words:
        if start + count > len(words):
            raise VerifyError(f"{artefact}: ends at word {len(words)}, before {start + count - 1}")
        return words[start : start + count]

    def numbers(start: int, count: int) -> list[int]:
        return [int(word) for word in at(start, count)]

    header = numbers(0, 16)
    if header[0] != 0x464E334E or header[1] not in (1, 2) or header[2] != len(words):
        raise VerifyError(f"{artefact}: not weights for the NFP of this version and size")
    n_layers, n_inputs, n_fields, first_field, n_features = header[3:8]
    digest = struct.pack("<8I", *header[8:]).hex()
    layers = []
    for i in range(n_layers):
        inputs, outputs, first, masked = numbers(16 + 4 * i, 4)
        if masked > 1 or (inputs, outputs) != model.shape[i : i + 2]:
            raise VerifyError(f"{artefact}, layer {i}: not of the shape {model.shape_text}")
        span, where = -(-inputs // 32), f"{artefact}, layer {i}"
        width = 1 + span * (1 + masked)
        rows = at(first, outputs * width).reshape(outputs, width)
        weights = unpack_bitwise(rows[:, 1 : 1 + span], inputs, 1, where)
        mask = unpack_bitwise(rows[:, 1 + span :], inputs, 0, where) if masked else None
        # The words are little-endian, but the view needs the machine's byte order.
        limits = rows[:, 0].astype(np.uint32).view(np.int32).astype(np.int64)
        layers.append(DecodedLayer(weights, limits, mask))
    fields, cuts = [], []
    for i in range(n_fields):
        feature, kind, width, clamp, first = numbers(first_field + 5 * i, 5)
        if kind > 1 or feature >= len(model.input.features) or bool(first) != bool(kind):
            raise VerifyError(f"{artefact}, input field {i}: unknown kind, feature or cuts")
        name = "thermometer" if kind else "binary"
        fields.append(DecodedField(model.input.features[feature], name, width, clamp))
        cuts.append(tuple(numbers(first, width)) if kind else ())
    if n_inputs != sum(f.width for f in fields) or n_features != len(model.input.features):
        raise VerifyError(f"{artefact}: the header does not match the sizes of the data")
    shunt = int(words[-1]) if header[1] == 2 else 0
    return Decoded(artefact, tuple(layers), tuple(cuts), tuple(fields), digest, shunt)
