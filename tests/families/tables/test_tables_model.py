# SPDX-License-Identifier: Apache-2.0
"""Look-up tables in integers: scores computed otherwise, bounds, files, damage, simplification."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from safetensors.numpy import load

from n3ic.errors import ModelError
from n3ic.families.tables.network import Table, TablesModel
from n3ic.families.tables.random_models import random_tables
from n3ic.families.tables.vectors import tables_coverage, tables_vectors
from n3ic.model.bits import pack, unpack
from n3ic.model.family import family
from n3ic.model.file import pack_file, unpack_file
from n3ic.model.graph.evaluate import scores as graph_scores
from n3ic.model.inputs import Field, InputSpec
from n3ic.model.load import load_model
from n3ic.model.passes import simplify


def rng(seed=0):
    return np.random.default_rng(seed)


def some_model(seed=0, **how):
    given = {"inputs": (1, 6), "widths": (1, 8), "tables": 20} | how
    return random_tables(rng(seed), **given)


def by_hand(model, bits):
    """Scores of one input, entry by entry, in Python's integers."""
    sums = [int(b) for b in model.bias]
    for table in model.tables:
        at = int("".join(str(int(bits[b])) for b in reversed(table.bits)), 2)
        sums = [s + int(e) for s, e in zip(sums, table.entries[at], strict=True)]
    return sums if len(model.classes) > 2 else [0, *sums]


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_scores_are_sums_of_addressed_entries(classes, seed):
    model = some_model(seed, classes=classes)
    bits = rng(seed).random((200, model.input.n_bits)) < 0.5
    inference = model.infer(pack(bits))
    wanted = np.array([by_hand(model, row) for row in bits])
    assert inference.scores.dtype == np.int32 and (inference.scores == wanted).all()
    assert (inference.margins == np.sort(wanted)[:, -1] - np.sort(wanted)[:, -2]).all()
    low, high = model.score_bounds
    assert low <= wanted.min() and wanted.max() <= high
    assert inference.margins.max() <= model.largest_margin


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_the_graph_gives_the_scores(classes, seed):
    model = some_model(seed, classes=classes, tables=30)
    raw = some_model(seed, classes=classes, spec=InputSpec.raw(45), inputs=(1, 8))
    for own in (model, raw):
        graph = family(own.family).graph(own)
        n = own.input.n_bits
        ends = [np.zeros((1, n), bool), np.ones((1, n), bool), np.eye(n, dtype=bool)]
        words = np.concatenate([tables_vectors(own, 500, seed), pack(np.concatenate(ends))])
        assert (graph_scores(graph, words) == own.scores(words)).all()
        low, high = own.score_bounds
        assert min(graph.bounds[i][0] for i in graph.scores) == low
        assert max(graph.bounds[i][1] for i in graph.scores) == high
        assert graph.largest_margin >= own.largest_margin


def test_rows_beyond_a_chunk_are_scored_alike():
    model = some_model(3)
    bits = np.tile(rng(3).random((7, model.input.n_bits)) < 0.5, (700, 1))
    scores = model.scores(pack(bits))
    assert (scores.reshape(700, 7, 2) == scores[:7]).all()
    assert model.scores(pack(bits[:0])).shape == (0, 2)


def test_two_classes_have_one_sum_and_a_tie_is_class_0():
    spec = InputSpec((Field.thermometer("a", (5, 9)),))
    table = Table((1, 0), [[-1], [2], [0], [1]], 4)
    model = TablesModel(spec, (table,), [0], ("x", "y"))
    inference = model.infer(pack([[0, 0], [0, 1], [1, 0], [1, 1]]))
    assert inference.scores.tolist() == [[0, -1], [0, 2], [0, 0], [0, 1]]
    assert inference.classes.tolist() == [0, 1, 0, 1]
    assert inference.margins.tolist() == [1, 2, 0, 1]
    assert (model.score_bounds, model.largest_margin) == ((-1, 2), 2)


def test_the_bounds_of_one_table_are_reached():
    table = Table((0,), [[-3, 1, 4], [2, 2, -8]], 4)
    model = TablesModel(InputSpec.raw(2), (table,), [10, -1, 3], ("a", "b", "c"))
    every = model.infer(pack(list(product([0, 1], repeat=2))))
    assert model.score_bounds == (every.scores.min(), every.scores.max())
    assert model.largest_margin >= every.margins.max() == 11


