# SPDX-License-Identifier: Apache-2.0
"""Grows decision trees that vote, and writes them as a binary network of three layers.

A leaf is a neuron that fires if all splits on the way to it agree: an AND of input bits. The answer
of a tree is an OR of its leaves of one class. The score of a class counts the trees that vote for
it. As weights and masks, such a network has thousands of connections. In look-up tables a split is
a selection, and a tree of 400 leaves takes some 170 tables of six inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from n3ic.data.table import Feature
from n3ic.errors import UsageError, needed
from n3ic.families.binary.packed_trees import Cut, TreeSplit, split_tree
from n3ic.model.bits import Bits, pack
from n3ic.model.inputs import InputSpec
from n3ic.model.layers import HiddenLayer, OutputLayer
from n3ic.model.network import BinaryModel
from n3ic.training.input_bits.columns import thermometer_fields
from n3ic.training.recipe import Training

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

_EVEN = 0.5  # share of the second of two classes above which a leaf answers with it
_CANDIDATES = 0.5  # share of the bits that a split chooses from, so that trees differ
_Leaf = tuple[int, tuple[tuple[int, bool], ...]]  # class; bits and their values on the way


@dataclass(frozen=True)
class _Node:
    """A split of a tree, or a leaf, which has no children."""

    answer: int
    bit: int = -1
    children: tuple[_Node, ...] = ()


def train_forest(
    bits: Bits,
    label: NDArray[np.int64],
    spec: InputSpec,
    classes: tuple[str, ...],
    config: Training,
    *,
    seed: int,
    teacher: NDArray[np.floating] | None = None,
    class_weight: NDArray[np.floating] | None = None,
    name: str = "model",
    provenance: Mapping[str, str] | None = None,
) -> BinaryModel:
    """Grow trees on input bits, best split first; each leaf answers with its most likely class.

    If there are several trees, each split is chosen from another random half of the bits (Breiman
    2001, without the bootstrap). The same arguments give the same network.

    Args:
        bits: bool array of shape ``(rows, inputs)``.
        label: class index of each row, shape ``(rows,)``.
        spec: what the bits mean.
        classes: names of the classes.
        config: number and size of the trees, and the weight of the teacher. The first class wins a
            tie between trees.
        seed: seed of the choice of bits.
        teacher: class probabilities of shape ``(rows, classes)``, for distillation.
        class_weight: weight of a row of each class, shape ``(classes,)``; None for 1.
        name: the model's name.
        provenance: facts about its origin.

    Returns:
        A network of the shape inputs, leaves, answers, classes. With two classes it holds only the
        leaves of the second, and one answer per tree; otherwise one answer per tree and class.

    Raises:
        UsageError: no bit separates rows of different classes, or distillation has no teacher.
        MissingDependencyError: scikit-learn is not installed.
    """
    with needed("training trees"):
        from sklearn.ensemble import RandomForestRegressor
    # For labels alone, the squared error is the Gini impurity.
    answers = np.eye(len(classes))[label]
    if config.distill:
        if teacher is None:
            raise UsageError("distillation needs the teacher's probabilities")
        answers = (1 - config.distill) * answers + config.distill * teacher
    forest = RandomForestRegressor(
        n_estimators=config.trees,
        max_leaf_nodes=config.leaves,
        max_features=1.0 if config.trees == 1 else _CANDIDATES,
        bootstrap=False,
        random_state=seed,
        n_jobs=1,
    )
    # Equal rows are merged into one with their mean and weight: the same trees, but faster.
    _, first, which = np.unique(pack(bits), axis=0, return_index=True, return_inverse=True)
    weight = np.ones(len(label)) if class_weight is None else class_weight[label]
    counts = np.bincount(which.reshape(-1), weight)
    mean = np.zeros((len(first), len(classes)))
    np.add.at(mean, which.reshape(-1), answers * weight[:, None])
    mean /= counts[:, None]
    forest.fit(
        bits[first].astype(np.float32),
        mean if len(classes) > 2 else mean[:, 1],
        sample_weight=counts,
    )
    tree_leaves = [_grown(tree.tree_) for tree in forest.estimators_]
    return _network(tree_leaves, spec, classes, name, dict(provenance or {}))


def tree_network(
    tree: DecisionTreeClassifier,
    names: Sequence[str],
    classes: tuple[str, ...],
    *,
    n_leaves: int = 0,
    catalogue: Mapping[str, Feature] | None = None,
    name: str = "model",
    provenance: Mapping[str, str] | None = None,
) -> BinaryModel | None:
    """Convert a decision tree on integer columns to a network with the same class for every row.

    Args:
        tree: a tree fitted to integers in ``0..2^32-1`` and class indices.
        names: feature of each column.
        classes: names of the classes.
        n_leaves: number of first leaves to keep of a tree grown best-first; 0 for the whole tree.
        catalogue: descriptions of the features, for their units.
        name: the model's name.
        provenance: facts about its origin.

    Returns:
        A network of the shape inputs, leaves, answers, classes, as from :func:`train_forest`. Its
        inputs are the cuts that separate classes. None if the tree gives all rows one class.
    """
    answers = tree.classes_
    node = split_tree(tree.tree_, lambda share: answers[share.argmax(axis=1)], n_leaves)
    leaves = _ways(node)
    if len(leaves) == 1:
        return None
    cuts = {(names[column], least) for _, way in leaves for (column, least), _ in way}
    fields = thermometer_fields(sorted(cuts), names, catalogue=catalogue)
    order = [(field.feature, cut) for field in fields for cut in field.cuts]
    bit_of = {cut: bit for bit, cut in enumerate(order)}
    on_bits = [
        (answer, tuple((bit_of[names[column], least], value) for (column, least), value in way))
        for answer, way in leaves
    ]
    return _network([on_bits], InputSpec(fields), classes, name, dict(provenance or {}))


def _ways(
    node: TreeSplit | int, way: tuple[tuple[Cut, bool], ...] = ()
) -> list[tuple[int, tuple[tuple[Cut, bool], ...]]]:
    """List the leaves of a tree: their answers, and the cuts on the way with their values."""
    if not isinstance(node, TreeSplit):
        return [(node, way)]
    sides = zip((False, True), (node.left, node.right), strict=True)
    return [leaf for value, side in sides for leaf in _ways(side, (*way, (node.cut, value)))]


def _grown(tree: Any) -> list[_Leaf]:
    """List the leaves of a regression tree on bits."""

    def likeliest(node: int) -> int:
        share = tree.value[node, :, 0]  # of each class, or of the second of two
        return int(share.argmax()) if len(share) > 1 else int(share[0] > _EVEN)

    return _leaves(_node(tree, 0, likeliest, lambda node: int(tree.feature[node])))


def _node(
    tree: Any, index: int, answer: Callable[[int], int], tells: Callable[[int], int]
) -> _Node:
    """Convert a node of scikit-learn's tree, without splits whose sides give the same answer.

    Args:
        tree: scikit-learn's arrays of nodes.
        index: index of the node.
        answer: function from a node's index to its class.
        tells: function from a node's index to the number of the bit that its split tests.
    """
    below = (int(tree.children_left[index]), int(tree.children_right[index]))
    if below[0] < 0:
        return _Node(answer(index))
    children = tuple(_node(tree, child, answer, tells) for child in below)
    if not any(child.children for child in children) and len({c.answer for c in children}) == 1:
        return children[0]
    return _Node(answer(index), tells(index), children)


def _leaves(node: _Node, way: tuple[tuple[int, bool], ...] = ()) -> list[_Leaf]:
    if not node.children:
        return [(node.answer, way)]
    return [
        leaf
        for value, child in zip((False, True), node.children, strict=True)
        for leaf in _leaves(child, (*way, (node.bit, value)))
    ]


def _network(
    tree_leaves: list[list[_Leaf]],
    spec: InputSpec,
    classes: tuple[str, ...],
    name: str,
    provenance: dict[str, str],
) -> BinaryModel:
    two = len(classes) == 2
    ways: list[tuple[tuple[int, bool], ...]] = []
    answers: list[tuple[int, list[int]]] = []  # class and leaves
    bias = np.zeros(len(classes), dtype=np.int32)
    for leaves in tree_leaves:
        if len(leaves) == 1:  # a tree without a split always votes for one class
            bias[leaves[0][0]] += 1
            continue
        for c in range(int(two), len(classes)):
            own = [way for answer, way in leaves if answer == c]
            if own:
                answers.append((c, list(range(len(ways), len(ways) + len(own)))))
                ways += own
    if not ways:
        raise UsageError(
            "no input bit separates the classes, so no tree has a split; "
            "choose other columns or more bits"
        )
    weights = np.zeros((len(ways), spec.n_bits), dtype=np.bool_)
    mask = np.zeros_like(weights)
    for j, way in enumerate(ways):
        for bit, value in way:
            weights[j, bit], mask[j, bit] = value, True
    chosen = np.zeros((len(answers), len(ways)), dtype=np.bool_)
    votes = np.zeros((len(classes), len(answers)), dtype=np.bool_)
    for k, (c, own_leaves) in enumerate(answers):
        chosen[k, own_leaves] = True
        votes[c, k] = True
    return BinaryModel(
        input=spec,
        hidden=(
            # An AND fires where all its inputs agree, an OR where at least one does.
            HiddenLayer(weights, mask=mask, thresholds=mask.sum(axis=1).astype(np.int32)),
            HiddenLayer(
                np.ones_like(chosen), mask=chosen, thresholds=np.ones(len(answers), dtype=np.int32)
            ),
        ),
        # Without a mask, an answer of 0 agrees with the first class's weight: it votes for it.
        output=OutputLayer(votes, mask=None if two else votes, bias=bias),
        classes=classes,
        name=name,
        provenance=provenance,
    )
