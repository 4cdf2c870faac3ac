# SPDX-License-Identifier: Apache-2.0
"""The integer sum-product network: real probabilities within a proven bound, files, damage."""

from dataclasses import replace
from itertools import product as every_combination

import numpy as np
import pytest

from n3ic.errors import ModelError
from n3ic.families.spn import network, nodes
from n3ic.families.spn.arithmetic import LinearArithmetic, LogArithmetic
from n3ic.families.spn.network import CONSTANT, SpnModel
from n3ic.families.spn.nodes import Leaf, Product, Sum, scopes
from n3ic.families.spn.random_models import random_spn
from n3ic.families.spn.vectors import bits_of_bins, spn_coverage, spn_vectors
from n3ic.model.bits import pack
from n3ic.model.family import family
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.load import load_model
from n3ic.model.network import BinaryModel
from n3ic.model.random_models import random_model

ARITHMETICS = [LogArithmetic.of(6), LogArithmetic.of(0), LinearArithmetic(30), LinearArithmetic(12)]


def every_input(spec):
    bins = np.array(list(every_combination(*(range(f.width + 1) for f in spec.fields))))
    return pack(bits_of_bins(spec, bins))


def real_chances(model):
    """Probabilities that the integers stand for, computed in floating point."""

    def chances(integers):
        real = integers / 2.0**model.arithmetic.fraction
        return np.exp2(real) if isinstance(model.arithmetic, LogArithmetic) else real

    def of(words):
        bins, out = model.bins(words), []
        for node in model.nodes:
            if isinstance(node, Leaf):
                out.append(chances(node.table)[bins[:, node.field]])
            elif isinstance(node, Product):
                out.append(np.prod([out[c] for c in node.children], axis=0))
            else:
                out.append(chances(node.weights) @ np.array([out[c] for c in node.children]))
        return out

    return of


@pytest.mark.first_case
@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: f"{a.name}-{a.fraction}")
@pytest.mark.parametrize("seed", range(4))
def test_values_are_within_the_proven_distance(arithmetic, seed):
    model = random_spn(np.random.default_rng(seed), classes=3, arithmetic=arithmetic)
    words = spn_vectors(model, 400, seed)
    real = real_chances(model)(words)
    for c, root in enumerate(model.roots):
        wanted = np.log2(real[root]) if arithmetic.name == "log" else real[root]
        got = model.scores(words)[:, c] / 2.0**arithmetic.fraction
        assert np.abs(got - wanted).max() * 2.0**arithmetic.fraction <= model.error_bound


def test_probabilities_of_all_flows_add_to_one():
    model = random_spn(
        np.random.default_rng(5), features=4, cuts=3, classes=1, arithmetic=LogArithmetic.of(10)
    )
    scores = model.scores(every_input(model.input))[:, 0]
    error = model.error_bound / 1024
    assert 2**-error < np.exp2(scores / 1024).sum() < 2**error


def test_an_absent_feature_is_summed_out():
    model = random_spn(
        np.random.default_rng(6), features=3, cuts=3, classes=1, arithmetic=LogArithmetic.of(10)
    )
    bins = np.array([[0, b, 1] for b in range(model.input.fields[1].width + 1)])
    words = pack(bits_of_bins(model.input, bins))
    summed = np.log2(np.exp2(model.scores(words)[:, 0] / 1024).sum())
    absent = model.scores(words[:1], np.array([False, True, False]))[0, 0] / 1024
    assert abs(summed - absent) <= 2 * model.error_bound / 1024


def test_below_the_threshold_is_the_constant_class():
    spec = InputSpec((Field.thermometer("a", (5,)),))
    model = SpnModel(
        spec, (Leaf(0, [-1, -9]),), LogArithmetic.of(0), (0, CONSTANT), [0, -9], ("fits", "odd")
    )
    inference = model.infer(pack([[False], [True]]))
    assert inference.scores.tolist() == [[-1, -9], [-9, -9]]
    assert inference.classes.tolist() == [0, 0]  # the lowest index wins a tie
    assert inference.margins.tolist() == [8, 0]
    assert replace(model, bias=[0, -8]).infer(pack([[True]])).classes.tolist() == [1]