def test_bytes_are_counted_by_parts():
    spec = InputSpec.raw(40)
    ones = np.ones((32, 1), dtype=int)
    tables = tuple(Table(tuple(range(i, i + 5)), ones - 2 * (i % 2), 4) for i in range(12))
    model = TablesModel(spec, tables, [-100], ("a", "b"))
    assert (model.entry_bytes, model.index_bytes, model.bias_bytes) == (12 * 16, 12 * 5, 1)
    assert model.total_bytes == 253 and model.shape_text == "12 tables of 5 bits"
    unequal = replace(model, tables=(*tables, Table((3,), [[1], [0]], 2)))
    assert unequal.index_bytes == 61 + 13 and unequal.entry_bytes == 12 * 16 + 1
    wide = replace(model, input=InputSpec.raw(257), bias=[200])
    assert wide.index_bytes == 120 and wide.bias_bytes == 2
    three = Table((0,), [[1, 0, 0], [2, 0, -1]], 4)  # nothing for the second sum
    many = TablesModel(spec, (three, three), [0, 0, 0], ("a", "b", "c"))
    assert (many.entry_bytes, many.index_bytes, many.bias_bytes) == (4, 2 + 2, 3)
    rows = dict(family(model.family).summary_of(model)[0].rows)
    assert rows["entries"] == "192 B" and rows["total"] == "253 B"


@pytest.mark.parametrize("classes", [2, 4])
def test_a_file_gives_the_same_model(tmp_path, classes):
    model = some_model(7, classes=classes)
    model.save(tmp_path / "m.n3ic")
    loaded = load_model(tmp_path / "m.n3ic")
    assert isinstance(loaded, TablesModel) and loaded == model and loaded.digest == model.digest
    for a, b in zip(loaded.tables, model.tables, strict=True):
        assert (a.bits, a.width) == (b.bits, b.width) and (a.entries == b.entries).all()
    assert loaded.bias.tolist() == model.bias.tolist()
    # Nothing but held entries, at their widths, is stored.
    assert len(load(model.to_bytes())["entries"]) == model.entry_bytes


def test_a_table_of_zeros_is_stored_without_entries():
    model = some_model(8, tables=3)
    empty = Table((0, 1), np.zeros((4, 1), dtype=int), 8)
    loaded = TablesModel.from_bytes(replace(model, tables=(*model.tables, empty)).to_bytes())
    assert not loaded.tables[3].entries.any() and loaded.entry_bytes == model.entry_bytes


@pytest.mark.parametrize(
    ("bits", "entries", "width", "message"),
    [
        ((), [[0]], 4, "1 to 8 different"),
        (tuple(range(9)), [[0]] * 512, 4, "1 to 8 different"),
        ((1, 1), [[0]] * 4, 4, "1 to 8 different"),
        ((1,), [[0]] * 4, 4, r"\(2, sums\)"),
        ((1,), [0, 0], 4, r"\(2, sums\)"),
        ((1,), [[0.5], [0.0]], 4, "integer entries"),
        ((1,), [[8], [0]], 4, r"-8\.\.7"),
        ((1,), [[0], [-9]], 4, r"-8\.\.7"),
        ((1,), [[1], [0]], 1, r"-1\.\.0"),
        ((1,), [[128], [0]], 8, r"-128\.\.127"),
        ((1,), [[0], [0]], 0, "1 to 8 bits"),
        ((1,), [[0], [0]], 9, "1 to 8 bits"),
    ],
)
def test_tables_that_are_none_are_refused(bits, entries, width, message):
    with pytest.raises(ModelError, match=message):
        Table(bits, entries, width)


GOOD = Table((0, 1), [[0], [1], [2], [3]], 4)


@pytest.mark.parametrize(
    ("tables", "bias", "classes", "message"),
    [
        ((), [0], "ab", "0 tables"),
        ((GOOD,), [0, 0], "ab", "entries of 1 sums, biases of 2"),
        ((GOOD,), [0], "abc", "1 sums for 3 classes"),
        ((GOOD,), [0.5], "ab", "biases are integers"),
        ((GOOD,), [2**29 + 1], "ab", "exceed 32 bits"),
        ((GOOD,), [-(2**63)], "ab", "exceed 32 bits"),
        ((replace(GOOD, bits=(0, 3)),), [0], "ab", r"bits are in 0\.\.2"),
        ((replace(GOOD, bits=(-1, 0)),), [0], "ab", r"bits are in 0\.\.2"),
        ((GOOD,) * 4097, [0], "ab", "4097 tables"),
    ],
)
def test_models_that_are_none_are_refused(tables, bias, classes, message):
    with pytest.raises(ModelError, match=message):
        TablesModel(InputSpec.raw(3), tables, np.array(bias), tuple(classes))


