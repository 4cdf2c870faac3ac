# SPDX-License-Identifier: Apache-2.0
"""The threshold in a graph: it comes back on import, and a changed verdict is refused."""

import numpy as np
import pytest

from n3ic.errors import ExportError, ModelError, VerifyError
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import margin_vectors
from n3ic.targets.base import exporter
from n3ic.targets.directory import export

onnx = pytest.importorskip("onnx")
from n3ic.exporters.onnx import model_proto  # noqa: E402
from n3ic.exporters.onnx.decode import shunt_of  # noqa: E402

MODEL = random_model((40, 9, 3), np.random.default_rng(2), density=0.8, extremes=False).with_shunt(
    2
)


def graph_of(target, folder):
    tool = exporter(target)
    folder.mkdir()
    tool.write(MODEL, tool.parse_options({}), folder)
    return folder / "model.onnx"


@pytest.mark.parametrize("target", ["onnx", "qonnx"])
def test_the_threshold_comes_back(target, tmp_path):
    again = exporter(target).importer.read(graph_of(target, tmp_path / "out"))
    assert again.shunt == 2
    words = margin_vectors(MODEL)
    assert np.array_equal(again.infer(words).verdicts, MODEL.infer(words).verdicts)
    plain = MODEL.with_shunt(0)
    exporter(target).write(plain, exporter(target).parse_options({}), tmp_path)
    assert exporter(target).importer.read(tmp_path / "model.onnx").shunt == 0
    outputs = [v.name for v in model_proto.read(tmp_path / "model.onnx").graph.output]
    assert "verdict" not in outputs


def constant(model, name):
    return next(t for t in model.graph.initializer if t.name == name)


def test_a_changed_verdict_is_refused(tmp_path):
    path = graph_of("onnx", tmp_path / "out")

    def refused(change):
        model = model_proto.read(path)
        change(model)
        (tmp_path / "changed.onnx").write_bytes(model_proto.to_bytes(model))
        constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        with pytest.raises(VerifyError, match="verdict must be its class"):
            shunt_of(model, constants)
        with pytest.raises(ModelError, match="verdict must be its class"):
            exporter("onnx").importer.read(tmp_path / "changed.onnx")

    def other_class(model):
        constant(model, "no_class").CopyFrom(
            onnx.numpy_helper.from_array(np.array([0], np.int64), "no_class")
        )

    def negative(model):
        constant(model, "shunt").CopyFrom(
            onnx.numpy_helper.from_array(np.array([-2], np.int32), "shunt")
        )

    def swapped(model):
        node = next(n for n in model.graph.node if n.op_type == "Where" and "verdict" in n.output)
        node.input[1], node.input[2] = node.input[2], node.input[1]

    for change in (other_class, negative, swapped):
        refused(change)


def test_the_form_without_a_verdict_is_refused(tmp_path):
    with pytest.raises(ExportError, match="--form xnor, or a threshold of 0"):
        export(MODEL, "qonnx", tmp_path / "out", options={"form": "bipolar"}, force=True)
    done = export(MODEL.with_shunt(0), "qonnx", tmp_path / "out", options={"form": "bipolar"})
    assert done.verification.ok
