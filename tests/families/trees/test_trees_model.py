# SPDX-License-Identifier: Apache-2.0
"""The integer model of decision trees: scores, bounds, files, damage, simplification, vectors."""

from dataclasses import replace

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.families.trees import network
from n3ic.families.trees.network import TreesModel
from n3ic.families.trees.random_models import random_trees
from n3ic.families.trees.vectors import _Walk, decided_by, deciding_bits, trees_vectors
from n3ic.model.bits import pack, unpack
from n3ic.model.family import family
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.load import parse_model

FAMILY = family("decision-trees")
SHAPES = (
    {},
    {"classes": 3, "trees": 5, "depth": 6},
    {"trees": 40, "depth": 7, "features": 12, "cuts": 20},
    {"trees": 3, "depth": 1, "features": 1, "cuts": 1, "classes": 4},
    {"trees": 2, "depth": 0},
)
SPEC = InputSpec((Field.thermometer("a", [3, 7, 9]), Field.binary("b", 2)))


def rng(seed=0):
    return np.random.default_rng(seed)


def small(**other):
    """``a >= 7 ? (b odd ? 5 : -2) : 1``, and a tree that is a leaf."""
    parts = {"sizes": [2, 0], "bits": [1, 3], "zero_sizes": [0, 0], "leaves": [[1], [-2], [5], [4]]}
    return TreesModel(**({"input": SPEC, "bias": [-10], "classes": ("x", "y"), **parts} | other))


def followed(model, bits):
    """Sums of one input by the definition: node for node, leaf for leaf."""
    sums = model.bias.astype(int).tolist()
    node = leaf = 0

    def visit(size):
        nonlocal node, leaf
        if not size:
            value, leaf = model.leaves[leaf].tolist(), leaf + 1
            return value
        at, node = node, node + 1
        zero = visit(int(model.zero_sizes[at]))
        one = visit(size - 1 - int(model.zero_sizes[at]))
        return one if bits[model.bits[at]] else zero

    for size in model.sizes.tolist():
        sums = [a + b for a, b in zip(sums, visit(size), strict=True)]
    return [0, *sums] if len(sums) == 1 else sums


@pytest.mark.first_case
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_the_sums_of_the_leaves_that_are_reached(shape):
    model = random_trees(rng(1), **shape)
    bits = np.concatenate(
        [
            rng(2).random((40, model.input.n_bits)) < 0.5,
            unpack(FAMILY.vectors(FAMILY.simplified(model), 40, 0), model.input.n_bits)[:40],
        ]
    )
    scores = model.scores(pack(bits))
    assert scores.dtype == np.int32
    assert scores.tolist() == [followed(model, row) for row in bits]
    low, high = model.score_bounds
    assert low <= scores.min() and scores.max() <= high
    assert model.infer(pack(bits)).margins.max() <= model.largest_margin


def test_a_model_by_hand():
    model = small()
    features = {"a": [0, 6, 7, 7, 99], "b": [3, 1, 0, 1, 3]}
    assert model.scores(model.encode(features))[:, 1].tolist() == [-5, -5, -8, -1, -1]
    assert model.sum_bounds.tolist() == [[-8], [-1]]
    assert model.largest_margin == 8
    assert model.shape == (5, 2, 2, 2)
    assert model.shape_text == "2 trees of 2 nodes in all"
    # Four leaves of 3 bits; two nodes of 3 + 0 + 1 bits and two sizes of 2 bits.
    assert model.memory == {
        "weight_bytes": 2, "index_bytes": 2, "bias_bytes": 1, "input_bytes": 1 + 3,
    }  # fmt: skip
    assert model.favouring(0, 2, "x").bias.tolist() == [-12]
    assert model.favouring(1, 2, "x").bias.tolist() == [-8]


def test_large_numbers_of_rows_are_computed_in_blocks(monkeypatch):
    model = random_trees(rng(3))
    words = pack(rng(4).random((50, model.input.n_bits)) < 0.5)
    whole = model.scores(words)
    monkeypatch.setattr(network, "_CELLS", 30)
    assert (model.scores(words) == whole).all()
    assert model.scores(words[:0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [3, 0]}, "2 nodes and 2 sides, but trees of 3 nodes"),
        ({"sizes": [-1, 3]}, "but trees of 2 nodes"),
        ({"sizes": []}, "0 trees"),
        ({"zero_sizes": [0]}, "2 nodes and 1 sides"),
        ({"zero_sizes": [2, 0]}, "node 0: its zero side has more nodes than its tree"),
        ({"zero_sizes": [-1, 0]}, "node 0: its zero side"),
        ({"bits": [1, 5]}, r"bits of nodes are in 0\.\.4"),
        ({"bits": [-1, 3]}, r"bits of nodes are in 0\.\.4"),
        ({"bits": [1, 1]}, "node 1 asks input bit 1, which node 0 above it has decided by bit 1"),
        ({"bits": [1, 0]}, "node 1 asks input bit 0, which node 0 above it has decided by bit 1"),
        ({"bits": [1, 2], "zero_sizes": [1, 0]}, "node 1 asks input bit 2"),
        ({"bits": [3, 3]}, "node 1 asks input bit 3"),
        ({"leaves": [[1], [2], [3]]}, r"leaves of shape \(3, 1\)"),
        ({"leaves": [[0.5]] * 4}, "leaves: expected integers"),
        ({"leaves": [[1 << 29]] * 2 + [[1 << 30], [1 << 29]]}, "scores exceed 32 bits"),
        ({"leaves": [[1 << 40]] * 4}, "leaves: expected values of 32 bits"),
        ({"bias": [0, 0]}, "expected one leaf more"),
        ({"classes": ("x", "y", "z")}, "1 sums for 3 classes"),
        ({"classes": ("x", "x")}, "class names must differ"),
        ({"shunt": 99}, "shunting threshold"),
    ],
)
def test_what_is_no_model(change, message):
    with pytest.raises(ModelError, match=message):
        small(**change)