def test_bits_that_no_input_stage_gives_are_counted():
    spec = InputSpec((Field.thermometer("a", (5, 6, 7)),))
    model = SpnModel(spec, (Leaf(0, [0, -1, -2, -3]),), LogArithmetic.of(0), (0, -1), [0, 0], "ab")
    assert model.scores(pack([[False, True, False], [True, False, True]]))[:, 0].tolist() == [
        -1,
        -2,
    ]


@pytest.mark.parametrize("arithmetic", ARITHMETICS, ids=lambda a: f"{a.name}-{a.fraction}")
def test_a_file_gives_the_same_model(tmp_path, arithmetic):
    model = random_spn(np.random.default_rng(7), arithmetic=arithmetic)
    model.save(tmp_path / "m.n3ic")
    loaded = load_model(tmp_path / "m.n3ic")
    assert isinstance(loaded, SpnModel)
    assert loaded == model
    assert loaded.digest == model.digest
    words = spn_vectors(model, 200)
    assert (loaded.scores(words) == model.scores(words)).all()


def test_a_model_predicts_as_its_family_does():
    model = random_spn(np.random.default_rng(7), features=3, cuts=3)
    values = {name: np.array([0, 40, 9999]) for name in model.input.features}
    want = model.scores(model.encode(values))
    for inference in (model.predict(values), family(model.family).predict(model, values)):
        assert (inference.scores == want).all()


def test_a_random_network_of_the_family_has_6_features_and_2_classes():
    made = family("sum-product-network").random(np.random.default_rng(0))
    assert (made.shape[0], made.shape[-1], made.learned_all) == (6, 2, True)


def test_the_summary_of_an_spn_counts_its_nodes():
    model = random_spn(np.random.default_rng(7), features=3, arithmetic=LogArithmetic.of(6))
    table, notes = family(model.family).summary_of(model)
    assert (table.title, table.head, notes) == (model.name, ("sum-product network", ""), ())
    rows = dict(table.rows)
    of_kind = [sum(isinstance(n, kind) for n in model.nodes) for kind in (Leaf, Product, Sum)]
    assert rows["input"].startswith("3 features, ")
    assert [int(rows[name].split(",")[0]) for name in ("leaves", "products", "sums")] == of_kind
    assert rows["arithmetic"] == "log, 6 fraction bits"
    entries = sum(len(leaf.table) for leaf in model.leaves)
    low, high = model.score_bounds
    memory = model.memory
    assert rows["input"] == f"3 features, {model.input.n_cuts} cuts"
    assert rows["leaves"] == f"{of_kind[0]}, tables of {entries} entries"
    assert rows["error"] == f"at most {model.error_bound:.1f} steps, proven"
    assert rows["scores"] == f"{low:,} to {high:,}"
    assert rows["parameters"] == (
        f"{memory['weight_bytes']:,} B, input cuts {memory['input_bytes']:,} B"
    )
    assert rows["indices, biases"] == (f"{memory['index_bytes']:,} B, {memory['bias_bytes']:,} B")
    assert rows["in total"] == f"{sum(memory.values()):,} B" and table.left == 2


def test_random_vectors_are_half_of_bins_each_as_often():
    model = random_spn(np.random.default_rng(7), features=3, cuts=3)
    chosen = len(spn_vectors(model, 0))
    words = spn_vectors(model, chosen + 2000)
    assert len(words) == chosen + 2000
    bins = model.bins(words)
    as_coded = (pack(bits_of_bins(model.input, bins)) == words).all(axis=1)[chosen:]
    assert as_coded[:1000].all() and not as_coded[1000:].all()
    for field, f in enumerate(model.input.fields):
        drawn = np.bincount(bins[chosen : chosen + 1000, field], minlength=f.width + 1)
        assert np.allclose(drawn, 1000 / (f.width + 1), rtol=0.3)


def test_a_file_of_another_family_is_refused_by_name(tmp_path):
    random_spn(np.random.default_rng(0)).save(tmp_path / "spn.n3ic")
    random_model((8, 2), np.random.default_rng(0)).save(tmp_path / "bnn.n3ic")
    with pytest.raises(ModelError, match="'sum-product-network', expected 'binary-network'"):
        BinaryModel.load(tmp_path / "spn.n3ic")
    with pytest.raises(ModelError, match="'binary-network', expected 'sum-product-network'"):
        SpnModel.load(tmp_path / "bnn.n3ic")
    assert isinstance(load_model(tmp_path / "bnn.n3ic"), BinaryModel)


