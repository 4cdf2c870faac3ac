# SPDX-License-Identifier: Apache-2.0
"""The target ``qonnx``: XNOR-popcount or bipolar nodes, for FINN and hls4ml.

The form ``xnor`` counts agreements of 0/1 bits (``XnorPopcountMatMul``, ``MultiThreshold``), for
which FINN has hardware. The form ``bipolar`` multiplies +-1 values (``MatMul`` with
``BipolarQuant`` weights, ``Add``, ``BipolarQuant``), which hls4ml parses.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import ExportError, VerifyError
from n3ic.exporters.onnx import decode, model_proto
from n3ic.exporters.onnx.exporter import (
    FILE,
    bits_of,
    file_report,
    read_graph,
    ternary,
    write_readme,
)
from n3ic.model.bits import Words, unpack
from n3ic.model.layers import Connections, HiddenLayer
from n3ic.model.network import BinaryModel, Inference, classes_of, margins_of
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import Importer
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit, Problem
from n3ic.targets.figures import Report

OPSETS = {"": 11, model_proto.QONNX_DOMAIN: 1}
_ROWS = 4096  # rows per call of the executor


class QonnxExporter(Exporter):
    """Writes a graph of QONNX nodes with annotated data types."""

    name: ClassVar[str] = "qonnx"
    summary: ClassVar[str] = "QONNX graph of XNOR-popcount or bipolar nodes, for FINN and hls4ml"
    refusals: ClassVar[Mapping[str, str]] = {
        "sum-product-network": "QONNX describes quantised layers, which a sum-product network does "
        "not have: target onnx writes it with standard operators",
        "look-up-tables": "QONNX describes quantised layers, and look-up tables have none",
    }
    shunts: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "form",
            "xnor: XnorPopcountMatMul and MultiThreshold, for FINN; bipolar: MatMul and "
            "BipolarQuant, for hls4ml",
            "xnor",
            choices=("xnor", "bipolar"),
        ),
    )

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check that the weights fit one file and the scores fit float32."""
        fit = model_proto.size_check(model, int(self.device.limits["file_bytes"]))
        if model.shunt and options["form"] == "bipolar":
            reason = (
                "the bipolar form has no margin output, and the model shunts flows by margin: "
                "choose --form xnor, or a threshold of 0"
            )
            fit = Fit(problems=(*fit.problems, Problem(reason, layer=len(model.layers) - 1)))
        limit = int(self.device.limits["score"])
        largest = int((model.output.bias.astype(np.int64) + model.output.fan_in).max())
        if largest <= limit:  # biases are always above -2^24, so only the maximum matters
            return fit
        last = len(model.layers) - 1
        reason = (
            f"layer {last}: a score may reach {largest}, and float32 is exact only up to {limit}: "
            "choose smaller biases"
        )
        return Fit(problems=(*fit.problems, Problem(reason, layer=last)))

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        problems = self.check(model, options).problems
        if problems:
            raise ExportError(str(problems[-1]))
        bipolar = options["form"] == "bipolar"
        built = build_bipolar(model) if bipolar else build(model)
        (out / FILE).write_bytes(model_proto.to_bytes(built))
        write_readme(self.folder, out, model, masked=model.has_masks, option_bipolar=bipolar)

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Run the graph in qonnx's executor, keeping every layer's output."""
        bipolar = options["form"] == "bipolar"
        bits = unpack(words, model.input.n_bits).astype(np.float32)
        inputs, name = (2 * bits - 1, "signs") if bipolar else (bits, "bits")
        layers = [f"{'signs' if bipolar else 'bits'}_{i + 1}" for i in range(len(model.hidden))]
        decided = [] if bipolar else outputs_of(model)[1:]
        names = ["scores", *decided, *layers]
        whole = model_proto.read(directory / FILE)
        parts = [
            _execute(whole, {name: inputs[start : start + _ROWS]}, names)
            for start in range(0, max(1, len(inputs)), _ROWS)
        ]
        scores, *others = (np.concatenate(c) for c in zip(*parts, strict=True))
        choices = [values.reshape(-1).astype(np.int64) for values in others[: len(decided)]]
        hidden = others[len(decided) :]
        model_proto.expect_shapes(model, len(bits), scores, hidden)
        if not (np.abs(scores) < 1 << 31).all() or (scores != np.rint(scores)).any():
            raise VerifyError("a score is not an integer")
        integers = scores.astype(np.int32)
        if bipolar:  # the graph ends with the scores
            choices, hidden = [classes_of(integers)], [(x + 1) / 2 for x in hidden]
        for name, values in zip(decided, choices, strict=False):
            if len(values) != len(bits):
                raise VerifyError(f"the graph gives {len(values)} of {name}, expected one per row")
        version = model_proto.require("importlib.metadata").version("qonnx")
        return Execution(
            Inference(
                integers,
                choices[0],
                margins_of(integers),
                tuple(bits_of(values, i) for i, values in enumerate(hidden)),
                choices[1] if model.shunt else None,
            ),
            f"qonnx {version}",
        )

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode weights, masks, thresholds and biases of the graph."""
        return (decode.decode(directory / FILE, model.input),)

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report size and operations."""
        return file_report(
            model,
            directory / FILE,
            "The graph is for FINN, hls4ml and other tools, which determine resources and speed.",
        )

    @property
    def importer(self) -> Importer:
        """The importer of ONNX and QONNX graphs, whose files have the suffix of target ``onnx``."""
        return Importer(read_graph)


def _execute(whole: Any, feed: dict[str, Any], names: list[str]) -> list[NDArray[Any]]:
    """Run a graph in qonnx's executor, row by row, and return the named tensors."""
    execute = model_proto.require("qonnx.core.onnx_exec").execute_onnx
    wrapper = model_proto.require("qonnx.core.modelwrapper").ModelWrapper
    (rows,) = (len(values) for values in feed.values())
    try:
        with warnings.catch_warnings(action="ignore"):  # wrong values would show in the scores
            batched = wrapper(model_proto.with_batch(whole, rows))
            context = execute(batched, feed, return_full_exec_context=True)
    except Exception as error:  # operators of a damaged graph raise errors of any type
        raise VerifyError(f"qonnx cannot execute the graph: {model_proto.short(error)}") from error
    return model_proto.rows_of(names, [context.get(name) for name in names], rows)


