# SPDX-License-Identifier: Apache-2.0
"""Computes the contents of the sequential executor's memories, and the writes that load them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError
from n3ic.exporters.netfpga.sequential.layout import (
    LayerLayout,
    SequentialLayout,
    score_bits_needed,
)
from n3ic.model.bits import Words
from n3ic.model.layers import Connections, HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel, shape_text
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors

MODEL = 3  # kind of words that belong to the whole model: its id and its shunting threshold
_ID, _SHUNTING = 0, 1  # indices of those words
_BIAS_LIMIT = (1 << 24) - 8


@dataclass(frozen=True, eq=False)
class MemoryImage:
    """One bank of one memory.

    Attributes:
        layer: index of the layer.
        kind: 0 weights, 1 masks, 2 thresholds or biases, 3 words of the whole model.
        name: file name without extension.
        words: uint32 array of shape ``(rows, words per row)``.
        row_w: address width of a row, in bits.
    """

    layer: int
    kind: int
    name: str
    words: Words
    row_w: int


def memory_images(model: BinaryModel, layout: SequentialLayout) -> list[MemoryImage]:
    """Compute the contents of all memories.

    Raises:
        ExportError: the model has another shape than the layout; or the layout has no room for its
            masks or its shunting threshold; or its biases do not fit the scores.
    """
    expected = tuple((p.n, p.m) for p in layout.layers)
    if tuple((c.n_inputs, c.n_outputs) for c in model.layers) != expected:
        shape = shape_text((expected[0][0], *(m for _, m in expected)))
        raise ExportError(f"the executor computes {shape}, the model is {model.shape_text}")
    if score_bits_needed(model) > layout.score_w:
        raise ExportError(
            f"biases up to {np.abs(model.output.bias).max()} need scores of "
            f"{score_bits_needed(model)} bits, the executor's have {layout.score_w}: --score-bits"
        )
    if model.shunt and not layout.shunts:
        raise ExportError(
            f"the model shunts margins below {model.shunt}, the executor has no threshold: "
            "--shunting all"
        )
    out = []
    for p, layer in zip(layout.layers, model.layers, strict=True):
        if layer.mask is not None and not p.masked:
            raise ExportError(
                f"layer {p.index} has a mask, the executor's layer has none: --masks all"
            )
        out.append(_image(p, 0, "weights", _rows(p, layer.weight_words, fill=0xFFFFFFFF)))
        if p.masked:
            out.append(_image(p, 1, "masks", _rows(p, layer.mask_words, fill=0)))
        values, name = _side(layer)
        side = np.zeros(p.groups * p.lanes, dtype=np.int64)
        side[: p.m] = values
        words = (side & 0xFFFFFFFF).astype(np.uint32).reshape(p.groups, p.lanes)
        out.append(_image(p, 2, name, words))
    if layout.shunts:
        out.append(MemoryImage(0, MODEL, "shunting", np.array([[model.shunt]], dtype=np.uint32), 0))
    return out


def _side(layer: Connections) -> tuple[NDArray[np.int32], str]:
    if isinstance(layer, HiddenLayer):
        return layer.thresholds, "thresholds"
    return layer.bias, "biases"  # type: ignore[attr-defined]


def _image(p: LayerLayout, kind: int, name: str, words: Words) -> MemoryImage:
    row_w = p.group_w if kind == 2 else p.row_w
    return MemoryImage(p.index, kind, f"layer{p.index}_{name}", words, row_w)


def _rows(p: LayerLayout, words: Words, fill: int) -> Words:
    """Arrange the words of the neurons as rows of the memory."""
    neurons = np.full((p.groups * p.lanes, p.chunks * p.lane_words), fill, dtype=np.uint32)
    neurons[: p.m, : words.shape[1]] = words
    return neurons.reshape(p.rows, p.row_words)


def writes(model: BinaryModel, layout: SequentialLayout) -> list[tuple[int, int]]:
    """List the addresses and words that load a model into the free bank by the write port.

    The first write clears the bank's id; the model's, the first four bytes of its digest, is last.

    Raises:
        ExportError: as for :func:`memory_images`.
    """
    address = layout.address_map.address
    contents = [
        (address(image.layer, image.kind, row, column), int(word))
        for image in memory_images(model, layout)
        for row, words in enumerate(image.words)
        for column, word in enumerate(words, _SHUNTING if image.kind == MODEL else 0)
    ]
    begin, end = (address(0, MODEL, row, _ID) for row in (1, 0))
    return [(begin, 0), *contents, (end, int(model.digest[:8], 16))]


def another(
    model: BinaryModel, layout: SequentialLayout, rng: np.random.Generator
) -> tuple[BinaryModel, list[tuple[int, int]]]:
    """Make a random network with the largest biases that fit the scores, and the writes to load it.

    If the executor shunts, the threshold is set so that about half of all margins reach it.
    """
    masked = any(p.masked for p in layout.layers)
    base = random_model(model.shape, rng, density=0.6 if masked else None)
    hidden = tuple(
        layer if p.masked else HiddenLayer(layer.weights, thresholds=layer.thresholds)
        for layer, p in zip(base.hidden, layout.layers[:-1], strict=True)
    )
    largest = min((1 << (layout.score_w - 1)) - 1 - base.output.n_inputs, _BIAS_LIMIT)
    bias = largest - rng.integers(0, 3, len(model.classes))
    mask = base.output.mask if layout.layers[-1].masked else None
    output = OutputLayer(base.output.weights, mask=mask, bias=bias.astype(np.int32))
    other = BinaryModel(model.input, hidden, output, model.classes, name="another")
    if layout.shunts:
        margins = other.infer(verification_vectors(other, 64)).margins
        other = other.with_shunt(max(1, int(np.median(margins))))
    return other, writes(other, layout)