A, B = Leaf(0, [-1, -1]), Leaf(1, [-1, -1])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((), "0 nodes"),
        ((Leaf(2, [-1, -1]),), "field 2 of 2"),
        ((Leaf(0, [-1, -1, -1]),), r"shape \(2,\) expected"),
        ((Leaf(0, [1, -1]),), "-2\\^30..0"),
        ((Leaf(0, [-(2**30) - 1, -1]),), "-2\\^30..0"),
        ((Leaf(-1, [-1, -1]),), "field -1 of 2"),
        ((A, Product((0, 1))), "earlier nodes"),
        ((A, Product(())), "earlier nodes"),
        ((A, A, Product((0, 1))), "must not share a feature"),
        ((A, B, Sum((0, 1), [-1, -1])), "same features"),
        ((A, A, Sum((0, 1), [-1])), "weights: shape"),
        ((A, Sum((-1,), [-1])), "earlier nodes"),
        ((Leaf(0, [-(2**30), -1]), Sum((0,), [-1])), "exceed 31 bits"),
    ],
)
def test_graphs_that_are_none_are_refused(nodes, message):
    spec = InputSpec((Field.thermometer("a", (5,)), Field.thermometer("b", (5,))))
    with pytest.raises(ModelError, match=message):
        SpnModel(spec, nodes, LogArithmetic.of(4), (len(nodes) - 1, -1), [0, -5], ("x", "y"))


def test_scores_lie_within_the_bounds_of_all_classes():
    nodes = (Leaf(0, [-7, -20, -9]), Leaf(0, [-1, -2, -3]))
    spec = InputSpec((Field.thermometer("a", (5, 6)),))
    model = SpnModel(spec, nodes, LogArithmetic.of(2), (0, 1, CONSTANT), [3, 5, -30], "xyz")
    assert model.score_bounds == (-30, 4)
    assert (model.largest_margin, model.shunt, model.meter) == (21, 0, None)


def test_a_network_has_a_largest_size(monkeypatch):
    assert (nodes.MAX_NODES, nodes.MAX_CHILDREN) == (65_536, 1_048_576)
    leaves = (Leaf(0, [0, 0]),) * 65_536
    assert len(scopes(leaves, 1)) == 65_536
    with pytest.raises(ModelError, match="65537 nodes: 1 to 65536 expected"):
        scopes((*leaves, A), 1)
    monkeypatch.setattr(nodes, "MAX_CHILDREN", 5)
    sums = (A, Sum((0, 0), [-1, -1]), Sum((0, 1, 0), [-1] * 3))
    assert scopes(sums, 1) == (frozenset({0}),) * 3
    with pytest.raises(ModelError, match="more than 5 edges"):
        scopes((*sums, Product((2,))), 1)


def test_the_roots_are_nodes_or_the_constant():
    spec = InputSpec((Field.thermometer("a", (5,)),))
    log = LogArithmetic.of(4)
    for roots in ((-1, -1), (1, 0), (0, -2)):
        with pytest.raises(ModelError, match="roots must be nodes or -1, and at least one a node"):
            SpnModel(spec, (A,), log, roots, [0, 0], ("x", "y"))
    with pytest.raises(ModelError, match=r"biases of shape \(3,\) for 2 roots"):
        SpnModel(spec, (A,), log, (0, -1), [0, 0, 0], ("x", "y"))
    assert SpnModel(spec, (A,), log, (0, -1), [0, 0], ("x", "y")).learned_all is False
    assert SpnModel(spec, (A, A), log, (0, 1), [0, 0], ("x", "y")).learned_all is True


def test_inputs_of_other_kinds_are_refused():
    log = LogArithmetic.of(4)
    for fields, message in (
        ((Field.binary("a", 1),), "must be thermometers"),
        ((Field.thermometer("b", (5,)), Field.binary("a", 1)), "must be thermometers"),
        ((Field.thermometer("a", (5,)), Field.thermometer("a", (7,))), "one field per feature"),
    ):
        with pytest.raises(ModelError, match=message):
            SpnModel(InputSpec(fields), (A,), log, (0, -1), [0, 0], ("x", "y"))


