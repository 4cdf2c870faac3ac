# SPDX-License-Identifier: Apache-2.0
"""Tables that no cell can break."""

from n3ic.util.markdown import escaped, percent, table


def test_a_table_has_a_rule_for_each_column_and_escapes_its_cells():
    lines = table(["a", "b", "c|d"], [["x|y", "1", "<b>"], ["two\nlines", "", "**bold**"]])
    assert lines == [
        "| a | b | c\\|d |",
        "|---|---:|---:|",
        "| x\\|y | 1 | &lt;b> |",
        "| two lines |  | **bold** |",
    ]
    assert table(["a", "b", "c"], [], "l")[1] == "|---|---|---|"
    assert table(["a", "b", "c"], [], "lrl")[1] == "|---|---:|---|"
    assert table(["a"], [], "lr")[1] == "|---|"


def test_percent():
    assert [percent(x) for x in (0.9712, 1.0, 0.0, None)] == ["97.1 %", "100.0 %", "0.0 %", ""]
    assert percent(0.97125, 2) == "97.12 %"
    assert escaped(" a \r\n b ") == "a b"
