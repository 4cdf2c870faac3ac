# SPDX-License-Identifier: Apache-2.0
"""Tables that no cell can break."""

import pytest

from n3ic.util.markdown import code, escaped, percent, prose, table
from tests.support.markdown_texts import markdown_texts


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


NAMES = (
    "a|b",
    "<b>x</b>",
    "A&lt;B & C",
    "x`y`z",
    "*s* _t_ __u__ [v](w)",
    "back\\slash|",
    "正常 🦊",
    "tcp_flags",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("written", [code, prose])
def test_a_name_reads_as_it_is_in_a_list_and_in_a_table(name, written):
    page = "\n".join(
        [f"- {written(name)}", "", "| name | n |", "|---|---|", f"| {written(name)} | 1 |"]
    )
    assert markdown_texts(page) == [name, "name", "n", name, "1"]


def test_plain_names_are_written_as_they_are():
    assert code("tcp_flags") == "`tcp_flags`" and prose("tcp_flags") == "tcp_flags"
    assert code("a\x1b[2Jb") == "`a\\x1b[2Jb`" and prose("a\nb") == "a b"