def test_a_score_of_32_bits_is_the_highest():
    """A probability of 1 in fixed point of 30 bits is 2^30."""
    spec, leaf = InputSpec((Field.thermometer("a", (5,)),)), Leaf(0, [2**30, 2**30])
    model = SpnModel(spec, (leaf,), LinearArithmetic(30), (0, -1), [2**30 - 1, 2**30], "xy")
    assert model.score_bounds == (2**30, 2**31 - 1)
    assert model.scores(pack([[True]])).tolist() == [[2**31 - 1, 2**30]]
    with pytest.raises(ModelError, match="scores exceed 32 bits"):
        SpnModel(spec, (leaf,), LinearArithmetic(30), (0, -1), [2**30, 2**30], "xy")


def test_rows_are_scored_in_parts(monkeypatch):
    model = random_spn(np.random.default_rng(2), features=3, cuts=3, classes=3, depth=1)
    model = replace(model, roots=(model.roots[0], CONSTANT, model.roots[2]), bias=[3, -9, -5])
    words = spn_vectors(model, 0)[-12:]
    absent = np.random.default_rng(0).random((12, 3)) < 0.4
    whole = model.scores(words), model.scores(words, absent), model.scores(words, absent[0])
    assert (whole[1][0] == whole[2][0]).all() and (whole[0] != whole[1]).any()
    assert (whole[0][:, 1] == -9).all()
    for rows in (5, 11, 12):
        monkeypatch.setattr(network, "_ROWS", rows)
        parts = model.scores(words), model.scores(words, absent), model.scores(words, absent[0])
        assert all((a == b).all() for a, b in zip(parts, whole, strict=True))
    for i, row in enumerate(whole[1]):  # each row alone
        assert (model.scores(words[i : i + 1], absent[i]) == row).all()


def test_a_part_has_4096_rows_and_1024_where_coverage_is_counted(monkeypatch):
    spec = InputSpec((Field.thermometer("a", (5,)),))
    model = SpnModel(spec, (A,), LogArithmetic.of(4), (0, -1), [0, 0], ("x", "y"))
    rows, bins = [], SpnModel.bins

    def counted(self, words):
        rows.append(len(words))
        return bins(self, words)

    monkeypatch.setattr(SpnModel, "bins", counted)
    model.scores(np.zeros((4100, 1), np.uint32))
    assert rows == [4096, 4]
    rows.clear()
    spn_coverage(model, np.zeros((1030, 1), np.uint32))
    assert set(rows) == {1024, 6}


def test_values_of_each_node_that_were_computed_by_hand():
    spec = InputSpec((Field.thermometer("a", (5, 6)), Field.thermometer("b", (5,))))
    parts = (Leaf(0, [-1, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)), Leaf(0, [0, -7, -2]))
    nodes = (*parts, Product((3, 1)), Sum((2, 4), [-8, -1]))
    model = SpnModel(spec, nodes, LogArithmetic(2, [4, 3, 2, 1]), (5, -1), [-2, -6], ("x", "y"))
    words = pack(bits_of_bins(spec, np.array([[0, 0], [2, 1], [1, 0]])))
    assert model.bins(words).tolist() == [[0, 0], [2, 1], [1, 0]]
    assert model.values(words).T.tolist() == [
        [-1, -4, -5, 0, -4, -5], [-3, -9, -12, -2, -11, -12], [-2, -4, -6, -7, -11, -10],
    ]  # fmt: skip
    assert model.scores(words).tolist() == [[-7, -6], [-14, -6], [-12, -6]]
    assert model.values(words, np.array([True, False])).T.tolist() == [
        [0, -4, -4, 0, -4, -5], [0, -9, -9, 0, -9, -10], [0, -4, -4, 0, -4, -5],
    ]  # fmt: skip
    assert model.value_bounds == ((-3, -1), (-9, -4), (-12, -5), (-7, 0), (-16, -4), (-17, -1))
    assert model.score_bounds == (-19, -3)
    # Two tables and their product err by half a step each and by their sum; the sum by one more
    # for its weight and for one round, and the bias by half a step.
    assert model.error_bound == 0.5 + 0.5 + 0.5 + 0.5 + 0.5
    assert replace(model, roots=(0, 5)).error_bound == 2.5
    assert replace(model, roots=(0, -1)).error_bound == 1.0