def build(model: BinaryModel) -> Any:
    """Build the graph of a model, as a ModelProto with a batch of one row."""
    b = model_proto.ProtoBuilder(1)
    b.tensor("bits", model.input.n_bits, np.float32, "BINARY")
    source = "bits"
    for i, layer in enumerate(model.layers):
        counted = _product(b, i, layer, source)
        if isinstance(layer, HiddenLayer):
            masked = layer.mask is not None
            levels = 2 * layer.thresholds - layer.fan_in if masked else layer.thresholds
            b.constant(f"thresholds_{i}", levels.astype(np.float32)[:, None], "INT32")
            source = b.tensor(f"bits_{i + 1}", layer.n_outputs, np.float32, "BINARY")
            b.node(
                "MultiThreshold",
                [counted, f"thresholds_{i}"],
                [source],
                model_proto.QONNX_DOMAIN,
                out_dtype="BINARY",
            )
        else:
            _output_stage(b, model, counted)
    return b.model(model, ["bits"], outputs_of(model), OPSETS)


def outputs_of(model: BinaryModel) -> list[str]:
    """Names of the outputs of the form ``xnor``, with a verdict if the model shunts flows."""
    return ["scores", "class", *(["verdict"] if model.shunt else [])]


def build_bipolar(model: BinaryModel) -> Any:
    """Build the graph of a model in +-1 values, as a ModelProto with a batch of one row."""
    b = model_proto.ProtoBuilder(1)
    b.constant("scale", np.float32(1).reshape(1))
    source = b.tensor("signs", model.input.n_bits, np.float32, "BIPOLAR")
    for i, layer in enumerate(model.layers):
        b.constant(f"weights_{i}", ternary(layer).T.copy(), "" if layer.mask is None else "TERNARY")
        weights = f"weights_{i}"
        if layer.mask is None:
            weights = b.matrix(f"quantized_{i}", (layer.n_inputs, layer.n_outputs), "BIPOLAR")
            b.node("BipolarQuant", [f"weights_{i}", "scale"], [weights], model_proto.QONNX_DOMAIN)
        b.tensor(f"dot_{i}", layer.n_outputs, np.float32, "INT32")
        b.node("MatMul", [source, weights], [f"dot_{i}"])
        if isinstance(layer, HiddenLayer):
            # Executors differ on the sign of 0. It never occurs, because offset and product have
            # different parities.
            levels = layer.fan_in - 2 * layer.thresholds + 1
            b.constant(f"levels_{i}", levels.astype(np.float32), "INT32")
            b.tensor(f"above_{i}", layer.n_outputs, np.float32, "INT32")
            b.node("Add", [f"dot_{i}", f"levels_{i}"], [f"above_{i}"])
            source = b.tensor(f"signs_{i + 1}", layer.n_outputs, np.float32, "BIPOLAR")
            b.node("BipolarQuant", [f"above_{i}", "scale"], [source], model_proto.QONNX_DOMAIN)
    _agreements(b, model, f"dot_{len(model.layers) - 1}", "agreements")
    b.constant("bias", model.output.bias.astype(np.float32), "INT32")
    b.tensor("scores", model.output.n_outputs, np.float32, "INT32")
    b.node("Add", ["agreements", "bias"], ["scores"])
    return b.model(model, ["signs"], ["scores"], OPSETS)


