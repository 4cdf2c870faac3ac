# SPDX-License-Identifier: Apache-2.0
"""Imports the trees of an ONNX-ML graph (TreeEnsembleClassifier) as a TreesModel.

The graph is not trusted: its arrays are checked to be trees before anything walks them. What it
computes is asked of onnxruntime, if that is installed, on rows at every cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from n3ic.errors import ModelError
from n3ic.exporters.onnx import model_proto
from n3ic.families.trees.network import MAX_NODES, TreesModel
from n3ic.families.trees.readers.columns import read_columns
from n3ic.families.trees.readers.conversion import converted
from n3ic.families.trees.readers.ensemble import Ensemble, FittedTrees, Floats, Ints

DOMAIN, CLASSIFIER = "ai.onnx.ml", "TreeEnsembleClassifier"
_MOST_COLUMNS = 1 << 16
_MOST_CLASSES = 1 << 12
# Each comparison as (whether it is strict, whether the true side is the left one).
_MODES = {
    "BRANCH_LEQ": (False, True),
    "BRANCH_LT": (True, True),
    "BRANCH_GT": (False, False),
    "BRANCH_GTE": (True, False),
}
_SINGLE = {"FLOAT", "INT64", "INT32"}  # types of input that are compared in float32
_TYPES: dict[str, type[np.generic]] = {
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "INT64": np.int64,
    "INT32": np.int32,
}


def has_trees(model: Any) -> bool:
    """Whether a graph has nodes of the ONNX-ML trees."""
    return any(
        node.domain == DOMAIN and node.op_type.startswith("TreeEnsemble")
        for node in model.graph.node
    )


def read_trees(model: Any, data: bytes) -> TreesModel:
    """Convert the trees of a checked graph.

    The columns hold integers, as a NIC's do. Nodes behind the trees do not matter: their label is
    the class.

    Args:
        model: the graph.
        data: its bytes, for the provenance.

    Raises:
        ModelError: the graph is no classifier by trees on its own input.

    Warns:
        N3icWarning: rows have another class than onnxruntime gives them; says how many and why.
    """
    nodes = [n for n in model.graph.node if n.domain == DOMAIN and n.op_type == CLASSIFIER]
    if len(nodes) != 1:
        raise ModelError(
            f"expected one {CLASSIFIER} of domain {DOMAIN}, the graph has {len(nodes)}"
        )
    (node,) = nodes
    kind, count = _input(model, node)
    onnx = model_proto.require("onnx")
    values = {
        a.name.removesuffix("_as_tensor"): onnx.numpy_helper.to_array(a.t)
        if a.type == a.TENSOR
        else onnx.helper.get_attribute_value(a)
        for a in node.attribute
    }
    labels, texts = _labels(values)
    ensemble = _ensemble(values, len(labels), count, kind)
    source = FittedTrees(ensemble, "onnxruntime", _predict(node, kind, labels))
    imported = converted(
        source, read_columns(None, None, (), count), texts, name="imported", kind="onnx"
    )
    digest = hashlib.sha256(data).hexdigest()
    return imported.changed(provenance={**imported.provenance, "onnx_sha256": digest})


def _input(model: Any, node: Any) -> tuple[str, int]:
    """Type of the trees' input, and its number of columns.

    Raises:
        ModelError: other nodes than casts change the graph's input before the trees.
    """
    onnx = model_proto.require("onnx")
    by_output = {out: n for n in model.graph.node for out in n.output}
    inputs = {v.name: v for v in model.graph.input}
    name, kind = node.input[0], ""
    for _ in range(len(model.graph.node) + 1):
        if name in inputs:
            break
        before = by_output.get(name)
        if before is None or before.op_type not in ("Cast", "Identity") or before.domain:
            what = "no node" if before is None else f"a node {before.op_type[:40]}"
            raise ModelError(
                f"{what} computes what the trees read; expected the graph's own input: columns "
                "that the trees compare themselves"
            )
        if before.op_type == "Cast":
            to = next((a.i for a in before.attribute if a.name == "to"), 0)
            if kind not in ("", _type_name(onnx, to)):
                raise ModelError("several casts in front of the trees")
            kind = _type_name(onnx, to)
        name = before.input[0]
    if name not in inputs:
        raise ModelError("the trees do not read the graph's input")
    tensor = inputs[name].type.tensor_type
    own = _type_name(onnx, tensor.elem_type)
    if own not in _TYPES or (kind and kind != own and kind not in ("FLOAT", "DOUBLE")):
        raise ModelError(f"the trees read {own or 'no numbers'}; expected {', '.join(_TYPES)}")
    dims = [d.dim_value for d in tensor.shape.dim]
    if len(dims) != 2 or not 1 <= dims[1] <= _MOST_COLUMNS:
        raise ModelError(f"input {name[:80]!r}: expected the shape (rows, columns), got {dims[:8]}")
    # A cast of integers to floats rounds as numpy does, so the trees' own type is compared.
    return kind or own, dims[1]


def _type_name(onnx: Any, number: int) -> str:
    known = onnx.TensorProto.DataType.items()
    return next((name for name, value in known if value == number), "")


def _labels(values: dict[str, Any]) -> tuple[list[Any], tuple[str, ...]]:
    """Labels of the classes as onnxruntime gives them, and as texts."""
    texts = values.get("classlabels_strings") or []
    labels = [t.decode("utf-8", "replace") for t in texts] or [
        int(i) for i in values.get("classlabels_int64s") or []
    ]
    if not 2 <= len(labels) <= _MOST_CLASSES:
        raise ModelError(f"the trees have {len(labels)} class labels, two or more are expected")
    return labels, tuple(map(str, labels))


def _ensemble(values: dict[str, Any], n_classes: int, n_columns: int, kind: str) -> Ensemble:
    """The trees of a node's arrays.

    Raises:
        ModelError: the arrays are no trees, or compare otherwise than by order.
    """

    def ints(name: str) -> Ints:
        return np.array(values.get(name, ()), dtype=np.int64)

    modes = [bytes(m).decode("ascii", "replace") for m in values.get("nodes_modes", ())]
    count = len(modes)
    if not 1 <= count <= 2 * MAX_NODES + 1:
        raise ModelError(f"{count:,} nodes and leaves, 1 to {2 * MAX_NODES + 1:,} expected")
    strange = {*modes} - {*_MODES, "LEAF"}
    if strange:
        raise ModelError(f"nodes of the mode {min(strange)[:40]!r}: expected {', '.join(_MODES)}")
    tree, number = ints("nodes_treeids"), ints("nodes_nodeids")
    column, threshold = ints("nodes_featureids"), np.array(values.get("nodes_values", ()), float)
    sides = [ints("nodes_truenodeids"), ints("nodes_falsenodeids")]
    if any(len(a) != count for a in (tree, number, column, threshold, *sides)):
        raise ModelError(f"{count:,} modes of nodes, but arrays of other lengths")
    inner = np.array([m != "LEAF" for m in modes])
    if ((column < 0) | (column >= n_columns))[inner].any() or np.isnan(threshold[inner]).any():
        raise ModelError(f"a node compares a column beyond 0..{n_columns - 1}, or with NaN")
    place = {key: i for i, key in enumerate(zip(tree.tolist(), number.tolist(), strict=True))}
    at = np.where(inner, np.cumsum(inner) - 1, ~(np.cumsum(~inner) - 1))
    below = [_children(tree[inner], side[inner], place) for side in sides]
    roots = _roots(tree, inner, below)
    strict, true_left = (np.array([_MODES[m][k] for m in modes if m != "LEAF"], dtype=np.bool_)
                         for k in (0, 1))  # fmt: skip
    true, false = (at[side] for side in below)
    leaves, base = _scores(values, place, at, int((~inner).sum()), n_classes)
    return Ensemble(
        columns=column[inner],
        thresholds=threshold[inner],
        strict=strict,
        left=np.where(true_left, true, false),
        right=np.where(true_left, false, true),
        roots=at[roots],
        leaves=leaves,
        base=base,
        n_columns=n_columns,
        n_classes=n_classes,
        precision=np.float32 if kind in _SINGLE else np.float64,
    )


def _children(tree: Ints, number: Ints, place: dict[tuple[int, int], int]) -> Ints:
    keys = zip(tree.tolist(), number.tolist(), strict=True)
    children = [place.get(key, -1) for key in keys]
    if -1 in children:
        raise ModelError("a node leads to one that its tree does not have")
    return np.array(children, dtype=np.int64)


def _roots(tree: Ints, inner: Any, below: Sequence[Ints]) -> Ints:
    """The root of each tree: the one node that no other leads to.

    Raises:
        ModelError: a node has several parents, or a tree no root, several, or a circle.
    """
    parents = np.bincount(np.concatenate(below), minlength=len(tree))
    roots = np.flatnonzero(parents == 0)
    one_each = len(np.unique(tree[roots])) == len(roots) == len(np.unique(tree))
    if (parents > 1).any() or not one_each:
        raise ModelError("the nodes are no trees: expected one root each, and one way to each node")
    seen = at = roots
    index = np.cumsum(inner) - 1
    while len(at):  # every node has one parent, so none comes twice
        ways = index[at[inner[at]]]
        at = np.concatenate([side[ways] for side in below])
        seen = np.concatenate([seen, at])
    if len(seen) != len(tree):
        raise ModelError("the nodes are no trees: some lead to each other in a circle")
    return np.asarray(roots)


def _scores(
    values: dict[str, Any],
    place: dict[tuple[int, int], int],
    at: Ints,
    n_leaves: int,
    n_classes: int,
) -> tuple[Floats, Floats]:
    """Values of the leaves for each sum, and what is added to the sums.

    Two classes have one weight a leaf, that of the second: it wins above 0, or above a half if no
    weight is negative.

    Raises:
        ModelError: the arrays do not fit each other, or two classes have weights each.
    """

    def ints(name: str) -> Ints:
        return np.array(values.get(name, ()), dtype=np.int64)

    ids, weights = ints("class_ids"), np.array(values.get("class_weights", ()), dtype=np.float64)
    keys = [*zip(ints("class_treeids").tolist(), ints("class_nodeids").tolist(), strict=False)]
    if not len(keys) == len(ids) == len(weights) == len(ints("class_treeids")):
        raise ModelError("the weights of leaves are arrays of different lengths")
    leaf = np.array([~at[place[key]] if key in place else -1 for key in keys], dtype=np.int64)
    if (leaf < 0).any() or ((ids < 0) | (ids >= n_classes)).any():
        raise ModelError("a weight is of no leaf, or of no class")
    base = np.array(values.get("base_values", ()), dtype=np.float64).reshape(-1)
    single = n_classes == 2
    if single and len(np.unique(ids)) != 1:
        raise ModelError(
            "two classes have weights each, of which runtimes make different classes; expected one "
            "weight a leaf, as converters write it"
        )
    out = np.zeros((n_leaves, 1 if single else n_classes))
    np.add.at(out, (leaf, np.zeros_like(ids) if single else ids), weights)
    if len(base) not in (0, out.shape[1]):
        raise ModelError(f"{len(base)} base values for {out.shape[1]} scores")
    base = base if len(base) else np.zeros(out.shape[1])
    if single:
        base = base - (0.5 if (weights >= 0).all() else 0.0)
    return out, base


def _predict(node: Any, kind: str, labels: list[Any]) -> Callable[[Floats], Ints] | None:
    """What onnxruntime answers; None if it is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    onnx = model_proto.require("onnx")
    types = onnx.TensorProto
    of_label = types.STRING if isinstance(labels[0], str) else types.INT64
    own = onnx.NodeProto()
    own.CopyFrom(node)
    graph = onnx.helper.make_graph(
        [own],
        "trees",
        [onnx.helper.make_tensor_value_info(node.input[0], types.DataType.Value(kind), None)],
        [onnx.helper.make_tensor_value_info(node.output[0], of_label, None)],
    )
    opsets = [onnx.helper.make_opsetid("", 15), onnx.helper.make_opsetid(DOMAIN, 3)]
    small = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    index = {label: i for i, label in enumerate(labels)}
    try:
        session = onnxruntime.InferenceSession(
            small.SerializeToString(), providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its errors have no common type
        raise ModelError(f"onnxruntime refuses the trees: {str(error)[:200]}") from error

    def predict(rows: Floats) -> Ints:
        (labels,) = session.run([node.output[0]], {node.input[0]: rows.astype(_TYPES[kind])})
        return np.array([index[label] for label in labels.tolist()], dtype=np.int64)

    return predict