@pytest.mark.parametrize(
    ("sums", "entry", "index", "wide"),
    [(253, 127, 1, 1), (253, 255, 1, 1), (253, 256, 1, 2), (254, 255, 2, 1)],
)
def test_bytes_of_a_network_that_were_counted_by_hand(sums, entry, index, wide):
    """More than 256 nodes have indices of two bytes, and entries above 255 do."""
    spec = InputSpec((Field.thermometer("a", (5, 6)), Field.thermometer("b", (5,))))
    nodes = (Leaf(0, [-1, -entry, 0]), Leaf(1, [0, -3]), Product((0, 1)))
    nodes += (Sum((2, 2), [-1, -255]),) * sums
    model = SpnModel(spec, nodes, LogArithmetic(1, [2, 1, 1]), (3, -1), [0, 0], ("x", "y"))
    operands = 1 + 1 + 2 + 2 * sums
    assert model.memory == {
        "weight_bytes": 3 * wide + 2 + 2 * sums + 3,
        "input_bytes": 1 + 2 + 1 + 1,
        "index_bytes": 3 + sums + index * operands,
        "bias_bytes": 8,
    }
    assert model.total_bytes == sum(model.memory.values())
    assert (model.shape, len(model.leaves)) == ((2, 2, 1, sums, 2), 2)
    assert model.shape_text == f"SPN of 2 features, 2 leaves, 1 products, {sums} sums"
    linear = SpnModel(spec, (Leaf(0, [1, 2, 3]),), LinearArithmetic(8), (0, -1), [0, 0], "xy")
    assert linear.weight_bytes == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {"node.kind": t["node.kind"][:-1]}, "numbers of operands and nodes contradict"),
        (lambda t: {"operands": t["operands"][:-1]}, "numbers of operands and nodes contradict"),
        (
            lambda t: {"node.operands": first(t, "node.operands", 0)},
            "numbers of operands and nodes",
        ),
        (lambda t: {"node.operands": first(t, "node.operands", -1)}, "numbers of operands and"),
        (lambda t: {"node.kind": first(t, "node.kind", 3)}, "node 0: unknown kind 3"),
        (lambda t: {"node.kind": last(t, "node.kind", 0)}, "a leaf needs one field, below 2"),
        (lambda t: {"operands": first(t, "operands", 2)}, "node 0: a leaf needs one field, below"),
        (lambda t: {"operands": first(t, "operands", -1)}, "node 0: a leaf needs one field, below"),
        (lambda t: {"leaf.tables": t["leaf.tables"][:-1]}, "shape|sizes of tables, weights and"),
        (lambda t: {"leaf.tables": np.append(t["leaf.tables"], np.int32(0))}, "sizes of tables"),
        (lambda t: {"sum.weights": np.append(t["sum.weights"], np.int32(0))}, "sizes of tables"),
        (lambda t: {"sum.weights": t["sum.weights"][:-1]}, "shape|sizes of tables"),
    ],
)
def test_arrays_of_a_file_that_contradict_each_other(change, message):
    spec = InputSpec((Field.thermometer("a", (5, 6)), Field.thermometer("b", (5,))))
    nodes = (Leaf(0, [-1, -2, -3]), Leaf(1, [-4, -9]), Product((0, 1)), Sum((2, 2), [-8, -1]))
    model = SpnModel(spec, nodes, LogArithmetic.of(1), (3, -1), [0, 0], ("x", "y"))
    header, tensors = unpack_file(model.to_bytes(), "model")
    changed = tensors._left | change(tensors._left)
    header["sizes"] = {name: len(array) for name, array in changed.items()}
    with pytest.raises(ModelError, match=message):
        SpnModel.from_bytes(pack_file(model.family, header, changed, header["version"]))


def first(tensors, name, value):
    """A tensor whose first number is another."""
    return np.array([value, *tensors[name][1:]], tensors[name].dtype)


def last(tensors, name, value):
    return np.array([*tensors[name][:-1], value], tensors[name].dtype)


def test_scores_whose_margin_no_32_bits_hold_are_refused():
    spec = InputSpec((Field.thermometer("a", (5,)),))
    leaf = Leaf(0, [-(2**30), 0])
    for bias in ([-(2**30), 2**30], [0, 2**30]):
        with pytest.raises(ModelError, match="margins exceed 32 bits"):
            SpnModel(spec, (leaf,), LogArithmetic.of(0), (0, -1), bias, ("x", "y"))
    SpnModel(spec, (leaf,), LogArithmetic.of(0), (0, -1), [0, 2**30 - 1], ("x", "y"))