def _product(b: model_proto.ProtoBuilder, i: int, layer: Connections, source: str) -> str:
    if layer.mask is None:
        b.constant(f"weights_{i}", layer.weights.T.astype(np.float32), "BINARY")
        counted = b.tensor(f"agreements_{i}", layer.n_outputs, np.float32, "UINT32")
        b.node("XnorPopcountMatMul", [source, f"weights_{i}"], [counted], model_proto.QONNX_DOMAIN)
        return counted
    b.constant(f"weights_{i}", ternary(layer).T.copy(), "TERNARY")
    signs = _signs(b, i, source, layer.n_inputs, f"signs_{i}")
    counted = b.tensor(f"dot_{i}", layer.n_outputs, np.float32, "INT32")
    b.node("MatMul", [signs, f"weights_{i}"], [counted])
    return counted


def _signs(b: model_proto.ProtoBuilder, i: int, source: str, width: int, name: str) -> str:
    """Add the nodes that convert bits to +-1: 2 x - 1."""
    b.constant(f"two_{i}", np.float32(2).reshape(1))
    b.constant(f"minus_one_{i}", np.float32(-1).reshape(1))
    b.tensor(f"doubled_{i}", width, np.float32, "UINT2")
    b.tensor(name, width, np.float32, "BIPOLAR")
    b.node("Mul", [source, f"two_{i}"], [f"doubled_{i}"])
    b.node("Add", [f"doubled_{i}", f"minus_one_{i}"], [name])
    return name


def _agreements(b: model_proto.ProtoBuilder, model: BinaryModel, counted: str, name: str) -> None:
    """Add the agreements ``(dot + connections) / 2``, an integer; float32 holds both exactly."""
    output = model.output
    b.constant("fan_in", output.fan_in.astype(np.float32))
    b.constant("half", np.float32(0.5).reshape(1))
    b.tensor("agreements_twice", output.n_outputs, np.float32, "INT32")
    b.tensor(name, output.n_outputs, np.float32, "INT32")
    b.node("Add", [counted, "fan_in"], ["agreements_twice"])
    b.node("Mul", ["agreements_twice", "half"], [name])


def _output_stage(b: model_proto.ProtoBuilder, model: BinaryModel, counted: str) -> None:
    output = model.output
    if output.mask is not None:
        _agreements(b, model, counted, "agreements")
        counted = "agreements"
    b.constant("bias", output.bias.astype(np.float32), "INT32")
    b.constant("k", np.array([1], np.int64))
    b.tensor("scores", output.n_outputs, np.float32, "INT32")
    b.tensor("best", 1, np.float32, "INT32")
    b.tensor("class", 1, np.int64)
    b.node("Add", [counted, "bias"], ["scores"])
    b.node("TopK", ["scores", "k"], ["best", "class"], axis=1, largest=1, sorted=1)
    if model.shunt:
        _verdict(b, model)


def _verdict(b: model_proto.ProtoBuilder, model: BinaryModel) -> None:
    b.constant("two_best", np.array([2], np.int64))
    b.constant("first", np.array([0], np.int64))
    b.constant("second", np.array([1], np.int64))
    b.tensor("top", 2, np.float32, "INT32")
    b.tensor("top_classes", 2, np.int64)
    for name in ("highest", "next", "margin"):
        b.tensor(name, 1, np.float32, "INT32")
    b.node("TopK", ["scores", "two_best"], ["top", "top_classes"], axis=1, largest=1, sorted=1)
    b.node("Gather", ["top", "first"], ["highest"], axis=1)
    b.node("Gather", ["top", "second"], ["next"], axis=1)
    b.node("Sub", ["highest", "next"], ["margin"])
    model_proto.add_verdict(b, model.shunt, 1, np.float32)


EXPORTER = QonnxExporter()