def test_trees_that_are_too_large(monkeypatch):
    monkeypatch.setattr(network, "MAX_NODES", 1)
    with pytest.raises(ModelError, match="2 nodes, at most 1 expected"):
        small()
    monkeypatch.setattr("n3ic.families.trees.arrays.MAX_DEPTH", 1)
    monkeypatch.setattr(network, "MAX_NODES", 2)
    with pytest.raises(ModelError, match="more than 1 levels"):
        small()


def test_nodes_are_counted_in_the_bits_of_their_inputs_and_of_the_largest_zero_side():
    """Five nodes of 3 + 3 + 1 bits, as the root's zero side has four, and a size of 3 bits."""
    spec = InputSpec((Field.thermometer("a", range(10, 90, 10)),))
    leaves = [[value] for value in range(6)]
    model = small(
        input=spec, sizes=[5], bits=[7, 6, 5, 4, 3], zero_sizes=[4, 3, 2, 1, 0], leaves=leaves
    )
    assert model.node_bytes == -(-(5 * 7 + 3) // 8) == 5


def test_leaves_are_counted_in_the_bits_of_their_distances():
    """From -2, the least of four leaves, to 5 and to 150."""
    assert small().leaf_bytes == -(-4 * 3 // 8) == 2
    assert small(leaves=[[1], [-2], [150], [4]]).leaf_bytes == 4 * 8 // 8


def test_leaves_that_no_input_reaches_are_told_by_tree():
    model = small()
    report = decided_by(model, pack(np.zeros((1, 5), dtype=bool)))
    assert report.undecided == ("tree 0: 2 of 3 leaves",)
    assert (report.decided, report.total) == (2, 6)  # a leaf of each tree; no node from both sides
    every = decided_by(model, trees_vectors(model, 60, 0))
    assert every.undecided == () and every.decided == every.total


def test_an_input_passes_no_edge_of_trees_that_are_leaves():
    leaf = small(sizes=[0], bits=[], zero_sizes=[], leaves=[[4]])
    assert _Walk(leaf).edges_of(np.zeros(5, dtype=bool)).tolist() == []


def test_a_model_cannot_be_changed():
    model = random_trees(np.random.default_rng(0))
    for array in (model.sizes, model.bits, model.zero_sizes, model.leaves, model.bias):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0


def test_the_largest_trees_are_models(monkeypatch):
    """16,384 trees, sums of 30 bits, and as many levels as a tree may have."""
    leaves = np.zeros((1 << 14, 1), dtype=np.int64)
    none = {"bits": [], "zero_sizes": [], "bias": [0]}
    assert small(sizes=[0] * (1 << 14), leaves=leaves, **none).shape[1] == 1 << 14
    with pytest.raises(ModelError, match="16,385 trees"):
        small(sizes=[0] * ((1 << 14) + 1), leaves=np.append(leaves, [[0]], axis=0), **none)
    largest = (1 << 30) - 1
    for sign in (-1, 1):
        one = none | {"sizes": [0], "leaves": [[sign * largest]]}
        assert small(**one).score_bounds[0 if sign < 0 else 1] == sign * largest
        with pytest.raises(ModelError, match="sum"):
            small(**one | {"bias": [sign]})
    monkeypatch.setattr("n3ic.families.trees.arrays.MAX_DEPTH", 2)
    assert small().depth == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_gives_the_same_model_and_the_same_bytes(shape, tmp_path):
    model = random_trees(rng(5), **shape).changed(provenance={"source": "test"})
    model.save(tmp_path / "m.n3ic")
    again = parse_model((tmp_path / "m.n3ic").read_bytes(), "m.n3ic")
    assert again == model and again.digest == model.digest
    assert again.changed(name=model.name).to_bytes() == model.to_bytes()


@pytest.mark.parametrize(
    ("name", "damaged", "message"),
    [
        ("tree.nodes", lambda a: a + 1, "but trees of"),
        ("node.bit", lambda a: a + 9, "bits of nodes"),
        ("node.zero_nodes", lambda a: a + 2, "its zero side has more nodes"),
        ("leaf", lambda a: a[:-1], "tensor leaf: expected int32"),
        ("leaf", lambda a: a.astype(np.int64), "tensor leaf: expected int32"),
        ("bias", lambda a: a - (1 << 30), "scores exceed 32 bits"),
        ("other", lambda _: np.zeros(1, np.int32), "unknown tensor 'other'"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(name, damaged, message):
    header, _ = unpack_file(small().to_bytes(), "")
    tensors = small()._tensors()
    tensors[name] = damaged(tensors.get(name))
    with pytest.raises(ModelError, match=f"m.n3ic: .*{message}"):
        parse_model(pack_file("decision-trees", header, tensors), "m.n3ic")


@pytest.mark.parametrize("key", ["trees", "nodes"])
@pytest.mark.parametrize("value", [-1, 1.0, "2", True, 1 << 40])
def test_a_header_of_wrong_sizes_is_an_error(key, value):
    header, _ = unpack_file(small().to_bytes(), "")
    data = pack_file("decision-trees", header | {key: value}, small()._tensors())
    with pytest.raises(ModelError, match=r"m\.n3ic"):
        parse_model(data, "m.n3ic")


def test_any_flipped_byte_is_seen():
    data = small().to_bytes()
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 4
        with pytest.raises(ModelError):
            parse_model(bytes(changed), "m.n3ic")


def test_what_changes_no_score_is_removed():
    model = small(
        sizes=[3, 2, 0], bits=[1, 3, 3, 2, 4], zero_sizes=[1, 0, 0, 0, 0],
        leaves=[[1], [2], [6], [6], [3], [3], [3], [4]],
    )  # fmt: skip
    simplified = FAMILY.simplified(model)
    assert simplified.model.shape == (3, 1, 2, 2)
    assert simplified.findings.lines() == [
        "trees: 2 constant removed",
        "nodes: 3 with equal sides removed",
        "input: 2 bits that nothing reads removed",
    ]
    words = pack(rng(6).random((60, 5)) < 0.5)
    assert (simplified.model.scores(simplified.inputs(words)) == model.scores(words)).all()


def test_trees_of_constants_keep_one():
    model = small(sizes=[1], bits=[0], zero_sizes=[0], leaves=[[7], [7]])
    simplified = FAMILY.simplified(model)
    words = pack(rng(7).random((20, 5)) < 0.5)
    assert simplified.model.shape[1:3] == (1, 0)
    assert (simplified.model.scores(simplified.inputs(words)) == model.scores(words)).all()


def test_a_model_without_idle_parts_is_unchanged():
    model = FAMILY.simplified(random_trees(rng(8), largest=1 << 20)).model
    assert FAMILY.simplified(model).model is model


@pytest.mark.first_case
@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_are_valid_codes_that_decide_everything(shape):
    model = random_trees(rng(9), **shape)
    network = FAMILY.simplified(model)
    words = FAMILY.vectors(network, 300, 1)
    assert len(words) >= 300
    bits = unpack(words, model.input.n_bits)
    for start, field in zip(model.input.offsets, model.input.fields, strict=True):
        part = bits[:, start : start + field.width]
        assert (part[:, 1:] <= part[:, :-1]).all()
    result = FAMILY.decided(network.model, network.inputs(words), None)
    assert result.decided == result.total == len(network.model.leaves) + len(network.model.bits)
    few = FAMILY.decided(network.model, network.inputs(words[:1]), None)
    assert (few.decided < few.total and few.undecided) or few.total == 1
    assert (network.model.scores(network.inputs(words)) == model.scores(words)).all()


@pytest.mark.parametrize("seed", range(4))
def test_the_vectors_tell_every_bit_from_the_next_one_of_its_feature(seed):
    model = random_trees(rng(seed), trees=3, depth=4, features=4, cuts=9, largest=10**6)
    words = pack(deciding_bits(model, rng(seed), 10_000))
    scores = model.scores(words)
    changed = 0
    for node in range(len(model.bits)):
        for step in (-1, 1):
            bits = model.bits.copy()
            bits[node] += step
            try:
                other = replace(model, bits=bits)
            except ModelError:
                continue  # the neighbour is decided, or of no feature
            if model.input.feature_of(bits[node]) == model.input.feature_of(model.bits[node]):
                changed += 1
                assert (other.scores(words) != scores).any(), (node, step)
    assert changed > 10


def test_the_family_makes_a_model_and_describes_it():
    model = FAMILY.random(rng(10))
    assert isinstance(model, FAMILY.model)
    table, notes = FAMILY.summary_of(model)
    rows = dict(table.rows)
    assert notes == () and rows["total"] == f"{model.total_bytes:,} B"
    assert rows["depth"] == "at most 4 nodes on the way to a leaf"
    assert dict(FAMILY.summary_of(small())[0].rows)["trees"] == "2 of 1 to 3 leaves"
    assert "12 trees of" in str(model.view())
    features = {name: np.arange(0, 1000, 11) for name in model.input.features}
    assert (model.predict(features).scores == model.scores(model.encode(features))).all()