@pytest.mark.parametrize("arithmetic", [LogArithmetic.of(0), LinearArithmetic(30)])
@pytest.mark.parametrize("bias", [[0, 2**30 + 1], [-(2**30) - 1, 0]])
def test_a_bias_above_30_bits_is_refused(arithmetic, bias):
    spec = InputSpec((Field.thermometer("a", (5,)),))
    leaf = Leaf(0, [0, 0])
    with pytest.raises(ModelError, match="scores exceed 32 bits"):
        SpnModel(spec, (leaf,), arithmetic, (0, -1), bias, ("x", "y"))
    SpnModel(spec, (leaf,), arithmetic, (0, -1), np.clip(bias, -(2**30), 2**30), ("x", "y"))


def test_weights_of_fixed_point_add_to_one_at_most():
    spec = InputSpec((Field.thermometer("a", (5,)),))
    leaf = Leaf(0, [8, 8])
    with pytest.raises(ModelError, match="more than 1"):
        SpnModel(
            spec, (leaf, leaf, Sum((0, 1), [9, 8])), LinearArithmetic(4), (2, -1), [0, 1], "xy"
        )
    whole = (Leaf(0, [0, 16]), leaf, Sum((0, 1), [16, 0]))
    assert SpnModel(spec, whole, LinearArithmetic(4), (2, -1), [0, 1], "xy").value_bounds == (
        (0, 16), (8, 8), (0, 16),
    )  # fmt: skip
    for table in ([0, 17], [-1, 16]):
        with pytest.raises(ModelError, match=r"a probability in fixed point must be in 0\.\.16"):
            SpnModel(spec, (Leaf(0, table),), LinearArithmetic(4), (0, -1), [0, 1], "xy")


@pytest.mark.parametrize("arithmetic", ARITHMETICS[::2], ids=lambda a: a.name)
def test_vectors_decide_every_integer_that_can_be_seen(arithmetic):
    """Each entry that the coverage calls decided shows when it is one step off."""
    model = random_spn(
        np.random.default_rng(8), features=3, cuts=2, depth=1, classes=1, arithmetic=arithmetic
    )
    words = spn_vectors(model, 0)
    coverage = spn_coverage(model, words)
    # In fixed point most single steps are rounded away before they reach a score.
    assert coverage.decided > (0.9 if arithmetic.name == "log" else 0.3) * coverage.total
    scores, shown, total = model.scores(words), 0, 0
    for i, node in enumerate(model.nodes):
        if isinstance(node, Product):
            continue
        name = "table" if isinstance(node, Leaf) else "weights"
        for k in range(len(getattr(node, name))):
            # One step more; values beyond probability 1 are no model's, so its checks are left out.
            step = np.zeros_like(getattr(node, name))
            step[k] = 1
            wrong = object.__new__(type(node))
            wrong.__dict__.update(node.__dict__ | {name: getattr(node, name) + step})
            other = object.__new__(SpnModel)
            nodes = (*model.nodes[:i], wrong, *model.nodes[i + 1 :])
            other.__dict__.update(model.__dict__ | {"nodes": nodes})
            shown += bool((other.scores(words) != scores).any())
            total += 1
    assert (total, shown) == (coverage.total, coverage.decided)


def test_damaged_files_are_refused(tmp_path):
    """Any byte of the tensors may be wrong: a file is refused, or its model is a whole one."""
    model = random_spn(np.random.default_rng(9), features=3, depth=1)
    data = model.to_bytes()
    rng = np.random.default_rng(0)
    for _ in range(50):
        at = int(rng.integers(8, len(data)))
        with pytest.raises(ModelError):
            SpnModel.from_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
    with pytest.raises(ModelError):
        SpnModel.from_bytes(data[:-4])


def test_tables_and_weights_cannot_be_changed():
    assert not Leaf(0, [1, 2]).table.flags.writeable
    assert not Sum((0, 1), [1, 2]).weights.flags.writeable
    spec, bias = InputSpec((Field.thermometer("a", (5,)),)), np.array([1, 2])
    model = SpnModel(spec, (A,), LogArithmetic.of(0), (0, -1), bias, ("x", "y"))
    assert not model.bias.flags.writeable and bias.flags.writeable
