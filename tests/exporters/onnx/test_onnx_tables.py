# SPDX-License-Identifier: Apache-2.0
"""Look-up tables as ONNX graphs: exact in onnxruntime, read back, and faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from n3ic.errors import ModelError, N3icWarning, VerifyError
from n3ic.exporters.onnx.exporter import EXPORTER as ONNX
from n3ic.families.tables.network import TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_vectors
from n3ic.model.classifier import margins_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RAW = InputSpec((Field.binary("port", 16), Field("mark", "binary", 3, 5, ())))
WIDEST = {"features": 8, "tables": 5, "inputs": (8, 8), "widths": (8, 8)}
CASES: list[tuple[dict[str, Any], str]] = [
    ({"inputs": (1, 6), "widths": (1, 8)}, "features"),
    ({**WIDEST, "classes": 3}, "bits"),
    ({"tables": 1, "inputs": (1, 1), "widths": (1, 1)}, "features"),
    ({"classes": 40, "tables": 9}, "bits"),
    ({"spec": RAW, "inputs": (2, 7), "classes": 4}, "features"),
]


def some_tables(seed: int = 0, **how: Any) -> TablesModel:
    return random_tables(np.random.default_rng(seed), **how)


@pytest.mark.first_case
@pytest.mark.parametrize(("how", "given"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_the_graph_gives_scores_and_verdicts(
    tmp_path: Path, how: dict[str, Any], given: str
) -> None:
    model = some_tables(**how)
    margins = margins_of(model.scores(tables_vectors(model, 200)))
    model = model.with_shunt(max(1, int(np.median(margins))))
    # Not simplified: an index of 8 bits stays one.
    options = {"input": given}
    verification = export(
        model, "onnx", tmp_path / "e", options=options, simplify=False
    ).verification
    assert verification is not None and verification.ok, verification
    assert verification.weight_bits == verification.decided_bits > 0
    assert verification.decoded == ("model.onnx",)
    assert bool(verification.edges) == (given == "features")
    built = onnx.load(str(tmp_path / "e" / "model.onnx")).graph
    operators = {node.op_type for node in built.node}
    assert {"Gather", "ReduceSum"} <= operators and "MatMul" not in operators


def test_the_smallest_tables_are_read_back(tmp_path: Path) -> None:
    model = some_tables(5, features=1, cuts=1, tables=1, inputs=(1, 1), widths=(1, 1))
    out = export(model, "onnx", tmp_path / "e", verify=False).path
    tool = ONNX.for_family(model.family)
    assert tool.decode(out, model, tool.parse_options({}))[0].artefact == "model.onnx"


def damaged(path: Path, name: str, change: Any) -> None:
    graph = onnx.load(str(path))
    for tensor in graph.graph.initializer:
        if tensor.name == name:
            values = onnx.numpy_helper.to_array(tensor).copy()
            tensor.CopyFrom(onnx.numpy_helper.from_array(change(values), name))
    onnx.save(graph, str(path))


def add_to_first(values: np.ndarray) -> np.ndarray:
    values.reshape(-1)[0] += 1
    return values


@pytest.mark.parametrize(
    "name", ["entries", "bias", "read", "place", "start", "by_table", "cut", "over_bits", "shunt"]
)
def test_a_constant_that_is_one_off_is_read_back_as_another(tmp_path: Path, name: str) -> None:
    model = some_tables(2, widths=(2, 4), classes=3).with_shunt(4)
    model = replace(model, tables=tuple(replace(t, entries=t.entries // 2) for t in model.tables))
    out = export(model, "onnx", tmp_path / "e", options={"input": "features"}, verify=False).path
    tool = ONNX.for_family(model.family)
    options = tool.parse_options({"input": "features"})
    network = tool.decode(out, model, options)
    assert network[0].artefact == "model.onnx"
    damaged(out / "model.onnx", name, add_to_first)
    with pytest.raises(VerifyError):
        tool.decode(out, model, options)


def test_the_table_that_lacks_entries_is_named(tmp_path: Path) -> None:
    model = some_tables(2, tables=3, inputs=(2, 2))
    out = export(model, "onnx", tmp_path / "e", verify=False).path
    damaged(out / "model.onnx", "entries", lambda values: values[:-1])
    tool = ONNX.for_family(model.family)
    with pytest.raises(VerifyError, match=r"the index of table 2 is not"):
        tool.decode(out, model, tool.parse_options({}))


@pytest.mark.parametrize(
    ("old", "new"), [("ReduceSum", "ReduceMax"), ("Mul", "Add"), ("Gather", "GatherElements")]
)
def test_another_operator_is_read_back_as_another(tmp_path: Path, old: str, new: str) -> None:
    model = some_tables(3)
    out = export(model, "onnx", tmp_path / "e", verify=False).path
    graph = onnx.load(str(out / "model.onnx"))
    next(node for node in graph.graph.node if node.op_type == old).op_type = new
    (out / "model.onnx").write_bytes(graph.SerializeToString())
    tool = ONNX.for_family(model.family)
    with pytest.raises(VerifyError):
        tool.decode(out, model, tool.parse_options({}))


def test_an_entry_that_is_a_step_off_gives_other_scores(tmp_path: Path) -> None:
    model = some_tables(4, widths=(3, 3))
    out = export(model, "onnx", tmp_path / "e", verify=False).path
    damaged(out / "model.onnx", "entries", add_to_first)
    with pytest.warns(N3icWarning, match="not what n3ic writes"):
        verification = verify_directory(out, vectors=100, run_changed=True)
    assert any("lacks a look-up by the bits" in failure for failure in verification.failures), (
        verification
    )


def test_the_import_says_that_it_reads_binary_networks_only(tmp_path: Path) -> None:
    out = export(some_tables(5), "onnx", tmp_path / "e", verify=False).path
    with pytest.raises(ModelError, match="look-up-tables, but imports only binary networks"):
        ONNX.importer.read(out / "model.onnx")
