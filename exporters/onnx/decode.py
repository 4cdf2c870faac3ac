# SPDX-License-Identifier: Apache-2.0
"""Reads an exported graph back from its nodes and constants.

Every tensor is tracked as a line ``slope * n + offset``, where ``n`` is the one integer that the
tensor depends on: an input bit, or a neuron's popcount. Where a line meets a sign or a threshold,
it gives the popcount from which the neuron fires. At the scores, its offset is the bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.onnx import model_proto
from n3ic.model.bits import Bits
from n3ic.model.inputs import InputSpec
from n3ic.targets.decoding import Decoded, DecodedLayer


@dataclass(frozen=True, eq=False)
class AffineValue:
    """The values of a tensor: ``slope * n + offset``, where ``n`` is a bit or a popcount.

    Attributes:
        slope: slope, the same for all channels.
        offset: value of each channel at ``n = 0``, float64 array of shape ``(channels,)``.
        weights: weight bits of the neurons whose popcount is ``n``, bool array of shape ``(neurons,
            inputs)``; None if ``n`` is a bit.
        mask: connections of those neurons, in the same shape; None if none is missing.
    """

    slope: float
    offset: NDArray[np.float64]
    weights: Bits | None = None
    mask: Bits | None = None


def decode(path: Path, spec: InputSpec) -> Decoded:
    """Decode weights, masks, thresholds, biases and cuts of a graph that n3ic wrote.

    Args:
        path: path of the ONNX or QONNX file.
        spec: fields of the input, if the graph encodes features itself.

    Raises:
        VerifyError: the file is not such a graph; the error names the node or constant.
    """
    model = model_proto.read(path)
    to_array = model_proto.require("onnx").numpy_helper.to_array
    constants = {t.name: to_array(t) for t in model.graph.initializer}
    source = model.graph.input[0].name if model.graph.input else ""
    reader = _Reader(constants, source)
    for node in model.graph.node:
        try:
            with np.errstate(all="ignore"):  # constants of a damaged graph may overflow
                reader.visit(node)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise VerifyError(
                f"{path.name}: node {node.name!r} ({node.op_type}) cannot be read back: "
                f"{model_proto.short(error)}"
            ) from error
    scores = reader.lines.get("scores")
    if scores is None or scores.weights is None or scores.slope != 1:
        raise VerifyError(f"{path.name}: the scores do not count agreements")
    if (scores.offset != np.rint(scores.offset)).any():
        raise VerifyError(f"{path.name}: a bias is not an integer")
    with np.errstate(all="ignore"):
        biases = scores.offset.astype(np.int64)
    layers = (*reader.layers, DecodedLayer(scores.weights, biases, scores.mask))
    cuts = cuts_of(constants, spec) if source == "features" else None
    return Decoded(path.name, layers, cuts, shunt=shunt_of(model, constants))


def shunt_of(model: Any, constants: Mapping[str, NDArray[Any]]) -> int:
    """Decode the shunting threshold of a graph that n3ic wrote; 0 if it has no verdict.

    Raises:
        VerifyError: the verdict is not computed from class, margin and threshold.
    """
    if "verdict" not in [value.name for value in model.graph.output]:
        return 0
    node_of = {name: node for node in model.graph.node for name in node.output}

    def single(name: str) -> float | None:
        tensor = constants.get(name, np.zeros(0))
        return float(tensor.item()) if tensor.size == 1 else None

    choice = node_of.get("verdict")
    if choice is not None and choice.op_type == "Where" and len(choice.input) == 3:
        test, shunted, decided = choice.input
        below = node_of.get(test)
        if below is not None and below.op_type == "Less" and list(below.input[:1]) == ["margin"]:
            threshold = single(below.input[1])
            known = threshold is not None and threshold == np.rint(threshold) > 0
            if threshold is not None and known and single(shunted) == -1 and decided == "class":
                return int(threshold)
    raise VerifyError("the graph's verdict must be its class, or -1 below a margin")


class _Reader:
    """One pass over the nodes, from the input's bits to the scores."""

    def __init__(self, constants: dict[str, NDArray[Any]], source: str) -> None:
        self._constants = constants
        self.layers: list[DecodedLayer] = []
        bits = AffineValue(1.0, np.zeros(1))
        self.lines = (
            {"signs": AffineValue(2.0, np.full(1, -1.0))} if source == "signs" else {"bits": bits}
        )

    def visit(self, node: Any) -> None:
        """Process one node; nodes before the bits and after the scores are skipped."""
        op, inputs, name = node.op_type, list(node.input), node.output[0]
        if op == "BipolarQuant":
            self._expect(inputs[1], 1.0)
            if inputs[0] in self._constants:
                self._constants[name] = self._constants[inputs[0]]
                return
        line = self.lines.get(inputs[0])
        if line is None or "scores" in self.lines:
            return
        if op in ("Add", "Sub", "Mul", "Div"):
            self.lines[name] = self._moved(op, line, inputs[1])
        elif op == "Cast":
            self.lines[name] = line
        elif op in ("MatMul", "XnorPopcountMatMul"):
            self.lines[name] = self._product(line, inputs[1], signed=op == "MatMul")
        elif op in ("Sign", "BipolarQuant"):
            self._fires(line, np.zeros(1), 0.5)  # Sign sees no 0: it cuts between popcounts
            self.lines[name] = AffineValue(2.0, np.full(1, -1.0))
        elif op == "MultiThreshold":
            if {a.name for a in node.attribute} - {"out_dtype"}:
                raise ValueError("scaled")
            self._fires(line, self._vector(inputs[1]), 0.0)
            self.lines[name] = AffineValue(1.0, np.zeros(1))
        else:
            raise ValueError("n3ic writes no such node")

    def _moved(self, op: str, line: AffineValue, name: str) -> AffineValue:
        if op in ("Mul", "Div"):
            (factor,) = self._constants[name].astype(np.float64)
            factor = factor if op == "Mul" else 1 / factor
            return replace(line, slope=line.slope * factor, offset=line.offset * factor)
        step = self._vector(name)
        return replace(line, offset=line.offset + (step if op == "Add" else -step))

    def _product(self, line: AffineValue, name: str, *, signed: bool) -> AffineValue:
        """Return the popcounts of the neurons, from bits as -1 and 1 or as 0 and 1."""
        values = self._whole(name)
        if (line.slope, set(line.offset.tolist())) != ((2.0, {-1.0}) if signed else (1.0, {0.0})):
            raise ValueError("its input is not -1 or 1" if signed else "its input is not 0 or 1")
        if line.weights is not None:
            raise ValueError("its input is not a bit")
        # XnorPopcountMatMul has no 0 for a missing connection: its 0 is the weight -1.
        wrong = values[~np.isin(values, (-1, 0, 1) if signed else (0, 1))]
        if wrong.size:
            raise ValueError(f"constant {name!r}: {wrong.flat[0]:g} is not a weight")
        connected = (values != 0).T if signed else np.ones(values.T.shape, np.bool_)
        fan_in = connected.sum(axis=1).astype(np.float64)
        mask = None if connected.all() else connected
        weights = (values > 0).T
        return (
            AffineValue(2.0, -fan_in, weights, mask)
            if signed
            else AffineValue(1.0, 0 * fan_in, weights)
        )

    def _fires(self, line: AffineValue, level: NDArray[np.float64], between: float) -> None:
        """Add a layer whose neurons fire where their line exceeds ``level``.

        ``between`` is the distance in popcounts from ``level`` up to the threshold.
        """
        if line.weights is None or line.slope <= 0:
            raise ValueError("it does not follow neurons")
        first = (level - line.offset) / line.slope + between
        if first.shape != (len(line.weights),) or (first != np.rint(first)).any():
            raise ValueError("its threshold is not a popcount")
        self.layers.append(DecodedLayer(line.weights, first.astype(np.int64), line.mask))

    def _vector(self, name: str) -> NDArray[np.float64]:
        return self._whole(name).reshape(-1)

    def _whole(self, name: str) -> NDArray[np.float64]:
        """Read a constant of integers."""
        values = self._constants[name].astype(np.float64)
        if not np.isfinite(values).all() or (values != np.rint(values)).any():
            raise ValueError(f"constant {name!r} is not an integer")
        # n3ic writes no -0.0, so a byte was changed.
        if (np.signbit(values) & (values == 0)).any():
            raise ValueError(f"constant {name!r} is a negative 0")
        return values

    def _expect(self, name: str, value: float) -> None:
        if not (self._constants[name] == value).all():
            raise ValueError(f"constant {name!r} is not {value:g}")


def cuts_of(constants: dict[str, NDArray[Any]], spec: InputSpec) -> tuple[tuple[int, ...], ...]:
    """Read the cuts of each field, and check the field's other constants."""
    ends = np.cumsum([field.width for field in spec.fields])
    cuts = []
    for field, end in zip(spec.fields, ends, strict=True):
        graded = field.kind == "thermometer"
        expected = {
            "index": [spec.features.index(field.feature)] * field.width,
            "clamp": [field.clamp] * field.width,
            "thermometer": [graded] * field.width,
            "step": [1 if graded else 1 << k for k in range(field.width)],
        }
        bits = slice(int(end) - field.width, int(end))
        for name, values in expected.items():
            tensor = constants.get(name)
            if tensor is None or tensor.shape != (spec.n_bits,) or tensor[bits].tolist() != values:
                raise VerifyError(
                    f"input field {field.feature!r}: constant {name!r} is not its own"
                )
        field_cuts = constants.get("cut", np.zeros(0, np.int64))[bits].tolist()
        cuts.append(tuple(field_cuts) if graded or any(field_cuts) else ())
    return tuple(cuts)
