# SPDX-License-Identifier: Apache-2.0
"""The weight blob: every parameter of a network as 32-bit words.

Layout, in words (``weights.bin`` holds them little-endian):

- 0..15, header: magic ``N3NF`` (0x464E334E), layout version, number of words, layers, input bits,
  fields of the input stage, index of the first field's word, features; SHA-256 of the model file.
- 16.., four words per layer: input bits, neurons, index of the first row's word, 1 if masked.
- rows, by layer and neuron: the threshold, then ``ceil(inputs / 32)`` words of weights padded
  with 1. A row of a masked layer ends with as many words of mask, padded with 0. In the last layer
  the class's bias, in two's complement, takes the place of the threshold.
- fields, five words each: index of the feature, kind (0 binary, 1 thermometer), width in bits,
  clamp, index of the first cut's word (0 for a binary field); then the cuts, one word each.
- in layout version 2, for a network that shunts flows: the smallest margin that is not shunted.

Bit ``i`` of a vector is bit ``i % 32`` of its word ``i // 32``, least significant first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from n3ic.model.bits import Words
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel

MAGIC = int.from_bytes(b"N3NF", "little")
VERSION = 1
SHUNT_VERSION = 2
HEADER_WORDS = 16
LAYER_WORDS = 4
FIELD_WORDS = 5


@dataclass(frozen=True, eq=False)
class Blob:
    """The words of a network and the positions of its parts.

    Attributes:
        words: uint32 array of shape ``(words,)``.
        rows: index of the first word of each layer's rows.
        strides: words per row of each layer.
        sections: bytes of each part: ``header``, ``weights``, ``thresholds``, ``masks``, ``input``,
            and ``shunt`` for a network with a shunting threshold.
    """

    words: Words
    rows: tuple[int, ...]
    strides: tuple[int, ...]
    sections: dict[str, int]

    @property
    def size(self) -> int:
        """Size of the blob in bytes."""
        return 4 * len(self.words)

    def to_bytes(self) -> bytes:
        """Serialise the blob as ``weights.bin``."""
        return self.words.astype("<u4").tobytes()

    def explain(self, word: int) -> str:
        """Describe the content of a word, such as ``layer 0, neuron 3, weight word 1``."""
        if word < HEADER_WORDS:
            return "header"
        if word < HEADER_WORDS + LAYER_WORDS * len(self.rows):
            return f"description of layer {(word - HEADER_WORDS) // LAYER_WORDS}"
        ends = (*self.rows[1:], self.input_start)
        for i, (start, stride, end) in enumerate(zip(self.rows, self.strides, ends, strict=True)):
            if start <= word < end:
                neuron, item = divmod(word - start, stride)
                kind = "threshold or bias" if item == 0 else f"weight or mask word {item - 1}"
                return f"layer {i}, neuron {neuron}, {kind}"
        if self.words[1] == SHUNT_VERSION and word == len(self.words) - 1:
            return "shunting threshold"
        return "input stage"

    @property
    def input_start(self) -> int:
        """Index of the first word of the input stage."""
        return int(self.words[6])


def row_words(layer: Connections) -> int:
    """Words per neuron's row."""
    return 1 + layer.n_words * (1 if layer.mask is None else 2)


def build(model: BinaryModel) -> Blob:
    """Build the blob of a model; deterministic."""
    layers = model.layers
    start = HEADER_WORDS + LAYER_WORDS * len(layers)
    descriptions, blocks, rows = [], [], []
    for layer in layers:
        first = layer.thresholds if isinstance(layer, HiddenLayer) else model.output.bias
        # A bias may be negative, so view it as uint32 to keep its two's complement.
        parts = [first.astype(np.int32).view(np.uint32)[:, None], layer.weight_words]
        if layer.mask is not None:
            parts.append(layer.mask_words)
        descriptions += [layer.n_inputs, layer.n_outputs, start, int(layer.mask is not None)]
        rows.append(start)
        blocks.append(np.concatenate(parts, axis=1).ravel())
        start += len(blocks[-1])
    features = model.input.features
    fields: list[int] = []
    cuts: list[int] = []
    cut = start + FIELD_WORDS * len(model.input.fields)  # cuts follow the table of fields
    for field in model.input.fields:
        thermometer = field.kind == "thermometer"
        fields += [
            features.index(field.feature),
            int(thermometer),
            field.width,
            field.clamp,
            cut + len(cuts) if thermometer else 0,
        ]
        cuts += field.cuts
    shunt = [model.shunt] if model.shunt else []
    total = cut + len(cuts) + len(shunt)
    header = [
        *(MAGIC, SHUNT_VERSION if shunt else VERSION, total, len(layers), model.input.n_bits),
        *(len(model.input.fields), start, len(features)),
        *np.frombuffer(bytes.fromhex(model.digest), "<u4").tolist(),
    ]
    rest = np.array(fields + cuts + shunt, np.uint32)
    words = np.concatenate([np.array(header + descriptions, np.uint32), *blocks, rest])
    sections = {
        "header": 4 * rows[0],
        "weights": 4 * sum(layer.n_outputs * layer.n_words for layer in layers),
        "thresholds": 4 * sum(layer.n_outputs for layer in layers),
        "masks": 4 * sum(x.n_outputs * x.n_words for x in layers if x.mask is not None),
        "input": 4 * (total - start - len(shunt)),  # `start` is now the end of the last row
        **({"shunt": 4} if shunt else {}),
    }
    return Blob(words, tuple(rows), tuple(row_words(x) for x in layers), sections)


def word_counts(shape: tuple[int, ...], masked: tuple[bool, ...]) -> tuple[int, ...]:
    """Number of words in the rows of each layer, including thresholds."""
    return tuple(
        outputs * (1 + -(-inputs // 32) * (2 if mask else 1))
        for inputs, outputs, mask in zip(shape[:-1], shape[1:], masked, strict=True)
    )
