# SPDX-License-Identifier: Apache-2.0
"""A family that gives graphs reaches every target that writes them, exactly or by a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import ExportError
from n3ic.model.classifier import margins_of
from n3ic.model.family import graph_of
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from tests.support.random_graphs import GraphModel, codes, graph_family, graph_model

WRITERS = [n for n in plugins.names("n3ic.exporters") if exporter(n).graph_exporter]
SLOW = {"netfpga", "xdp"}  # they build simulators and programs
MODELS = {
    "forest": graph_model(1, operations=12, depth=5, classes=2),
    "forest-classes": graph_model(2, operations=4, depth=6),
    "choices-of-sums": graph_model(3, operations=200),
    "log": graph_model(4, "log"),
    "steep": graph_model(5, "steep"),
    "fixed": graph_model(6, "fixed", classes=2),
    "bit-tables": graph_model(7, operations=30, bits=5, classes=2),
    "bit-tables-classes": graph_model(8, operations=12, bits=8),
    "bit-tables-two-sums": graph_model(10, operations=9, bits=3, classes=2, sums=2),
    "choices-of-bit-tables": graph_model(9, operations=3, depth=2, bits=4),
}


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    with graph_family():
        yield


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "forest" else [pytest.mark.slow]) for k in MODELS]
)
@pytest.mark.parametrize(
    "target", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in WRITERS]
)
def test_a_target_gives_the_scores_or_refuses_by_operation(
    target: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "forest":  # the others are built as users build them
        request.getfixturevalue("quick_build")
    model = shunting(MODELS[kind]) if exporter(target).shunts else MODELS[kind]
    tool = exporter(target).for_family(model.family)
    fit = tool.check(model, tool.parse_options({}))
    if fit.problems:
        if kind != "choices-of-bit-tables":
            assert target not in ("host", "dpdk", "onnx")  # they write every other operation
        two = kind == "bit-tables-two-sums" and target == "xdp"
        words = "answer: the first of two classes is a sum" if two else r"step [\d,]+, an? \w+"
        assert all(re.match(words, p.message) for p in fit.problems), fit
        with pytest.raises(ExportError, match=words):
            export(model, target, tmp_path / "e")
        return
    options = {"input": "features"} if target == "onnx" else {}
    found = export(model, target, tmp_path / "e", options=options)
    assert found.verification is not None
    assert found.verification.ok, found.verification
    # The P4 programs of look-up tables have one sum for two classes: these are trees there.
    if kind.startswith("bit-tables") and not (kind.endswith("two-sums") and "p4" in target):
        assert any("look-up tables" in note for note in found.report.notes), found.report.notes
    again = export(model, target, tmp_path / "again", options=options, verify=False)
    for path in sorted(found.path.rglob("*")):
        if path.suffix in (".c", ".v", ".onnx", ".h"):
            assert path.read_bytes() == (again.path / path.relative_to(found.path)).read_bytes()


def shunting(model: GraphModel) -> GraphModel:
    words = codes(model.input, np.random.default_rng(0), 50)
    margins = margins_of(model.scores(words))
    return model.with_shunt(max(1, int(np.median(margins))))


def test_a_target_that_writes_no_graphs_refuses_the_family(tmp_path: Path) -> None:
    others = [name for name in plugins.names("n3ic.exporters") if name not in WRITERS]
    assert others
    for name in others:
        with pytest.raises(ExportError, match=f"{name} takes no model of family random-graph"):
            export(MODELS["forest"], name, tmp_path / name)
    assert all("random-graph" in exporter(name).families for name in WRITERS)


def test_a_graph_is_made_once_for_an_export() -> None:
    model = MODELS["forest"]
    assert graph_of(model) is graph_of(model)
