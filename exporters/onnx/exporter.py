# SPDX-License-Identifier: Apache-2.0
"""The target ``onnx``: standard operators on +-1 floats, exact in float32.

A layer is ``MatMul`` of +-1 values (0 for an absent connection), ``Sub`` and ``Sign``. With ``F``
connections and ``p`` agreements the product is ``2 p - F``. For threshold ``t`` the layer subtracts
``2 t - F - 1``, which has the other parity. So ``Sign`` never sees 0 and is +1 iff ``p >= t``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from n3ic.errors import VerifyError
from n3ic.exporters.onnx import decode, model_proto
from n3ic.model.bits import Bits, Words, pack, unpack
from n3ic.model.classifier import Classifier
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import Connections
from n3ic.model.network import BinaryModel, Inference
from n3ic.options import Option, Options
from n3ic.targets.base import Execution, Exporter
from n3ic.targets.capabilities import Importer
from n3ic.targets.decoding import Decoded
from n3ic.targets.device import Fit
from n3ic.targets.figures import Figure, Report
from n3ic.util.templates import render

FILE = "model.onnx"
OPSET = 17
_ROWS = 4096  # rows per call of a runtime


class OnnxExporter(Exporter):
    """Writes a graph that any ONNX runtime executes; the input is bits or integer features."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graph of standard operators, for onnxruntime and others"
    shunts: ClassVar[bool] = True
    graph_exporter: ClassVar[str] = "n3ic.exporters.onnx.graph.exporter:EXPORTER"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "input",
            "input of the graph: bits (0 or 1, float32) or features (int64)",
            "bits",
            choices=("bits", "features"),
        ),
    )

    def check(self, model: BinaryModel, options: Options) -> Fit:
        """Check that the weights fit one file."""
        return model_proto.size_check(model, int(self.device.limits["file_bytes"]))

    def write(self, model: BinaryModel, options: Options, out: Path) -> None:
        """Write the graph and its README."""
        built = build(model, features=options["input"] == "features")
        (out / FILE).write_bytes(model_proto.to_bytes(built))
        write_readme(
            self.folder,
            out,
            model,
            masked=model.has_masks,
            option_features=options["input"] == "features",
        )

    def run(self, directory: Path, model: BinaryModel, options: Options, words: Words) -> Execution:
        """Run the graph in onnxruntime, with the hidden layers as further outputs."""
        hidden = [f"signs_{i + 1}" for i in range(len(model.hidden))]
        names = [*outputs_of(model), *hidden]
        whole = model_proto.read(directory / FILE)
        part = model_proto.cut(whole, ["bits"], names)
        bits = unpack(words, model.input.n_bits).astype(np.float32)
        outputs = dict(zip(names, session_run(part, "bits", bits, names), strict=True))
        signs = [outputs.pop(name) for name in hidden]
        scores = outputs.pop("scores")
        model_proto.expect_shapes(model, len(bits), scores, signs)
        for name, values in outputs.items():
            if values.shape != (len(bits),):
                raise VerifyError(
                    f"the graph gives {name} of shape {values.shape}, expected one per row"
                )
        for i, sign in enumerate(signs):
            if not np.isin(sign, (-1, 1)).all():
                raise VerifyError(f"layer {i}: Sign gave a value other than -1 or 1")
        return Execution(
            Inference(
                scores,
                outputs["class"],
                outputs["margin"],
                tuple(sign > 0 for sign in signs),
                outputs.get("verdict"),
            ),
            f"onnxruntime {model_proto.require('onnxruntime').__version__}",
        )

    def decode(self, directory: Path, model: BinaryModel, options: Options) -> tuple[Decoded, ...]:
        """Decode weights, masks, thresholds, biases and cuts of the graph."""
        return (decode.decode(directory / FILE, model.input),)

    def encode(
        self,
        directory: Path,
        model: BinaryModel,
        options: Options,
        features: Mapping[str, Any],
    ) -> Words | None:
        """Run the graph's input stage; return None if the graph takes bits."""
        return encode(directory, model, features) if options["input"] == "features" else None

    def report(self, model: BinaryModel, options: Options, directory: Path) -> Report:
        """Report size and operations."""
        report = file_report(
            model,
            directory / FILE,
            "Weights are float32 in the file, because ONNX has no binary type. The graph is for "
            "checks, hosts and other tools; its speed depends on the runtime.",
        )
        return replace(report, figures=(*report.figures, *cut_figures(model, options)))

    @property
    def importer(self) -> Importer:
        """The importer of ONNX and QONNX graphs."""
        return Importer(read_graph, (".onnx",))


