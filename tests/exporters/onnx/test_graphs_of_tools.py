# SPDX-License-Identifier: Apache-2.0
"""Graphs that other tools wrote, of networks that they trained, are read and answer as those did.

``make_graphs.py`` and ``make_keras_graphs.py`` beside this file made them; each holds its tools'
versions, inputs and answers.
"""

from pathlib import Path

import numpy as np
import pytest

from n3ic.exporters.onnx.importer import read
from n3ic.model.bits import pack

onnx = pytest.importorskip("onnx", reason="needs onnx")
PATHS = sorted((Path(__file__).parent / "graphs").glob("*.onnx"))


def test_every_tool_has_a_graph():
    assert {p.stem.partition("-")[0] for p in PATHS} == {"brevitas", "qonnx", "larq", "qkeras"}


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_a_graph_of_another_tool_predicts_the_classes_that_its_network_gave(path):
    facts = {p.key: p.value for p in onnx.load(path).metadata_props}
    assert facts["made by"]
    model = read(path)
    rows = np.array([*facts["rows"]], np.int64).reshape(len(facts["classes"]), -1).astype(np.bool_)
    classes = [model.classes[c] for c in model.infer(pack(rows)).classes]
    assert classes == [f"class{c}" for c in facts["classes"]]
    assert len({*classes}) > 1
