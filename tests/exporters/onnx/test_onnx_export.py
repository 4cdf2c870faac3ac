# SPDX-License-Identifier: Apache-2.0
"""The ONNX and QONNX graphs compute the model's scores, and come back as the same model."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ExportError, N3icWarning, VerifyError
from n3ic.exporters.onnx.exporter import EXPORTER as ONNX
from n3ic.exporters.onnx.importer import read
from n3ic.exporters.qonnx.exporter import EXPORTER as QONNX
from n3ic.model.difference import first_difference
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model
from n3ic.model.verification_vectors import verification_vectors
from n3ic.targets.decoding import decoding_difference
from n3ic.targets.directory import export
from n3ic.targets.verification import verify_directory

onnx = pytest.importorskip("onnx", reason="needs onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
pytest.importorskip("qonnx", reason="needs qonnx")


class Bipolar:
    """The target qonnx in its bipolar form."""

    name = "qonnx"

    def parse_options(self, given):
        return QONNX.parse_options({"form": "bipolar", **given})

    def __getattr__(self, name):
        return getattr(QONNX, name)


BIPOLAR = Bipolar()
GRAPHS = pytest.mark.parametrize(
    "target", [ONNX, QONNX, BIPOLAR], ids=["onnx", "qonnx", "qonnx-bipolar"]
)
TARGETS = pytest.mark.parametrize("target", [ONNX, QONNX], ids=["onnx", "qonnx"])


def write(target, model: BinaryModel, out: Path, **given: str) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    target.write(model, target.parse_options(given), out)
    return out


def difference(target, model: BinaryModel, out: Path, count: int = 300, **given: str) -> str:
    words = verification_vectors(model, count)
    run = target.run(out, model, target.parse_options(given), words)
    return str(first_difference(model, run.inference, words) or "")


def as_it_was(imported: BinaryModel, model: BinaryModel) -> bool:
    """Whether a model came back; a mask that keeps every connection may get lost."""

    def needed(layer):
        full = layer.mask is not None and layer.mask.all()
        return replace(layer, mask=None) if full else layer

    expected = replace(
        model, hidden=tuple(needed(x) for x in model.hidden), output=needed(model.output)
    )
    return replace(imported, provenance=model.provenance) == expected


@pytest.mark.first_case
@GRAPHS
@pytest.mark.parametrize(
    ("shape", "density"),
    [
        ((256, 32, 16, 2), None),
        ((152, 128, 64, 2), 0.5),
        ((1, 1, 2), None),
        ((1, 1, 2), 0.0),
        ((33, 2), None),
        ((33, 40, 5), 0.05),
    ],
)
def test_equal_scores_and_the_way_back(tmp_path, target, shape, density):
    model = random_model(shape, np.random.default_rng(1), density=density)
    out = write(target, model, tmp_path)
    assert difference(target, model, out) == ""
    assert as_it_was(read(out / "model.onnx"), model)


@pytest.mark.first_case
@GRAPHS
@settings(max_examples=10, deadline=None)
@given(
    shape=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    classes=st.integers(2, 6),
    seed=st.integers(0, 2**32 - 1),
    density=st.one_of(st.none(), st.floats(0, 1)),
)
def test_equal_scores_of_drawn_models(tmp_path_factory, target, shape, classes, seed, density):
    model = random_model((*shape, classes), np.random.default_rng(seed), density=density)
    out = write(target, model, tmp_path_factory.mktemp("graph"))
    assert difference(target, model, out, 100) == ""
    assert as_it_was(read(out / "model.onnx"), model)


@TARGETS
def test_the_core_exports_and_verifies(tmp_path, target):
    model = random_model((256, 32, 16, 2), np.random.default_rng(3))
    export(model, target.name, tmp_path / "out")
    result = verify_directory(tmp_path / "out", vectors=300)
    assert result.ok, str(result)


@GRAPHS
def test_same_model_same_bytes(tmp_path, target):
    model = random_model((40, 33, 2), np.random.default_rng(3))
    first, second = write(target, model, tmp_path / "a"), write(target, model, tmp_path / "b")
    assert (first / "model.onnx").read_bytes() == (second / "model.onnx").read_bytes()


@TARGETS
def test_versions_that_todays_runtimes_load(tmp_path, target):
    model = random_model((8, 4, 2), np.random.default_rng(3))
    loaded = onnx.load(write(target, model, tmp_path) / "model.onnx")
    assert loaded.ir_version == 8
    opset = {o.domain: o.version for o in loaded.opset_import}
    assert opset == ({"": 17} if target is ONNX else {"": 11, "qonnx.custom_op.general": 1})
    assert not loaded.producer_version


def test_large_biases_stay_exact(tmp_path):
    base = random_model((8, 2), np.random.default_rng(3))
    bias = np.array([(1 << 24) - 1, (1 << 24) - 3], np.int32)
    model = replace(base, output=OutputLayer(base.output.weights, bias=bias))
    out = write(ONNX, model, tmp_path)
    assert difference(ONNX, model, out) == ""
    assert as_it_was(read(out / "model.onnx"), model)
    (problem,) = QONNX.check(model, {}).problems
    assert "layer 0: a score may reach 16777223" in str(problem)
    with pytest.raises(ExportError, match="a score may reach 16777223"):
        write(QONNX, model, tmp_path / "qonnx")


@pytest.mark.parametrize("form", ["xnor", "bipolar"])
def test_large_negative_biases_fit_float32(tmp_path, form):
    base = random_model((8, 2), np.random.default_rng(3))
    bias = np.array([1 - (1 << 24), 5], np.int32)
    model = replace(base, output=OutputLayer(base.output.weights, bias=bias))
    assert not QONNX.check(model, {}).problems
    out = write(QONNX, model, tmp_path, form=form)
    words = verification_vectors(model, 300)
    run = QONNX.run(out, model, QONNX.parse_options({"form": form}), words)
    assert first_difference(model, run.inference, words) is None
    assert as_it_was(read(out / "model.onnx"), model)


# --- features in ------------------------------------------------------------------------------


def with_features(seed: int = 0) -> BinaryModel:
    spec = InputSpec(
        (
            Field.binary("port", 16),
            Field.thermometer("gap", [1, 10, 4_000_000_000]),
            Field("size", "binary", 11, 1500),
            Field.thermometer("port", [5, 80, 443]),
            Field.binary("*/ wide\\n", 32),
        )
    )
    base = random_model((spec.n_bits, 20, 3), np.random.default_rng(seed))
    return replace(base, input=spec, classes=('a"', "b\\n", "ü"))


def test_input_stage(tmp_path):
    model = with_features()
    out = write(ONNX, model, tmp_path, input="features")
    assert difference(ONNX, model, out, input="features") == ""
    rng = np.random.default_rng(1)
    edges = [-5, 0, 1, 4, 5, 9, 10, 79, 80, 443, 1500, 1501, 65535, 65536, 4_000_000_000, 2**40]
    rows = {name: rng.permutation(np.resize(edges, 64)) for name in model.input.features}
    got = ONNX.encode(out, model, {"input": "features"}, rows)
    assert np.array_equal(got, model.encode(rows))
    session = runtime.InferenceSession(str(out / "model.onnx"))
    matrix = np.stack([rows[f] for f in model.input.features], axis=1).astype(np.int64)
    scores, classes, margins = session.run(None, {"features": matrix})
    want = model.infer(model.encode(rows))
    assert np.array_equal(scores, want.scores)
    assert np.array_equal(classes, want.classes)
    assert np.array_equal(margins, want.margins)
    assert as_it_was(read(out / "model.onnx"), model)


def boundary_rows(spec: InputSpec) -> dict[str, np.ndarray]:
    """Features at, one below and one above every cut, power of two and clamp."""
    marks = {0, 2**40, *(m for f in spec.fields for m in (f.clamp, *f.cuts))}
    marks |= {1 << k for k in range(33)}
    values = np.array(sorted({m + d for m in marks for d in (-1, 0, 1)}), np.int64)
    return dict.fromkeys(spec.features, values)


@pytest.mark.parametrize(
    ("before", "after"),
    [("GreaterOrEqual", "Greater"), ("Less", "LessOrEqual"), ("Greater", "GreaterOrEqual")],
)
def test_a_changed_comparison_of_the_input_stage(tmp_path, before, after):
    model = with_features()
    out = write(ONNX, model, tmp_path, input="features")
    rows = boundary_rows(model.input)
    same = before != "GreaterOrEqual"  # at the end of a clamp both sides are the same
    loaded = onnx.load(out / "model.onnx")
    (node,) = [n for n in loaded.graph.node if n.op_type == before]
    node.op_type = after
    onnx.save(loaded, out / "model.onnx")
    got = ONNX.encode(out, model, {"input": "features"}, rows)
    assert np.array_equal(got, model.encode(rows)) == same


def test_verify_finds_a_changed_comparison_without_a_table(tmp_path):
    export(with_features(), "onnx", tmp_path / "out", options={"input": "features"})
    loaded = onnx.load(tmp_path / "out" / "model.onnx")
    (node,) = [n for n in loaded.graph.node if n.op_type == "GreaterOrEqual"]
    node.op_type = "Greater"
    onnx.save(loaded, tmp_path / "out" / "model.onnx")
    with pytest.warns(N3icWarning, match="is run with your rights"):
        result = verify_directory(tmp_path / "out", vectors=100, run_changed=True)
    assert any(text.startswith("input stage: ") for text in result.failures), result.failures


def test_an_input_stage_that_lies_is_not_imported(tmp_path):
    out = write(ONNX, with_features(), tmp_path, input="features")
    change_constant(out, "cut", lambda a: a + (a == 443))
    with pytest.raises(Exception, match="input stage does not compute what its input spec says"):
        read(out / "model.onnx")


# --- mutations --------------------------------------------------------------------------------


def change_constant(out: Path, name: str, change) -> None:
    loaded = onnx.load(out / "model.onnx")
    for tensor in loaded.graph.initializer:
        if tensor.name == name:
            value = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(change(value).astype(value.dtype), name))
    onnx.save(loaded, out / "model.onnx")


def flip(i: int, j: int, binary: bool):
    def change(array):
        out = array.copy()
        out[i, j] = 1 - out[i, j] if binary else -out[i, j]
        return out

    return change


@pytest.fixture
def tied() -> BinaryModel:
    base = random_model((64, 32, 8, 3), np.random.default_rng(9), extremes=False)
    weights = base.output.weights.copy()
    weights[2] = weights[1]
    return replace(base, output=OutputLayer(weights, bias=np.zeros(3, np.int32)))


@TARGETS
def test_a_flipped_weight_is_named(tmp_path, tied, target):
    out = write(target, tied, tmp_path)
    change_constant(out, "weights_0", flip(7, 5, target is QONNX))
    assert "layer 0, neuron 5" in difference(target, tied, out, 1000)


@TARGETS
def test_a_changed_threshold_is_named(tmp_path, tied, target):
    out = write(target, tied, tmp_path)
    name, step = ("thresholds_1", 1) if target is QONNX else ("levels_1", 2)
    change_constant(
        out,
        name,
        lambda a: a + step * (np.arange(len(a)) == 3).reshape(a.shape[0], *[1] * (a.ndim - 1)),
    )
    assert "layer 1, neuron 3" in difference(target, tied, out, 1000)


@GRAPHS
def test_a_changed_bit_order_is_named(tmp_path, tied, target):
    out = write(target, tied, tmp_path)
    change_constant(out, "weights_0", lambda a: a[::-1])
    assert "layer 0, neuron" in difference(target, tied, out, 1000)


def test_a_changed_tie_rule_is_found(tmp_path, tied):
    out = write(ONNX, tied, tmp_path)
    loaded = onnx.load(out / "model.onnx")
    (node,) = [n for n in loaded.graph.node if n.op_type == "ArgMax"]
    for attribute in node.attribute:
        if attribute.name == "select_last_index":
            attribute.i = 1
    onnx.save(loaded, out / "model.onnx")
    assert "lowest index" in difference(ONNX, tied, out, 1000)
    with pytest.raises(Exception, match="a tie goes to the last class"):
        read(out / "model.onnx")


@TARGETS
@pytest.mark.parametrize("damage", [b"", b"not a graph", b"\x08\x08"])
def test_a_damaged_graph_is_a_clear_error(tmp_path, tied, target, damage):
    out = write(target, tied, tmp_path)
    (out / "model.onnx").write_bytes(damage)
    with pytest.raises(VerifyError, match=r"model\.onnx"):
        difference(target, tied, out)


# --- decoding ---------------------------------------------------------------------------------


def decoded_difference(target, model: BinaryModel, out: Path, **given: str) -> str:
    try:
        (decoded,) = target.decode(out, model, target.parse_options(given))
    except VerifyError as error:
        return str(error)
    return decoding_difference(model, decoded)


@GRAPHS
@pytest.mark.parametrize("density", [None, 0.4])
def test_decoding_reads_back_every_bit(tmp_path, target, density):
    model = random_model((33, 20, 7, 3), np.random.default_rng(1), density=density)
    out = write(target, model, tmp_path)
    assert decoded_difference(target, model, out) == ""
    (decoded,) = target.decode(out, model, target.parse_options({}))
    assert decoded.weight_bits == 33 * 20 + 20 * 7 + 7 * 3
    assert all(layer.limits is not None for layer in decoded.layers)


@settings(max_examples=15, deadline=None)
@given(
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    density=st.one_of(st.none(), st.floats(0, 1)),
)
@GRAPHS
def test_decoding_of_drawn_models(tmp_path_factory, target, shape, seed, density):
    model = random_model((*shape, 3), np.random.default_rng(seed), density=density)
    out = write(target, model, tmp_path_factory.mktemp("graph"))
    assert decoded_difference(target, model, out) == ""


@pytest.mark.slow
@GRAPHS
@pytest.mark.parametrize("density", [None, 0.4])
def test_every_flipped_bit_of_the_constants_is_found(tmp_path, target, density):
    base = random_model((9, 5, 3), np.random.default_rng(2), density=density)
    model = base
    if target is ONNX:
        model = with_features() if density is None else base
    given = {"input": "features"} if model is not base else {}
    out = write(target, model, tmp_path, **given)
    loaded = onnx.load(out / "model.onnx")
    rng = np.random.default_rng(3)
    behind = {"k", "first", "second", "lowest", "base"}  # read by what only execution shows
    for tensor in loaded.graph.initializer:
        if tensor.name in behind:
            continue
        good = tensor.raw_data
        bits = 8 * len(good)
        for bit in range(bits) if bits <= 80 else rng.choice(bits, 40, replace=False):
            if tensor.name == "thermometer" and bit % 8:
                continue  # not 0 and not 1: no bool
            octets = bytearray(good)
            octets[bit // 8] ^= 1 << (bit % 8)
            tensor.raw_data = bytes(octets)
            (out / "model.onnx").write_bytes(loaded.SerializeToString())
            assert decoded_difference(target, model, out, **given), (tensor.name, bit)
        tensor.raw_data = good


@TARGETS
def test_verify_tells_a_flipped_bit_that_no_vector_decides(tmp_path, target):
    base = random_model((64, 8, 2), np.random.default_rng(3))
    dead = HiddenLayer(base.hidden[0].weights, thresholds=np.full(8, 65, np.int32))
    model = replace(base, hidden=(dead,))
    export(model, target.name, tmp_path / "out", simplify=False)
    change_constant(tmp_path / "out", "weights_0", flip(3, 5, target is QONNX))
    with pytest.warns(N3icWarning, match="is run with your rights"):
        result = verify_directory(tmp_path / "out", vectors=100, run_changed=True)
    assert any("layer 0, neuron 5, input 3: weight" in text for text in result.failures)


@pytest.mark.first_case
@settings(max_examples=20, deadline=None)
@given(data=st.data())
@GRAPHS
def test_a_damaged_graph_never_ends_verify_in_a_traceback(tmp_path_factory, target, data):
    model = random_model((9, 5, 3), np.random.default_rng(2))
    out = write(target, model, tmp_path_factory.mktemp("graph"))
    loaded = onnx.load(out / "model.onnx")
    graph = loaded.graph
    node = data.draw(st.sampled_from(graph.node))
    kind = data.draw(
        st.sampled_from(["drop", "op", "domain", "input", "attribute", "dims", "width"])
    )
    if kind == "drop":
        graph.node.remove(node)
    elif kind == "op":
        node.op_type = data.draw(st.sampled_from(["Add", "MatMul", "Erf", "MultiThreshold", "If"]))
    elif kind == "domain":
        node.domain = data.draw(st.sampled_from(["", "qonnx.custom_op.general", "nobody"]))
    elif kind == "input":
        node.input[0] = data.draw(st.sampled_from([t.name for t in graph.initializer]))
    elif kind == "attribute":
        node.attribute.append(onnx.helper.make_attribute("out_scale", "text"))
    elif kind == "dims":
        tensor = data.draw(st.sampled_from(graph.initializer))
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.resize(array, (3, 2)), tensor.name))
    else:
        value = data.draw(st.sampled_from([*graph.input, *graph.value_info]))
        value.type.tensor_type.shape.dim.pop()
    (out / "model.onnx").write_bytes(loaded.SerializeToString())
    words = verification_vectors(model, 20)
    options = target.parse_options({})
    for step in (
        lambda: target.decode(out, model, options),
        lambda: first_difference(model, target.run(out, model, options, words).inference, words),
    ):
        try:
            step()
        except VerifyError as error:
            assert "\n" not in str(error)


# --- what a user of the folder does -----------------------------------------------------------


@GRAPHS
@pytest.mark.parametrize("given_input", ["bits", "features"])
def test_the_code_of_the_readme_runs(tmp_path, target, given_input):
    if target is not ONNX and given_input == "features":
        pytest.skip("qonnx graphs take bits")
    given = {"input": given_input} if target is ONNX else {}
    out = write(target, with_features(), tmp_path, **given)
    readme = (out / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    before = Path.cwd()
    os.chdir(out)
    try:
        exec(compile(code, "README.md", "exec"), {})
    finally:
        os.chdir(before)


@TARGETS
def test_report_counts_what_is_there(tmp_path, target):
    model = random_model((40, 33, 2), np.random.default_rng(3))
    out = write(target, model, tmp_path)
    figures = {f.name: f for f in target.report(model, {}, out).figures}
    assert figures["memory.file"].value == (out / "model.onnx").stat().st_size
    assert figures["operations"].value == 40 * 33 + 33 * 2
    assert all(f.source for f in figures.values())
