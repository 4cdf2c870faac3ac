# SPDX-License-Identifier: Apache-2.0
"""Reads the trees of scikit-learn, XGBoost and LightGBM through Treelite, which knows all three."""

from __future__ import annotations

from typing import Any

import numpy as np

from n3ic.errors import ModelError
from n3ic.families.trees.readers.ensemble import Ensemble
from n3ic.model.summed import n_sums

_LEAF, _NUMBER = 0, 1  # Treelite's types of nodes
_BELOW, _AT_MOST = 2, 3  # and its comparisons
_BY_VALUE = {"sigmoid", "softmax", "identity_multiclass", "multiclass_ova", "identity",
             "exponential_standard_ratio"}  # fmt: skip


def ensemble_of(model: Any, precision: type[np.floating], *, second_wins: bool = False) -> Ensemble:
    """Convert a model of Treelite.

    Args:
        model: a ``treelite.Model`` that classifies.
        precision: the floats in which its library compares.
        second_wins: whether, of two classes, the second wins where the sum is exactly 0.

    Raises:
        ModelError: the trees do not classify rows of numbers.
    """
    header = model.get_header_accessor()

    def field(name: str) -> Any:
        return header.get_field(name)

    if np.asarray(field("num_target")).item() != 1:
        raise ModelError("the trees have several targets; expected one class a row")
    n_classes = max(2, int(np.asarray(field("num_class"))[0]))
    postprocessor = str(field("postprocessor"))
    if postprocessor not in _BY_VALUE or model.num_tree < 1:
        raise ModelError(
            f"the trees are no classifier: their sums become an answer by {postprocessor!r}"
        )
    width = int(np.prod(field("leaf_vector_shape")))
    class_of = np.asarray(field("class_id")).tolist()
    outputs = width if width > 1 else int(np.asarray(field("num_class"))[0])
    base = np.array(field("base_scores"), dtype=np.float64)  # a copy: the model owns its memory
    parts: dict[str, list[Any]] = {n: [] for n in ("column", "threshold", "strict", "left", "right",
                                                   "leaf", "root")}  # fmt: skip
    nodes = leaves = 0
    for t in range(model.num_tree):
        tree = model.get_tree_accessor(t)
        kinds = np.asarray(tree.get_field("node_type"))
        if not np.isin(kinds, (_LEAF, _NUMBER)).all():
            raise ModelError(
                "a tree asks for categories of a column; expected comparisons of numbers: encode "
                "the column before the fit, by an indicator a category"
            )
        inner = kinds == _NUMBER
        operator = np.asarray(tree.get_field("cmp"))[inner]
        if not np.isin(operator, (_BELOW, _AT_MOST)).all():
            raise ModelError("a tree compares otherwise than by < and <=")
        place = np.where(inner, nodes + np.cumsum(inner) - 1, ~(leaves + np.cumsum(~inner) - 1))
        parts["root"].append(place[0])
        for name, key in (("left", "cleft"), ("right", "cright")):
            parts[name].append(place[np.asarray(tree.get_field(key))[inner]])
        parts["column"].append(np.asarray(tree.get_field("split_index"))[inner])
        parts["threshold"].append(np.asarray(tree.get_field("threshold"), np.float64)[inner])
        parts["strict"].append(operator == _BELOW)
        parts["leaf"].append(_leaves(tree, ~inner, outputs, width, class_of[t]))
        nodes, leaves = nodes + int(inner.sum()), leaves + int((~inner).sum())
    values = np.concatenate(parts["leaf"])
    if np.asarray(field("average_tree_output")).item() and base.any():
        values = values / model.num_tree
    if outputs == 2 and n_sums(n_classes) == 1:
        values, base = values[:, 1:] - values[:, :1], base[1:] - base[:1]
    if base.shape != (values.shape[1],):
        raise ModelError(f"base scores of shape {base.shape} for {values.shape[1]} sums")
    return Ensemble(
        columns=np.concatenate(parts["column"]).astype(np.int64),
        thresholds=np.concatenate(parts["threshold"]),
        strict=np.concatenate(parts["strict"]),
        left=np.concatenate(parts["left"]).astype(np.int64),
        right=np.concatenate(parts["right"]).astype(np.int64),
        roots=np.array(parts["root"], dtype=np.int64),
        leaves=values,
        base=base,
        n_columns=int(np.asarray(field("num_feature")).item()),
        n_classes=n_classes,
        precision=precision,
        second_wins=second_wins,
    )


def _leaves(tree: Any, leaf: Any, outputs: int, width: int, class_id: int) -> Any:
    """Values of a tree's leaves for each output, float64 of shape ``(leaves, outputs)``."""
    if width > 1:
        start = np.asarray(tree.get_field("leaf_vector_begin"))[leaf].astype(np.int64)
        vector = np.asarray(tree.get_field("leaf_vector"), dtype=np.float64)
        return vector[start[:, None] + np.arange(width)]
    values = np.asarray(tree.get_field("leaf_value"), dtype=np.float64)[leaf]
    out = np.zeros((len(values), outputs))
    out[:, max(0, class_id)] = values
    return out
