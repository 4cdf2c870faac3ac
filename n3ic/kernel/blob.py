# SPDX-License-Identifier: Apache-2.0
"""The weights blob: a BinaryModel in the C kernel's format; see docs/how-to/host.md.

It holds little-endian 32-bit words, a CRC-32 last. The same model gives the same bytes.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.model.network import BinaryModel

MAGIC = int.from_bytes(b"N3HO", "little")
VERSION = 1
SHUNT_VERSION = 2  # weights with a threshold; a reader of version 1 would decide every input
MAX_LAYERS = 64
MAX_BYTES = 1 << 28


def dump(model: BinaryModel) -> bytes:
    """Serialise a model.

    Args:
        model: the model; at most 64 layers.

    Returns:
        The bytes, a multiple of four.

    Raises:
        ExportError: the model exceeds the format's limits.
    """
    if len(model.layers) > MAX_LAYERS:
        raise ExportError(f"{len(model.layers)} layers; the host kernel reads {MAX_LAYERS}")
    # Order of the parts: layers, fields, cuts, weights, scales, names; bnn.c reads it in one pass.
    features = {name: i for i, name in enumerate(model.input.features)}
    parts: list[NDArray[np.uint32]] = [
        _words([layer.n_inputs, layer.n_outputs, int(layer.mask is not None), 0])
        for layer in model.layers
    ]
    for field in model.input.fields:
        kind = int(field.kind == "thermometer")
        parts.append(_words([features[field.feature], kind, field.width, field.clamp]))
    cuts = [cut for field in model.input.fields for cut in field.cuts]
    parts.append(_words(cuts))
    limits = [*(layer.thresholds for layer in model.hidden), model.output.bias]
    for layer, limit in zip(model.layers, limits, strict=True):
        parts.append(layer.weight_words.ravel())
        if layer.mask is not None:
            parts.append(layer.mask_words.ravel())
        parts.append(np.ascontiguousarray(limit).view(np.uint32))
    scales = {field.feature: field.scale for field in model.input.fields}
    parts.append(np.array([scales[name] for name in features], dtype="<f8").view("<u4"))
    parts.extend(_name(name) for name in (*model.classes, *features))
    header_words = 18  # ten numbers and the eight words of the digest
    size = 4 * (header_words + sum(len(p) for p in parts) + 1)  # the CRC is the last word
    if size > MAX_BYTES:
        raise ExportError(f"{size:,} bytes of weights; the host kernel reads {MAX_BYTES:,}")
    header = _words(
        [
            MAGIC,
            SHUNT_VERSION if model.shunt else VERSION,
            size,
            len(model.layers),
            model.input.n_bits,
            len(model.input.fields),
            len(features),
            len(model.classes),
            len(cuts),
            model.shunt,
        ]
    )
    digest = np.frombuffer(bytes.fromhex(model.digest), dtype="<u4")
    body = np.concatenate([header, digest, *parts]).astype("<u4").tobytes()
    return body + zlib.crc32(body).to_bytes(4, "little")


def _words(values: list[int]) -> NDArray[np.uint32]:
    return np.array(values, dtype=np.uint32)


def _name(text: str) -> NDArray[np.uint32]:
    """Length in bytes, then UTF-8, padded with zeros to whole words."""
    # A zero byte would terminate the text in C.
    data = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    padded = len(data).to_bytes(4, "little") + data + b"\0" * (-len(data) % 4)
    return np.frombuffer(padded, dtype="<u4").astype(np.uint32)
