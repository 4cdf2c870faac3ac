# SPDX-License-Identifier: Apache-2.0
"""Trees of ONNX-ML graphs: the class of onnxruntime, or what is wrong with the graph."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

import n3ic
from n3ic.cli.main import command_line
from n3ic.errors import ModelError
from n3ic.exporters.onnx.importer import parse, read

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")

FITS = {
    "tree": lambda: DecisionTreeClassifier(max_depth=5, random_state=1),
    "forest": lambda: RandomForestClassifier(9, max_depth=5, random_state=1),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=8, random_state=1),
}


def rows(count=400, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, (count, 4)).astype(np.float32)


def labels(X, classes):
    facts = (X[:, 0] > 300, X[:, 1] > 500, X[:, 2] > X[:, 3], X[:, 3] % 7 == 0)
    return np.sum(facts, axis=0) % classes


def graph(classes=2, kind="forest", text=False, **how):
    X = rows()
    y = labels(X, classes)
    fitted = FITS[kind]().fit(X, np.array(["dns", "web", "ssh"])[y] if text else y)
    return skl2onnx.to_onnx(fitted, X[:1], **how)


@pytest.mark.parametrize(
    ("kind", "classes", "text"),
    [
        pytest.param(kind, n, text, marks=[pytest.mark.slow] * (text and kind != "forest"))
        for kind in FITS
        for n in (2, 3)
        for text in (False, True)
    ],
)
def test_the_class_is_that_of_onnxruntime(kind, classes, text):
    data = graph(classes, kind, text).SerializeToString()
    model = parse(data)
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    unseen = rows(3000, 4)
    wanted = session.run(None, {"X": unseen})[0]
    features = {f"x{i}": column.astype(np.int64) for i, column in enumerate(unseen.T)}
    names = np.array(model.classes)[n3ic.predict(model, features).classes]
    assert (names == wanted.astype(str)).all()
    assert model.provenance["source"] == "onnx" and len(model.provenance["onnx_sha256"]) == 64
    assert model.provenance["compared"].endswith("onnxruntime gives the same class to all")
    assert parse(data) == model


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
def test_every_order_of_a_comparison_is_read(mode):
    model = parse(by_hand(nodes_modes=[mode, "LEAF", "LEAF"]).SerializeToString())
    session = ort.InferenceSession(
        by_hand(nodes_modes=[mode, "LEAF", "LEAF"]).SerializeToString(),
        providers=["CPUExecutionProvider"],
    )
    X = np.arange(6, dtype=np.float32)[:, None]
    wanted = session.run(["label"], {"X": X})[0]
    assert (model.infer(model.encode({"x0": np.arange(6)})).classes == wanted).all()


def by_hand(kind=1, before=(), columns=1, **changed):
    """A graph of one tree: 3 is compared; leaves of weights below and above 0."""
    helper = onnx.helper
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [3.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [1, 1],
        "class_weights": [-1.0, 1.0], "classlabels_int64s": [0, 1], "post_transform": "NONE",
    } | changed  # fmt: skip
    attributes = {k: v for k, v in attributes.items() if v is not None}
    node = helper.make_node(
        "TreeEnsembleClassifier", ["Y" if before else "X"], ["label", "scores"],
        domain="ai.onnx.ml", **attributes,
    )  # fmt: skip
    shape = [None, columns]
    inner = helper.make_graph(
        [*before, node], "g", [helper.make_tensor_value_info("X", kind, shape)],
        [helper.make_tensor_value_info("label", 7, [None])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(inner, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "INT64", "INT32"])
def test_every_type_of_input_is_read(kind):
    proto = by_hand(getattr(onnx.TensorProto, kind))
    model = parse(proto.SerializeToString())
    assert model.input.fields[0].cuts == (4,)
    assert model.infer(model.encode({"x0": [3, 4]})).classes.tolist() == [0, 1]


def test_a_cast_in_front_is_read():
    cast = onnx.helper.make_node("Cast", ["X"], ["Y"], to=1)
    model = parse(by_hand(onnx.TensorProto.INT64, (cast,)).SerializeToString())
    assert model.infer(model.encode({"x0": [3, 4]})).classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes_modes": ["BRANCH_EQ", "LEAF", "LEAF"]}, "nodes of the mode 'BRANCH_EQ'"),
        ({"nodes_treeids": [0, 0]}, "arrays of other lengths"),
        ({"nodes_truenodeids": [9, 0, 0]}, "leads to one that its tree does not have"),
        ({"nodes_truenodeids": [2, 0, 0]}, "the nodes are no trees"),
        ({"nodes_truenodeids": [0, 0, 0]}, "the nodes are no trees"),
        ({"nodes_featureids": [4, 0, 0]}, r"a column beyond 0\.\.0"),
        ({"nodes_featureids": [-1, 0, 0]}, r"a column beyond 0\.\.0"),
        ({"nodes_values": [float("nan"), 0.0, 0.0]}, "or with NaN"),
        ({"class_nodeids": [0, 2]}, "a weight is of no leaf"),
        ({"class_nodeids": [7, 2]}, "a weight is of no leaf"),
        ({"class_ids": [0, 2]}, "or of no class"),
        ({"class_ids": [0, 1]}, "two classes have weights each"),
        ({"class_ids": [0]}, "arrays of different lengths"),
        ({"class_weights": [float("inf"), 1.0]}, "a leaf value is not finite"),
        ({"base_values": [1.0, 2.0, 3.0]}, "3 base values for 1 scores"),
        ({"classlabels_int64s": [0]}, "1 class labels"),
        ({"columns": 0}, "expected the shape"),
        ({"kind": 9}, "the trees read BOOL"),
    ],
)  # fmt: skip
def test_a_damaged_graph_is_an_error(changed, message):
    with pytest.raises(ModelError, match=message):
        parse(by_hand(**changed).SerializeToString())


def test_a_circle_of_nodes_is_refused():
    """Two nodes lead to each other, and a third is a tree beside them."""
    looped = by_hand(
        nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4], nodes_featureids=[0] * 5,
        nodes_values=[3.0, 1.0, 2.0, 0.0, 0.0],
        nodes_modes=["LEAF", "BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[0, 2, 1, 0, 0], nodes_falsenodeids=[0, 3, 4, 0, 0],
        class_nodeids=[3, 4],
    )  # fmt: skip
    with pytest.raises(ModelError, match="in a circle"):
        parse(looped.SerializeToString())


def test_a_scaler_in_front_is_refused():
    scaler = onnx.helper.make_node(
        "Scaler", ["X"], ["Y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0]
    )
    with pytest.raises(ModelError, match="a node Scaler computes what the trees read"):
        parse(by_hand(before=(scaler,)).SerializeToString())


def test_a_regressor_is_refused():
    X = rows()
    fitted = __import__("sklearn.ensemble", fromlist=["x"]).RandomForestRegressor(3, max_depth=2)
    data = skl2onnx.to_onnx(fitted.fit(X, X[:, 0]), X[:1]).SerializeToString()
    with pytest.raises(ModelError, match="expected one TreeEnsembleClassifier"):
        parse(data)


def test_the_command_imports_a_file(tmp_path):
    (tmp_path / "forest.onnx").write_bytes(graph(3).SerializeToString())
    out = tmp_path / "m.n3ic"
    words = ("import", str(tmp_path / "forest.onnx"), "--out", str(out))
    done = CliRunner().invoke(command_line(words), words)
    assert done.exit_code == 0, done.output
    assert "9 trees of" in done.output and "gives the same class to all" in done.output
    assert n3ic.load(out) == read(tmp_path / "forest.onnx")
