# SPDX-License-Identifier: Apache-2.0

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.model.inputs import (
    MAX_INPUT_BITS,
    MAX_SCALE,
    RATE_UNIT,
    UINT32_MAX,
    Field,
    InputSpec,
    to_integer,
)


def test_binary_field_clamps_and_counts_from_the_low_bit():
    field = Field.binary("dur", 4, unit="us")
    got = field.encode([-3, 0, 1, 6, 15, 16, 10**12])
    values = (got * (1 << np.arange(4))).sum(axis=1)
    assert values.tolist() == [0, 0, 1, 6, 15, 15, 15]


def test_thermometer_bits_are_greater_or_equal():
    field = Field.thermometer("sbytes", [10, 1460, UINT32_MAX], unit="byte")
    got = field.encode([9, 10, 1459, 1460, UINT32_MAX - 1, UINT32_MAX, 10**15])
    assert got.sum(axis=1).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_a_bit_is_explained_in_words():
    spec = InputSpec(
        (Field.binary("dur", 5, unit="us"), Field.thermometer("sbytes", [40, 1460], unit="byte"))
    )
    assert spec.explain(6) == "bit 6: sbytes >= 1,460 byte"
    assert spec.explain(3) == "bit 3: bit 3 of dur (in steps of 8 us)"
    with pytest.raises(IndexError, match=r"bit 7 is not in 0\.\.6"):
        spec.explain(7)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30), st.integers(0, 2**31))
def test_encoding_says_what_the_explanation_says(values, seed):
    rng = np.random.default_rng(seed)
    cuts = np.unique(rng.integers(1, UINT32_MAX, 7))
    spec = InputSpec((Field.thermometer("a", cuts), Field.binary("b", 32), Field.binary("a", 3)))
    bits = spec.encode({"a": values, "b": values})
    for row, value in zip(bits, values, strict=True):
        assert row[: len(cuts)].tolist() == [value >= c for c in cuts]
        clamped = min(max(value, 0), UINT32_MAX)
        middle = row[len(cuts) : len(cuts) + 32]
        assert sum(1 << i for i in range(32) if middle[i]) == clamped
        assert sum(1 << i for i in range(3) if row[-3 + i]) == min(max(value, 0), 7)


def test_spec_survives_json():
    spec = InputSpec((Field.thermometer("a", [1, 5], unit="us", scale=1e6), Field.binary("b", 3)))
    assert InputSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.memory_bytes == 1 + 2
    assert spec.features == ("a", "b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuts": [5, 5], "width": 2}, "strictly increasing"),
        ({"cuts": [0, 5], "width": 2}, "strictly increasing"),
        ({"cuts": [1, 9], "width": 2, "clamp": 8}, "above the clamp"),
        ({"cuts": [1], "width": 2}, "1 cuts for 2 bits"),
        ({"kind": "float"}, "kind: expected binary, thermometer"),
        ({"clamp": 2**32}, "clamp"),
        ({"scale": float("nan")}, "scale"),
        ({"feature": 7}, "not an input spec"),
        ({"width": True}, "not an input spec"),
    ],
)
def test_damaged_specs_are_refused(change, message):
    data = Field.thermometer("a", [1, 5]).to_dict() | change
    with pytest.raises(ModelError, match=message):
        InputSpec.from_dict({"fields": [data]})


@pytest.mark.parametrize("data", [None, [], {}, {"fields": 3}, {"fields": [3]}, {"fields": []}])
def test_foreign_specs_are_refused(data):
    with pytest.raises(ModelError):
        InputSpec.from_dict(data)


def test_missing_feature_is_named():
    with pytest.raises(ModelError, match="needs the features b"):
        InputSpec((Field.binary("a", 1), Field.binary("b", 1))).encode({"a": [1]})


def test_to_integer_never_loses_a_positive_value():
    got = to_integer([0.0, 1e-9, 0.49, 0.5, 1.5, 2.5, -1.0, 1e30], 1.0)
    assert got.tolist() == [0, 1, 1, 1, 2, 2, 0, UINT32_MAX]
    assert to_integer([0.000011], 1e6).tolist() == [11]
    for wrong in ([np.inf], [1.0, -np.inf], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="finite"):
            to_integer(wrong, 1.0)


