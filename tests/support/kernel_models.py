# SPDX-License-Identifier: Apache-2.0
"""Models and blobs for the tests of the host target."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from n3ic.model.inputs import Field, InputSpec
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

HEADER_WORDS = 18
CLASSES = ('good, "plain"', "*/ int x; /*#`")


def small_model() -> BinaryModel:
    """70-33-9-2 over binary and thermometer fields; class and feature names need quoting."""
    spec = InputSpec(
        (
            Field.binary("size", 16, unit="byte"),
            Field.thermometer("duration, us", [1, 10, 100, 4_000_000_000], unit="us", scale=1e6),
            Field.thermometer("rate", list(range(5, 46, 2))),
            Field("ttl", "binary", 8, 200),
            Field.binary('a "quoted" one', 21),
        )
    )
    model = random_model((spec.n_bits, 33, 9, 2), np.random.default_rng(7))
    return replace(model, input=spec, classes=CLASSES, name="small")


def reseal(blob: bytes) -> bytes:
    """The blob with its checksum made to fit."""
    return blob[:-4] + zlib.crc32(blob[:-4]).to_bytes(4, "little")


def put_word(blob: bytes, index: int, value: int) -> bytes:
    """The blob with one word replaced, the checksum made to fit."""
    at = 4 * index
    return reseal(blob[:at] + (value & 0xFFFFFFFF).to_bytes(4, "little") + blob[at + 4 :])


def word(blob: bytes, index: int) -> int:
    """One word of the blob."""
    return int.from_bytes(blob[4 * index : 4 * index + 4], "little")


def flip(blob: bytes, index: int, bit: int) -> bytes:
    """The blob with one bit of a word flipped, the checksum made to fit."""
    return put_word(blob, index, word(blob, index) ^ (1 << bit))


def weights_at(model: BinaryModel, layer: int) -> int:
    """Index of the first word of a layer's weights."""
    at = HEADER_WORDS + 4 * len(model.layers) + 4 * len(model.input.fields)
    at += sum(len(f.cuts) for f in model.input.fields)
    for each in model.layers[:layer]:
        copies = 1 if each.mask is None else 2
        at += copies * each.n_outputs * each.n_words + each.n_outputs
    return at


def limits_at(model: BinaryModel, layer: int) -> int:
    """Index of a layer's first threshold or bias."""
    each = model.layers[layer]
    copies = 1 if each.mask is None else 2
    return weights_at(model, layer) + copies * each.n_outputs * each.n_words