def test_arrays_cannot_be_changed_from_outside():
    entries = np.array([[1], [0]], dtype=np.int8)
    bias = np.array([3], dtype=np.int32)
    model = TablesModel(InputSpec.raw(2), (Table((0,), entries, 4),), bias, ("a", "b"))
    entries[0] = bias[0] = 7
    assert model.scores(pack([[0, 0]])).tolist() == [[0, 4]]
    assert not model.tables[0].entries.flags.writeable and not model.bias.flags.writeable


def altered(model, header=None, **tensors):
    """A file whose header and tensors say otherwise, with a right checksum."""
    head, taken = unpack_file(model.to_bytes(), "m")
    arrays = {k: v.copy() for k, v in taken._left.items()}
    for name, change in tensors.items():
        key = name.replace("__", ".")
        arrays[key] = change(arrays[key])
        if arrays[key] is None:
            del arrays[key]
    own = {k: v for k, v in head.items() if k not in ("format", "version", "family", "checksum")}
    return pack_file(model.family, own | (header or {}), arrays)


def put(value, at=0):
    def change(array):
        array.reshape(-1)[at] = value
        return array

    return change


MODEL = some_model(11, classes=3, tables=6, widths=(3, 3), inputs=(2, 3))


@pytest.mark.parametrize(
    ("header", "tensors", "message"),
    [
        ({"tables": 7}, {}, "table.inputs"),
        ({"tables": -1}, {}, "table.inputs"),
        ({"tables": 10**12}, {}, "table.inputs"),
        ({"tables": "6"}, {}, "an integer"),
        ({"index_bits": 1}, {}, "tensor bits"),
        ({"entry_bytes": 1}, {}, "tensor entries"),
        ({"fraction": 1}, {}, "fraction"),
        ({}, {"table__inputs": put(0)}, r"table\.inputs: values in 1\.\.8"),
        ({}, {"table__inputs": put(9)}, r"table\.inputs: values in 1\.\.8"),
        ({}, {"table__inputs": put(8)}, "index bits, the tables say"),
        ({}, {"table__width": put(0)}, r"table\.width: values in 1\.\.8"),
        ({}, {"table__width": put(255)}, r"table\.width: values in 1\.\.8"),
        ({}, {"table__width": put(8)}, "bytes of entries, the tables say"),
        ({}, {"table__held": put(0)}, "bytes of entries, the tables say"),
        ({}, {"table__held": put(2)}, "as n3ic packs them"),
        ({}, {"bits": put(65535)}, r"bits are in 0\.\."),
        ({}, {"bits": lambda a: a[:1].repeat(len(a))}, "different input bits"),
        ({}, {"bits": lambda a: a.astype(np.int32)}, "tensor bits"),
        ({}, {"entries": lambda a: a[:-1]}, "tensor entries"),
        ({}, {"entries": lambda a: a * 0}, "as n3ic packs them"),
        ({}, {"bias": put(2**30)}, "exceed 32 bits"),
        ({}, {"bias": lambda a: None}, "tensor bias is missing"),
    ],
)
def test_hostile_files_are_refused_with_the_reason(header, tensors, message):
    with pytest.raises(ModelError, match=message):
        TablesModel.from_bytes(altered(MODEL, header, **tensors))


def test_an_unaltered_file_is_read():
    assert TablesModel.from_bytes(altered(MODEL)) == MODEL
    assert json.dumps(MODEL._header())


def test_bits_beyond_the_last_entry_are_refused():
    model = some_model(12, tables=3, widths=(3, 3), inputs=(1, 1))  # 18 bits in 3 bytes
    assert len(load(model.to_bytes())["entries"]) == 3
    with pytest.raises(ModelError, match="as n3ic packs them"):
        TablesModel.from_bytes(altered(model, entries=lambda a: a | np.uint8(128)))


def test_damaged_files_are_refused():
    data = some_model(9).to_bytes()
    for at in rng(0).integers(8, len(data), 40):
        with pytest.raises(ModelError):
            TablesModel.from_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
    with pytest.raises(ModelError):
        TablesModel.from_bytes(data[:-1])