def test_raw_spec_passes_bits_through():
    spec = InputSpec.raw(70)
    bits = np.random.default_rng(0).random((9, 70)) < 0.5
    weights = 1 << np.arange(32)
    values = {
        f"x{i}": (bits[:, 32 * i : 32 * i + 32] * weights[: min(32, 70 - 32 * i)]).sum(axis=1)
        for i in range(3)
    }
    assert np.array_equal(spec.encode(values), bits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 0, "clamp": 1}, "1 to 32 bits"),
        ({"width": 33}, "1 to 32 bits"),
        ({"clamp": 0}, r"is not in 1\.\.2\^32-1"),
        ({"clamp": 32}, "does not fit 5 bits"),
        ({"cuts": (1,)}, "has no cuts"),
        ({"rates": (1, 2, 3, 4)}, "4 rates for 5 bits"),
        ({"rates": (0, 0, 0, 0, RATE_UNIT + 1)}, "rates are in"),
        ({"rates": (0, 0, 0, -1, 0)}, "rates are in"),
        ({"scale": 0.0}, "scale"),
        ({"width": 1.5}, "are integers"),
        ({"kind": "float"}, "kind is 'binary' or 'thermometer', got 'float'"),
        ({"class_rates": ((1, 2, 3, 4, 5), (1, 2, 3, 4))}, "expected 5 rates a class"),
        ({"class_rates": ((0, 0, 0, 0, RATE_UNIT + 1),)}, "rates are in"),
        ({"span": (1,)}, "two ends of a span"),
        ({"span": (1, 2, 3)}, "two ends of a span"),
        ({"span": (-1, 3)}, "two ends of a span"),
        ({"span": (0, 2**32)}, "two ends of a span"),
    ],
)
def test_binary_fields_that_are_refused(change, message):
    values = {"feature": "a", "kind": "binary", "width": 5, "clamp": 31} | change
    with pytest.raises(ModelError, match=message):
        Field(**values)


def test_fields_of_the_least_and_largest_sizes_are_valid():
    assert Field.binary("a", 1).clamp == 1
    assert Field.binary("a", 32).clamp == UINT32_MAX
    assert Field("a", "binary", 5, 1).encode([0, 1, 2, 31]).sum(axis=1).tolist() == [0, 1, 1, 1]
    assert Field("a", "binary", 2, 3, rates=(0, RATE_UNIT)).rates == (0, RATE_UNIT)
    known = Field("a", "binary", 1, 1, class_rates=((0,), (RATE_UNIT,)), span=(0, UINT32_MAX))
    assert (known.class_rates, known.span) == (((0,), (65_536,)), (0, 2**32 - 1))
    one = Field.thermometer("a", [1])
    assert (one.clamp, one.width) == (1, 1)
    assert one.encode([0, 1, 2])[:, 0].tolist() == [False, True, True]
    with pytest.raises(ModelError, match="0 cuts for 0 bits"):
        Field.thermometer("a", [])
    assert Field("a", "thermometer", 1, 5, (5,)).clamp == 5


@pytest.mark.parametrize("scale", [1 / MAX_SCALE, 1.0, MAX_SCALE])
def test_scales_that_are_accepted(scale):
    assert Field.binary("a", 3, scale=scale).scale == scale
    for wrong in (scale * 1.001, scale / 1.001):
        if not 1 / MAX_SCALE <= wrong <= MAX_SCALE:
            with pytest.raises(ModelError, match="scale"):
                Field.binary("a", 3, scale=wrong)


def test_every_bit_has_a_place_a_feature_and_words():
    spec = InputSpec(
        (
            Field.binary("a", 3, unit="us"),
            Field.thermometer("b", [7, 1000]),
            Field.binary("a", 1),
            Field.thermometer("b", [7, 9]),
        )
    )
    assert (spec.n_bits, spec.n_words, spec.offsets) == (8, 1, (0, 3, 5, 6))
    assert [spec.feature_of(i) for i in range(8)] == ["a"] * 3 + ["b"] * 2 + ["a"] + ["b"] * 2
    assert [spec.explain(i) for i in range(8)] == [
        "bit 0: bit 0 of a (in steps of 1 us)",
        "bit 1: bit 1 of a (in steps of 2 us)",
        "bit 2: bit 2 of a (in steps of 4 us)",
        "bit 3: b >= 7",
        "bit 4: b >= 1,000",
        "bit 5: bit 0 of a (in steps of 1)",
        "bit 6: b >= 7",
        "bit 7: b >= 9",
    ]
    for wrong in (-1, 8):
        with pytest.raises(IndexError, match=rf"bit {wrong} is not in 0\.\.7"):
            spec.feature_of(wrong)
    assert (spec.memory_bytes, spec.n_cuts, spec.features) == (8, 3, ("a", "b"))
    table = spec.view().tables[0]
    assert [row[3:] for row in table.rows] == [
        ("0 to 2", "3", "0 to 7"),
        ("3 to 4", "2", "7 to 1,000"),
        ("5 to 5", "1", "0 to 1"),
        ("6 to 7", "2", "7 to 9"),
    ]


@pytest.mark.parametrize(("bits", "widths"), [(1, [1]), (32, [32]), (33, [32, 1]), (64, [32, 32])])
def test_raw_fields_have_up_to_32_bits(bits, widths):
    spec = InputSpec.raw(bits)
    assert [f.width for f in spec.fields] == widths
    assert spec.features == tuple(f"x{i}" for i in range(len(widths)))