def read_graph(path: Path) -> Classifier:
    """Import an ONNX or QONNX graph; see :func:`.importer.read`."""
    from n3ic.exporters.onnx.importer import read

    return read(path)


def run_graph(directory: Path, model: Classifier, words: Words) -> Execution:
    """Run a graph without hidden layers in onnxruntime; see :meth:`Exporter.run`."""
    names = outputs_of(model)
    part = model_proto.cut(model_proto.read(directory / FILE), ["bits"], names)
    bits = unpack(words, model.input.n_bits).astype(np.float32)
    outputs = dict(zip(names, session_run(part, "bits", bits, names), strict=True))
    shapes = {name: (len(bits),) for name in names} | {"scores": (len(bits), len(model.classes))}
    for name, values in outputs.items():
        if values.shape != shapes[name]:
            raise VerifyError(
                f"the graph gives {name} of shape {values.shape}, expected {shapes[name]}"
            )
    return Execution(
        Inference(
            outputs["scores"], outputs["class"], outputs["margin"], verdicts=outputs.get("verdict")
        ),
        f"onnxruntime {model_proto.require('onnxruntime').__version__}",
    )


def encode(directory: Path, model: Classifier, features: Mapping[str, Any]) -> Words:
    """Compute packed inputs, of shape ``(rows, n_words)``, by the input stage of an export's graph.

    Raises:
        MissingDependencyError: onnx or onnxruntime is not installed.
        VerifyError: the graph has no input stage, or its output is not bits.
    """
    rows = np.stack(
        [np.asarray(features[name], dtype=np.int64) for name in model.input.features], axis=1
    )
    part = model_proto.cut(model_proto.read(directory / FILE), ["features"], ["bits"])
    (bits,) = session_run(part, "features", rows, ["bits"])
    if bits.shape != (len(rows), model.input.n_bits):
        raise VerifyError(f"the input stage gives bits of shape {bits.shape}")
    return pack(bits)


def build(model: BinaryModel, *, features: bool) -> Any:
    """Build the graph of a model, as a ModelProto.

    Args:
        model: the network.
        features: whether the graph takes integer features and encodes them itself; otherwise it
            takes input bits as float32.
    """
    b = model_proto.ProtoBuilder("batch")
    b.tensor("bits", model.input.n_bits, np.float32)
    if features:
        input_stage(b, model.input)
    b.constant("two", np.float32(2).reshape(1))
    b.constant("one", np.float32(1).reshape(1))
    b.tensor("doubled", model.input.n_bits, np.float32)
    b.tensor("signs_0", model.input.n_bits, np.float32)
    b.node("Mul", ["bits", "two"], ["doubled"])
    b.node("Sub", ["doubled", "one"], ["signs_0"])
    for i, layer in enumerate(model.layers):
        b.constant(f"weights_{i}", ternary(layer).T.copy())
        b.tensor(f"dot_{i}", layer.n_outputs, np.float32)
        b.node("MatMul", [f"signs_{i}", f"weights_{i}"], [f"dot_{i}"])
    for i, hidden in enumerate(model.hidden):
        levels = 2 * hidden.thresholds - hidden.fan_in - 1
        b.constant(f"levels_{i}", levels.astype(np.float32))
        b.tensor(f"difference_{i}", hidden.n_outputs, np.float32)
        b.tensor(f"signs_{i + 1}", hidden.n_outputs, np.float32)
        b.node("Sub", [f"dot_{i}", f"levels_{i}"], [f"difference_{i}"])
        b.node("Sign", [f"difference_{i}"], [f"signs_{i + 1}"])
    _output_stage(b, model)
    source = "features" if features else "bits"
    return in_order(b.model(model, [source], outputs_of(model), {"": OPSET}))