@pytest.mark.parametrize("classes", [2, 3])
def test_vectors_decide_every_entry(classes):
    """An entry that is one off changes a score of some deciding vector."""
    model = some_model(13, classes=classes, tables=10, widths=(4, 4))
    words = tables_vectors(model, 0)
    coverage = tables_coverage(model, words)
    assert coverage.decided == coverage.total == sum(t.entries.size for t in model.tables)
    scores = model.scores(words)
    for i, table in enumerate(model.tables):
        for at in np.ndindex(*table.entries.shape):
            wrong = table.entries.astype(int)
            wrong[at] += 1 if wrong[at] < 7 else -1
            other = (*model.tables[:i], replace(table, entries=wrong), *model.tables[i + 1 :])
            assert (replace(model, tables=other).scores(words) != scores).any()


def test_coverage_names_what_no_vector_addresses():
    model = some_model(14, tables=3, inputs=(2, 2))
    coverage = tables_coverage(model, np.zeros((1, model.input.n_words), np.uint32))
    assert (coverage.total, coverage.decided) == (12, 3)
    assert coverage.undecided == tuple(f"table {t}: 3 of 4 indices" for t in range(3))
    assert tables_coverage(model, np.zeros((0, model.input.n_words), np.uint32)).decided == 0


def test_tables_of_eight_bits_are_decided_by_few_vectors():
    model = some_model(15, tables=40, inputs=(8, 8), features=30)
    words = tables_vectors(model, 0)
    assert tables_coverage(model, words).decided == 40 * 256
    assert len(words) < 900


def test_random_vectors_fill_up_and_are_half_as_coded():
    model = some_model(16)
    few = len(tables_vectors(model, 0))
    words = tables_vectors(model, few + 100)
    assert len(words) == few + 100
    bits = unpack(words, model.input.n_bits)[few:]

    def coded(rows):
        parts = np.split(rows, model.input.offsets[1:], axis=1)
        return np.all([(np.diff(p.astype(int), axis=1) <= 0).all(axis=1) for p in parts], axis=0)

    assert coded(bits[:50]).all() and not coded(bits[50:]).all()


def spec_of_both_kinds():
    return InputSpec(
        (
            Field.thermometer("a", (5, 9, 12)),
            Field.binary("b", 6),
            Field.thermometer("a", (3, 9)),
            Field.thermometer("c", (1, 2**32 - 1)),
        )
    )


def test_what_changes_no_score_is_removed():
    spec = spec_of_both_kinds()
    idle = Table((0, 10), [[1], [-2], [1], [-2]], 4)  # bit 10 changes nothing
    constant = Table((1, 2), [[3]] * 4, 4)
    raw = Table((4, 12), [[0], [1], [2], [3]], 4)
    model = TablesModel(spec, (idle, constant, raw), [7], ("x", "y"))
    simplified = simplify(model)
    assert [t.bits for t in simplified.model.tables] == [(0,), (2, 7)]  # a binary field stays whole
    assert simplified.source_bits == (0, *range(3, 9), 12) and simplified.model.bias.tolist() == [
        10
    ]
    assert simplified.findings.bits == (1, 2, 9, 10, 11) and simplified.findings.removes
    assert simplified.findings.lines()[:2] == [
        "tables: 1 constant removed",
        "tables: 3 index bits that change no entry removed",
    ]
    assert simplified.findings.to_dict()["parts"]
    bits = rng(1).random((300, spec.n_bits)) < 0.5
    assert (
        simplified.model.scores(simplified.inputs(pack(bits))) == model.scores(pack(bits))
    ).all()
    words = family(model.family).vectors(simplified, 200, 1)
    assert (simplified.model.scores(simplified.inputs(words)) == model.scores(words)).all()
    decided = family(model.family).decided(simplified.model, simplified.inputs(words), None)
    assert decided.decided == decided.total == 6


def test_a_model_of_constants_keeps_a_table():
    constant = Table((1, 2), [[3]] * 4, 4)
    model = TablesModel(InputSpec.raw(4), (constant, constant), [7], ("x", "y"))
    simplified = simplify(model)
    assert simplified.model.scores(simplified.inputs(pack([[0, 1, 0, 1]]))).tolist() == [[0, 13]]
    assert len(simplified.model.tables) == 1


def test_a_model_without_idle_parts_is_unchanged():
    model = some_model(18, tables=30, inputs=(3, 5), widths=(8, 8))
    assert simplify(model).model is model


def test_the_family_makes_a_model_that_verifies():
    known = family("look-up-tables")
    model = known.random(rng(4))
    assert isinstance(model, known.model)
    words = known.vectors(simplify(model), 500, 3)
    assert len(words) >= 500
    assert "12 tables of" in str(model.view())
