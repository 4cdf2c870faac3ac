# SPDX-License-Identifier: Apache-2.0
"""Rules of a table's columns: their edges, and what they refuse."""

from dataclasses import replace

import pytest

from n3ic.errors import ModelError
from n3ic.model.columns import (
    _MOST_COLUMNS,
    LONGEST,
    MOST_VALUES,
    ColumnRule,
    TableRules,
)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ({"kind": "text"}, "kind"),
        ({"blank": "zeros"}, "blank"),
        ({"negative": "keep"}, "negative"),
        ({"scale": 0}, "scale"),
        ({"scale": -1}, "scale"),
        ({"scale": True}, "scale"),
        ({"scale": "1"}, "scale"),
        ({"scale": float("inf")}, "scale"),
        ({"bits": 0}, "bits"),
        ({"bits": 33}, "bits"),
        ({"bits": True}, "bits"),
        ({"bits": 1.0}, "bits"),
        ({"unit": 7}, "unit"),
        ({"unit": "u" * LONGEST}, "unit"),
        ({"source_unit": None}, "source_unit"),
        ({"unit": "a\n"}, "unit"),
        ({"values": ("a",)}, "values"),
        ({"kind": "category"}, "values"),
        ({"kind": "category", "values": ("a", "a")}, "values"),
        ({"kind": "category", "values": ("a", 7)}, "values"),
        ({"kind": "category", "values": tuple(map(str, range(MOST_VALUES + 1)))}, "values"),
    ],
)
def test_rules_that_are_refused(rule, name):
    with pytest.raises(ModelError, match=f"^{name}: "):
        ColumnRule(**rule)


def test_rules_at_their_edges():
    assert (MOST_VALUES, LONGEST, _MOST_COLUMNS) == (256, 1024, 4096)
    assert [ColumnRule(bits=b).bits for b in (1, 32)] == [1, 32]
    values = tuple(map(str, range(MOST_VALUES)))
    assert ColumnRule("category", values=values).values == values
    assert type(ColumnRule(scale=3).scale) is float
    assert ColumnRule(unit="u" * (LONGEST - 1)).bits == 32


def test_a_rule_survives_and_says_what_is_unusual():
    assert ColumnRule().to_dict() == {"kind": "number"}
    rule = ColumnRule("category", unit="u", bits=3, blank="zero", values=("a", "b"))
    assert rule.to_dict() == {
        "kind": "category", "unit": "u", "bits": 3, "blank": "zero", "values": ["a", "b"],
    }  # fmt: skip
    assert ColumnRule.from_dict(rule.to_dict()) == rule
    every = ColumnRule("category", "u", "s", 2.0, 3, "zero", "split", ("a",))
    assert len(every.to_dict()) == 8
    assert ColumnRule.from_dict(every.to_dict()) == every
    for wrong in (None, [], {"kind": "number", "more": 1}, {"values": 3}):
        with pytest.raises(ModelError):
            ColumnRule.from_dict(wrong)


def test_a_split_column_gives_two_features():
    split = ColumnRule(negative="split")
    assert split.features("a") == ("a", "a_negative")
    assert ColumnRule().features("a") == ("a",)
    rules = TableRules({"a": split, "b": ColumnRule(), "c": ColumnRule()}, "l", "p", "n")
    assert rules.features == ("a", "a_negative", "b", "c")
    assert list(rules.only(["a_negative", "c"]).columns) == ["a", "c"]
    only = rules.only(["b"])
    assert (list(only.columns), only.label, only.positive, only.blank_label) == (
        ["b"], "l", "p", "n",
    )  # fmt: skip


def test_tables_survive_and_are_checked():
    rules = TableRules({"a": ColumnRule(bits=4)}, "l", "p", "n")
    assert TableRules.from_dict(rules.to_dict()) == rules
    with pytest.raises(ModelError, match="more"):
        TableRules.from_dict(rules.to_dict() | {"more": 1})
    for name in ("label", "positive", "blank_label"):
        with pytest.raises(ModelError, match=f"{name}: expected a short text"):
            TableRules.from_dict(rules.to_dict() | {name: 7})
        left = {key: value for key, value in rules.to_dict().items() if key != name}
        with pytest.raises(ModelError, match="not the rules of a table"):
            TableRules.from_dict(left)
    with pytest.raises(ModelError, match="label"):
        TableRules({}, label="\ud800")
    for text in ("\udfff", "a\ud800", "\udabcb"):
        with pytest.raises(ModelError, match="label"):
            TableRules({}, label=text)
    assert TableRules({}, label="a\n\ud7ff\ue000").label == "a\n\ud7ff\ue000"
    many = {f"c{i}": ColumnRule() for i in range(_MOST_COLUMNS)}
    assert len(TableRules(many, label="l" * (LONGEST - 1)).columns) == _MOST_COLUMNS
    with pytest.raises(ModelError, match="columns, at most"):
        TableRules(many | {"one": ColumnRule()})
    with pytest.raises(ModelError, match="label"):
        TableRules({}, label="l" * LONGEST)


def test_texts_that_are_not_known_share_one_number_or_some():
    rule = ColumnRule(kind="category", values=("tcp", "udp", "True"))
    assert rule.codes(["udp", "icmp", "tcp", "true", ""]) == [1, 3, 0, 2, 3]
    hashed = replace(rule, buckets=4)
    codes = hashed.codes(["udp", "icmp", "tcp", "gre", "esp", "icmp"])
    assert codes[0] == 1 and codes[2] == 0 and codes[1] == codes[5]
    assert all(3 <= code < 7 for code in (codes[1], *codes[3:]))