def outputs_of(model: Classifier) -> list[str]:
    """Names of the graph's outputs, with a verdict if the model shunts flows."""
    return ["scores", "class", "margin", *(["verdict"] if model.shunt else [])]


def ternary(layer: Connections) -> NDArray[np.float32]:
    """Convert weights to float32: +1, -1, and 0 for a missing connection."""
    signs = np.where(layer.weights, np.float32(1), np.float32(-1))
    return signs if layer.mask is None else signs * layer.mask.astype(np.float32)


def _output_stage(b: model_proto.ProtoBuilder, model: BinaryModel) -> None:
    output, last = model.output, len(model.layers) - 1
    # Integers from here on, because float32 is exact only to 2**24 and biases may be larger.
    b.constant("fan_in", output.fan_in.astype(np.int32))
    b.constant("half", np.array([2], np.int32))  # a divisor: (2 p - F) + F is even and not negative
    b.constant("bias", output.bias.astype(np.int32))
    for name in ("products", "agreements_twice", "agreements", "scores"):
        b.tensor(name, output.n_outputs, np.int32)
    b.node("Cast", [f"dot_{last}"], ["products"], to=6)  # int32
    b.node("Add", ["products", "fan_in"], ["agreements_twice"])
    b.node("Div", ["agreements_twice", "half"], ["agreements"])
    b.node("Add", ["agreements", "bias"], ["scores"])
    decision(b, model.shunt)


def decision(b: model_proto.ProtoBuilder, shunt: int) -> None:
    """Add class, margin and, with a threshold, the verdict for the tensor ``scores``."""
    b.constant("k", np.array([2], np.int64))
    b.constant("first", np.array(0, np.int64))
    b.constant("second", np.array(1, np.int64))
    b.tensor("class", None, np.int64)
    b.tensor("top", 2, np.int32)
    b.tensor("top_classes", 2, np.int64)
    for name in ("best", "next", "margin"):
        b.tensor(name, None, np.int32)
    b.node("ArgMax", ["scores"], ["class"], axis=1, keepdims=0, select_last_index=0)
    b.node("TopK", ["scores", "k"], ["top", "top_classes"], axis=1, largest=1, sorted=1)
    b.node("Gather", ["top", "first"], ["best"], axis=1)
    b.node("Gather", ["top", "second"], ["next"], axis=1)
    b.node("Sub", ["best", "next"], ["margin"])
    if shunt:
        model_proto.add_verdict(b, shunt, None, np.int32)


def input_stage(b: model_proto.ProtoBuilder, spec: InputSpec) -> None:
    """Add the nodes that compute the tensor ``bits`` from integer ``features``."""
    n = spec.n_bits
    index: list[int] = []
    clamp: list[int] = []
    cut: list[int] = []
    step: list[int] = []
    thermometer: list[bool] = []
    for field in spec.fields:
        index += [spec.features.index(field.feature)] * field.width
        clamp += [field.clamp] * field.width
        thermometer += [field.kind == "thermometer"] * field.width
        cut += field.cuts or [0] * field.width
        # Bit k of a number is (value / 2^k) mod 2; the cuts of a thermometer need no division.
        step += [1] * field.width if field.cuts else [1 << k for k in range(field.width)]
    b.constant("index", np.array(index, np.int64))
    b.constant("lowest", np.array([0], np.int64))
    b.constant("clamp", np.array(clamp, np.int64))
    b.constant("cut", np.array(cut, np.int64))
    b.constant("step", np.array(step, np.int64))
    b.constant("base", np.array([2], np.int64))
    b.constant("thermometer", np.array(thermometer, np.bool_))
    b.tensor("features", len(spec.features), np.int64)
    for name in ("columns", "positive", "clamped", "shifted", "digit"):
        b.tensor(name, n, np.int64)
    for name in ("negative", "above", "reached"):
        b.tensor(name, n, np.bool_)
    b.tensor("reached_bits", n, np.float32)
    b.tensor("digit_bits", n, np.float32)
    b.node("Gather", ["features", "index"], ["columns"], axis=1)
    # Not Min and Max: onnxruntime 1.31 computes min(65536, 4294967295) as 4294967295 for int64.
    b.node("Less", ["columns", "lowest"], ["negative"])
    b.node("Where", ["negative", "lowest", "columns"], ["positive"])
    b.node("Greater", ["positive", "clamp"], ["above"])
    b.node("Where", ["above", "clamp", "positive"], ["clamped"])
    b.node("GreaterOrEqual", ["clamped", "cut"], ["reached"])
    b.node("Cast", ["reached"], ["reached_bits"], to=1)  # float32
    b.node("Div", ["clamped", "step"], ["shifted"])
    b.node("Mod", ["shifted", "base"], ["digit"])
    b.node("Cast", ["digit"], ["digit_bits"], to=1)
    b.node("Where", ["thermometer", "reached_bits", "digit_bits"], ["bits"])


