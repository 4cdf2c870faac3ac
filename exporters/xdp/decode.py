# SPDX-License-Identifier: Apache-2.0
"""Decodes the answering program's map value to weights and thresholds.

Weights are differences of rows: if a pattern sets one more bit, a neuron's sum grows by 1 for
weight 1, falls by 1 for weight 0, and stays the same for a missing connection. A neuron that always
or never fires has no rows, so it is taken from the model if the model's neuron does the same.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.xdp.network.structure import structure_of
from n3ic.exporters.xdp.network.sums import LayerPlan, Structure
from n3ic.exporters.xdp.network.values import layout
from n3ic.model.classifier import Classifier
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel
from n3ic.targets.decoding import Decoded, DecodedLayer

NETWORK = "answer/network.bin"
Nibbles = list[tuple[int, ...]]


def read_value(directory: Path, model: Classifier) -> tuple[Structure, dict[str, bytes]]:
    """Read the map value of the answering program, by member of its layout.

    Args:
        directory: the export.
        model: the model, which gives the structure.

    Returns:
        The structure over packed bits, and the bytes of each member.

    Raises:
        VerifyError: the file cannot be read or has the wrong size.
    """
    try:
        data = (directory / NETWORK).read_bytes()
        structure = structure_of([model], bits=True)
    except OSError as error:
        raise VerifyError(f"{NETWORK}: {error.strerror or error}") from error
    except ExportError as error:
        raise VerifyError(f"{NETWORK}: {error}") from error
    where = layout(structure)
    if len(data) != where.bytes:
        raise VerifyError(f"{NETWORK}: {len(data):,} bytes, {where.bytes:,} expected")
    value = {m.name: data[where.offset(m.name) :][: m.bytes] for m in where.members}
    return structure, value


def decode_directory(directory: Path, model: BinaryModel) -> tuple[Decoded, ...]:
    """Decode the network in ``answer/network.bin``; ``model`` gives the shape.

    Raises:
        VerifyError: the file cannot be read, or has another size.
    """
    structure, value = read_value(directory, model)
    layers = []
    nibbles = _input_nibbles(model.input.n_bits)
    for i, (plan, layer) in enumerate(zip(structure.layers, model.layers, strict=True)):
        read = _hidden if isinstance(layer, HiddenLayer) else _output
        layers.append(read(value, i, plan, layer, nibbles))
        nibbles = list(plan.fired)
    return (
        Decoded(
            NETWORK,
            tuple(layers),
            digest=value["model"].hex(),
            shunt=int.from_bytes(value["shunt"], "little"),
        ),
    )


def _input_nibbles(n_bits: int) -> Nibbles:
    """Input bits of each row group: four, or fewer at the end of an incomplete word."""
    return [tuple(range(at, min(at + 4, n_bits))) for at in range(0, n_bits, 4)]


def _hidden(
    value: dict[str, bytes], index: int, plan: LayerPlan, layer: Connections, nibbles: Nibbles
) -> DecodedLayer:
    rows = np.frombuffer(value[f"rows{index}"], dtype=np.uint8).astype(np.int64)
    tables = _tables(rows.reshape(-1, 8 * plan.words), nibbles)
    start, half = _starts(value[f"start{index}"], plan)
    weights, mask, least = _connections(tables, nibbles, layer)
    thresholds = half - start[: layer.n_outputs] + least
    assert isinstance(layer, HiddenLayer)  # noqa: S101 - for the type checker
    for j in np.flatnonzero(~mask.any(axis=1)):
        fires = start[j] >= half
        fan_in = int(layer.fan_in[j])
        if fires == (layer.thresholds[j] <= 0) and fires != (layer.thresholds[j] > fan_in):
            weights[j], thresholds[j] = layer.weights[j], layer.thresholds[j]
            mask[j] = True if layer.mask is None else layer.mask[j]
    return DecodedLayer(weights, thresholds, mask)


def _output(
    value: dict[str, bytes], index: int, plan: LayerPlan, layer: Connections, nibbles: Nibbles
) -> DecodedLayer:
    kind = f"<u{plan.lane // 8}"
    lanes = 64 * plan.words // plan.lane
    rows = np.frombuffer(value[f"rows{index}"], dtype=kind).astype(np.int64)
    start = np.frombuffer(value[f"start{index}"], dtype=kind).astype(np.int64)
    weights, mask, least = _connections(_tables(rows.reshape(-1, lanes), nibbles), nibbles, layer)
    bias = start[: layer.n_outputs] - (1 << (plan.lane - 2)) - least
    return DecodedLayer(weights, bias, mask)


def _tables(rows: NDArray[np.int64], nibbles: Nibbles) -> list[NDArray[np.int64]]:
    """Split the rows by nibble, with one row per pattern."""
    ends = np.cumsum([1 << len(nibble) for nibble in nibbles])
    return [rows[end - (1 << len(n)) : end] for end, n in zip(ends, nibbles, strict=True)]


def _connections(
    tables: list[NDArray[np.int64]], nibbles: Nibbles, layer: Connections
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64]]:
    """Return weights, connections, and how far the rows are below the popcounts they represent."""
    shape = layer.weights.shape
    weights, mask = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    least = np.zeros(shape[0], dtype=np.int64)
    for table, nibble in zip(tables, nibbles, strict=True):
        own = table[:, : shape[0]]
        # Row 1 << b differs from row 0 only in bit b, so the difference is that bit's weight.
        gains = np.array([own[1 << b] - own[0] for b in range(len(nibble))])
        patterns = np.arange(len(table))[:, None] >> np.arange(len(nibble)) & 1
        if np.abs(gains).max() > 1 or not np.array_equal(own, own[0] + patterns @ gains):
            raise VerifyError(f"{NETWORK}: rows of inputs {nibble} are not sums over them")
        for bit, gain in zip(nibble, gains, strict=True):
            if bit < shape[1]:
                weights[:, bit], mask[:, bit] = gain > 0, gain != 0
            elif gain.any():
                raise VerifyError(f"{NETWORK}: an input that does not exist is counted")
        least += (gains < 0).sum(axis=0) - own[0]
    return weights, mask, least


def _starts(data: bytes, plan: LayerPlan) -> tuple[NDArray[np.int64], int]:
    """Return the start values of the neurons' sums, and the sum from which they fire."""
    if plan.halves:  # the start is split over two bytes; a neuron fires from a total of 256
        return np.frombuffer(data, dtype=np.uint8).astype(np.int64).reshape(2, -1).sum(axis=0), 256
    if not plan.segments:
        return np.frombuffer(data, dtype=np.uint8).astype(np.int64), 1 << 7
    words = np.frombuffer(data, dtype="<u2").astype(np.int64).reshape(plan.words, 2, 4)
    return words.transpose(0, 2, 1).reshape(-1), 1 << 15
