# SPDX-License-Identifier: Apache-2.0
"""A family that gives graphs reaches every target that writes them, exactly or by a refusal."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from n3ic import plugins
from n3ic.errors import ExportError
from n3ic.model.classifier import margins_of
from n3ic.model.family import graph_of
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layered import in_layers
from n3ic.model.network import BinaryModel
from n3ic.targets.base import exporter
from n3ic.targets.directory import export
from n3ic.targets.export_index import read_export
from n3ic.targets.verification import verify_directory
from tests.support.family_models import SPEC
from tests.support.random_graphs import (
    GraphModel,
    codes,
    graph_family,
    graph_model,
    layered_model,
)

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

LAYERED = {
    "neurons": layered_model(11, (9, 6), classes=2),
    "neurons-masks": layered_model(12, (8,), density=60),
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
        assert target not in ("nfp", "netfpga")  # they write every operation
        if kind != "choices-of-bit-tables":
            assert target not in ("host", "dpdk", "onnx")  # they write every other operation
        two = kind == "bit-tables-two-sums" and target == "xdp"
        words = "answer: the first of two classes is a sum" if two else r"step [\d,]+, an? \w+"
        assert all(re.match(words, p.message) for p in fit.problems), fit
        with pytest.raises(ExportError, match=words):
            export(model, target, tmp_path / "e")
        return
    options = {"input": "features"} if target == "onnx" else {}
    exported = export(model, target, tmp_path / "e", options=options)
    assert exported.verification is not None
    assert exported.verification.ok, exported.verification
    # The P4 programs of look-up tables have one sum for two classes: these are trees there.
    if kind.startswith("bit-tables") and not (kind.endswith("two-sums") and "p4" in target):
        assert any("look-up tables" in note for note in exported.report.notes), (
            exported.report.notes
        )
    again = export(model, target, tmp_path / "again", options=options, verify=False)
    for path in sorted(exported.path.rglob("*")):
        if path.suffix in (".c", ".v", ".onnx", ".h"):
            assert path.read_bytes() == (again.path / path.relative_to(exported.path)).read_bytes()


@pytest.mark.parametrize("kind", LAYERED)
@pytest.mark.parametrize(
    "target",
    [
        pytest.param(n, marks=[] if n in ("host", "onnx") else [pytest.mark.slow])
        for n in plugins.names("n3ic.exporters")
    ],
)
def test_layers_of_any_family_take_the_kernel_of_binary_networks(
    target: str, kind: str, tmp_path: Path
) -> None:
    tool = exporter(target)
    model = shunting(LAYERED[kind]) if tool.shunts else LAYERED[kind]
    network = in_layers(model)
    assert isinstance(network, BinaryModel) and network.shunt == model.shunt
    exported = export(model, target, tmp_path / "e")
    assert exported.verification is not None
    assert not exported.verification.failures, exported.verification
    assert exported.verification.ok or exported.verification.missing
    assert exported.network.source is model
    assert exported.network.model.family == BinaryModel.family
    # The same files as those of the binary network, but for what names the model.
    of_network = export(network, target, tmp_path / "network", verify=False)
    differing = {"manifest.json", "report.json", "report.md", "model.n3ic", "verification.json"}
    differing.add("sbom.spdx.json")  # it has digests of these
    paths = sorted(p.relative_to(exported.path) for p in exported.path.rglob("*") if p.is_file())
    assert {p.name for p in paths} > differing
    for path in paths:
        if path.name not in differing:
            other = (of_network.path / path).read_bytes()
            assert (exported.path / path).read_bytes() == other, path
    assert "written as layers of family binary-network" in (exported.path / "report.md").read_text()
    assert read_export(exported.path).network.model == exported.network.model
    assert verify_directory(exported.path, vectors=50).ok or exported.verification.missing


@pytest.mark.slow  # builds and runs the host's meter
def test_layers_that_are_metered_and_shunt_are_verified_with_packets(tmp_path: Path) -> None:
    model = layered_model(13, (9,), classes=2, fields=len(SPEC.feature_names))
    fields = [
        Field.thermometer(name, field.cuts, unit=SPEC.units[name])
        for name, field in zip(SPEC.feature_names, model.input.fields, strict=True)
    ]
    model = model.with_input(InputSpec(tuple(fields)), meter=SPEC)
    for threshold in (1, model.largest_margin + 1):  # the second shunts every flow
        own = model.with_shunt(threshold)
        verification = export(own, "host", tmp_path / f"{threshold}").verification
        assert verification is not None and verification.ok and verification.packets > 0, (
            verification
        )
        assert verification.shunt == threshold


@pytest.mark.parametrize("target", WRITERS)
def test_neurons_beside_other_operations_are_refused_by_place(target: str, tmp_path: Path) -> None:
    model = layered_model(14, (3,), classes=2, beside=True)
    assert in_layers(model) is model
    bits = model.input.n_bits
    with pytest.raises(
        ExportError, match=rf"step 0, a popcount of {bits} bits.*writes no popcount"
    ):
        export(model, target, tmp_path / "e")
    with pytest.raises(ExportError, match=r"step \d+, a threshold.*writes no threshold"):
        export(model, target, tmp_path / "e")


def test_a_wrong_weight_of_any_familys_layers_is_found(tmp_path: Path) -> None:
    exported = export(LAYERED["neurons"], "host", tmp_path / "e", verify=False)
    blob = tmp_path / "e" / "weights.bin"
    data = bytearray(blob.read_bytes())
    assert verify_directory(exported.path, vectors=50).ok
    at = data.find(exported.network.model.hidden[0].weight_words.tobytes())
    data[at] ^= 1
    data[-4:] = zlib.crc32(data[:-4]).to_bytes(4, "little")
    blob.write_bytes(data)
    outcome = verify_directory(exported.path, vectors=50)
    assert any("layer 0, neuron 0, input 0: weight" in text for text in outcome.failures)


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