def in_order(model: Any) -> Any:
    """Sort the nodes topologically, as runtimes require."""
    known = {v.name for v in model.graph.input} | {t.name for t in model.graph.initializer}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        ready = [node for node in waiting if set(node.input) <= known]
        ordered += ready
        known.update(name for node in ready for name in node.output)
        waiting = [node for node in waiting if not set(node.output) <= known]
    model.graph.ClearField("node")
    model.graph.node.extend(ordered)
    return model


def session_run(
    model: Any, name: str, rows: NDArray[Any], outputs: list[str]
) -> list[NDArray[Any]]:
    """Compute tensors of a graph in onnxruntime from the rows of its one input.

    Raises:
        MissingDependencyError: onnxruntime is not installed.
        VerifyError: onnxruntime refuses the graph.
    """
    runtime = model_proto.require("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(
            model_proto.to_bytes(model), options, providers=["CPUExecutionProvider"]
        )
        parts = []
        for start in range(0, max(1, len(rows)), _ROWS):
            part = rows[start : start + _ROWS]
            parts.append(
                model_proto.rows_of(outputs, session.run(outputs, {name: part}), len(part))
            )
    except Exception as error:  # onnxruntime's errors share no other base class
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        raise VerifyError(f"onnxruntime refused the graph: {str(error)[:300]}") from error
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def write_readme(folder: Path, out: Path, model: Classifier, **values: bool | str) -> None:
    """Write README.md from a folder's template; ``values`` are additional template values."""
    names = {
        "shape": model.shape_text,
        "digest": model.digest,
        "n_bits": model.input.n_bits,
        "features": model.input.features,
        "classes": model.classes,
        "shunt": model.shunt,
    }
    text = render(folder / "templates", "README.md.j2", names | values)
    (out / "README.md").write_text(text, encoding="utf-8")


def cut_figures(model: Classifier, options: Options) -> tuple[Figure, ...]:
    """Count the bytes of the cuts in a graph file; a graph that takes bits has none."""
    if options.get("input") != "features":
        return ()
    size = 8 * model.input.n_bits  # a raw bit has a cut of 0
    source = "int64 of each input bit, the type in which the graph compares"
    return (Figure("memory.cuts", size, "byte", "measured", source),)


def file_report(model: BinaryModel, path: Path, note: str) -> Report:
    """Report the figures of a graph file that need no run."""
    weights = sum(layer.weights.size for layer in model.layers)
    return Report(
        (
            Figure("memory.file", path.stat().st_size, "byte", "measured", f"size of {path.name}"),
            Figure("memory.weights", 4 * weights, "byte", "measured", "float32 weights, counted"),
            Figure("operations", weights, "MAC", "measured", "weights of the graph, counted"),
        ),
        (note,),
    )


def bits_of(values: NDArray[Any], layer: int) -> Bits:
    """Convert 0/1 floats to bits.

    Raises:
        VerifyError: a value is neither 0 nor 1.
    """
    if not np.isin(values, (0, 1)).all():
        raise VerifyError(f"layer {layer}: an output is neither 0 nor 1")
    return values > 0


EXPORTER = OnnxExporter()