def test_a_cut_counts_at_the_width_of_its_field_and_a_copy_as_its_place():
    """What the plain C stores is compared with this count by the tests of that export."""
    first = [
        Field.thermometer("a", [1, 255]),  # 1 + 2 * 1 bytes
        Field.thermometer("b", [1, 256]),  # 1 + 2 * 2
        Field.thermometer("c", [1, 2, 1 << 16]),  # 1 + 3 * 4
    ]
    assert InputSpec(first).memory_bytes == 3 + 5 + 13
    copies = [Field.thermometer("c", [2]), Field.thermometer("a", [1, 255])]
    spec = InputSpec((*first, *copies))
    assert (spec.own_fields, spec.repeated_bits) == ((*first,), (5, 0, 1))
    assert spec.memory_bytes == 21 + 3
    # Copies before a new cut are stored as cuts, as is a field of which not every cut is known.
    other = InputSpec((*first, *copies, Field.thermometer("a", [1, 7])))
    assert (other.own_fields, other.repeated_bits) == (other.fields, ())
    assert other.memory_bytes == 21 + 2 + 3 + 3
    many = [Field.thermometer("a", range(1, 65)), Field.thermometer("b", range(1, 200))]
    assert InputSpec(many[:1]).memory_bytes == 2 + 64  # 63 cuts are the most of one byte
    assert InputSpec((Field.thermometer("a", range(1, 64)),)).memory_bytes == 1 + 63
    far = InputSpec((*many, Field.thermometer("b", [190])))
    assert (far.repeated_bits, far.memory_bytes) == ((64 + 189,), 2 + 64 + 2 + 199 + 1)
    far = InputSpec((*many, Field.thermometer("b", [198, 199])))
    assert (far.repeated_bits, far.memory_bytes) == ((261, 262), 2 + 64 + 2 + 199 + 4)


def test_a_view_has_a_row_for_each_field():
    one, three = Field.thermometer("one", (9,)), Field.thermometer("three", (2, 30, 4000))
    rows = InputSpec((one, three)).view().tables[0].rows
    assert [row[3:] for row in rows] == [("0 to 0", "1", "9 to 9"), ("1 to 3", "3", "2 to 4,000")]
    fields = [Field.thermometer(f"f{i}", (3, 70), unit="us") for i in range(5)]
    view = InputSpec((*fields, Field.binary("b", 4))).view()
    assert view.line == "14 bits of 6 features (f0, f1, f2, f3 and 2 more), 15 bytes of cuts"
    (table,) = view.tables
    assert (table.title, len(table.head), table.left) == ("input bits", 6, 3)
    assert table.rows[4:] == (
        ("f4", "thermometer", "us", "8 to 9", "2", "3 to 70"),
        ("b", "binary", "", "10 to 13", "4", "0 to 15"),
    )


def test_an_input_has_a_largest_size():
    assert MAX_INPUT_BITS == 65_536
    fields = (Field.binary("a", 32),) * (MAX_INPUT_BITS // 32)
    assert InputSpec(fields).n_bits == MAX_INPUT_BITS
    with pytest.raises(ModelError, match="input bits, at most"):
        InputSpec((*fields, Field.binary("b", 1)))


def test_rates_are_those_of_all_rows_and_of_the_rows_of_each_class():
    spec = InputSpec((Field.thermometer("a", [3, 9]), Field.binary("b", 1)))
    bits = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1], [0, 0, 0]], dtype=bool)
    first, second = spec.with_rates(bits, np.array([0, 0, 3, 3])).fields
    half = RATE_UNIT // 2
    assert (first.rates, first.class_rates) == (
        (half, half // 2), ((RATE_UNIT, half), (0, 0)),
    )  # fmt: skip
    assert (second.rates, second.class_rates) == ((3 * half // 2,), ((RATE_UNIT,), (half,)))
    assert spec.with_rates(bits).fields[0].class_rates == ()
    fields = first.to_dict()
    assert (fields["rates"], fields["cuts"]) == ([half, half // 2], [3, 9])
    assert "span" not in fields and "cuts" not in second.to_dict()
    assert first.integer([2.5, 1e-9]).tolist() == [2, 1]


def test_rates_are_rounded():
    bits = np.array([[1], [0], [0]], dtype=bool)
    spec = InputSpec((Field.binary("a", 1),)).with_rates(bits)
    assert spec.fields[0].rates == (round(RATE_UNIT / 3),)
    assert to_integer([0.4, 2.0, UINT32_MAX, UINT32_MAX + 1.0], 1).tolist() == [
        1, 2, UINT32_MAX, UINT32_MAX,
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "left"), [(1999, None), (2000, 1), (10_000, 5)])
def test_a_span_leaves_one_row_of_2000_at_each_end(rows, left):
    rng = np.random.default_rng(0)
    values = {name: rng.permutation(rows) for name in ("a", "unread")}
    spec = InputSpec((Field.thermometer("a", [3, 9]), Field.binary("b", 2)))
    bits = rng.random((rows, 4)) < 0.5
    rated_spec = spec.with_rates(bits, rng.permutation(rows) % 2, values)
    assert rated_spec.fields[0].span == (() if left is None else (left, rows - 1 - left))
    assert rated_spec.fields[1].span == ()
    assert [len(f.class_rates) for f in rated_spec.fields] == [2, 2]
    assert [len(r) for r in rated_spec.fields[1].class_rates] == [2, 2]


def test_what_is_known_of_the_training_rows_is_no_part_of_a_field():
    field = Field.thermometer("bytes", [3, 9])
    known = replace(field, rates=(1, 2), class_rates=((1, 2), (2, 1)), span=(0, 9))
    assert known == field
    assert repr(known) == repr(field)
