# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks as ONNX graphs: exact in onnxruntime, and faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from n3ic.errors import N3icWarning
from n3ic.families.spn.arithmetic import Arithmetic, LinearArithmetic, LogArithmetic
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import spn_vectors
from n3ic.model.classifier import margins_of
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CASES: list[tuple[Arithmetic, int, str]] = [
    (LogArithmetic.of(6), 3, "bits"),
    (LogArithmetic.of(10), 1, "features"),
    (LinearArithmetic(30), 2, "features"),
    (LinearArithmetic(12), 1, "bits"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arithmetic", "classes", "given"), CASES, ids=lambda v: getattr(v, "name", None)
)
def test_the_graph_gives_scores_and_verdicts(
    tmp_path: Path, arithmetic: Arithmetic, classes: int, given: str
) -> None:
    rng = np.random.default_rng(classes)
    model = random_spn(rng, features=5, cuts=9, classes=classes, arithmetic=arithmetic)
    margins = margins_of(model.scores(spn_vectors(model, 200)))
    model = model.with_shunt(max(1, int(np.median(margins))))
    exported = export(model, "onnx", tmp_path / "e", options={"input": given})
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    assert bool(exported.verification.edges) == (given == "features")
    again = export(model, "onnx", tmp_path / "again", options={"input": given}, verify=False)
    same = [(e.path / "model.onnx").read_bytes() for e in (exported, again)]
    assert same[0] == same[1]


@pytest.mark.parametrize("arithmetic", [LogArithmetic.of(6), LinearArithmetic(30)])
def test_an_entry_that_is_a_step_off_is_found(tmp_path: Path, arithmetic: Arithmetic) -> None:
    model = random_spn(np.random.default_rng(6), features=2, depth=1, arithmetic=arithmetic)
    directory = export(model, "onnx", tmp_path / "e", verify=False).path
    graph = onnx.load(str(directory / "model.onnx"))
    for tensor in graph.graph.initializer:
        if tensor.name == "leaf_0_tables":
            table = onnx.numpy_helper.to_array(tensor).copy()
            table[0] += arithmetic.one or 1
            tensor.CopyFrom(onnx.numpy_helper.from_array(table, tensor.name))
    onnx.save(graph, str(directory / "model.onnx"))
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(directory, vectors=400, run_changed=True)
    assert any("lacks a look-up of" in failure for failure in verification.failures), verification
